"""The texts of a collection's public chunks, kept in step with its vectors and mended after a crash."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines.base import Record
from ..engines.chroma_rows import PAGE, PublicView
from ..engines.database import Database, storage_errors
from ..errors import StorageError
from .analysis import ANALYSIS_VERSION, analyse

if TYPE_CHECKING:
    from .index import LexicalIndex
    from .snapshot import Snapshot

logger = logging.getLogger(__name__)

INDEX_AT = 256
"""Noted chunks that are indexed at once. A commit of tantivy takes 0.1 s, however little is in it."""
_MAX_NAME_CHARS = 200
_COMPLETE = "lexical"
"""Name in the manifest: the analysis with which the public chunks were indexed."""


_HEADINGS = ("title", "section_path", "section_label", "section_title")
"""As in the heading line that is embedded with a chunk: document, titles above, article, its own title."""


def searchable(record: Record) -> str:
    """What of a chunk is searched for words: where it stands in its source, and its text."""
    said = ""
    for name in _HEADINGS:
        part = record.metadata.get(name)
        if isinstance(part, str) and part and part not in said:
            said += f"{part}\n"
    return said + record.text


def _directory_name(collection: str) -> str:
    """The collection's name, hashed where a directory cannot have it; "+" begins no collection's name."""
    if len(collection) <= _MAX_NAME_CHARS:
        return collection
    return "+" + hashlib.sha256(collection.encode()).hexdigest()


class Texts:
    """A :class:`TextIndex`: every id that is written is noted in fiscal.sqlite3 before its vector is.

    Noted chunks are indexed in the write that makes them INDEX_AT, and in any case before words are
    next searched, by whichever process does. So a crash at any point leaves a note and loses nothing.
    """

    def __init__(self, database: Database, collection: str, directory: Path) -> None:
        self._database = database
        self._collection = collection
        self._path = directory / "lexical" / _directory_name(collection)
        self._index: LexicalIndex | None = None
        self._loaded: tuple[int, int] | None = None
        self._fresh: dict[str, Record] = {}

    @property
    def _opened(self) -> LexicalIndex:
        """Opened at its first use: an index that nobody searches costs no start-up."""
        if self._index is not None and not (self._path / "meta.json").is_file():
            self._index = None  # somebody removed the files: they are made anew
        if self._index is None:
            from .index import LexicalIndex  # and tantivy

            self._index = LexicalIndex(self._path)
            self._loaded = None
        return self._index

    # --- within a commit of the vectors -----------------------------------------------------------

    def begin(self, ids: Sequence[str]) -> None:
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO unindexed VALUES (?, ?)", [(self._collection, id) for id in ids]
            )

    def put(self, records: Sequence[Record]) -> None:
        self._fresh.update((record.id, record) for record in records)

    def commit(self, view: PublicView) -> None:
        """A word index that cannot be written is no reason to fail: the notes stay until it can."""
        try:
            if len(self._noted(INDEX_AT)) >= INDEX_AT:
                self.mend(view)
        except StorageError as error:
            logger.warning("the chunks are stored, but their words are not searched yet: %s", error)

    def end(self) -> None:
        self._fresh.clear()

    # --- before a search --------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether something is to be indexed before words are searched."""
        return bool(self._noted(1)) or not self._is_complete()

    def snapshot(self) -> Snapshot:
        """The index as it was last committed, by whichever process."""
        index = self._opened
        status = (self._path / "meta.json").stat()
        if self._loaded != (status.st_ino, status.st_mtime_ns):
            index.reload()
            self._loaded = (status.st_ino, status.st_mtime_ns)
        return index.snapshot()

    def mend(self, view: PublicView) -> None:
        """Index what was noted; every chunk when the index is new or of another analysis.

        To be called while nobody else reads or writes.
        """
        from .index import Row

        if self._is_complete():
            wanted = self._noted()
        else:
            wanted = view.ids()
            logger.info("indexing the texts of %d public chunks", len(wanted))
            self._opened.clear()
        index = self._opened
        for start in range(0, len(wanted), PAGE):
            page = wanted[start : start + PAGE]
            stored = {id: self._fresh[id] for id in page if id in self._fresh}
            stored |= view.records([id for id in page if id not in stored])
            index.add(Row.of(record, searchable(record)) for record in stored.values())
            index.delete(id for id in page if id not in stored)
        self._finish()

    # --- the operator's ---------------------------------------------------------------------------

    def rebuild(self, view: PublicView) -> None:
        """Index every chunk anew, whatever state the index is in.

        To be called while nobody else reads or writes.
        """
        self.close()
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM manifest WHERE collection = ? AND name = ?", (self._collection, _COMPLETE)
            )
        shutil.rmtree(self._path, ignore_errors=True)
        if self._path.is_file():
            with storage_errors(self._path, "removing"):
                self._path.unlink()
        self.mend(view)

    def outdated(self, view: PublicView) -> int:
        """How many texts are not indexed as they are stored, or indexed and not stored."""
        snapshot, ids = self.snapshot(), view.ids()
        wrong = len(set(snapshot.ids()) - set(ids))
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            records, indexed = view.records(page), snapshot.bodies(page)
            bodies = {id: " ".join(analyse(searchable(record))) for id, record in records.items()}
            wrong += sum(indexed.get(id) != body for id, body in bodies.items())
        return wrong

    def _finish(self) -> None:
        self._opened.commit(ANALYSIS_VERSION)
        # Whoever searches next may be another process, and may have to write.
        self._opened.release()
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM unindexed WHERE collection = ?", (self._collection,))
        self._database.set_manifest(self._collection, {_COMPLETE: ANALYSIS_VERSION})

    def _noted(self, limit: int = -1) -> list[str]:
        rows = self._database.query(
            "SELECT id FROM unindexed WHERE collection = ? LIMIT ?", (self._collection, limit)
        )
        return [id for (id,) in rows]

    def _is_complete(self) -> bool:
        """Whether all but what is noted is indexed; a directory that was removed has no mark."""
        said = self._database.manifest(self._collection).get(_COMPLETE) == ANALYSIS_VERSION
        return said and self._opened.mark == ANALYSIS_VERSION

    def close(self) -> None:
        self._fresh.clear()
        if self._index is not None:
            self._index.close()
            self._index = None
