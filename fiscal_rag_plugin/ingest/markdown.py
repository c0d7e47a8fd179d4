"""Markdown: YAML front matter, and a section for each heading."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fiscal_rag_plugin.errors import IngestError

from .headings import Heading, sections_of, squeeze
from .metadata import Declared, parse_yaml, split_metadata
from .source import Source

_EOL = r"(?:\r\n|\r|\n)"
_FRONT = re.compile(
    rf"---[ \t]*{_EOL}(?P<yaml>(?:.*?{_EOL})??)(?:---|\.\.\.)[ \t]*(?:{_EOL}|\Z)", re.DOTALL
)
_LINE = re.compile(rf"([^\r\n]*)({_EOL}|\Z)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\r\n]*)")
_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)(.*)")
MAX_HEADING_CHARS = 1_000
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_NO_PARAGRAPH = re.compile(r"\s*(?:[-*+>|#]|\d+[.)]\s|$)| {4}|\t")
_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"[*_]{1,3}(\S(?:.*?\S)?)[*_]{1,3}"), r"\1"),
    (re.compile(r"`+([^`]*)`+"), r"\1"),
    (re.compile(r"\s*\{#[^}]*\}\s*$"), ""),
)


def read_markdown(text: str, doc_id: str) -> Source:
    """A source whose text is the file's own, front matter included but in no section.

    ATX (``## Tipos``) and setext headings begin sections; what stands in fenced code does not.

    Raises:
        IngestError: front matter that is not YAML or has a value of the wrong type.
    """
    (fields, extra), start = front_matter(text, doc_id)
    if not text[start:].strip():
        raise IngestError(f"{doc_id}: it has front matter and no text")
    sections = sections_of(text, _headings(text, start), start)
    return Source(doc_id, text, sections, fields=fields, extra=extra)


def front_matter(text: str, doc_id: str) -> tuple[Declared, int]:
    """The front matter's metadata, and the offset at which the text begins."""
    match = _FRONT.match(text)
    if match is None:
        return ({}, {}), 0
    value = parse_yaml(match["yaml"], f"{doc_id}: front matter", first_line=2)
    if value is None:
        return ({}, {}), match.end()
    if not isinstance(value, dict):
        # Prose between two rulers, not metadata.
        return ({}, {}), 0
    return split_metadata(value, f"{doc_id}: front matter"), match.end()


def _headings(text: str, start: int) -> Iterator[Heading]:
    fence = ""
    paragraph: list[tuple[int, str]] = []
    for match in _LINE.finditer(text, start):
        line = match[1]
        if fence:
            closing = _FENCE.fullmatch(line)
            if closing and closing[1].startswith(fence) and not closing[2].strip():
                fence = ""
            continue
        opening = _FENCE.fullmatch(line)
        if opening and not (opening[1][0] == "`" and "`" in opening[2]):
            fence, paragraph = opening[1], []
        elif len(line) <= MAX_HEADING_CHARS and (atx := _ATX.fullmatch(line)):
            paragraph = []
            if name := _plain(_without_closing(atx[2])):
                yield Heading(match.start(), match.end(1), len(atx[1]), name)
        elif (
            len(paragraph) == 1
            and len(paragraph[0][1]) <= MAX_HEADING_CHARS
            and (under := _SETEXT.fullmatch(line))
        ):
            at, name = paragraph[0]
            yield Heading(at, match.end(1), 1 if under[1][0] == "=" else 2, _plain(name))
            paragraph = []
        elif not line.strip():
            paragraph = []
        elif paragraph or not _NO_PARAGRAPH.match(line):
            paragraph.append((match.start(), line))
        else:
            # A list item or quote: what follows continues it and is no setext heading.
            paragraph = [(match.start(), line)] * 2


def _without_closing(name: str) -> str:
    """``## Tipos ##`` is closed by hashes after a space; ``C#`` is not."""
    name = name.strip()
    opened = name.rstrip("#")
    return opened if not opened or opened[-1] in " \t" else name


def _plain(name: str) -> str:
    for pattern, replacement in _MARKUP:
        name = pattern.sub(replacement, name)
    return squeeze(name)
