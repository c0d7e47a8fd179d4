"""PDF: the text layer page by page, and a section for each bookmark of its outline."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from fiscal_rag_plugin.chunks import Json
from fiscal_rag_plugin.errors import IngestError

from .headings import Heading, sections_of, squeeze
from .page_furniture import drop_furniture
from .source import Section, Source

# PDFium is not safe to call from two threads, not even on two documents.
_PDFIUM = threading.Lock()
MAX_OUTLINE_DEPTH = 15


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An outline entry: level from 0, and the page index it leads to."""

    level: int
    title: str
    page: int


def read_pdf(data: bytes, doc_id: str) -> Source:
    """A PDF's text, one page below the other, with the offset at which each page starts.

    Words hyphenated at a line's end stay as extracted. Repeated headers and footers are dropped
    (see :mod:`.page_furniture`).

    Raises:
        IngestError: not a PDF, encrypted with a password, without pages or without a text layer.
    """
    pages, scanned, outline, title = _extract(data, doc_id)
    if not any(page.strip() for page in pages):
        raise IngestError(
            f"{doc_id}: the PDF has {len(pages)} pages and no text layer (scanned?); run OCR on it first"
        )
    pages = drop_furniture(pages, [(b.page, b.title) for b in outline])
    offsets: list[int] = []
    length = 0
    for page in pages:
        offsets.append(length)
        length += len(page) + 1
    text = "\n".join(pages)
    extra: dict[str, Json] = {"title": title} if title else {}
    sections = _apart(sections_of(text, _headings(text, offsets, outline)), [offsets[i] for i in scanned])
    warnings = tuple(
        f"{doc_id}: page {i + 1} of {len(pages)} is an image without text and was left out; run OCR on it"
        for i in scanned
    )
    return Source(doc_id, text, sections, tuple(offsets), extra=extra, warnings=warnings)


def _apart(sections: Sequence[Section], offsets: Sequence[int]) -> tuple[Section, ...]:
    """Sections cut at these offsets: no chunk may span, and cite, a page that nobody could read."""
    parts: list[Section] = []
    for section in sections:
        cuts = [offset for offset in offsets if section.start < offset < section.end]
        bounds = [section.start, *cuts, section.end]
        parts += [replace(section, start=a, end=b) for a, b in pairwise(bounds)]
    return tuple(parts)


def _extract(data: bytes, doc_id: str) -> tuple[list[str], list[int], list[Bookmark], str]:
    """(text of each page, indices of pages that are images alone, outline, title)."""
    with _PDFIUM:
        try:
            document = pdfium.PdfDocument(data)
        except pdfium.PdfiumError as error:
            if "password" in str(error).lower() or "security" in str(error).lower():
                raise IngestError(f"{doc_id}: the PDF is encrypted; save it without a password") from None
            raise IngestError(f"{doc_id}: not a PDF, or damaged ({error})") from None
        try:
            pages = [_page_text(document, i, doc_id) for i in range(len(document))]
            title = squeeze(document.get_metadata_value("Title") or "").replace("\x00", "")
            scanned = [i for i, page in enumerate(pages) if not page.strip() and _has_image(document[i])]
            return pages, scanned, _outline(document), title
        finally:
            document.close()


def _page_text(document: Any, index: int, doc_id: str) -> str:
    try:
        page = document[index]
        textpage = page.get_textpage()
        try:
            text: str = textpage.get_text_range()
        finally:
            textpage.close()
            page.close()
    except pdfium.PdfiumError as error:
        raise IngestError(f"{doc_id}: page {index + 1} cannot be read ({error})") from None
    # PDFium marks a hyphen it is not sure of with the noncharacter U+FFFE.
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufffe", "-").replace("\x00", "")
    return re.sub(r"[\ud800-\udfff]", "\ufffd", text)


def _has_image(page: Any) -> bool:
    try:
        return any(True for _ in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE]))
    finally:
        page.close()


def _outline(document: Any) -> list[Bookmark]:
    bookmarks: list[Bookmark] = []
    try:
        for item in document.get_toc(max_depth=MAX_OUTLINE_DEPTH):
            target = item.get_dest()
            page = None if target is None else target.get_index()
            title = squeeze(item.get_title().replace("\x00", ""))
            if page is not None and title:
                bookmarks.append(Bookmark(item.level, title, page))
    except pdfium.PdfiumError:
        # A broken outline only costs the headings; the text is all there.
        return bookmarks
    return bookmarks


def _headings(text: str, offsets: list[int], outline: list[Bookmark]) -> list[Heading]:
    """Each bookmark's place in the text: its title as whole lines of its page, else the page's start.

    An outline that does not run forward through the pages (an index by name) keeps page order.
    """
    headings: list[Heading] = []
    at = 0
    for mark in sorted(outline, key=lambda b: b.page):
        if mark.page >= len(offsets):
            continue
        start = offsets[mark.page]
        end = offsets[mark.page + 1] if mark.page + 1 < len(offsets) else len(text)
        at = max(at, start)
        words = r"\s+".join(re.escape(word) for word in mark.title.split())
        match = re.compile(rf"^[^\S\n]*{words}[^\S\n]*$", re.MULTILINE).search(text, at, end)
        span = match.span() if match else (at, at)
        headings.append(Heading(*span, mark.level + 1, mark.title))
        at = span[1]
    return headings
