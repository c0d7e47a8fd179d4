"""The lexical index of public texts: a tantivy directory, one writer, readers that reload."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tantivy

from ..chunks import PUBLIC
from ..engines.base import Record
from ..errors import AccessDeniedError, FiscalRagError, LockTimeoutError, StorageError, StoreClosedError
from .analysis import ANALYSIS_VERSION, analyse
from .bm25 import Statistics
from .facets import MARK, Groups, facets, id_facet
from .snapshot import BODY, FACET, ID, LENGTH, STATE, Keep, Scored, Snapshot

LAYOUT = "1"
WRITER_BYTES = 64_000_000
"""What the writer gathers before it writes a segment."""


@dataclass(frozen=True, slots=True)
class Row:
    """A public text to index; ``facets`` as :func:`facets.facets` makes them, its id among them."""

    id: str
    text: str
    facets: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: Record, text: str | None = None) -> Row:
        """The row of a public record; ``text`` when more than its own is searched.

        Raises:
            AccessDeniedError: a private record, which no lexical file may hold.
        """
        if record.scope != PUBLIC or record.session_id is not None:
            raise AccessDeniedError("only public chunks enter the lexical index")
        return cls(record.id, record.text if text is None else text, tuple(facets(record)))


class LexicalIndex:
    """A directory of tantivy. Writes are seen after :meth:`commit`, by others after their :meth:`reload`.

    The first write takes tantivy's lock, which the system frees when the process dies; :meth:`close`
    gives it back. A crash leaves the last commit, with its mark: both are one file's rename.
    """

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        """Open the index, or make an empty one.

        Raises:
            StorageError: there is none and ``create`` is false, it is damaged, or of another layout.
        """
        self._directory = Path(directory)
        self._writer: tantivy.IndexWriter | None = None
        self._closed = False
        with self._storage("open"):
            if create:
                self._directory.mkdir(parents=True, exist_ok=True)
            elif not self._directory.is_dir() or not tantivy.Index.exists(str(self._directory)):
                raise StorageError(
                    f"there is no lexical index in {self._directory}; `fiscal-rag repair` makes it"
                )
            self._schema = _schema()
            self._index = tantivy.Index(self._schema, str(self._directory))
            self._index.config_reader("manual")
        self.reload()

    @property
    def mark(self) -> str | None:
        """What the last commit was told; None before the first one."""
        state = self._snapshot.state
        return None if state is None else state["mark"]

    @property
    def is_current(self) -> bool:
        """Whether the texts were analysed as questions are now; if not, clear and add all of them."""
        state = self._snapshot.state
        return state is None or state["analysis"] == ANALYSIS_VERSION

    def add(self, rows: Iterable[Row]) -> None:
        """Index these texts; an id that exists is replaced, of an id given twice the last one stays."""
        with self._storage("write to"):
            writer = self._open_writer()
            for row in rows:
                tokens = analyse(row.text)
                document = tantivy.Document()
                document.add_text(ID, row.id)
                document.add_text(BODY, " ".join(tokens))
                document.add_unsigned(LENGTH, len(tokens))
                for facet in {id_facet(row.id), *row.facets}:
                    document.add_text(FACET, facet)
                writer.delete_documents_by_term(FACET, id_facet(row.id))
                writer.add_document(document)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove these texts; absent ones are no error."""
        with self._storage("write to"):
            writer = self._open_writer()
            for id in ids:
                writer.delete_documents_by_term(FACET, id_facet(id))

    def clear(self) -> None:
        """Remove every text, to index them anew."""
        with self._storage("write to"):
            self._open_writer().delete_all_documents()

    def commit(self, mark: str) -> None:
        """Make what was written durable and visible, together with ``mark``."""
        with self._storage("commit to"):
            writer = self._open_writer()
            state = {"mark": mark, "analysis": ANALYSIS_VERSION, "layout": LAYOUT}
            document = tantivy.Document()
            document.add_text(STATE, json.dumps(state))
            document.add_text(FACET, MARK)
            writer.delete_documents_by_term(FACET, MARK)
            writer.add_document(document)
            writer.commit()
        self.reload()

    def rollback(self) -> None:
        """Forget what was written since the last commit."""
        if self._writer is not None:
            with self._storage("roll back"):
                self._writer.rollback()

    def reload(self) -> None:
        """See the last commit of whichever process."""
        self._check_open()
        with self._storage("read"):
            self._index.reload()
            self._snapshot = Snapshot(self._schema, self._index.searcher())

    def search(
        self, tokens: Iterable[str], k: int, required: Groups = (), keep: Keep | None = None
    ) -> list[Scored]:
        """The k best (id, BM25), best first, ties by id; see :meth:`Snapshot.search`."""

        def guarded(ids: Sequence[str]) -> Collection[str]:
            assert keep is not None
            try:
                return keep(ids)
            except Exception as error:
                raise _KeepFailed(error) from None

        try:
            with self._storage("read"):
                return self.snapshot().search(tokens, k, required, keep and guarded)
        except _KeepFailed as failed:
            raise failed.error from None

    def scores(self, tokens: Iterable[str], ids: Collection[str]) -> dict[str, float]:
        """BM25 of these texts, without those that are not in the index."""
        with self._storage("read"):
            return self.snapshot().scores(tokens, ids)

    def statistics(self, tokens: Iterable[str]) -> Statistics:
        """What scoring a session's texts needs to know of the public ones."""
        with self._storage("read"):
            return self.snapshot().statistics(tokens)

    def count(self) -> int:
        return self.snapshot().count

    def ids(self) -> list[str]:
        """The ids of all texts, sorted."""
        with self._storage("read"):
            return self.snapshot().ids()

    def close(self) -> None:
        """Wait for merges and give the lock back; what was not committed is forgotten."""
        self._closed = True
        self.release()

    def release(self) -> None:
        """Give the writer's lock back until the next write; what was not committed is forgotten."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._storage("close"):
                writer.wait_merging_threads()

    def snapshot(self) -> Snapshot:
        """The last commit seen: whoever asks it several things gets answers that fit together."""
        self._check_open()
        return self._snapshot

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the lexical index was closed")

    def _open_writer(self) -> tantivy.IndexWriter:
        self._check_open()
        if self._writer is None:
            # One thread: the order of writing, and with it the files, is the same each time.
            self._writer = self._index.writer(WRITER_BYTES, 1)
        return self._writer

    @contextmanager
    def _storage(self, what: str) -> Iterator[None]:
        """Tantivy's errors as ours; a writer that failed goes, with its lock and its uncommitted rows."""
        try:
            yield
        except (FiscalRagError, _KeepFailed):
            raise
        except BaseException as error:
            # Most faults are a ValueError; a damaged file may also panic, which is a BaseException.
            panicked = type(error).__name__ == "PanicException"
            if not panicked and not isinstance(error, (ValueError, OSError, RuntimeError)):
                raise
            if what != "read":
                self._writer = None
            where = f"the lexical index in {self._directory}"
            if "LockBusy" in str(error):
                raise LockTimeoutError(f"another writer holds {where}; close it first") from None
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            remedy = "`fiscal-rag repair` makes it anew"
            if "ermission denied" in str(error) or "ead-only" in str(error):
                remedy = "let this user write there"
            raise StorageError(f"cannot {what} {where} ({reason}); {remedy}") from None


class _KeepFailed(Exception):  # noqa: N818 - it only carries the caller's own error out
    def __init__(self, error: Exception) -> None:
        self.error = error


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(ID, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field(BODY, stored=True, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field(FACET, tokenizer_name="raw", index_option="basic")
    builder.add_text_field(STATE, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field(LENGTH, indexed=True, fast=True)
    return builder.build()
