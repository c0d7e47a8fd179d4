"""One suite for every engine: values, filters, access, replacing, deleting, odd ids."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Scope
from fiscal_rag_plugin.engines import chroma_rows, chroma_search
from fiscal_rag_plugin.engines.base import Condition, Hit, Record, VectorEngine
from fiscal_rag_plugin.engines.chroma import ChromaEngine
from fiscal_rag_plugin.engines.collections import open_collection
from fiscal_rag_plugin.engines.directory import open_directory
from fiscal_rag_plugin.engines.embedded import EmbeddedEngine
from fiscal_rag_plugin.engines.memory import MemoryEngine
from fiscal_rag_plugin.engines.private import PrivateEngine
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import Texts
from fiscal_rag_plugin.vectors import as_matrix, as_vector


def embedded(path: Path) -> EmbeddedEngine:
    directory = open_directory(path, create=True, lock_timeout=5)
    open_collection(directory, "fiscal", create=True)
    texts = Texts(directory.database, "fiscal", directory.path)
    return EmbeddedEngine(
        ChromaEngine(directory, "fiscal", texts), PrivateEngine(directory.database, "fiscal")
    )


@pytest.fixture(params=["memory", "chroma"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorEngine]:
    opened: VectorEngine = MemoryEngine() if request.param == "memory" else embedded(tmp_path / "db")
    yield opened
    opened.close()


def record(
    id: str, session: str | None = None, ref: str | None = "d", text: str = "texto", **metadata: Any
) -> Record:
    scope: Scope = "public" if session is None else "private"
    return Record(id=id, scope=scope, session_id=session, ref=ref, text=text, metadata=metadata)


def put(engine: VectorEngine, rows: list[tuple[Record, list[float]]]) -> None:
    engine.upsert([r for r, _ in rows], as_matrix([v for _, v in rows], len(rows)))


def ids(hits: list[Hit]) -> list[str]:
    return [hit.record.id for hit in hits]


X = as_vector([1, 0])


def test_distances_0_1_2_are_similarities_1_0_and_minus_1(engine: VectorEngine) -> None:
    put(engine, [(record("a"), [1, 0]), (record("b"), [0, 1]), (record("c"), [-1, 0])])
    found = engine.search(X, 3, Access()).hits
    assert ids(found) == ["a", "b", "c"]
    assert [hit.similarity for hit in found] == pytest.approx([1, 0, -1], abs=1e-6)


def test_equal_similarities_are_ordered_by_id_even_beyond_top_k(engine: VectorEngine) -> None:
    put(engine, [(record(f"{i:03}"), [1, 0]) for i in reversed(range(100))])
    assert ids(engine.search(X, 3, Access()).hits) == ["000", "001", "002"]


def test_another_sessions_nearer_chunk_does_not_take_a_place(engine: VectorEngine) -> None:
    put(engine, [(record("b", "B"), [1, 0]), (record("a", "A"), [0.6, 0.8]), (record("p"), [0, 1])])
    assert ids(engine.search(X, 1, Access.session("A")).hits) == ["a"]
    assert ids(engine.search(X, 9, Access.session("A")).hits) == ["a", "p"]
    assert ids(engine.search(X, 9, Access()).hits) == ["p"]
    assert ids(engine.search(X, 9, Access(["A", "B"])).hits) == ["b", "a", "p"]


def test_one_id_in_two_sessions_and_in_public_is_three_rows(engine: VectorEngine) -> None:
    put(
        engine,
        [
            (record("1", text="público"), [1, 0]),
            (record("1", "A", text="de A"), [1, 0]),
            (record("1", "B", text="de B"), [1, 0]),
        ],
    )
    assert [h.record.text for h in engine.search(X, 9, Access.session("A")).hits] == ["de A", "público"]
    engine.delete([("private", "B", "1")])
    assert [h.record.text for h in engine.search(X, 9, Access(["A", "B"])).hits] == ["de A", "público"]
    engine.delete([("public", "", "1")])
    assert [h.record.text for h in engine.search(X, 9, Access(["A", "B"])).hits] == ["de A"]


def test_the_last_upsert_of_a_key_replaces_text_metadata_and_vector(engine: VectorEngine) -> None:
    for session in (None, "A"):
        put(engine, [(record("x", session, text="VIEJO", a=1, b=2), [1, 0])])
        put(engine, [(record("x", session, text="NUEVO", a=5), [0, 1])])
    for hit in engine.search(as_vector([0, 1]), 9, Access.session("A")).hits:
        assert hit.similarity == pytest.approx(1.0)
        assert hit.record.text == "NUEVO"
        assert hit.record.metadata == {"a": 5}
    assert not engine.search(X, 9, Access.session("A"), Condition(parse_filter({"b": 2}))).hits


def test_an_update_leaves_the_vectors_bits_alone(engine: VectorEngine) -> None:
    generator = np.random.default_rng(3)
    vector = generator.normal(size=384).astype(np.float32).tolist()
    query = as_vector(generator.normal(size=384))
    put(engine, [(record("p", n=1), vector), (record("a", "A", n=1), vector)])
    before = [hit.similarity for hit in engine.search(query, 2, Access.session("A")).hits]
    engine.update([record("p", n=2), record("a", "A", n=2)])
    after = engine.search(query, 2, Access.session("A")).hits
    assert [hit.similarity for hit in after] == before
    assert [(hit.record.text, hit.record.metadata) for hit in after] == [("texto", {"n": 2})] * 2


ODD_IDS = ["á/ñ€", "0" * 64, "x" * 1000, "a b", "1", "01", "' OR 1=1 --", "{}", "日本語"]


def test_odd_ids_are_found_read_and_deleted_as_they_are(engine: VectorEngine) -> None:
    put(engine, [(record(i, s), [1, 0.001 * n]) for n, i in enumerate(ODD_IDS) for s in (None, "A")])
    assert {h.record.id for h in engine.search(X, 99, Access()).hits} == set(ODD_IDS)
    keys: list[Any] = [("public", "", i) for i in ODD_IDS] + [("private", "A", i) for i in ODD_IDS]
    assert set(engine.get(keys)) == set(keys)
    engine.delete(keys[:3])
    assert set(engine.get(keys)) == set(keys[3:])


def test_metadata_reads_back_as_it_was_given(engine: VectorEngine) -> None:
    given_metadata = {
        "n": None,
        "l": [],
        "m": ["a", 1, None],
        "d": {"a": {"b": [1.5]}},
        "t": True,
        "i": 7,
        "f": 7.0,
        "big": 2**70,
        "long": "x" * 5_000,
    }
    put(engine, [(record("p", **given_metadata), [1, 0]), (record("a", "A", **given_metadata), [1, 0])])
    for hit in engine.search(X, 2, Access.session("A")).hits:
        assert hit.record.metadata == given_metadata
        assert type(hit.record.metadata["i"]) is int
        assert type(hit.record.metadata["f"]) is float


def test_a_scan_is_every_permitted_match_by_id(engine: VectorEngine) -> None:
    put(engine, [(record(f"{i}", None if i % 2 else "AB"[i % 4 // 2], n=i), [1, i]) for i in range(20)])
    found = [r.id for r in engine.scan(Access.session("A"), Condition(parse_filter({"n": {"$lt": 9}})))]
    assert found == ["0", "1", "3", "4", "5", "7", "8"]


@pytest.mark.parametrize("condition", [Condition(ids=frozenset()), Condition(doc_ids=frozenset())])
def test_an_empty_set_of_ids_matches_nothing(engine: VectorEngine, condition: Condition) -> None:
    put(engine, [(record("p"), [1, 0]), (record("a", "A"), [1, 0])])
    assert engine.search(X, 9, Access.session("A"), condition).hits == []
    assert list(engine.scan(Access.session("A"), condition)) == []


def test_an_expired_upload_is_never_returned(engine: VectorEngine) -> None:
    soon = time.time() + 0.3
    rows = [
        Record("e", "private", "A", "d", "texto", {}, expires_at=soon),
        Record("k", "private", "A", "d", "texto", {}),
    ]
    engine.upsert(rows, as_matrix([[1, 0], [1, 0]], 2))
    assert ids(engine.search(X, 9, Access.session("A")).hits) == ["e", "k"]
    time.sleep(0.35)
    assert ids(engine.search(X, 9, Access.session("A")).hits) == ["k"]
    assert [r.id for r in engine.scan(Access.session("A"))] == ["k"]
    assert not engine.get([("private", "A", "e")])


SESSION_IDS = [
    "A",
    "a",
    " A ",
    "s1",
    "s10",
    "x' OR '1'='1",
    '") or true or ("',
    "zz\\' or source_scope == 'private",
    "n\u0303",
    "ñ",
]


def test_session_ids_are_compared_exactly_whatever_they_contain(engine: VectorEngine) -> None:
    put(engine, [(record(f"{n}", s), [1, 0]) for n, s in enumerate(SESSION_IDS)])
    for n, session in enumerate(SESSION_IDS):
        assert ids(engine.search(X, 99, Access.session(session)).hits) == [f"{n}"]
    assert engine.search(X, 99, Access.session("1=1")).hits == []


# --- every engine against the oracle ------------------------------------------------------------

KEYS = st.sampled_from(["tax", "n", "tags", "fecha", "doc", "valid_from", "source_scope", "session_id"])
SCALARS = st.one_of(
    st.sampled_from(
        ["IVA", "IRPF", "A", "B", "public", "private", "", "7", "2024", "2024-05-01", "2024-06"]
    ),
    st.sampled_from([0, 1, 7, -1, 2**53, 2**60, 7.0, 0.5, -0.5, 1e300]),
    st.booleans(),
)
OPERATORS = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains", "$not_contains"]), SCALARS),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), SCALARS),
    st.tuples(st.sampled_from(["$in", "$nin", "$any", "$all"]), st.lists(SCALARS, max_size=3)),
    st.tuples(
        st.sampled_from(["$text_match", "$text_match_insensitive"]), st.sampled_from(["IV", "iv", "2"])
    ),
    st.just(("$is_empty", True)),
)
LEAVES = st.builds(lambda key, operator: {key: dict([operator])}, KEYS, OPERATORS)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda items, name: {name: items}, st.lists(inner, max_size=3), st.sampled_from(["$and", "$or"])
        ),
        st.builds(lambda item: {"$not": item}, inner),
        st.builds(lambda a, b: {**a, **b}, inner, inner),
    ),
    max_leaves=5,
)
VALUES = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2))


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[EmbeddedEngine, MemoryEngine, np.ndarray]]:
    """300 public and 90 private rows with mixed metadata; the oracle holds the vectors read back."""
    generator = np.random.default_rng(20261130)
    real, oracle = embedded(tmp_path_factory.mktemp("pair") / "db"), MemoryEngine()
    values: list[Any] = [
        "IVA",
        "IRPF",
        "",
        "7",
        0,
        1,
        7,
        7.0,
        7.5,
        -1,
        2**53,
        2**60,
        True,
        False,
        None,
        [],
        ["IVA", 7],
        "2024",
        "2024-05-01",
    ]
    records = []
    for i in range(390):
        session = None if i < 300 else "ABC"[i % 3]
        metadata = {
            k: values[int(generator.integers(len(values)))]
            for k in ("tax", "n", "tags", "fecha")
            if generator.random() < 0.8
        }
        if i % 3 == 0:
            metadata["valid_from"] = ["2023-01-01", "2024-05-01", "2025-01-01"][i % 9 // 3]
        records.append(record(f"{i}", session, f"doc{i % 5}", **metadata))
    matrix = generator.normal(size=(390, 16)).astype(np.float32)
    matrix[10:20] = matrix[10]
    real.upsert(records, matrix)
    everything = Access(["A", "B", "C"])
    back = {h.record.key: h.vector for h in real.search(matrix[0], 1_000, everything).hits}
    oracle.upsert(records, np.stack([back[r.key] for r in records]))
    yield real, oracle, generator.normal(size=(20, 16)).astype(np.float32)
    real.close()


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    where=st.one_of(st.none(), FILTERS),
    docs=st.one_of(st.none(), st.frozensets(st.sampled_from(["doc0", "doc1", "nope"]))),
    wanted=st.one_of(st.none(), st.frozensets(st.integers(0, 400).map(str), max_size=6)),
    read=st.frozensets(st.sampled_from(["A", "B", "Z"])),
    k=st.integers(1, 12),
    q=st.integers(0, 19),
)
def test_every_answer_is_the_oracles_answer(
    pair: tuple[EmbeddedEngine, MemoryEngine, np.ndarray], where: dict[str, Any] | None,
    docs: frozenset[str] | None, wanted: frozenset[str] | None, read: frozenset[str], k: int, q: int,
) -> None:  # fmt: skip
    real, oracle, queries = pair
    condition = Condition(parse_filter(where), docs, wanted)
    expected = oracle.search(queries[q], k, Access(read), condition).hits
    found = real.search(queries[q], k, Access(read), condition)
    assert [(h.record, h.similarity) for h in found.hits] == [(h.record, h.similarity) for h in expected], (
        found.plan
    )
    scanned = list(real.scan(Access(read), condition))
    assert scanned == list(oracle.scan(Access(read), condition))


LOOKS = {"FIRST_LOOK": 1, "LAST_LOOK": 1}
LIMITS: dict[str, dict[str, int]] = {
    "narrow": {},
    "over-fetch": {"NARROW": 0},
    "exact": {"NARROW": 0, **LOOKS},
    "exact, page by page": {"NARROW": 0, **LOOKS, "PAGE": 7},
    "filtered": {"NARROW": 0, **LOOKS, "EXACT_LIMIT": 1},
}


@pytest.mark.parametrize("tables", [True, False], ids=["tables", "api"])
@pytest.mark.parametrize("plan", LIMITS)
@pytest.mark.parametrize(
    "where",
    [
        {"tax": "IVA"}, {"n": {"$gte": 1}}, {"n": {"$lt": 7.2}}, {"tax": {"$in": ["IVA", 7, True]}},
        {"$or": [{"tax": "IVA"}, {"fecha": "2024"}]}, {"tax": "IVA", "n": {"$ne": 7}}, {"tax": ""}, {"n": 0},
    ],
)  # fmt: skip
def test_the_answer_does_not_depend_on_the_plan(
    pair: tuple[EmbeddedEngine, MemoryEngine, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    plan: str,
    where: dict[str, Any],
    tables: bool,
) -> None:
    real, oracle, queries = pair
    for name, value in LIMITS[plan].items():
        monkeypatch.setattr(chroma_search, name, value)
    monkeypatch.setattr(real.public, "_opened", None)
    if not tables:
        monkeypatch.setattr(chroma_rows.TableRows, "__init__", unknown_schema)
    condition = Condition(parse_filter(where))
    seen = set()
    for query in queries[:6]:
        for k in (1, 8, 40):
            expected = oracle.search(query, k, Access(["A"]), condition).hits
            found = real.search(query, k, Access(["A"]), condition)
            assert [(h.record, h.similarity) for h in found.hits] == [
                (h.record, h.similarity) for h in expected
            ]
            seen.add(found.plan.split(";")[0])
    if where == {"tax": "IVA"} and (tables or plan != "narrow"):
        assert f"public: {plan.split(',')[0]}" in seen


def unknown_schema(self: object, collection: object, connections: object) -> None:
    raise sqlite3.OperationalError("no such column: m.key")
