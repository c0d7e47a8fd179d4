"""What the operator looks at: how much is stored, and whether it is whole."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from .corpus import Corpus
from .errors import StorageError


@dataclass(frozen=True, slots=True)
class Stats:
    """Sizes of a collection; ``bytes_on_disk`` is of the whole directory."""

    directory: str
    collection: str
    public_chunks: int
    private_chunks: int
    sessions: int
    dimension: int | None
    model: str | None
    generation: int
    bytes_on_disk: int


def stats(corpus: Corpus) -> Stats:
    """How much is stored, expired uploads not counted."""
    corpus.check_usable()
    sessions = corpus.engine.private.sessions()
    model = corpus.directory.database.manifest(corpus.collection).get("model")
    return Stats(
        directory=str(corpus.directory.path), collection=corpus.collection,
        public_chunks=corpus.engine.public.count(),
        private_chunks=sum(chunks for _, chunks in sessions), sessions=len(sessions),
        dimension=corpus.vectorizer.dimension, model=model if isinstance(model, str) else None,
        generation=corpus.directory.database.generation()[0],
        bytes_on_disk=_bytes_below(corpus.directory.path),
    )  # fmt: skip


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        # SQLite's log and a rebuilt index come and go while they are counted.
        with suppress(FileNotFoundError):
            status = path.stat()
            total += status.st_size if S_ISREG(status.st_mode) else 0
    return total


def check(corpus: Corpus) -> list[str]:
    """What is wrong with a collection, one sentence each; an empty list is a healthy one.

    Every row is read: text, metadata and vector must be there and agree.
    """
    corpus.check_usable()
    database, name = corpus.directory.database, corpus.collection
    problems = [f"fiscal.sqlite3: {line}" for line in database.integrity()]
    pending = len(database.pending(name))
    if pending:
        problems.append(
            f"a replacement was interrupted: {pending} chunks of it are hidden; "
            "the next public write removes them"
        )
    if database.generation()[1]:
        problems.append("a public write is under way, or its process died; readers wait for it")
    try:
        if outdated := corpus.lexical.outdated():
            problems.append(
                f"the words of {outdated} public chunks are out of date; run `fiscal-rag repair`"
            )
    except StorageError as error:
        problems.append(f"words cannot be searched: {error}")
    dimension = corpus.vectorizer.dimension
    for part, engine in (("public", corpus.engine.public), ("private", corpus.engine.private)):
        try:
            bad = engine.unreadable(dimension)
        except StorageError as error:
            problems.append(f"{part} chunks cannot be read: {error}")
            continue
        if bad:
            problems.append(
                f"{bad} {part} chunks are unreadable and are never returned; ingest their sources again"
            )
    return problems
