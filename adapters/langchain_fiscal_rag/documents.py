"""LangChain documents and our records: what is written for one, and what is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document

from fiscal_rag_plugin.chunks import copy_metadata, validate_id, validate_text
from fiscal_rag_plugin.drafts import Draft
from fiscal_rag_plugin.engines.base import Hit, Record
from fiscal_rag_plugin.view import View

SOURCE_KEY = "source"


def draft_of(
    view: View, text: object, metadata: Mapping[str, Any] | None, id: object, position: int
) -> Draft:
    """What ``view`` writes for one document; without an id it gets a uuid4.

    The source document is the metadata's ``doc_id`` when that is a str. The vector is made from
    ``page_content``, so a blank one, which has no meaning to compare, is refused.

    Raises:
        InvalidChunkError: an unusable id, text or metadata; AccessDeniedError: metadata that
            claims another scope or session than the view writes.
    """
    given = copy_metadata(metadata if metadata is not None else {})
    scope, session_id = view.placed(given)
    doc_id = given.get("doc_id")
    record = Record(
        id=str(uuid4()) if id is None else validate_id(id),
        scope=scope,
        session_id=session_id,
        ref=doc_id if isinstance(doc_id, str) and doc_id else None,
        text=validate_text(text, f"page_content of document {position}"),
        metadata=given,
        kind="document",
    )
    return Draft(record, record.text)


def stored_document(record: Record) -> Document:
    """As a LangChain store answers: exactly what was added.

    Chunks and nodes, which came in by other doors, carry all their stored metadata, access keys
    included.
    """
    metadata = dict(record.metadata) if record.kind == "document" else record.flat()
    return Document(id=record.id, page_content=record.text, metadata=metadata)


def retrieved_document(
    hit: Hit, similarity_key: str | None = None, *, include_scores: bool = False
) -> Document:
    """As a retriever answers: the original text, the stored metadata and the computed source.

    See :func:`with_similarity` for the key.
    """
    record = hit.record
    metadata = with_source(record.flat(), record.ref)
    if include_scores:
        metadata.update(hit.scores())
    document = Document(id=record.id, page_content=record.text, metadata=metadata)
    return with_similarity(document, hit, similarity_key)


def with_similarity(document: Document, hit: Hit, similarity_key: str | None) -> Document:
    """``document`` with the hit's cosine under that metadata key; None shows it nowhere."""
    if similarity_key is not None:
        document.metadata[similarity_key] = hit.score
    return document


def with_source(metadata: dict[str, Any], ref: str | None = None) -> dict[str, Any]:
    """``metadata`` plus ``source = source_url or doc_id``; the caller's own ``source`` stays.

    ``ref`` stands in for ``doc_id`` where a framework keeps it elsewhere. A text without any of
    them gets no source.
    """
    if SOURCE_KEY in metadata:
        return metadata
    for value in (metadata.get("source_url"), metadata.get("doc_id"), ref):
        if isinstance(value, str) and value:
            return {**metadata, SOURCE_KEY: value}
    return metadata
