"""What a session gets never depends on another's chunks, and an erased session leaves no byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View

SEED = 20261130


def chunk(text: str, session: str | None, doc: str, **fields: Any) -> Chunk:
    scope = "public" if session is None else "private"
    metadata = ChunkMetadata(doc_id=doc, doc_type="guide", source_scope=scope, session_id=session, **fields)  # type: ignore[arg-type]
    return Chunk(text, text, metadata, 0, len(text))


def fill(view: View, session: str | None, n: int, generator: np.random.Generator) -> np.ndarray:
    chunks = [
        chunk(f"texto {session} {i}", session, f"{session}-{i % 5}.md", tax=["IVA", "IRPF"][i % 2])
        for i in range(n)
    ]
    vectors = generator.normal(size=(n, 32)).astype(np.float32)
    view.add_chunks(chunks, vectors=vectors)
    return vectors


def answers(view: View, queries: np.ndarray) -> list[Any]:
    """Everything that a caller can observe, with similarities as exact bits."""
    seen: list[Any] = []
    for query in queries:
        for mode in ("dense", "mmr"):
            for where in (None, {"tax": "IVA"}, {"tax": {"$ne": "IVA"}}, {"session_id": "S1"}):
                for threshold in (None, 0.3):
                    result = view.search(
                        SearchQuery(
                            query,
                            top_k=8,
                            mode=mode,
                            score_threshold=threshold,
                            condition=Condition(parse_filter(where)),
                        )
                    )
                    seen.append(
                        [(h.record.id, h.similarity.hex()) for h in result.hits] + [result.plan, result.cut]
                    )
    seen.append([(d.doc_id, d.chunks) for d in view.list_documents()])
    seen.append([r.id for r in view.scan()])
    return seen


def test_what_a_session_gets_is_bit_identical_before_while_and_after_others_exist(tmp_path: Path) -> None:
    generator = np.random.default_rng(SEED)
    queries = generator.normal(size=(6, 32)).astype(np.float32)
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    fill(store, None, 400, generator)
    fill(store, "A", 40, generator)
    a, everybody = store.for_session("A"), store.for_access(Access())
    alone = answers(a, queries), answers(everybody, queries)
    for n in range(25):
        fill(store, f"S{n}", 20, generator)
        fill(store, f"A{n}", 3, generator)
    assert (answers(a, queries), answers(everybody, queries)) == alone
    for n in range(25):
        store.delete_session(f"S{n}")
    assert (answers(a, queries), answers(everybody, queries)) == alone
    store.close()


def test_a_copy_of_the_directory_without_the_others_answers_the_same(tmp_path: Path) -> None:
    generator = np.random.default_rng(SEED + 1)
    queries = generator.normal(size=(4, 32)).astype(np.float32)
    store = View(Corpus.open(str(tmp_path / "with"), "fiscal"))
    fill(store, None, 300, generator)
    fill(store, "A", 30, generator)
    store.close()
    shutil.copytree(tmp_path / "with", tmp_path / "without")
    crowded = View(Corpus.open(str(tmp_path / "with"), "fiscal"))
    for n in range(20):
        fill(crowded, f"S{n}", 10, generator)
    lonely = View(Corpus.open(str(tmp_path / "without"), "fiscal"))
    assert answers(crowded.for_session("A"), queries) == answers(lonely.for_session("A"), queries)
    crowded.close()
    lonely.close()


def everything(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


@pytest.mark.parametrize("way", ["delete_session", "delete", "replace"])
def test_an_erased_upload_leaves_no_byte_in_any_file(tmp_path: Path, way: str) -> None:
    secret, session = "expediente secreto 4711-ÑANDÚ", "cliente-reservado"
    vector = np.random.default_rng(SEED + 2).normal(size=32).astype(np.float32)
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    fill(store, None, 50, np.random.default_rng(SEED))
    kept = chunk("se queda", "otra", "otra.md")
    store.add_chunks([kept], vectors=[vector[::-1].copy()])
    view = store.for_session(session)
    for n in range(30):
        view.add_chunks(
            [chunk(f"{secret} {n}", session, "carpeta/upload.pdf", extra={"nota": "metadato-secreto"})],
            vectors=[vector],
        )
    traces = [
        secret.encode(),
        b"metadato-secreto",
        vector.tobytes(),
        vector.tobytes()[:32],
        b"carpeta/upload.pdf",
    ]
    assert all(trace in everything(tmp_path / "db") for trace in traces)
    if way == "delete_session":
        assert store.delete_session(session) == 30
        traces.append(session.encode())
    elif way == "delete":
        assert view.delete(Condition(doc_ids=frozenset(["carpeta/upload.pdf"]))) == 30
    else:
        assert view.replace_document("carpeta/upload.pdf", []).removed == 30
    left = everything(tmp_path / "db")
    assert [trace for trace in traces if trace in left] == []
    assert b"se queda" in left
    store.close()
    assert [trace for trace in traces if trace in everything(tmp_path / "db")] == []


@pytest.mark.parametrize("column", ["blob", "session_id"])
def test_a_private_row_edited_in_the_database_is_nobodys(tmp_path: Path, column: str) -> None:
    import sqlite3

    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    store.add_chunks([chunk("de A", "A", "a.md")], vectors=[[1.0, 0.0]])
    store.close()
    connection = sqlite3.connect(tmp_path / "db" / "fiscal.sqlite3")
    if column == "blob":
        connection.execute('UPDATE private SET blob = replace(blob, \'"session":"A"\', \'"session":"B"\')')
    else:
        connection.execute("UPDATE private SET session_id = 'B'")
    connection.commit()
    connection.close()
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    for session in "AB":
        assert not store.for_session(session).search(SearchQuery([1.0, 0.0])).hits
    store.close()


@pytest.mark.parametrize("edit", ["scope", "session", "blob", "text", "tax"])
def test_a_public_row_edited_in_chroma_is_dropped_and_its_place_refilled(tmp_path: Path, edit: str) -> None:
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    ids = store.add_chunks(
        [chunk(f"p{i}", None, "p.md") for i in range(3)], vectors=[[1.0, 0.1 * i] for i in range(3)]
    )
    collection = store._corpus.directory._client.get_collection("fiscal", embedding_function=None)
    blob = collection.get(ids=[ids[0]], include=["metadatas"])["metadatas"][0]["fiscal:blob"]
    changes: dict[str, Any] = {
        "scope": {"source_scope": "private"},
        "session": {"session_id": "A"},
        "blob": {
            "fiscal:blob": blob.replace(
                '"scope":"public","session":null', '"scope":"private","session":"A"'
            )
        },
        "tax": {"tax": "otro"},
    }
    if edit == "text":
        collection.update(ids=[ids[0]], metadatas=[{"fiscal:blob": None}])
    else:
        collection.update(ids=[ids[0]], metadatas=[changes[edit]])
    for view in (store, store.for_session("A")):
        assert [h.record.text for h in view.search(SearchQuery([1.0, 0.0], top_k=2)).hits] == ["p1", "p2"]
    store.close()


def test_no_log_record_carries_text_vectors_or_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
        store.add_chunks([chunk("texto-confidencial", "cliente-17", "x.md")], vectors=[[0.123456789, 1.0]])
        view = store.for_session("cliente-17")
        view.search(SearchQuery([0.5, 1.0], score_threshold=1.0))
        store.delete_session("cliente-17")
        store.close()
    for hidden in ("texto-confidencial", "cliente-17", "0.1234567", "telemetry", "Telemetry"):
        assert hidden not in caplog.text
