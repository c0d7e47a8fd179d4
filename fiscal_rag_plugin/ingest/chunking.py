"""From a source to chunks that fit the model: greedy, exact, and never across a section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata, Scope
from fiscal_rag_plugin.errors import InvalidChunkError

from .embedding_text import CountTokens, embedding_text, heading_line
from .metadata import ACCESS_KEYS, SETTABLE_FIELDS, check_claims
from .source import Section, Source
from .splitting import Fits, Span, overlap_start, pieces

DEFAULT_DOC_TYPE = "document"
MIN_BUDGET_TOKENS = 16
# A span longer than this for each token of the budget is cut without counting: prose has about 4
# characters a token, and a real tokenizer takes a second for the megabyte that surely is too long.
MAX_CHARS_PER_TOKEN = 12
OVERLAP_CHARS_PER_TOKEN = 8


def chunk_source(
    source: Source,
    *,
    count_tokens: CountTokens,
    scope: Scope,
    session_id: str | None = None,
    budget_tokens: int = 256,
    overlap_tokens: int = 32,
    headings: bool = True,
    defaults: Mapping[str, str | int] | None = None,
) -> list[Chunk]:
    """The chunks of a source in text order, numbered from 0.

    ``chunk.text`` is exactly ``source.text[chunk.start:chunk.end]``; every word of every section
    is in a chunk, and none holds words of two. Cut is at the coarsest of paragraph, line,
    sentence, word and character that fits.

    Args:
        count_tokens: the embedding model's own count, of the text as it will be embedded.
        budget_tokens: the most that ``count_tokens`` may give for an embedding text.
        overlap_tokens: the most that is repeated of the chunk before, in whole sentences or words.
        headings: whether the embedding text begins with the line of titles.
        defaults: ChunkMetadata fields for what the source does not say (tax, doc_type, ...).

    Raises:
        InvalidChunkError: a budget out of range, a default that is no field, or a source that
            claims another scope or session.
    """
    _check_budget(budget_tokens, overlap_tokens)
    fields = merged_fields(source, scope, session_id, defaults)
    overhead = _overhead(count_tokens)
    chunks: list[Chunk] = []
    for section in source.sections:
        header = heading_line(source, section, count_tokens, budget_tokens) if headings else ""
        packer = _Packer(source.text, header, count_tokens, budget_tokens, overlap_tokens, overhead)
        for start, end, overlap in packer.pack((section.start, section.end)):
            metadata = chunk_metadata(source, section, fields, (start, end), len(chunks))
            embedded = embedding_text(header, source.text[start:end])
            tokens = packer.tokens(start, end)
            chunks.append(Chunk(source.text[start:end], embedded, metadata, start, end, tokens, overlap))
    return chunks


def _check_budget(budget_tokens: int, overlap_tokens: int) -> None:
    if type(budget_tokens) is not int or budget_tokens < MIN_BUDGET_TOKENS:
        raise InvalidChunkError(f"budget_tokens must be an int of at least {MIN_BUDGET_TOKENS}")
    if type(overlap_tokens) is not int or not 0 <= overlap_tokens < budget_tokens:
        raise InvalidChunkError("overlap_tokens must be an int from 0 to less than budget_tokens")


def merged_fields(
    source: Source, scope: Scope, session_id: str | None, defaults: Mapping[str, str | int] | None
) -> dict[str, str | int]:
    """The source's fields over ``defaults``, once its claims about access are checked."""
    check_claims(source.fields, scope, session_id, source.doc_id)
    if unknown := sorted(set(defaults or ()) - (SETTABLE_FIELDS - ACCESS_KEYS - {"doc_id"})):
        raise InvalidChunkError(f"defaults cannot set {unknown}; they are fields of ChunkMetadata")
    fields: dict[str, Any] = {"doc_type": DEFAULT_DOC_TYPE, **(defaults or {}), **source.fields}
    return {**fields, "source_scope": scope, "session_id": session_id, "doc_id": source.doc_id}


def chunk_metadata(
    source: Source, section: Section, fields: Mapping[str, str | int], span: Span, index: int
) -> ChunkMetadata:
    """A chunk's metadata; what its section says goes above what its source says."""
    known: dict[str, Any] = {**fields, "chunk_index": index}
    page, page_end = source.page_span(*span)
    if page:
        known |= {"page": page, "page_end": page_end}
    if section.label:
        known["section_label"] = section.label
    if section.path:
        known["section_path"] = " > ".join(section.path)
    if section.valid_from or section.valid_to:
        known |= {"valid_from": section.valid_from, "valid_to": section.valid_to}
    url = str(known.get("source_url", ""))
    if section.anchor and url and "#" not in url:
        known["source_url"] = f"{url}#{section.anchor}"
    extra = dict(source.extra)
    if section.title:
        extra["section_title"] = section.title
    return ChunkMetadata(**known, extra=extra)


def _overhead(count_tokens: CountTokens) -> int:
    """The tokens that a tokenizer adds to any text (its start and end marks, a prefix)."""
    return max(2 * count_tokens("a") - count_tokens("a a"), 0)


@dataclass(slots=True)
class _Packer:
    """Packs the pieces of one section into chunks.

    A tokenizer's cost grows with the text, so pieces are counted bare, each once, and their sum
    says where a chunk should end. What is returned was counted as it will be embedded.
    """

    text: str
    header: str
    count: CountTokens
    budget: int
    overlap: int
    overhead: int
    base: int = field(init=False)
    _bare: dict[Span, int] = field(default_factory=dict)
    _embedded: dict[Span, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.count(self.header) if self.header else self.overhead

    def tokens(self, start: int, end: int) -> int:
        """The exact count of a span's embedding text."""
        span = (start, end)
        if span not in self._embedded:
            self._embedded[span] = self.count(embedding_text(self.header, self.text[start:end]))
        return self._embedded[span]

    def pack(self, section: Span) -> Iterator[tuple[int, int, int]]:
        """(start, end, repeated tokens) of each chunk of a section."""
        parts = list(pieces(self.text, section, *self._tests(self._estimate)))
        at, previous = 0, (0, 0)
        while at < len(parts):
            start, repeated = self._overlap(previous, parts[at]) if at else (parts[0][0], 0)
            if not repeated:
                self._settle(parts, at)
                start = parts[at][0]
            last = self._last_that_fits(parts, at, start)
            previous = (start, parts[last][1])
            yield *previous, repeated
            at = last + 1

    def _tests(self, tokens: Callable[[int, int], int]) -> tuple[Fits, Fits]:
        """Whether a span can be a chunk, and whether it takes but a quarter of one."""
        quarter = self.base + max((self.budget - self.base) // 4, 1)

        def fits(start: int, end: int) -> bool:
            return end - start <= self.budget * MAX_CHARS_PER_TOKEN and tokens(start, end) <= self.budget

        return fits, lambda start, end: fits(start, end) and tokens(start, end) <= quarter

    def _settle(self, parts: list[Span], at: int) -> None:
        """Cut ``parts[at]`` further if it fits by estimate and not by count."""
        if self.tokens(*parts[at]) > self.budget:
            parts[at : at + 1] = pieces(self.text, parts[at], *self._tests(self.tokens))

    def _last_that_fits(self, parts: list[Span], at: int, start: int) -> int:
        last = at
        total = self.tokens(start, parts[at][1])
        longest = start + self.budget * MAX_CHARS_PER_TOKEN
        while last + 1 < len(parts) and parts[last + 1][1] <= longest:
            if total + self._own(*parts[last + 1]) > self.budget:
                break
            last += 1
            total += self._own(*parts[last])
        while last > at and self.tokens(start, parts[last][1]) > self.budget:
            last -= 1
        return last

    def _overlap(self, previous: Span, following: Span) -> tuple[int, int]:
        """Where the next chunk starts, and how many tokens before ``following`` that repeats."""
        end = previous[1]
        room = min(self.overlap, self.budget - self._estimate(*following))
        tail = (max(previous[0], end - room * OVERLAP_CHARS_PER_TOKEN), end)
        start = overlap_start(self.text, tail, lambda at: self._own(at, end) <= room) if room > 0 else end
        if start == end or self.tokens(start, following[1]) > self.budget:
            return following[0], 0
        return start, self._own(start, end)

    def _own(self, start: int, end: int) -> int:
        """A span's own tokens, without what the tokenizer adds to any text."""
        span = (start, end)
        if span not in self._bare:
            self._bare[span] = max(self.count(self.text[start:end]) - self.overhead, 1)
        return self._bare[span]

    def _estimate(self, start: int, end: int) -> int:
        return self.base + self._own(start, end)


def plain_chunk(source: Source, fields: Mapping[str, str | int], headings: bool) -> Chunk:
    """A source of one section as one chunk, uncounted: it was cut elsewhere."""
    section = source.sections[0]
    span = (section.start, section.end)
    header = heading_line(source, section) if headings else ""
    text = source.text[slice(*span)]
    return Chunk(
        text, embedding_text(header, text), chunk_metadata(source, section, fields, span, 0), *span
    )
