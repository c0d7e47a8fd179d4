"""Several processes, threads and forks on one directory."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.drafts import Draft
from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.errors import (
    CollectionMismatchError,
    CollectionNotFoundError,
    SettingsError,
    StorageError,
    StoreClosedError,
)
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.ranking import SearchQuery

ROOT = Path(__file__).parents[1]


def draft(
    id: str, vector: list[float], session: str | None = None, ref: str = "d", text: str = "texto"
) -> Draft:
    scope = "public" if session is None else "private"
    return Draft(Record(id, scope, session, ref, text, {}), text, vector)  # type: ignore[arg-type]


def found(corpus: Corpus, access: Access | None = None) -> list[str]:
    return [h.record.id for h in corpus.search(SearchQuery([1.0, 0.0], top_k=50), access=access).hits]


def run(code: str, *arguments: object) -> str:
    """Run a script in another process and return what it prints."""
    prelude = """
        import sys
        from tests.test_directory import draft, found
        from fiscal_rag_plugin.access import Access
        from fiscal_rag_plugin.corpus import Corpus
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    with_corpus = Corpus.open(str(tmp_path / "db"), "fiscal", lock_timeout=0.2)
    yield with_corpus
    with_corpus.close()


def test_another_process_reads_the_same_ids_and_similarities(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write([draft("p", [1, 0]), draft("q", [0.6, 0.8]), draft("a", [1, 1], "A")])
    here = corpus.search(SearchQuery([1.0, 0.0], top_k=9), access=Access.session("A"))
    corpus.close()
    there = run(
        """
        from fiscal_rag_plugin.ranking import SearchQuery
        corpus = Corpus.open(sys.argv[1], "fiscal", create=False)
        result = corpus.search(SearchQuery([1.0, 0.0], top_k=9), access=Access.session("A"))
        print([(h.record.id, h.similarity) for h in result.hits])
        """,
        tmp_path / "db",
    )
    assert there == str([(h.record.id, h.similarity) for h in here.hits])


def test_a_reader_sees_what_another_process_wrote_since(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write([draft("p", [1, 0])])
    corpus.close()
    reader = Corpus.open(str(tmp_path / "db"), "fiscal", create=False)
    assert found(reader) == ["p"]
    for step in range(3):
        run(
            "Corpus.open(sys.argv[1], 'fiscal').write([draft(sys.argv[2], [1, 0])])",
            tmp_path / "db",
            f"q{step}",
        )
        condition = Condition(parse_filter({"source_scope": "public"}), doc_ids=frozenset(["d"]))
        filtered = reader.search(SearchQuery([1.0, 0.0], top_k=50, condition=condition)).hits
        assert (
            found(reader) == [h.record.id for h in filtered] == ["p", *(f"q{i}" for i in range(step + 1))]
        )
    reader.close()


def test_a_second_public_writer_gets_an_error_that_names_the_holder_and_the_remedy(
    corpus: Corpus, tmp_path: Path
) -> None:
    corpus.write([draft("p", [1, 0])])
    printed = run(
        """
        from fiscal_rag_plugin.errors import LockTimeoutError
        other = Corpus.open(sys.argv[1], "fiscal", lock_timeout=0.1)
        other.write([draft("a", [1, 0], "A")])
        print(found(other, Access.session("A")))
        try:
            other.write([draft("q", [1, 0])])
        except LockTimeoutError as error:
            print(error)
        """,
        tmp_path / "db",
    )
    private, error = printed.splitlines()
    assert private == "['a', 'p']"
    assert f"process {os.getpid()}" in error
    assert "close that store" in error
    assert found(corpus, Access.session("A")) == ["a", "p"]


def test_closing_lets_the_next_process_write(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write([draft("p", [1, 0])])
    corpus.close()
    run("Corpus.open(sys.argv[1], 'fiscal', lock_timeout=0.1).write([draft('q', [1, 0])])", tmp_path / "db")
    assert found(Corpus.open(str(tmp_path / "db"), "fiscal")) == ["p", "q"]


def test_two_stores_of_one_process_share_the_directory_and_its_lock(corpus: Corpus, tmp_path: Path) -> None:
    other = Corpus.open(str(tmp_path / "db"), "fiscal")
    corpus.write([draft("p", [1, 0])])
    other.write([draft("q", [1, 0])])
    corpus.close()
    assert found(other) == ["p", "q"]
    other.close()
    with pytest.raises(StoreClosedError):
        found(other)


def test_a_closed_store_says_so_and_closing_twice_is_no_error(corpus: Corpus) -> None:
    corpus.close()
    corpus.close()
    for use in (
        lambda: found(corpus),
        lambda: corpus.write([draft("p", [1, 0])]),
        lambda: list(corpus.scan()),
    ):
        with pytest.raises(StoreClosedError, match="closed"):
            use()


def _use_after_fork(corpus: Corpus, pipe: multiprocessing.connection.Connection) -> None:  # type: ignore[name-defined]
    try:
        found(corpus)
        pipe.send("answered")
    except StoreClosedError as error:
        pipe.send(str(error))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_use_after_a_fork_is_an_error_and_no_hang(corpus: Corpus) -> None:
    corpus.write([draft("p", [1, 0])])
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    child = context.Process(target=_use_after_fork, args=(corpus, theirs))
    child.start()
    assert mine.poll(30), "the child hangs"
    assert "open after the fork" in mine.recv()
    child.join(30)
    assert child.exitcode == 0
    assert found(corpus) == ["p"]


DIES = {
    "after a new chunk was written": ("_write", ["old1", "old2"]),
    "before the old chunks are deleted": ("_delete", ["new"]),
}


@pytest.mark.parametrize("moment", DIES)
def test_a_writer_that_died_in_a_replacement_leaves_one_whole_version(
    corpus: Corpus, tmp_path: Path, moment: str
) -> None:
    method, whole = DIES[moment]
    corpus.write([draft("old1", [1, 0]), draft("old2", [1, 0.1])])
    corpus.close()
    run(
        """
        import os
        from fiscal_rag_plugin.engines.chroma import ChromaEngine
        corpus = Corpus.open(sys.argv[1], "fiscal")
        before = getattr(ChromaEngine, sys.argv[2])
        def die(self, *arguments):
            if sys.argv[2] == "_write":
                before(self, *arguments)
            os._exit(0)
        setattr(ChromaEngine, sys.argv[2], die)
        corpus.replace_documents(["d"], [draft("new", [1, 0])], scope="public")
        """,
        tmp_path / "db", method,
    )  # fmt: skip
    reader = Corpus.open(str(tmp_path / "db"), "fiscal", create=False)
    assert found(reader) == whole
    assert [r.id for r in reader.scan()] == whole
    assert [r.id for r in reader.get(["new", "old1", "old2"])] == whole
    reader.write([draft("other", [0, 1], ref="e")])
    assert sorted(reader.engine.public.read(lambda view: view.collection.get()["ids"])) == sorted(
        [*whole, "other"]
    )
    reader.replace_documents(["d"], [draft("new", [1, 0])], scope="public")
    assert found(reader) == ["new", "other"]
    reader.close()


def test_a_replacement_that_failed_does_not_show_through_the_next_one(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fiscal_rag_plugin.engines.chroma import ChromaEngine

    corpus.write([draft("old", [1, 0])])
    write = ChromaEngine._write

    def full(self: ChromaEngine, *arguments: Any) -> None:
        write(self, *arguments)
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(ChromaEngine, "_write", full)
        with pytest.raises(StorageError):
            corpus.replace_documents(["d"], [draft("half", [1, 0])], scope="public")
    assert found(corpus) == ["old"]
    corpus.replace_documents(["e"], [draft("e", [1, 0.5], ref="e")], scope="public")
    assert found(corpus) == ["old", "e"]


def test_threads_that_query_and_write_at_once_never_see_a_torn_row(corpus: Corpus) -> None:
    corpus.write([draft("x", [1, 0], text="0")])
    stop, seen, errors = threading.Event(), set(), []

    def query() -> None:
        while not stop.is_set():
            try:
                for hit in corpus.search(SearchQuery([1.0, 0.0], top_k=5)).hits:
                    seen.add((hit.record.text, round(hit.similarity, 3)))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=query) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(60):
        corpus.write([draft("x", [1, 0] if n % 2 else [0, 1], text=str(n % 2))])
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert seen <= {("0", 1.0), ("1", 1.0), ("0", 0.0)}


def test_an_l2_collection_of_the_same_name_is_refused_and_untouched(tmp_path: Path) -> None:
    import chromadb

    client = chromadb.PersistentClient(path=str(tmp_path / "db"))
    theirs = client.create_collection(
        "fiscal", embedding_function=None, configuration={"hnsw": {"space": "l2"}}
    )
    theirs.add(ids=["1"], embeddings=[[1.0, 0.0]], documents=["suyo"])
    client.close()
    with pytest.raises(CollectionMismatchError, match="'l2'"):
        Corpus.open(str(tmp_path / "db"), "fiscal")
    client = chromadb.PersistentClient(path=str(tmp_path / "db"))
    back = client.get_collection("fiscal", embedding_function=None)
    assert back.get()["documents"] == ["suyo"]
    assert back.configuration_json["hnsw"]["space"] == "l2"
    client.close()


def test_a_new_collection_is_searched_more_widely_than_chromas_default(tmp_path: Path) -> None:
    import chromadb

    Corpus.open(str(tmp_path / "db"), "fiscal").close()
    client = chromadb.PersistentClient(path=str(tmp_path / "db"))
    hnsw = client.get_collection("fiscal", embedding_function=None).configuration_json["hnsw"]
    assert (hnsw["space"], hnsw["ef_search"]) == ("cosine", 400)
    client.close()


def test_a_foreign_cosine_collection_is_refused_and_import_is_named(tmp_path: Path) -> None:
    import chromadb

    client = chromadb.PersistentClient(path=str(tmp_path / "db"))
    client.create_collection(
        "fiscal",
        embedding_function=None,
        configuration={"hnsw": {"space": "cosine"}},
        metadata={"hnsw:space": "l2"},
    )
    client.close()
    with pytest.raises(CollectionMismatchError, match="fiscal-rag import"):
        Corpus.open(str(tmp_path / "db"), "fiscal")


def test_a_typo_in_the_name_is_an_error_that_lists_what_exists(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(CollectionNotFoundError, match="there are: fiscal"):
        Corpus.open(str(tmp_path / "db"), "fsical", create=False)
    with pytest.raises(CollectionNotFoundError, match=r"there are: fiscal$"):
        Corpus.open(str(tmp_path / "db"), "fsical", create=False)


@pytest.mark.parametrize(
    "name", ["ab", "impuestos-España/2024", "a..b", "-abc", "abc-", "", "a b c", "x" * 513, "../x"]
)
def test_a_collection_name_that_chroma_cannot_have_is_refused_with_the_rule(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SettingsError, match="3 to 512 characters"):
        Corpus.open(str(tmp_path / "db"), name)
    assert not (tmp_path / "db").exists()


def test_a_directory_that_is_missing_or_a_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        Corpus.open(str(tmp_path / "nope"), "fiscal", create=False)
    assert not (tmp_path / "nope").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="is a file"):
        Corpus.open(str(tmp_path / "file"), "fiscal")


def test_dots_and_links_lead_to_one_directory(tmp_path: Path) -> None:
    first = Corpus.open(str(tmp_path / "ñandú" / "db"), "fiscal")
    first.write([draft("p", [1, 0])])
    (tmp_path / "link").symlink_to(tmp_path / "ñandú")
    second = Corpus.open(str(tmp_path / "link" / "x" / ".." / "db"), "fiscal", create=False)
    assert found(second) == ["p"]
    assert second.directory is first.directory
    first.close()
    second.close()


def test_a_batch_limit_of_two_writes_five_as_two_two_one(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chromadb.api.models.Collection import Collection

    corpus.write([draft("warm", [1, 0])])
    sizes: list[int] = []
    upsert = Collection.upsert

    def counted(self: Collection, **values: object) -> None:
        sizes.append(len(values["ids"]))  # type: ignore[arg-type]
        upsert(self, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(Collection, "upsert", counted)
    client = corpus.directory._client
    monkeypatch.setattr(client, "get_max_batch_size", lambda: 2)
    corpus.write([draft(str(i), [1, i]) for i in range(5)])
    assert sizes == [2, 2, 1]
    assert len(found(corpus)) == 6


def test_more_chunks_than_one_batch_holds_are_all_there(corpus: Corpus) -> None:
    assert len(corpus.write([draft(f"{i:05}", [1, i]) for i in range(5_463)]).ids) == 5_463
    assert corpus.engine.public.count() == 5_463
    assert len(corpus.get([f"{i:05}" for i in range(5_463)])) == 5_463


@pytest.mark.parametrize("kind", ["database", "chroma"])
def test_a_damaged_file_is_a_typed_error_and_nothing_is_recreated(tmp_path: Path, kind: str) -> None:
    corpus = Corpus.open(str(tmp_path / "db"), "fiscal")
    corpus.write([draft("p", [1, 0]), draft("a", [1, 0], "A")])
    corpus.close()
    name = "fiscal.sqlite3" if kind == "database" else "chroma.sqlite3"
    path = tmp_path / "db" / name
    damaged = b"garbage!" * 64 + path.read_bytes()[512:]
    path.write_bytes(damaged)
    with pytest.raises(StorageError, match="db"):
        found(Corpus.open(str(tmp_path / "db"), "fiscal"), Access.session("A"))
    assert path.read_bytes()[:512] == damaged[:512]


@pytest.mark.parametrize("session", [None, "A"])
def test_versions_of_one_document_written_at_once_leave_one_whole_version(
    corpus: Corpus, session: str | None
) -> None:
    scope = "public" if session is None else "private"
    errors: list[Exception] = []

    def ingest(writer: int) -> None:
        try:
            for version in range(8):
                name = f"{writer}-{version}"
                drafts = [draft(f"{name}-{i}", [1, i], session, text=name) for i in range(3)]
                corpus.replace_documents(
                    ["d"], [*drafts, draft("same", [1, 9], session)], scope=scope, session_id=session
                )
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ingest, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    access = Access.public() if session is None else Access.session(session)
    texts = sorted(record.text for record in corpus.scan(access=access))
    assert len(texts) == 4
    assert len(set(texts)) == 2, "three chunks of one version, and the one that all of them share"
