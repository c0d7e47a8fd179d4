"""HTML: a page's text block by block, and a section for each heading."""

from __future__ import annotations

import re
from typing import Any

from lxml import etree, html

from fiscal_rag_plugin.errors import IngestError

from .builder import TextBuilder
from .headings import Heading, sections_of, squeeze
from .source import Source

# lxml carries no types: an element is Any here and nowhere else than in the modules that read markup.
Element = Any

_DROPPED = frozenset({
    "head", "script", "style", "noscript", "template", "nav", "footer", "aside", "button", "input",
    "select", "textarea", "svg", "canvas", "iframe", "object", "audio", "video", "img", "map", "dialog",
})  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "form", "header", "hgroup", "hr", "legend", "li",
    "main", "ol", "p", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip
_LEVELS = {f"h{n}": n for n in range(1, 7)}
_SPACE = re.compile(r"[^\S\xa0\n]+")


def parse_html(markup: str, doc_id: str) -> Element:
    """The root element of a page given as text.

    Raises:
        IngestError: nothing in it is HTML, or it is nested so deep that the parser leaves text out.
    """
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True)
    try:
        root = html.document_fromstring(markup.encode("utf-8"), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise IngestError(f"{doc_id}: HTML cannot be read ({type(error).__name__})") from None
    if any("depth" in entry.message.lower() for entry in parser.error_log):
        raise IngestError(f"{doc_id}: the page nests elements too deep to be read whole")
    return root


def read_html(root: Element, doc_id: str) -> Source:
    """A page's text: its ``main`` or only ``article``, else its body without navigation."""
    page = _Page()
    page.walk(_content(root))
    page.flush()
    text = page.builder.text()
    if not text.strip():
        raise IngestError(f"{doc_id}: the page has no text")
    title = squeeze(root.findtext(".//title") or "")
    return Source(doc_id, text, sections_of(text, page.headings), extra={"title": title} if title else {})


def _content(root: Element) -> Element:
    for name in ("main", "article"):
        found = root.findall(f".//{name}")
        if len(found) == 1 and found[0].text_content().strip():
            return found[0]
    body = root.find("body")
    return root if body is None else body


class _Page:
    """Walks a page and collects its blocks; inline text waits in a buffer until a block ends."""

    def __init__(self) -> None:
        self.builder = TextBuilder()
        self.headings: list[Heading] = []
        self._inline: list[str] = []
        self._separator = "\n\n"
        self._mark = ""
        self._number: int | None = None
        self._row_separator = "\n\n"

    def walk(self, element: Element) -> None:
        tag = element.tag
        if not isinstance(tag, str) or tag in _DROPPED or element.get("hidden") is not None:
            return
        if tag == "header" and not any(True for _ in element.iter(*_LEVELS)):
            return
        if tag == "br":
            self._inline.append("\n")
        elif tag in _LEVELS:
            self._heading(element)
        elif tag == "pre":
            self.flush()
            self.builder.add(element.text_content(), "\n\n")
        elif tag == "tr" and not _is_layout(element):
            self._row(element)
        elif tag in _BLOCKS:
            self.flush()
            self._block(element, tag)
            self.flush()
        else:
            self._children(element)

    def _block(self, element: Element, tag: str) -> None:
        outer = self._number
        if tag == "ol":
            start = element.get("start") or ""
            self._number = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 1
        elif tag == "ul":
            self._number = None
        elif tag == "table":
            self._row_separator = "\n\n"
        elif tag == "li":
            self._separator = "\n"
            self._mark = "- " if outer is None else f"{outer}. "
        self._children(element)
        self._number = outer + 1 if tag == "li" and outer is not None else outer

    def _children(self, element: Element) -> None:
        if element.text:
            self._inline.append(element.text.replace("\n", " "))
        for child in element:
            self.walk(child)
            if child.tail:
                self._inline.append(child.tail.replace("\n", " "))

    def _heading(self, element: Element) -> None:
        self.flush()
        name = squeeze(element.text_content())
        start, end = self.builder.add(name, "\n\n")
        if name:
            anchor = element.get("id") or ""
            self.headings.append(Heading(start, end, _LEVELS[element.tag], name, anchor=anchor))

    def _row(self, row: Element) -> None:
        self.flush()
        if text := table_row(row):
            self.builder.add(text, self._row_separator)
            self._row_separator = "\n"

    def flush(self) -> None:
        lines = (_SPACE.sub(" ", line).strip() for line in "".join(self._inline).split("\n"))
        text = "\n".join(line for line in lines if line)
        self._inline.clear()
        if text:
            self.builder.add(self._mark + text, self._separator)
            self._mark, self._separator = "", "\n\n"


def table_row(row: Element) -> str:
    """A table row on one line, its cells separated by " | "; "" for a row of empty cells."""
    cells = [squeeze(" ".join(cell.itertext())) for cell in row if cell.tag in ("td", "th")]
    return " | ".join(cells) if any(cells) else ""


def _is_layout(row: Element) -> bool:
    """Whether the row only arranges the page: its cells hold headings or further tables."""
    return any(True for _ in row.iter("table", *_LEVELS))
