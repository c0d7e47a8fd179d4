"""Plain text: one section, or the articles of a statute that was saved as text."""

from __future__ import annotations

import re

from .headings import Heading, sections_of, statute_level
from .source import Source

_LINE = re.compile(r"[^\r\n]+")
_BLANK_BEFORE = re.compile(r"(?:\A|[\r\n][^\S\r\n]*(?:\r\n|\r|\n))[^\S\r\n]*\Z")


def read_text(text: str, doc_id: str) -> Source:
    """A source whose text is the file's own, character for character.

    A line that stands after a blank one and reads as a statute's heading ("TÍTULO VII",
    "Artículo 90. Tipo impositivo general.") begins a section.
    """
    headings: list[Heading] = []
    for match in _LINE.finditer(text):
        level = statute_level(match[0])
        # Two headings may follow each other without a blank line.
        follows = bool(headings) and not text[headings[-1].end : match.start()].strip()
        before = text[max(0, match.start() - 200) : match.start()]
        if level is not None and (follows or _BLANK_BEFORE.search(before)):
            headings.append(Heading(match.start(), match.end(), level, match[0]))
    return Source(doc_id, text, sections_of(text, headings))
