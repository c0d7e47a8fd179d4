"""A view of a corpus: the access is bound once, and every call goes through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .access import Access
from .chunks import PRIVATE, PUBLIC, SCOPE_KEY, SESSION_KEY, Chunk, Scope
from .corpus import Corpus
from .drafts import DocumentInfo, Draft, FileMark, WriteReport, drafts_of_chunks, stream_of_chunks
from .embedding import Embedder
from .engines.base import ANYTHING, Condition, Record
from .errors import AccessDeniedError, InvalidChunkError, NotPicklableError, SettingsError
from .filters import parse_filter
from .maintenance import Stats, check, stats
from .ranking import Explained, SearchQuery, SearchResult, check_top_k, explain
from .streaming import WINDOW, StreamReport, write_stream
from .vectorizing import Progress
from .vectors import Vector, as_vector

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class View:
    """What a framework's component holds: a corpus and one access that cannot be changed.

    ``access`` None is the unbound view of the operator: it reads and deletes public chunks, writes
    any scope, and alone may bind others, list or erase sessions, and use the raw client.
    """

    __slots__ = ("_access", "_corpus", "_default_scope")

    def __init__(
        self, corpus: Corpus, access: Access | None = None, default_scope: str | None = None
    ) -> None:
        if access is not None and not isinstance(access, Access):
            raise SettingsError(f"access must be an Access, not {type(access).__name__}")
        if default_scope not in (None, PUBLIC):
            raise SettingsError("default_scope is None or 'public'; a private chunk needs its session")
        self._corpus = corpus
        self._access = access
        self._default_scope = default_scope

    @property
    def access(self) -> Access | None:
        return self._access

    @property
    def default_scope(self) -> str | None:
        return self._default_scope

    @property
    def embedder(self) -> Embedder | None:
        return self._corpus.vectorizer.embedder

    @property
    def collection(self) -> str:
        return self._corpus.collection

    @property
    def directory(self) -> str:
        return str(self._corpus.directory.path)

    # --- binding --------------------------------------------------------------------------------

    def _operator(self, what: str) -> Corpus:
        if self._access is not None:
            raise AccessDeniedError(f"{what} belongs to the unbound store; this view is bound to an access")
        return self._corpus

    def for_access(self, access: Access) -> View:
        return View(self._operator("for_access"), access)

    def for_session(self, session_id: str) -> View:
        """Reads public chunks and this session's, writes this session's."""
        return View(self._operator("for_session"), Access.session(session_id))

    def narrowed(self, *, session_id: str | None = None, access: Access | None = None) -> View:
        """This view when nothing else is asked for; from the unbound one, the view asked for.

        Raises:
            AccessDeniedError: a bound view is asked for another access than its own.
        """
        if session_id is not None and access is not None:
            raise AccessDeniedError("give session_id or access, not both")
        wanted = Access.session(session_id) if session_id is not None else access
        if self._access is None:
            return View(self._corpus, wanted if wanted is not None else Access.public())
        if wanted is not None and wanted != self._access:
            raise AccessDeniedError("this view is bound to another access")
        return self

    # --- writing --------------------------------------------------------------------------------

    def placed(self, metadata: Mapping[str, Any]) -> tuple[Scope, str | None]:
        """(scope, session) in which a node or document with this metadata is written.

        On a view that is its write session, and metadata that claims anything else is refused.
        On the unbound view the metadata must say it, or ``default_scope`` was given.
        """
        scope, session = metadata.get(SCOPE_KEY), metadata.get(SESSION_KEY)
        if self._access is not None:
            mine = self._access.write
            if mine is None:
                raise AccessDeniedError("this view writes no session")
            if scope not in (None, PRIVATE) or session not in (None, mine):
                raise AccessDeniedError(
                    f"metadata claims another {SCOPE_KEY} or {SESSION_KEY} than this view writes"
                )
            return PRIVATE, mine
        if scope is None and session is None and self._default_scope == PUBLIC:
            return PUBLIC, None
        if scope is None:
            raise InvalidChunkError(
                f"metadata must say {SCOPE_KEY} ('public', or 'private' with a {SESSION_KEY}); "
                "or write through for_session(), or open the store with default_scope='public'"
            )
        # Corpus.write checks that the two belong together.
        return scope, session

    def write(self, drafts: Sequence[Draft], *, on_progress: Progress | None = None) -> WriteReport:
        return self._corpus.write(drafts, access=self._access, on_progress=on_progress)

    def add_chunks(
        self, chunks: Sequence[Chunk], *, vectors: Any = None, on_progress: Progress | None = None
    ) -> list[str]:
        """Upsert chunks and return their ids in input order, repeats included.

        ``vectors`` (n, dim) are used as they are; without them the new chunks are embedded.
        """
        drafts = drafts_of_chunks(chunks, vectors)
        return self.write(drafts, on_progress=on_progress).ids

    def add_chunk_stream(
        self, chunks: Iterable[Chunk], *, vectors: Iterable[Any] | None = None, window: int = WINDOW,
        on_progress: Callable[[StreamReport], None] | None = None,
    ) -> StreamReport:  # fmt: skip
        """Upsert chunks as they come, in windows of constant memory; see ``write_stream``.

        ``vectors``: one ``(dim,)`` for each chunk, in the same order.
        """
        drafts = stream_of_chunks(chunks, vectors)
        return write_stream(
            self._corpus, drafts, access=self._access, window=window, on_progress=on_progress
        )

    def replace_document(
        self, doc_id: str, chunks: Sequence[Chunk], *, vectors: Any = None,
        expires_at: float | None = None, on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """Swap a source's old version for these chunks; no chunks remove it. See replace_documents."""
        return self.replace_documents(
            [doc_id], chunks, vectors=vectors, expires_at=expires_at, on_progress=on_progress
        )

    def replace_documents(
        self, doc_ids: Sequence[str], chunks: Sequence[Chunk], *, vectors: Any = None,
        expires_at: float | None = None, file: FileMark | None = None, on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """Swap the versions of these sources, all at once, in the scope of the chunks or of the view.

        ``expires_at`` (POSIX seconds, private chunks only) is when they are no longer returned.
        """
        if chunks:
            scope, session = chunks[0].metadata.source_scope, chunks[0].metadata.session_id
        else:
            scope, session = self.placed({}) if self._access is not None else (PUBLIC, None)
        return self._corpus.replace_documents(
            doc_ids, drafts_of_chunks(chunks, vectors, expires_at), scope=scope, session_id=session,
            access=self._access, file=file, on_progress=on_progress,
        )  # fmt: skip

    def replace(
        self, doc_ids: Sequence[str], drafts: Sequence[Draft], *, scope: str, session_id: str | None = None,
        on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """As :meth:`replace_documents`, for drafts of any kind."""
        return self._corpus.replace_documents(
            doc_ids, drafts, scope=scope, session_id=session_id,
            access=self._access, on_progress=on_progress,
        )  # fmt: skip

    def owned(self, condition: Condition = ANYTHING) -> list[Record]:
        """What :meth:`delete` would delete: the write session's records, the unbound view's public ones."""
        if self._access is None:
            mine: tuple[Scope, str | None] = (PUBLIC, None)
        elif self._access.write is None:
            return []
        else:
            mine = (PRIVATE, self._access.write)
        return [record for record in self.scan(condition) if (record.scope, record.session_id) == mine]

    def ingested(self, path: str) -> tuple[str, dict[str, int]] | None:
        """(digest, chunks by doc_id) of a file as this view last ingested it."""
        return self._corpus.ingested(path, self._access.write if self._access is not None else None)

    def delete(self, condition: Condition) -> int:
        """Delete what matches among what this view writes; returns how many chunks."""
        return self._corpus.delete(condition, access=self._access)

    def delete_session(self, session_id: str) -> int:
        """Erase a session to the byte; the operator's."""
        return self._operator("delete_session").delete_session(session_id)

    def list_sessions(self) -> list[tuple[str, int]]:
        """(session_id, chunks) of every session; the operator's."""
        return self._operator("list_sessions").engine.private.sessions()

    def stats(self) -> Stats:
        """How much is stored; the operator's."""
        return stats(self._operator("stats"))

    def check(self) -> list[str]:
        """What is wrong with the collection, one sentence each; the operator's."""
        return check(self._operator("check"))

    def repair(self) -> int:
        """Make the word index anew from the stored chunks; returns how many it has. The operator's."""
        return self._operator("repair").lexical.repair()

    # --- reading --------------------------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Record]:
        return self._corpus.get(ids, access=self._access)

    def scan(self, condition: Condition = ANYTHING) -> Iterator[Record]:
        return self._corpus.scan(condition, access=self._access)

    def embed_query(self, text: str) -> Vector:
        """float32 ``(dim,)`` of a question; raises NoEmbedderError when there is no embedder."""
        return self._corpus.vectorizer.embed_query(text)

    def search(self, query: SearchQuery) -> SearchResult:
        return self._corpus.search(query, access=self._access)

    def explain(self, query: SearchQuery) -> tuple[SearchResult, list[Explained]]:
        """The answer, and what became of each of the nearest candidates within access."""
        result = self.search(query)
        nearest = self._corpus.nearest(query, max(20, 2 * query.top_k), access=self._access)
        return result, explain(query, result, nearest)

    def list_documents(self) -> list[DocumentInfo]:
        return self._corpus.list_documents(access=self._access)

    @property
    def client(self) -> ClientAPI:
        """Chroma's own client as it is open now: it is reopened when another process writes."""
        return self._operator("client").engine.public.client()

    def raw_query(self, vector: Any, *, top_k: int = 8, filter_dict: dict[str, Any] | None = None) -> Any:
        """Chroma's native result with distances, on public chunks: infrastructure, never exposed."""
        corpus = self._operator("raw_query")
        parse_filter(filter_dict)
        return corpus.engine.public.raw_query(
            as_vector(vector, corpus.vectorizer.dimension), check_top_k(top_k), filter_dict or None
        )

    def close(self) -> None:
        """Release files and locks; every view of this corpus is closed with it."""
        self._corpus.close()

    # --- a view is a handle ---------------------------------------------------------------------

    def __copy__(self) -> View:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> View:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPicklableError("a store is not pickled; open it again in the other process")

    def __repr__(self) -> str:
        return f"View(collection={self.collection!r}, access={self._access!r})"
