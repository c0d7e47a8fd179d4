"""Chunks from the documents of LangChain's loaders and splitters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from fiscal_rag_plugin.chunks import PRIVATE, PUBLIC, Chunk, Scope
from fiscal_rag_plugin.errors import IngestError, InvalidChunkError

from .chunking import chunk_source, merged_fields, plain_chunk
from .embedding_text import CountTokens
from .metadata import DERIVED_KEYS, split_metadata
from .source import Section, Source

_BETWEEN = 2


class LoadedDocument(Protocol):
    """LangChain's ``Document``, by shape."""

    @property
    def page_content(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, object]: ...


def chunks_from_documents(
    documents: Iterable[LoadedDocument],
    *,
    page_base: int = 0,
    scope: Scope | None = None,
    session_id: str | None = None,
    doc_type: str = "document",
    tax: str = "GENERAL",
    doc_id: str | None = None,
    count_tokens: CountTokens | None = None,
    budget_tokens: int = 256,
    overlap_tokens: int = 32,
    headings: bool = True,
) -> list[Chunk]:
    """Chunks of loaded documents, in order; a chunk never holds text of two documents.

    A document's ``doc_id`` is metadata ``doc_id``, else ``source``, else the parameter. Documents
    that share one count their chunks on, and their offsets too: the source's text is their
    contents joined by a blank line. Metadata is read like this:

    - ``page`` counts from ``page_base`` (LangChain's loaders: 0), ours from 1; ``page_end`` likewise.
    - fields of ChunkMetadata (tax, fiscal_year, valid_from, ...) go above the parameters.
    - ``source_scope`` and ``session_id`` must be the ones asked for, or are missing.
    - ``chunk_index`` and ``extra``, which are ours to fill, are dropped; ``extra``'s keys are kept.
    - a ``source`` that was taken as doc_id is not repeated; every other key is kept as it is.

    Args:
        scope: private when a session is given, else public.
        count_tokens: the model's count; None keeps each document whole, as a splitter made it.

    Raises:
        InvalidChunkError: no doc_id, a claim to another scope or session, a page or value of the
            wrong type. Blank documents are skipped.
    """
    if type(page_base) is not int:
        raise InvalidChunkError("page_base must be an int")
    asked: Scope = scope or (PUBLIC if session_id is None else PRIVATE)
    defaults: dict[str, str | int] = {"doc_type": doc_type, "tax": tax}
    counts: dict[str, int] = {}
    lengths: dict[str, int] = {}
    chunks: list[Chunk] = []
    for number, document in enumerate(documents):
        name, raw = _named(document, number, doc_id)
        text = document.page_content
        offset = lengths.get(name, 0)
        lengths[name] = offset + len(text) + _BETWEEN
        source = _source(name, text, raw, page_base)
        if source is None:
            continue
        if count_tokens is None:
            found = [plain_chunk(source, merged_fields(source, asked, session_id, defaults), headings)]
        else:
            found = chunk_source(
                source, count_tokens=count_tokens, scope=asked, session_id=session_id, headings=headings,
                budget_tokens=budget_tokens, overlap_tokens=overlap_tokens, defaults=defaults,
            )  # fmt: skip
        first = counts.get(name, 0)
        chunks += [_moved(chunk, offset, first + i) for i, chunk in enumerate(found)]
        counts[name] = first + len(found)
    return chunks


def _named(document: LoadedDocument, number: int, default: str | None) -> tuple[str, dict[str, object]]:
    raw = dict(document.metadata)
    inner = raw.pop("extra", None)
    if isinstance(inner, Mapping):
        raw = {**{k: v for k, v in inner.items() if k not in raw}, **raw}
    for key in DERIVED_KEYS:
        raw.pop(key, None)
    given = raw.pop("doc_id", None)
    if given is None and isinstance(raw.get("source"), str):
        given = raw.pop("source")
        if str(given).startswith(("http://", "https://")):
            raw.setdefault("source_url", given)
    name = default if given is None else given
    if not isinstance(name, str) or not name.strip():
        raise InvalidChunkError(f"document {number} has no doc_id or source in its metadata; give doc_id=")
    return name, raw


def _source(name: str, text: str, raw: dict[str, object], page_base: int) -> Source | None:
    body = text.strip()
    if not body:
        return None
    pages = {k: _page(raw.pop(k), page_base, f"{name}: {k}") for k in ("page", "page_end") if k in raw}
    try:
        fields, extra = split_metadata(raw, name)
        fields |= {key: page for key, page in pages.items() if page}
        title = extra.get("section_title")
        label = fields.pop("section_label", "")
        path = str(fields.pop("section_path", ""))
        start = text.index(body)
        section = Section(
            start, start + len(body), str(label), tuple(p for p in path.split(" > ") if p),
            title=title if isinstance(title, str) else "",
        )  # fmt: skip
        return Source(name, text, (section,), fields=fields, extra=extra)
    except IngestError as error:
        raise InvalidChunkError(str(error)) from None


def _page(value: object, page_base: int, where: str) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if type(value) is not int or value < page_base:
        raise InvalidChunkError(f"{where} must be an int of at least {page_base}, the page_base")
    return value - page_base + 1


def _moved(chunk: Chunk, offset: int, index: int) -> Chunk:
    return replace(
        chunk,
        start=chunk.start + offset,
        end=chunk.end + offset,
        metadata=replace(chunk.metadata, chunk_index=index),
    )
