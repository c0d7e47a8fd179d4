"""What the BOE's consolidated HTML page and its open-data XML have in common.

Both mark a law's parts with the same classes (``titulo_num``, ``titulo_tit``, ``articulo``,
``parrafo``, ``nota_pie``) inside blocks that are addressed by an id (``a90``).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .builder import TextBuilder
from .headings import Heading, squeeze
from .html import Element, table_row

_LEVELS = {
    "parte": 1, "libro": 2, "titulo": 3, "capitulo": 4, "seccion": 5, "subseccion": 6,
    "articulo": 7, "anexo": 1,
}  # fmt: skip
APART = 0
_HEADING_CLASS = re.compile(r"(parte|libro|titulo|capitulo|seccion|subseccion|articulo|anexo)(_num|_tit)?")
# Editors' notes, the block's number, links up and the versions on offer: not the law's words.
_EDITORIAL = re.compile(r"nota.*|bloque|linkSubir|pie_unico|docrel|inforel|textoCompleto")


@dataclass(frozen=True, slots=True)
class Line:
    """A heading with its level, or a paragraph or table row of a block, without one."""

    level: int | None
    text: str


def lines_of(block: Element) -> Iterator[Line]:
    """The law's own words in a block, line by line; number and title of a part are one heading."""
    pending: Line | None = None
    for line, half in _pieces(block):
        if half == "_tit" and pending is not None and pending.level == line.level:
            yield Line(line.level, f"{pending.text.rstrip(' .')}. {line.text}")
            pending = None
            continue
        if pending is not None:
            yield pending
            pending = None
        if half == "_num":
            pending = line
        else:
            yield line
    if pending is not None:
        yield pending


def _pieces(element: Element) -> Iterator[tuple[Line, str]]:
    for child in element:
        if not isinstance(child.tag, str) or child.tag in ("form", "script", "style", "hr", "input", "nav"):
            continue
        name = child.get("class") or ""
        if _EDITORIAL.fullmatch(name):
            continue
        if match := _HEADING_CLASS.fullmatch(name):
            if text := squeeze(child.text_content()):
                yield Line(_level(match[1], text), text), match[2] or ""
        elif child.tag == "table":
            for row in child.iter("tr"):
                if text := table_row(row):
                    yield Line(None, text), ""
        elif child.tag in ("blockquote", "div", "ul", "ol", "dl", "section"):
            yield from _pieces(child)
        elif text := squeeze(child.text_content()):
            yield Line(None, text), ""


def _level(kind: str, text: str) -> int:
    # Dispositions are marked like articles, and stand after the last title, not in it.
    apart = kind == "articulo" and text.lower().startswith("disposici")
    return APART if apart else _LEVELS[kind]


def add_block(builder: TextBuilder, lines: Iterable[Line], block: Heading) -> list[Heading]:
    """Append a block's lines and return its headings, with the anchor and dates of ``block``.

    A block that begins without a heading (the preamble) has the name ``block`` brings, and is
    one section, whatever headings are in it.
    """
    headings: list[Heading] = []
    for line in lines:
        start, end = builder.add(line.text)
        if not headings and line.level is None:
            headings.append(replace(block, start=start, end=start, level=APART))
        elif line.level is not None and (not headings or headings[0].text):
            headings.append(replace(block, start=start, end=end, level=line.level, text=line.text))
    return headings


def spanish_day(text: str) -> str:
    """The first day written dd/mm/yyyy in ``text`` as an ISO day, or ""."""
    match = re.search(r"(\d{2})/(\d{2})/(\d{4})", text)
    return _iso(match[3] + match[2] + match[1]) if match else ""


def compact_day(digits: str | None) -> str:
    """20240501 as 2024-05-01; "" for anything that is no day (the BOE writes 99999999 for none)."""
    return _iso(digits or "")


def day_before(day: str) -> str:
    return (dt.date.fromisoformat(day) - dt.timedelta(days=1)).isoformat()


def _iso(digits: str) -> str:
    if not re.fullmatch(r"[0-9]{8}", digits):
        return ""
    try:
        return dt.date(int(digits[:4]), int(digits[4:6]), int(digits[6:])).isoformat()
    except ValueError:
        return ""
