"""Corpus: the one door for writing and reading, where every rule is applied once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .access import Access
from .chunks import PRIVATE, PUBLIC, Chunk, Json, check_scope, chunk_id, validate_session_id
from .embedding import Embedder, embed_checked, embed_query_checked
from .engines.base import ANYTHING, Condition, Hit, Key, Record
from .engines.chroma import ChromaEngine, open_collection, validate_collection_name
from .engines.directory import Directory, open_directory
from .engines.embedded import EmbeddedEngine
from .engines.private import PrivateEngine
from .errors import AccessDeniedError, CollectionMismatchError, InvalidChunkError, NoEmbedderError
from .ranking import SearchQuery, SearchResult, check_query, select
from .vectors import Matrix, Vector, as_matrix, as_vector

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with (texts embedded, texts to embed)."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record to be written, with its vector, or the text that makes it."""

    record: Record
    embedding_text: str
    vector: Any = None

    @classmethod
    def of_chunk(cls, chunk: Chunk, vector: Any = None, expires_at: float | None = None) -> Draft:
        """The draft of a chunk; its id is ``chunk_id(chunk)``."""
        m = chunk.metadata
        shell: dict[str, Json] = {
            "start": chunk.start, "end": chunk.end,
            "token_count": chunk.token_count, "overlap_tokens": chunk.overlap_tokens,
        }  # fmt: skip
        record = Record(
            id=chunk_id(chunk), scope=m.source_scope, session_id=m.session_id, ref=m.doc_id,
            text=chunk.text, metadata=m.to_store_dict(), shell=shell, expires_at=expires_at,
        )  # fmt: skip
        return cls(record, chunk.embedding_text, vector)


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a write did: ids in input order, repeats included, and how many chunks of each kind."""

    ids: list[str]
    embedded: int = 0
    """made a vector of, now"""
    kept: int = 0
    """already stored, the same in every respect"""
    updated: int = 0
    """stored with the same text and vector; other metadata"""
    removed: int = 0
    """chunks of the old version that are gone"""


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """One source document within an access."""

    doc_id: str | None
    source_scope: str
    session_id: str | None
    chunks: int
    tax: str
    doc_type: str
    retrieved_at: str
    expires_at: float | None


class Corpus:
    """A collection on disk. ``access=None`` is the operator: reads public, writes any scope."""

    def __init__(
        self, directory: Directory, engine: EmbeddedEngine, collection: str, embedder: Embedder | None
    ) -> None:
        self.directory = directory
        self.engine = engine
        self.collection = collection
        self.embedder = embedder
        self._dimension: int | None = None
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
            corpus = cls(
                directory,
                EmbeddedEngine(ChromaEngine(directory, collection), private),
                collection,
                embedder,
            )
            corpus.check_model(embedder)
            if create:
                private.purge_expired()
        except BaseException:
            directory.close()
            raise
        return corpus

    def check_usable(self) -> None:
        """Raise StoreClosedError after close() or a fork."""
        self.directory.check_usable()

    # --- model and vectors ----------------------------------------------------------------------

    @property
    def dimension(self) -> int | None:
        """Of the vectors stored, None while there are none."""
        if self._dimension is None:
            stored = self.directory.database.manifest(self.collection).get("dimension")
            self._dimension = stored if isinstance(stored, int) else None
        return self._dimension

    def check_model(self, embedder: Embedder | None) -> None:
        """Refuse an embedder that declares another model than the one that made the index."""
        model = getattr(embedder, "model_id", None)
        stored = self.directory.database.manifest(self.collection).get("model")
        if model and stored and model != stored:
            raise CollectionMismatchError(
                f"collection {self.collection!r} was made with model {stored!r}, this embedder is "
                f"{model!r}; open it with the former, or ingest into another collection"
            )

    def embed_query(self, text: str) -> Vector:
        """float32 ``(dim,)`` of a question."""
        if self.embedder is None:
            raise NoEmbedderError(
                "the store was opened without an embedder; pass embedding_service= or embed_model=, "
                "or query with a vector"
            )
        return embed_query_checked(self.embedder, text)

    def _vectors(self, drafts: Sequence[Draft], on_progress: Progress | None) -> Matrix:
        """Vectors of the drafts, given or embedded, all checked before anything is written."""
        to_embed = [i for i, draft in enumerate(drafts) if draft.vector is None]
        given = [i for i, draft in enumerate(drafts) if draft.vector is not None]
        rows: list[Vector | None] = [None] * len(drafts)
        if given:
            matrix = as_matrix([drafts[i].vector for i in given], len(given), self.dimension)
            for i, row in zip(given, matrix, strict=True):
                rows[i] = row
        if to_embed:
            if self.embedder is None:
                raise NoEmbedderError("text has to be embedded; open the store with an embedder")
            self.check_model(self.embedder)
            step = max(1, int(getattr(self.embedder, "batch_size", 32)))
            for start in range(0, len(to_embed), step):
                part = to_embed[start : start + step]
                labels = [drafts[i].record.id for i in part]
                matrix = embed_checked(self.embedder, [drafts[i].embedding_text for i in part], labels)
                for i, row in zip(part, matrix, strict=True):
                    rows[i] = row
                if on_progress is not None:
                    on_progress(start + len(part), len(to_embed))
        matrix = as_matrix([row for row in rows if row is not None], len(drafts), self.dimension)
        self._claim(matrix, embedded=bool(to_embed))
        return matrix

    def _claim(self, matrix: Matrix, *, embedded: bool) -> None:
        """The first vectors decide dimension and model of the collection."""
        values: dict[str, Json] = {"dimension": int(matrix.shape[1])}
        model = getattr(self.embedder, "model_id", None)
        if embedded and model:
            values["model"] = model
        stored = self.directory.database.claim_manifest(self.collection, values)
        as_matrix(matrix, len(matrix), int(str(stored["dimension"])))
        if embedded:
            self.check_model(self.embedder)

    # --- writing --------------------------------------------------------------------------------

    def _check_writable(self, scope: str, session_id: str | None, access: Access | None) -> None:
        check_scope(scope, session_id)
        if access is not None and (scope != PRIVATE or session_id != access.write):
            raise AccessDeniedError(
                "this view writes private chunks of its own session only; publish through the unbound store"
            )

    def write(
        self, drafts: Sequence[Draft], *, access: Access | None = None, on_progress: Progress | None = None
    ) -> WriteReport:
        """Upsert. Chunks stored already are neither embedded nor their vectors touched.

        Nothing is written unless all of it is valid and every vector was made.
        """
        self.check_usable()
        for draft in drafts:
            self._check_writable(draft.record.scope, draft.record.session_id, access)
        ids = [draft.record.id for draft in drafts]
        if not drafts:
            return WriteReport(ids)
        new, changed, kept = self._sort_out(drafts)
        records, vectors = self._prepare(new, on_progress)
        if records:
            self.engine.upsert(records, vectors)
        self.engine.update(changed)
        return WriteReport(ids, embedded=len(new), kept=kept, updated=len(changed))

    def replace_document(
        self, doc_id: str, drafts: Sequence[Draft], *, scope: str, session_id: str | None = None,
        access: Access | None = None, on_progress: Progress | None = None,
    ) -> WriteReport:  # fmt: skip
        """Swap a source's old version for the new one, within one (scope, session).

        A failure at any point leaves the old version answering.
        """
        self.check_usable()
        self._check_writable(scope, session_id, access)
        for draft in drafts:
            where = (draft.record.scope, draft.record.session_id, draft.record.ref)
            if where != (scope, session_id, doc_id):
                raise InvalidChunkError(
                    f"chunk {draft.record.id!r:.80} is not of document {doc_id!r:.80} and its scope"
                )
        new, changed, kept = self._sort_out(drafts)
        records, vectors = self._prepare(new, on_progress)
        wanted = {draft.record.key for draft in drafts}
        reader = Access.session(session_id) if session_id is not None else Access.public()
        condition = Condition(doc_ids=frozenset([doc_id]))
        stored = [r.key for r in self.engine.scan(reader, condition) if r.scope == scope]
        old = [key for key in stored if key not in wanted]
        if old or changed or records:
            self.engine.replace(old, changed, records, vectors)
        ids = [draft.record.id for draft in drafts]
        return WriteReport(ids, embedded=len(new), kept=kept, updated=len(changed), removed=len(old))

    def _sort_out(self, drafts: Sequence[Draft]) -> tuple[list[Draft], list[Record], int]:
        """(drafts that need their vector written, records to refresh, count of unchanged ones)."""
        last: dict[Key, Draft] = {}
        for draft in drafts:
            last.pop(draft.record.key, None)
            last[draft.record.key] = replace(
                draft, record=replace(draft.record, fingerprint=_fingerprint(draft))
            )
        stored = self.engine.get(list(last))
        new: list[Draft] = []
        changed: list[Record] = []
        for key, draft in last.items():
            before = stored.get(key)
            same = before is not None and before.fingerprint == draft.record.fingerprint
            if before is None or not same or before.text != draft.record.text:
                new.append(draft)
            elif before != draft.record:
                changed.append(draft.record)
        kept = len(last) - len(new) - len(changed)
        return new, changed, kept

    def _prepare(self, new: Sequence[Draft], on_progress: Progress | None) -> tuple[list[Record], Matrix]:
        if not new:
            return [], np.empty((0, self.dimension or 0), dtype=np.float32)
        return [draft.record for draft in new], self._vectors(new, on_progress)

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
        self.directory.database.forget_files(self.collection, session, refs)
        self.engine.delete([record.key for record in gone])
        return len(gone)

    def delete_session(self, session_id: str) -> int:
        """Erase a session: rows, file hashes, and their bytes in the files. The operator's."""
        self.check_usable()
        validate_session_id(session_id)
        self.directory.database.forget_files(self.collection, session_id)
        return self.engine.private.delete_session(session_id)

    # --- reading --------------------------------------------------------------------------------

    def get(self, ids: Sequence[str], *, access: Access | None = None) -> list[Record]:
        """Records in the order of ``ids``; one that is public and also in a read session gives both."""
        self.check_usable()
        reader = access or Access.public()
        keys: list[Key] = [
            key
            for id in dict.fromkeys(ids)
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
        vector = query.vector
        if vector is None:
            vector = self.embed_query(query.text or "")
        vector = as_vector(vector, self.dimension)
        if self.dimension is None:
            return SearchResult([], "empty collection")
        found = self.engine.search(vector, query.candidates, access or Access.public(), query.condition)
        result = select(query, vector, found)
        if result.cut and not result.hits:
            logger.warning(
                "score_threshold %.4g cut all %d hits; the best similarity was %.4f",
                query.score_threshold, result.cut, result.best,
            )  # fmt: skip
        return result

    def nearest(self, query: SearchQuery, n: int, *, access: Access | None = None) -> list[Hit]:
        """The n nearest within access, without filter or threshold: what ``explain`` looks at."""
        if self.dimension is None:
            return []
        vector = as_vector(query.vector if query.vector is not None else self.embed_query(query.text or ""))
        return self.engine.search(vector, n, access or Access.public()).hits

    def list_documents(self, *, access: Access | None = None) -> list[DocumentInfo]:
        """The documents within access, by (scope, session, doc_id)."""
        groups: dict[tuple[str, str, str | None], list[Record]] = {}
        for record in self.scan(access=access):
            groups.setdefault((record.scope, record.session_id or "", record.ref), []).append(record)
        order = sorted(groups, key=lambda key: (key[0] != PUBLIC, key[1], key[2] or ""))
        return [_document_info(groups[key]) for key in order]

    def close(self) -> None:
        """Release files and locks; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.engine.close()


def _document_info(records: list[Record]) -> DocumentInfo:
    first = records[0]
    return DocumentInfo(
        doc_id=first.ref, source_scope=first.scope, session_id=first.session_id, chunks=len(records),
        tax=str(first.metadata.get("tax", "")), doc_type=str(first.metadata.get("doc_type", "")),
        retrieved_at=max(str(r.metadata.get("retrieved_at", "")) for r in records),
        expires_at=first.expires_at,
    )  # fmt: skip


def _fingerprint(draft: Draft) -> str:
    """What the vector is made from: the vector given, else the embedding text."""
    if draft.vector is not None:
        raw = as_vector(draft.vector).astype("<f4").tobytes()
        return "vector:" + hashlib.sha256(raw).hexdigest()
    return "text:" + hashlib.sha256(draft.embedding_text.encode("utf-8")).hexdigest()
