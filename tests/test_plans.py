"""What a search reads: few rows, by index, and nothing that is outdated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.engines import sessions
from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.engines.chroma import ChromaEngine
from fiscal_rag_plugin.engines.chroma_rows import TableRows
from fiscal_rag_plugin.engines.collections import open_collection
from fiscal_rag_plugin.engines.database import LAYOUT, Database
from fiscal_rag_plugin.engines.directory import open_directory
from fiscal_rag_plugin.engines.embedded import EmbeddedEngine
from fiscal_rag_plugin.engines.private import PrivateEngine
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import Texts
from fiscal_rag_plugin.vectors import ESTIMATE_ERROR, estimates, similarities

PUBLIC_ROWS = 600


def row(i: int, session: str | None = None) -> Record:
    metadata: dict[str, Any] = {"tax": ("IVA", "IRPF")[i % 2], "law": f"L{i // 20}", "n": i}
    scope: Any = "public" if session is None else "private"
    return Record(f"c{i}", scope, session, f"doc{i // 20}", f"texto {i}", metadata)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    directory = open_directory(tmp_path / "db", create=True, lock_timeout=5)
    open_collection(directory, "fiscal", create=True)
    texts = Texts(directory.database, "fiscal", directory.path)
    opened = EmbeddedEngine(
        ChromaEngine(directory, "fiscal", texts), PrivateEngine(directory.database, "fiscal")
    )
    generator = np.random.default_rng(5)
    vectors = generator.normal(size=(PUBLIC_ROWS, 8)).astype(np.float32)
    opened.upsert([row(i) for i in range(PUBLIC_ROWS)], vectors)
    opened.upsert([row(i, "A") for i in range(40)], vectors[:40])
    yield opened
    opened.close()


QUERY = np.array([1, 0.5, 0, 0, 0, 0, 0, 0.1], dtype=np.float32)


def plan(engine: EmbeddedEngine, where: dict[str, Any], k: int = 3) -> str:
    found = engine.search(QUERY, k, Access.public(), Condition(parse_filter(where)))
    return found.plan.split(";")[0].removeprefix("public: ")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"law": "L3"}, "narrow"),
        ({"tax": "IVA"}, "over-fetch"),
        ({"tax": "IVA", "law": "L3"}, "narrow"),
        ({"$or": [{"law": "L3"}, {"law": "L4"}]}, "narrow"),
        ({"$or": [{"law": "L3"}, {"tax": "IVA"}]}, "over-fetch"),
        ({"n": {"$gt": 560}}, "narrow"),
        ({"n": {"$gt": 3}}, "over-fetch"),
        ({"tax": {"$ne": "IVA"}}, "over-fetch"),
        ({"law": "no such law"}, "narrow"),
    ],
)
def test_the_plan_follows_how_many_rows_the_narrowest_condition_leaves(
    engine: EmbeddedEngine, where: dict[str, Any], expected: str
) -> None:
    assert plan(engine, where) == expected


def test_chroma_is_given_no_filter_while_the_nearest_or_the_index_can_answer(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.search(QUERY, 3, Access.public())
    opened = engine.public._opened
    assert opened is not None
    for name in ("query", "get"):
        real = getattr(opened[0], name)

        def watched(*args: Any, real: Any = real, **given: Any) -> Any:
            assert given.get("where") is None
            return real(*args, **given)

        monkeypatch.setattr(opened[0], name, watched, raising=False)
    for where in ({"law": "L3"}, {"tax": "IVA"}, {"tax": {"$ne": "IVA"}}):
        assert len(engine.search(QUERY, 3, Access.public(), Condition(parse_filter(where))).hits) == 3


def test_only_the_answer_is_read_whole(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.search(QUERY, 3, Access.public())
    read: list[int] = []
    records = TableRows.records

    def counted(self: TableRows, ids: Any) -> Any:
        read.append(len(ids))
        return records(self, ids)

    monkeypatch.setattr(TableRows, "records", counted)
    for where in ({}, {"law": "L3"}, {"tax": "IVA"}):
        read.clear()
        engine.search(QUERY, 3, Access.public(), Condition(parse_filter(where)))
        assert sum(read) == 3


@pytest.mark.parametrize(
    "where",
    [
        {"law": "L3"}, {"law": {"$in": ["L1", "L2"]}}, {"n": {"$gte": 10, "$lt": 20}}, {"n": 7.0},
        {"n": {"$lte": 0.5}}, {"$or": [{"n": 1}, {"law": "L9"}]}, {"n": {"$in": [1, 2.0, 900]}},
    ],
)  # fmt: skip
def test_a_narrow_set_of_rows_has_every_match(engine: EmbeddedEngine, where: dict[str, Any]) -> None:
    condition = Condition(parse_filter(where))
    expected = {r.id for r in map(row, range(PUBLIC_ROWS)) if condition.matches(r)}
    assert {r.id for r in engine.scan(Access.public(), condition)} == expected


# --- a session's vectors in memory ----------------------------------------------------------------


def ids(engine: EmbeddedEngine, session: str = "A", k: int = 1) -> list[str]:
    condition = Condition(parse_filter({"source_scope": "private"}))
    return [h.record.id for h in engine.search(QUERY, k, Access.session(session), condition).hits]


def test_a_sessions_vectors_are_read_once_while_they_are_unchanged(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    query = Database.query

    def watched(self: Database, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        read.append(sql)
        return query(self, sql, parameters)

    monkeypatch.setattr(Database, "query", watched)
    for times in (1, 1, 1):
        ids(engine)
        assert sum("SELECT rowid, id, expires_at, vector" in sql for sql in read) == times
    engine.upsert([row(0, "B")], QUERY[None, :])
    ids(engine)
    assert sum("SELECT rowid, id, expires_at, vector" in sql for sql in read) == 1
    engine.upsert([row(99, "A")], QUERY[None, :])
    assert ids(engine) == ["c99"]
    assert sum("SELECT rowid, id, expires_at, vector" in sql for sql in read) == 2


@pytest.mark.parametrize("change", ["update", "insert", "delete", "replace"])
def test_what_any_other_connection_writes_is_seen_at_once(engine: EmbeddedEngine, change: str) -> None:
    engine.upsert([row(98, "A"), row(99, "A")], np.stack([QUERY, QUERY + 0.01]))
    assert ids(engine, k=2) == ["c98", "c99"]
    other = sqlite3.connect(engine.private._database.path)
    moved = (-QUERY).tobytes()
    if change == "update":
        other.execute("UPDATE private SET vector = ? WHERE id = 'c98' AND session_id = 'A'", (moved,))
    elif change == "delete":
        other.execute("DELETE FROM private WHERE id = 'c98' AND session_id = 'A'")
    else:
        where = "WHERE id = 'c98' AND session_id = 'A'"
        cells = list(other.execute(f"SELECT * FROM private {where}").fetchone())
        if change == "insert":
            other.execute(f"DELETE FROM private {where}")
        cells[5] = moved
        other.execute("INSERT OR REPLACE INTO private VALUES (?, ?, ?, ?, ?, ?, ?, ?)", cells)
    other.commit()
    other.close()
    assert ids(engine) == ["c99"]


def test_the_memory_for_sessions_vectors_is_bounded(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_BYTES", 40 * 8 * 4 * 2)
    for session in "BCDE":
        engine.upsert([row(i, session) for i in range(40)], np.eye(40, 8, dtype=np.float32) + 0.1)
    kept = engine.private._vectors
    for session in "ABCDEABCDE":
        assert len(ids(engine, session)) == 1
        assert kept._bytes <= sessions.MAX_BYTES
    assert {session for session, _ in kept._kept} == {"D", "E"}


def test_an_erased_session_is_in_no_table_and_not_in_this_process(engine: EmbeddedEngine) -> None:
    ids(engine)
    engine.private.delete_session("A")
    assert not engine.private._vectors._kept
    assert engine.private._database.query("SELECT * FROM versions") == []
    assert ids(engine) == []


def test_a_database_of_the_first_layout_is_brought_up_to_date_with_its_rows(tmp_path: Path) -> None:
    database = Database(tmp_path, create=True)
    private = PrivateEngine(database, "fiscal")
    private.upsert([row(1, "A")], QUERY[None, :])
    with database.transaction() as connection:
        for name in ("private_inserted", "private_updated", "private_deleted"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DROP TABLE versions")
        connection.execute("PRAGMA user_version = 1")
    database.close()
    again = Database(tmp_path, create=False)
    assert again.query("PRAGMA user_version") == [(LAYOUT,)]
    for _ in range(2):
        assert len(PrivateEngine(again, "fiscal").search(QUERY, 3, Access.session("A")).hits) == 1
    assert len(again.query("SELECT * FROM versions")) == 1
    again.close()


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e18])
def test_estimates_are_within_their_error_also_of_very_long_and_short_vectors(scale: float) -> None:
    generator = np.random.default_rng(1)
    matrix = (generator.normal(size=(50, 768)) * scale).astype(np.float32)
    matrix[1] *= 1e3
    query = generator.normal(size=768).astype(np.float32)
    for asked in (query, query * np.float32(scale)):
        difference = np.abs(estimates(asked, matrix) - similarities(asked, matrix))
        assert float(difference.max()) < ESTIMATE_ERROR / 10
