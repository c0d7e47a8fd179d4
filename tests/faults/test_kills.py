"""SIGKILL at any moment: nothing acknowledged is lost, nothing is half there, the rerun converges."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View

ROOT = Path(__file__).parents[2]
SEED = 20261130
KILLS = 12
VERSIONS = 6
CHUNKS = 40

WRITER = """
import sys
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder

def chunks(doc, version, session):
    scope = "public" if session is None else "private"
    m = ChunkMetadata(doc_id=doc, doc_type="law", source_scope=scope, session_id=session)
    return [Chunk(f"{doc} v{version} {i}", f"{doc} v{version} {i}", m, i, i + 1) for i in range(CHUNKS)]

from fiscal_rag_plugin.lexical import texts
texts.INDEX_AT = 30  # each version is indexed within its own write
store = View(Corpus.open(sys.argv[1], "fiscal", embedder=HashEmbedder(32), lock_timeout=60))
print("open", flush=True)
for version in range(VERSIONS):
    for session in (None, "A", "B"):
        store.replace_document("ley", chunks("ley", version, session))
        print(session, version, flush=True)
    store.delete_session("B")
    print("erased", version, flush=True)
"""


def run(path: Path, kill_after: float | None) -> list[str]:
    """Run the writer, kill it that many seconds after it opened, and return what it acknowledged."""
    script = textwrap.dedent(WRITER).replace("CHUNKS", str(CHUNKS)).replace("VERSIONS", str(VERSIONS))
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    if kill_after is not None:
        time.sleep(kill_after)
        process.send_signal(signal.SIGKILL)
    acknowledged = process.stdout.read().split("\n")[:-1]
    process.wait(60)
    process.stdout.close()
    return acknowledged


def versions(store: View, session: str | None) -> dict[str, int]:
    """How many chunks of each version a caller finds."""
    access = Access.public() if session is None else Access.session(session)
    counts: dict[str, int] = {}
    for record in store.for_access(access).scan():
        if record.session_id == session:
            counts[record.text.split()[1]] = counts.get(record.text.split()[1], 0) + 1
    return counts


def test_a_killed_writer_leaves_whole_versions_and_the_rerun_converges(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    killed = 0
    for number in range(KILLS):
        path = tmp_path / f"db{number}"
        acknowledged = run(path, moments.uniform(0.0, 1.2))
        killed += len(acknowledged) < 4 * VERSIONS
        store = View(Corpus.open(str(path), "fiscal", create=False))
        assert store.check() in (
            [],
            [line for line in store.check() if "replacement was interrupted" in line],
        )
        for session in (None, "A"):
            done = [int(line.split()[1]) for line in acknowledged if line.startswith(f"{session} ")]
            found = versions(store, session)
            assert set(found.values()) <= {CHUNKS}, f"seed {SEED}, kill {number}: half a version: {found}"
            assert len(found) <= 1
            if done:
                assert int(next(iter(found))[1:]) >= max(done), f"seed {SEED}, kill {number}: lost"
        words = store.search(SearchQuery(text="ley", mode="sparse", top_k=1_000)).hits
        assert sorted(h.record.id for h in words) == sorted(r.id for r in store.scan())
        if acknowledged and acknowledged[-1].startswith("erased"):
            assert set(versions(store, "B").values()) <= {CHUNKS}
        store.close()
        if number == 0:
            run(path, None)
            store = View(Corpus.open(str(path), "fiscal", create=False))
            assert versions(store, None) == versions(store, "A") == {f"v{VERSIONS - 1}": CHUNKS}
            assert store.check() == []
            store.close()
    assert killed, "no writer was killed at work: the moments are too late"


def test_files_restored_after_a_damage_open_again_in_the_same_process(tmp_path: Path) -> None:
    from fiscal_rag_plugin.errors import StorageError

    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    store.close()
    path = tmp_path / "db" / "chroma.sqlite3"
    whole = path.read_bytes()
    path.write_bytes(whole[:5_000])
    with pytest.raises(StorageError, match="damaged"):
        Corpus.open(str(tmp_path / "db"), "fiscal")
    path.write_bytes(whole)
    Corpus.open(str(tmp_path / "db"), "fiscal").close()


def test_an_old_sqlite_is_named_with_the_version_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from fiscal_rag_plugin.errors import StorageError

    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 0))
    with pytest.raises(StorageError, match=r"needs sqlite 3\.35\.0"):
        Corpus.open(str(tmp_path / "db"), "fiscal")
