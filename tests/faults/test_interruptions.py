"""Ctrl-C, full disks, ended threads and late readers: the store goes on, and nothing is half done."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.engines.database import Database
from fiscal_rag_plugin.engines.private import PrivateEngine
from fiscal_rag_plugin.engines.sharing import SharedLock
from fiscal_rag_plugin.errors import FiscalRagError, StorageError
from fiscal_rag_plugin.ingest.run import ingest_file
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder

ROOT = Path(__file__).parents[2]


def chunk(text: str, doc: str = "d", session: str | None = None, i: int = 0, **fields: Any) -> Chunk:
    scope = "public" if session is None else "private"
    metadata = ChunkMetadata(
        doc_id=doc, doc_type="law", source_scope=scope, session_id=session, chunk_index=i, **fields
    )  # type: ignore[arg-type]
    return Chunk(text, text, metadata, 0, len(text))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[View]:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=HashEmbedder(16)))
    yield view
    view.close()


def test_an_interruption_before_a_commit_loses_that_write_and_no_later_one(
    store: View, tmp_path: Path
) -> None:
    a = store.for_session("A")
    a.add_chunks([chunk("uno", session="A")])
    database = store._corpus.directory.database
    database.connection().execute("BEGIN IMMEDIATE")  # what a signal between a body and its COMMIT leaves
    a.add_chunks([chunk("dos", session="A", i=1)])
    assert not database.connection().in_transaction
    store.close()
    again = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    assert sorted(r.text for r in again.for_session("A").scan()) == ["dos", "uno"]
    again.close()


def test_an_interrupted_wait_for_readers_does_not_lock_readers_out() -> None:
    lock, reading, leave = SharedLock(), threading.Event(), threading.Event()

    def read() -> None:
        with lock.shared():
            reading.set()
            leave.wait(10)

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait(10)
    original = lock._condition.wait

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    lock._condition.wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), lock.exclusive():
        pass
    lock._condition.wait = original  # type: ignore[method-assign]
    late = threading.Thread(target=lambda: lock.shared().__enter__(), daemon=True)
    late.start()
    late.join(5)
    leave.set()
    reader.join(5)
    assert not late.is_alive()


def test_ended_threads_give_their_connections_back(store: View) -> None:
    store.add_chunks([chunk("hola")])
    for _ in range(50):
        thread = threading.Thread(target=lambda: list(store.scan()))
        thread.start()
        thread.join()
    assert len(store._corpus.directory.database._connections._open) <= 3


FULL_DISK = """
import os, resource, signal, sys
from tests.faults.test_interruptions import chunk
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.errors import StorageError
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = View(Corpus.open(sys.argv[1], "fiscal", embedder=HashEmbedder(16)))
doc = lambda v, n, d: [chunk(f"{d} version {v} parte {i} " + "relleno " * 200, d, None, i) for i in range(n)]
store.replace_document("ley", doc(1, 20, "ley"))
limit = os.path.getsize(sys.argv[1] + "/chroma.sqlite3")
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
for attempt in range(3):
    try:
        store.replace_document("ley", doc(2, 200, "ley"))
    except StorageError as error:
        print("typed")
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
print(sorted({r.text.split()[2] for r in store.scan()}), len(list(store.scan())))
store.replace_document("otro", doc(1, 3, "otro"))
store.replace_document("ley", doc(2, 200, "ley"))
print(sorted({(r.ref, r.text.split()[2]) for r in store.scan()}), len(list(store.scan())), store.check())
store.close()
"""


def test_a_full_disk_is_a_typed_error_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path / "db")], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *typed, before, after = done.stdout.strip().split("\n")
    assert typed == ["typed"] * 3
    assert before == "['1'] 20"
    assert after == "[('ley', '2'), ('otro', '1')] 203 []"


@pytest.mark.parametrize("way", ["delete_session", "delete"])
def test_an_upload_during_its_deletion_is_there_or_can_be_uploaded_again(
    store: View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    upload = tmp_path / "declaracion.txt"
    upload.write_text("secreto " * 9, encoding="utf-8")
    a = store.for_session("A")
    ingest_file(a, upload)
    original = getattr(PrivateEngine, way)

    def slow(self: PrivateEngine, *arguments: Any) -> Any:
        monkeypatch.setattr(PrivateEngine, way, original)
        other = threading.Thread(target=lambda: ingest_file(a, upload))
        other.start()
        other.join()
        return original(self, *arguments)

    monkeypatch.setattr(PrivateEngine, way, slow)
    if way == "delete_session":
        store.delete_session("A")
    else:
        a.delete(Condition(doc_ids=frozenset(["declaracion.txt"])))
    assert list(a.owned()) == []
    assert ingest_file(a, upload).status == "ingested"
    assert len(a.owned()) == 1


def test_a_session_is_erased_from_every_collection_of_the_directory(store: View, tmp_path: Path) -> None:
    other = View(Corpus.open(str(tmp_path / "db"), "fiscal_v2", embedder=HashEmbedder(16)))
    for view in (store, other):
        view.add_chunks([chunk("SECRETOZ", session="c17")])
    assert store.delete_session("c17") == 2
    assert b"SECRETOZ" not in (tmp_path / "db" / "fiscal.sqlite3").read_bytes()
    other.close()


def test_an_erasure_whose_bytes_another_reader_keeps_says_so(
    store: View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    store.add_chunks([chunk("SECRETO7", session="A")])
    reader = sqlite3.connect(tmp_path / "db" / "fiscal.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM private").fetchall()
    forget = Database.forget
    monkeypatch.setattr(Database, "forget", lambda self, seconds=0.1: forget(self, seconds))
    with pytest.raises(StorageError, match="another process reads"):
        store.delete_session("A")
    assert list(store.for_session("A").scan()) == []
    reader.execute("ROLLBACK")
    reader.close()
    store.delete_session("A")
    assert b"SECRETO7" not in b"".join(p.read_bytes() for p in (tmp_path / "db").glob("fiscal.sqlite3*"))


def test_one_sessions_vectors_decide_nothing_for_another(tmp_path: Path) -> None:
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    store.add_chunks([chunk("de B", session="B")], vectors=[[1.0, 0.0]])
    a = store.for_session("A")
    plan = a.search(SearchQuery([1.0, 2.0, 3.0])).plan
    a.add_chunks([chunk("de A", session="A")], vectors=[[1.0, 0.0, 0.0]])
    assert [h.record.text for h in a.search(SearchQuery([1.0, 2.0, 3.0])).hits] == ["de A"]
    store.delete_session("B")
    assert a.search(SearchQuery([1.0, 2.0])).plan == plan
    store.close()


@pytest.mark.parametrize("session", [None, "A"])
def test_while_a_document_is_replaced_one_whole_version_is_always_there(
    store: View, session: str | None
) -> None:
    view = store if session is None else store.for_session(session)
    query = HashEmbedder(16).embed_query("informe version")
    view.replace_document("doc", [chunk(f"informe version 0 {i}", "doc", session, i) for i in range(3)])
    view.replace_document("z", [chunk("otra 0", "z", session)])
    stop, errors, rounds = time.monotonic() + 3.0, [], 0

    def replace() -> None:
        version = 1
        while time.monotonic() < stop:
            try:
                view.replace_document(
                    "doc", [chunk(f"informe version {version} {i}", "doc", session, i) for i in range(3)]
                )
                view.replace_document("z", [chunk(f"otra {version}", "z", session)])
            except FiscalRagError as error:
                errors.append(error)
            version += 1

    writer = threading.Thread(target=replace)
    writer.start()
    while time.monotonic() < stop:
        hits = [h.record for h in view.search(SearchQuery(query)).hits if h.record.ref == "doc"]
        scanned = [r for r in view.scan() if r.ref == "doc"]
        for records in (hits, scanned):
            assert len(records) == 3
            assert len({r.text.split()[2] for r in records}) == 1
        rounds += 1
    writer.join()
    assert errors == []
    assert rounds > 1
