"""Corpus: the one door for writing and reading, where every rule is applied once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from .access import Access
from .chunks import PRIVATE, PUBLIC, check_scope, has_surrogate, validate_session_id
from .drafts import (
    DocumentInfo,
    Draft,
    FileMark,
    SortedOut,
    WriteReport,
    check_expiry,
    documents_of,
    sort_out,
    with_fingerprint,
)
from .embedding import Embedder
from .engines.base import ANYTHING, Condition, Hit, Key, MovedError, Record, Swap
from .engines.chroma import ChromaEngine
from .engines.collections import open_collection, validate_collection_name
from .engines.directory import Directory, open_directory
from .engines.embedded import EmbeddedEngine
from .engines.private import PrivateEngine
from .errors import AccessDeniedError, InvalidChunkError, StorageError
from .lexical import LexicalSearch, Texts, question_tokens
from .ranking import SearchQuery, SearchResult, check_query, select
from .retrieval import retrieve
from .vectorizing import Progress, Vectorizer
from .vectors import NO_VECTORS, Matrix, Vector, as_vector

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
"""How often a write is sorted out anew when another writer of the same rows was faster."""


class Corpus:
    """A collection on disk. ``access=None`` is the operator: reads public, writes any scope."""

    def __init__(
        self, directory: Directory, engine: EmbeddedEngine, lexical: LexicalSearch,
        collection: str, embedder: Embedder | None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.engine = engine
        self.lexical = lexical
        self.collection = collection
        self.vectorizer = Vectorizer(directory.database, collection, embedder)
        self._closed = False

    @classmethod
    def open(
        cls, path: str, collection: str, *, embedder: Embedder | None = None,
        create: bool = True, lock_timeout: float = 10.0,
    ) -> Corpus:  # fmt: skip
        """Open a collection; no model is loaded.

        Raises:
            StorageError, CollectionNotFoundError, CollectionMismatchError: see each.
        """
        validate_collection_name(collection)
        directory = open_directory(path, create=create, lock_timeout=lock_timeout)
        try:
            open_collection(directory, collection, create=create)
            private = PrivateEngine(directory.database, collection)
            texts = Texts(directory.database, collection, directory.path)
            engine = EmbeddedEngine(ChromaEngine(directory, collection, texts), private)
            corpus = cls(directory, engine, LexicalSearch(engine, texts), collection, embedder)
            if create:
                private.purge_expired()
        except BaseException:
            directory.close()
            raise
        return corpus

    def check_usable(self) -> None:
        """Raise StoreClosedError after close() or a fork."""
        self.directory.check_usable()

    # --- writing --------------------------------------------------------------------------------

    def _check_writable(self, scope: str, session_id: str | None, access: Access | None) -> None:
        check_scope(scope, session_id)
        if access is not None and (scope != PRIVATE or session_id != access.write):
            raise AccessDeniedError(
                "this view writes private chunks of its own session only; publish through the unbound store"
            )

    def _check_drafts(self, drafts: Sequence[Draft], access: Access | None) -> None:
        self.check_usable()
        for draft in drafts:
            self._check_writable(draft.record.scope, draft.record.session_id, access)
            check_expiry(draft.record)

    def embed_ahead(self, drafts: Sequence[Draft], *, access: Access | None = None) -> dict[str, Vector]:
        """Vectors by fingerprint, for a later :meth:`write`, of the texts that are not stored yet."""
        self._check_drafts(drafts, access)
        fingerprinted, made = self._known(drafts)
        stored = self.engine.get([draft.record.key for draft in fingerprinted])
        self._made(sort_out(fingerprinted, stored, made), None)
        return made

    def write(
        self, drafts: Sequence[Draft], *, access: Access | None = None,
        made: Mapping[str, Vector] | None = None, on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """Upsert. Chunks stored already are neither embedded nor their vectors touched.

        Nothing is written unless all of it is valid and every vector was made. ``made``: those of
        :meth:`embed_ahead`.
        """
        self._check_drafts(drafts, access)
        ids = [draft.record.id for draft in drafts]
        if not drafts:
            return WriteReport(ids)

        def attempt(sorted_out: SortedOut) -> WriteReport:
            records, vectors = self._made(sorted_out, on_progress)
            if records:
                self.engine.upsert(records, vectors)
            self.engine.update(sorted_out.changed)
            return sorted_out.report(ids)

        return self._unmoved(drafts, attempt, made)

    def replace_documents(
        self, doc_ids: Collection[str], drafts: Sequence[Draft], *,
        scope: str, session_id: str | None = None,
        access: Access | None = None, file: FileMark | None = None, on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """Swap the old versions of sources for the new ones, within one (scope, session).

        All at once: a failure at any point leaves the old versions answering. ``file`` is
        remembered when it is done, so that the same bytes are not read again.
        """
        self.check_usable()
        self._check_writable(scope, session_id, access)
        for draft in drafts:
            record = draft.record
            check_expiry(record)
            if (record.scope, record.session_id) != (scope, session_id) or record.ref not in doc_ids:
                raise InvalidChunkError(f"chunk {record.id!r:.80} is of another document, scope or session")
        chunks = dict(Counter(draft.record.ref or "" for draft in drafts))
        expires_at = drafts[0].record.expires_at if drafts else None

        def remember() -> None:
            if file is not None:
                self.directory.database.set_file(
                    self.collection, session_id or "", file.path, file.digest, chunks, expires_at
                )

        def attempt(sorted_out: SortedOut) -> WriteReport:
            records, vectors = self._made(sorted_out, on_progress)
            swap = Swap(
                frozenset(doc_ids), session_id, sorted_out.kept, sorted_out.changed, records, vectors
            )
            removed = self.engine.swap(swap, remember)
            return sorted_out.report([draft.record.id for draft in drafts], removed)

        return self._unmoved(drafts, attempt)

    def ingested(self, path: str, session_id: str | None = None) -> tuple[str, dict[str, int]] | None:
        """(digest, chunks by doc_id) of a file as it was last ingested, or None."""
        self.check_usable()
        return self.directory.database.file(self.collection, session_id or "", path)

    def _known(self, drafts: Sequence[Draft]) -> tuple[list[Draft], dict[str, Vector]]:
        """The drafts with fingerprints, and those of their vectors that an earlier run made."""
        fingerprinted = [with_fingerprint(draft) for draft in drafts]
        return fingerprinted, self.vectorizer.made_before(fingerprinted)

    def _unmoved(
        self, drafts: Sequence[Draft], attempt: Callable[[SortedOut], WriteReport],
        ahead: Mapping[str, Vector] | None = None,
    ) -> WriteReport:  # fmt: skip
        """Sort out and write; again when another writer was faster. Nothing is embedded twice."""
        self.engine.private.purge_expired()
        fingerprinted, made = self._known(drafts)
        made.update(ahead or {})
        for _ in range(MAX_ATTEMPTS):
            stored = self.engine.get([draft.record.key for draft in fingerprinted])
            sorted_out = sort_out(fingerprinted, stored, made)
            try:
                report = attempt(sorted_out)
            except MovedError:
                continue
            if made:
                self.vectorizer.stored(fingerprinted)
            return report
        raise StorageError(
            f"other writers kept changing these documents in {self.directory.path}; try again"
        )

    def _made(self, sorted_out: SortedOut, on_progress: Progress | None) -> tuple[list[Record], Matrix]:
        """The new records and their vectors, which the next attempt will not make again."""
        if not sorted_out.new:
            return [], NO_VECTORS
        vectors = self.vectorizer.vectors(sorted_out.new, on_progress)
        for draft, vector in zip(sorted_out.new, vectors, strict=True):
            sorted_out.made[draft.record.fingerprint] = vector
        return [draft.record for draft in sorted_out.new], vectors

    # --- deleting -------------------------------------------------------------------------------

    def delete(self, condition: Condition, *, access: Access | None = None) -> int:
        """Delete what matches: a view's own session's chunks, the operator's public ones."""
        self.check_usable()
        if access is None:
            scope, session, reader = PUBLIC, "", Access.public()
        elif access.write is None:
            raise AccessDeniedError("this view writes no session, so it deletes nothing")
        else:
            scope, session, reader = PRIVATE, access.write, Access.session(access.write)
        gone = [r for r in self.engine.scan(reader, condition) if r.scope == scope]
        refs = sorted({record.ref for record in gone if record.ref is not None})

        def forget() -> None:
            self.directory.database.forget_files(self.collection, session, refs)

        keys = [record.key for record in gone]
        if scope == PRIVATE:
            self.engine.private.delete(keys, forget)
        else:
            # Before and after: neither a crash nor an ingest between leaves a file taken for known.
            forget()
            self.engine.public.delete(keys)
            forget()
        return len(gone)

    def delete_session(self, session_id: str) -> int:
        """Erase a session from every collection of the directory, to the byte. The operator's."""
        self.check_usable()
        validate_session_id(session_id)
        return self.engine.private.delete_session(session_id)

    # --- reading --------------------------------------------------------------------------------

    def get(self, ids: Sequence[str], *, access: Access | None = None) -> list[Record]:
        """Records in the order of ``ids``; one that is public and also in a read session gives both."""
        self.check_usable()
        reader = access or Access.public()
        keys: list[Key] = [
            key
            for id in dict.fromkeys(id for id in ids if not has_surrogate(id))
            for key in [(PUBLIC, "", id), *((PRIVATE, s, id) for s in sorted(reader.read))]
        ]
        found = self.engine.get(keys)
        return [found[key] for key in keys if key in found and reader.permits(found[key].flat())]

    def scan(self, condition: Condition = ANYTHING, *, access: Access | None = None) -> Iterator[Record]:
        """Every permitted record that matches, by id."""
        self.check_usable()
        return self.engine.scan(access or Access.public(), condition)

    def search(self, query: SearchQuery, *, access: Access | None = None) -> SearchResult:
        """The best hits within access; see :class:`SearchQuery` and ``ranking.select``."""
        self.check_usable()
        check_query(query)
        vector = None if self._needs_no_vector(query) else self._query_vector(query)
        found = retrieve(self.engine, self.lexical, query, vector, access or Access.public())
        result = select(query, vector, found)
        if result.cut and not result.hits:
            logger.warning(
                "score_threshold %.4g cut all %d hits; the best similarity was %.4f",
                query.score_threshold, result.cut, result.best,
            )  # fmt: skip
        return result

    def nearest(self, query: SearchQuery, n: int, *, access: Access | None = None) -> list[Hit]:
        """The n nearest within access, without filter or threshold: what ``explain`` looks at."""
        if self._needs_no_vector(query):
            return []
        hits = self.engine.search(self._query_vector(query), n, access or Access.public()).hits
        return self.lexical.scored(question_tokens(query.text or ""), hits) if query.needs_text else hits

    def _needs_no_vector(self, query: SearchQuery) -> bool:
        """Words can be searched without a model; their hits then have no similarity."""
        no_model = query.vector is None and self.vectorizer.embedder is None
        return query.mode == "sparse" and no_model and query.score_threshold is None

    def _query_vector(self, query: SearchQuery) -> Vector:
        vector = query.vector
        if vector is None:
            vector = self.vectorizer.embed_query(query.text or "")
        return as_vector(vector, self.vectorizer.dimension)

    def list_documents(self, *, access: Access | None = None) -> list[DocumentInfo]:
        """The documents within access, by (scope, session, doc_id)."""
        return documents_of(self.scan(access=access))

    def close(self) -> None:
        """Release files and locks; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.engine.close()
