"""What goes into a corpus and what it reports: drafts, write reports, documents, files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from .chunks import PRIVATE, PUBLIC, Chunk, Json, chunk_id
from .engines.base import Key, Record
from .errors import InvalidChunkError, NotAChunkError
from .vectors import Vector, as_matrix, as_vector

_OF_TEXT = "text:"


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


def drafts_of_chunks(chunks: Sequence[Chunk], vectors: Any, expires_at: float | None = None) -> list[Draft]:
    """Drafts of chunks, with ``vectors (n, dim)`` when they are given."""
    checked = [_checked(chunk) for chunk in chunks]
    if vectors is None:
        return [Draft.of_chunk(chunk, expires_at=expires_at) for chunk in checked]
    if len(vectors) != len(checked):
        raise InvalidChunkError(f"got {len(vectors)} vectors for {len(checked)} chunks")
    matrix = as_matrix(vectors, len(checked))
    return [Draft.of_chunk(c, v, expires_at) for c, v in zip(checked, matrix, strict=True)]


def stream_of_chunks(chunks: Iterable[Chunk], vectors: Iterable[Any] | None) -> Iterator[Draft]:
    """Drafts as they are asked for, each with its own vector ``(dim,)`` when there are any."""
    if vectors is None:
        yield from (Draft.of_chunk(_checked(chunk)) for chunk in chunks)
        return
    ended = object()
    for chunk, vector in zip_longest(chunks, vectors, fillvalue=ended):
        if chunk is ended or vector is ended:
            raise InvalidChunkError("there are more chunks than vectors, or more vectors than chunks")
        yield Draft.of_chunk(_checked(chunk), vector)


def _checked(chunk: object) -> Chunk:
    if not isinstance(chunk, Chunk):
        raise NotAChunkError(
            "expected Chunk objects, which keep the cited text apart from the embedded one; a LlamaIndex "
            "node goes through add(), a LangChain document through add_documents()"
        )
    return chunk


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a write did: ids in input order, repeats included, and how many chunks of each kind."""

    ids: list[str]
    embedded: int = 0
    """stored with a vector, made now or given"""
    kept: int = 0
    """already stored, the same in every respect"""
    updated: int = 0
    """stored with the same text and vector; other metadata"""
    removed: int = 0
    """chunks of the old version that are gone"""


@dataclass(frozen=True, slots=True)
class SortedOut:
    """What a write has to do: vectors for ``new``, metadata for ``changed``, nothing for ``kept``."""

    new: list[Draft]
    changed: list[Record]
    kept: list[Record]
    made: dict[str, Vector]
    """vectors made in an earlier attempt, by fingerprint"""

    def report(self, ids: list[str], removed: int = 0) -> WriteReport:
        return WriteReport(ids, len(self.new), len(self.kept), len(self.changed), removed)


def sort_out(drafts: Sequence[Draft], stored: Mapping[Key, Record], made: dict[str, Vector]) -> SortedOut:
    """Compare drafts with what is stored; of drafts with one key, the last counts."""
    result = SortedOut([], [], [], made)
    for draft in {draft.record.key: draft for draft in drafts}.values():
        record, before = draft.record, stored.get(draft.record.key)
        if before is None or (before.fingerprint, before.text) != (record.fingerprint, record.text):
            vector = made.get(record.fingerprint) if draft.vector is None else None
            result.new.append(draft if vector is None else replace(draft, vector=vector))
        else:
            (result.kept if before == record else result.changed).append(record)
    return result


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


@dataclass(frozen=True, slots=True)
class FileMark:
    """A file by its path under the ingested root, and a digest of all that its chunks depend on."""

    path: str
    digest: str


def documents_of(records: Iterable[Record]) -> list[DocumentInfo]:
    """The documents that records belong to, by (scope, session, doc_id)."""
    groups: dict[tuple[str, str, str | None], list[Record]] = {}
    for record in records:
        groups.setdefault((record.scope, record.session_id or "", record.ref), []).append(record)
    order = sorted(groups, key=lambda key: (key[0] != PUBLIC, key[1], key[2] or ""))
    return [_document_info(groups[key]) for key in order]


def _document_info(records: list[Record]) -> DocumentInfo:
    first = records[0]
    return DocumentInfo(
        doc_id=first.ref, source_scope=first.scope, session_id=first.session_id, chunks=len(records),
        tax=str(first.metadata.get("tax", "")), doc_type=str(first.metadata.get("doc_type", "")),
        retrieved_at=max(str(r.metadata.get("retrieved_at", "")) for r in records),
        expires_at=first.expires_at,
    )  # fmt: skip


def with_fingerprint(draft: Draft) -> Draft:
    """The draft, its record knowing what its vector is made from."""
    return replace(draft, record=replace(draft.record, fingerprint=fingerprint(draft)))


def fingerprint(draft: Draft) -> str:
    """What the vector is made from: the vector given, else the embedding text."""
    if draft.vector is not None:
        vector = draft.vector
        if not (isinstance(vector, np.ndarray) and vector.dtype == np.float32 and vector.ndim == 1):
            vector = as_vector(vector)
        return "vector:" + hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()
    return _OF_TEXT + hashlib.sha256(draft.embedding_text.encode("utf-8")).hexdigest()


def is_of_text(fingerprint: str) -> bool:
    """Whether a model made, or will make, the vector from a text."""
    return fingerprint.startswith(_OF_TEXT)


def check_expiry(record: Record) -> None:
    """Raise unless ``expires_at`` is POSIX seconds of a private record, or None."""
    if record.expires_at is None:
        return
    if record.scope != PRIVATE:
        raise InvalidChunkError("only private chunks expire; replace or delete a public one")
    if not math.isfinite(record.expires_at):
        raise InvalidChunkError("expires_at must be a finite number of seconds")
