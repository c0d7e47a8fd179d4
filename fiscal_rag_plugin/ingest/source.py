"""Source and Section: a text with its structure, before anything is cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from fiscal_rag_plugin.chunks import Json, validate_text
from fiscal_rag_plugin.errors import IngestError, InvalidChunkError


@dataclass(frozen=True, slots=True)
class Section:
    """A span of the source text that no chunk crosses: an article, or what one heading covers.

    ``label`` is the article or heading ("" before the first one), ``path`` the titles above it,
    ``title`` an article's own title ("Tipo impositivo general"), ``anchor`` its fragment in the
    source's address. Dates are ISO days or "".
    """

    start: int
    end: int
    label: str = ""
    path: tuple[str, ...] = ()
    valid_from: str = ""
    valid_to: str = ""
    title: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One document's text, the sections in it, and what is known of it.

    ``pages`` holds the offset at which each page starts, the first one being ``first_page``.
    ``fields`` are ChunkMetadata fields by name, ``extra`` the document's own keys.
    """

    doc_id: str
    text: str
    sections: tuple[Section, ...]
    pages: tuple[int, ...] = ()
    first_page: int = 1
    fields: Mapping[str, str | int] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """what of the file is not in ``text``, each naming file and place"""

    def __post_init__(self) -> None:
        try:
            validate_text(self.doc_id, "doc_id")
            validate_text(self.text, "the text")
        except InvalidChunkError as error:
            raise IngestError(f"{self.doc_id!r:.200}: {error}") from None
        if any(not 0 <= s.start <= s.end <= len(self.text) for s in self.sections):
            raise IngestError(f"{self.doc_id}: a section lies outside the text")

    def page_span(self, start: int, end: int) -> tuple[int, int]:
        """First and last page of ``text[start:end]``; (0, 0) when the source has no pages."""
        if not self.pages:
            return (0, 0)
        first = max(bisect_right(self.pages, start), 1)
        last = max(bisect_right(self.pages, max(end - 1, start)), first)
        return (self.first_page + first - 1, self.first_page + last - 1)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a file gave: its sources, and what could not be read, each naming file and place."""

    sources: tuple[Source, ...] = ()
    problems: tuple[IngestError, ...] = ()
