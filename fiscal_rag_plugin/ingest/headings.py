"""From headings with levels to sections with paths; and how Spanish statutes name their parts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .source import Section

_ORDINAL = r"[a-záéíóúñ]+(?:\s+[a-záéíóúñ]+)?"
# bis, ter, quáter ... quinvicies: the Latin suffixes of articles inserted later.
_LATIN = r"(?:bis|ter|[cq]u[aá]r?ter|quinque|\w+ies)"
_ARTICLE = re.compile(
    rf"Art[íi]culo\s+(?P<number>\d+(?:[-/]\d+)?|[úu]nico|(?:[a-záéíóú]+)(?=\s*[.:]|\s*$))"
    rf"(?:\s*\.?\s*[ºª°])?(?P<latin>(?:\s+{_LATIN}\b)?)(?=\W|$)\s*[.:\-–—]*\s*(?P<title>.*)",
    re.IGNORECASE | re.DOTALL,
)
_OTHER = re.compile(
    rf"(?P<label>(?:Disposici[óo]n\s+(?:adicional|transitoria|derogatoria|final)(?:\s+{_ORDINAL})?"
    rf"|Anexo(?:\s+(?:[IVXLC]+|\d+))?|Art[íi]culos\s+[^.]+?))\s*(?:[.:–—]\s*(?P<title>.*)|$)",
    re.IGNORECASE | re.DOTALL,
)
_STATUTE_LEVELS = ("parte", "libro", "título", "capítulo", "sección", "subsección", "artículo")
_DIVISION = re.compile(
    r"(?P<kind>LIBRO|T[ÍI]TULO|CAP[ÍI]TULO|Secci[óo]n|Subsecci[óo]n)\s+"
    r"(?:PRELIMINAR|[ÚU]NIC[OA]|[IVXLC]+(?:\s+bis)?|\d+\s*\.?\s*[ªº]?|PRIMER[OA]|SEGUND[OA]|TERCER[OA])\s*"
    r"(?:[.:\-–—]\s*)?(?P<title>.*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading at ``text[start:end]``; a smaller level is higher up.

    Level 0 stands apart, below nothing and above nothing. A named block without a heading in the
    text is a span of 0 characters and has a label only.
    """

    start: int
    end: int
    level: int
    text: str
    label: str = ""
    anchor: str = ""
    valid_from: str = ""
    valid_to: str = ""


def squeeze(text: str) -> str:
    """``text`` on one line, with single spaces."""
    return " ".join(text.split())


def split_label(heading: str) -> tuple[str, str]:
    """A heading as (label, title): "Artículo 90. Tipo general." is ("Artículo 90", "Tipo general").

    Any other heading is its own label. Articles are written the way they are cited:
    "Articulo 4.º Bienes" gives "Artículo 4".
    """
    line = squeeze(heading)
    if match := _ARTICLE.fullmatch(line):
        label = (
            f"Artículo {match['number']}{squeeze(' ' + match['latin']) and ' ' + squeeze(match['latin'])}"
        )
        return label, match["title"].rstrip(" .")
    if match := _OTHER.fullmatch(line):
        return match["label"].rstrip(" ."), (match["title"] or "").rstrip(" .")
    return line, ""


def statute_level(line: str) -> int | None:
    """The level of a line that is a statute's heading on its own; None when it is not one.

    Prose that begins with a reference ("Artículo 90 de la Ley ...") is not a heading: after the
    number there is a full stop or nothing, and the title begins with a capital.
    """
    line = squeeze(line)
    if len(line) > 250:
        return None
    if match := _ARTICLE.fullmatch(line):
        tail = line[match.end("latin") : match.start("title")]
        title = match["title"]
        if not title or (any(c in tail for c in ".:-–—º") and tail[-1] == " " and title[0].isupper()):
            return _STATUTE_LEVELS.index("artículo") + 1
        return None
    if match := _DIVISION.fullmatch(line):
        kind = match["kind"].lower().replace("titulo", "título").replace("capitulo", "capítulo")
        kind = kind.replace("seccion", "sección")
        if not match["title"] or match["title"][0].isupper():
            return _STATUTE_LEVELS.index(kind) + 1
        return None
    other = _OTHER.fullmatch(line)
    return 0 if other and (not other["title"] or other["title"][0].isupper()) else None


def sections_of(text: str, headings: Iterable[Heading], start: int = 0) -> tuple[Section, ...]:
    """The sections that ``headings`` cut out of ``text[start:]``, in text order.

    A section is what stands below its heading and before the next one; the heading itself is
    kept in label and path, from which every chunk's embedding text repeats it. Only a heading
    that has nothing below it ("Artículo 45. (Derogado)") is a section of its own words. Text
    before the first heading has no label.
    """
    ordered = sorted(headings, key=lambda h: h.start)
    sections: list[Section] = []
    first = ordered[0].start if ordered else len(text)
    if span := _trim(text, start, first):
        sections.append(Section(*span))
    above: list[tuple[int, str]] = []
    for i, heading in enumerate(ordered):
        while above and above[-1][0] >= heading.level:
            above.pop()
        after = ordered[i + 1] if i + 1 < len(ordered) else None
        end = after.start if after else len(text)
        span = _trim(text, heading.end, end)
        if span is None and (after is None or after.level <= heading.level):
            span = _trim(text, heading.start, end)
        label, title = split_label(heading.label or heading.text)
        if heading.label:
            title = split_label(heading.text)[1]
        if span is not None:
            path = tuple(name for _, name in above)
            dates = (heading.valid_from, heading.valid_to)
            sections.append(Section(*span, label, path, *dates, title, heading.anchor))
        if heading.level > 0:
            above.append((heading.level, squeeze(heading.text).rstrip(" .") or label))
    return tuple(sections)


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    body = text[start:end]
    if not body.strip():
        return None
    return (end - len(body.lstrip()), start + len(body.rstrip()))
