"""The BOE's open-data XML: every wording an article has had, each with the days it was in force."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree, html

from fiscal_rag_plugin.chunks import Json
from fiscal_rag_plugin.errors import IngestError

from .boe import add_block, compact_day, day_before, lines_of
from .builder import TextBuilder
from .headings import Heading, sections_of, squeeze
from .html import Element
from .source import Source

_SNIFF = re.compile(r"<bloque\s[^<>]*\bid=")
_VERSION = re.compile(r"<version\s[^<>]*\b(?:fecha_vigencia|id_norma)=")


def is_boe_xml(markup: str) -> bool:
    """Whether a file is the open-data XML, whatever its suffix says."""
    start = markup[:200].lstrip("\ufeff \t\r\n").lower()
    return not start.startswith("<!doctype html") and bool(
        _SNIFF.search(markup) and _VERSION.search(markup)
    )


def read_boe_xml(markup: str, doc_id: str) -> Source:
    """A section for each version of each block, in force from ``fecha_vigencia`` until the day
    before the next version's; the last one until its block's ``fecha_caducidad``, if any.

    A version that was replaced before it came into force was never law, and is left out.

    Raises:
        IngestError: XML that is not well formed, naming the line, or without any version.
    """
    root = _parse(markup, doc_id)
    builder = TextBuilder()
    headings: list[Heading] = []
    for block in root.iter("bloque"):
        versions = list(_versions(block))
        if block.get("tipo") == "encabezado":
            # A part's older names would hold no article.
            versions = versions[-1:]
        for version, first, last in versions:
            template = Heading(0, 0, 1, "", _label(block), block.get("id") or "", first, last)
            headings += add_block(builder, lines_of(version), template)
    text = builder.text()
    if not headings or not text.strip():
        raise IngestError(f"{doc_id}: the BOE XML holds no version of any block")
    extra: dict[str, Json] = {}
    if title := squeeze(root.findtext(".//metadatos/titulo") or ""):
        extra["title"] = title.rstrip(".")
    if boe_id := squeeze(root.findtext(".//metadatos/identificador") or ""):
        extra["boe_id"] = boe_id
    return Source(doc_id, text, sections_of(text, headings), extra=extra)


def _parse(markup: str, doc_id: str) -> Element:
    # html's element class for text_content(); no DTD, entities or network: files come from users.
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    parser.set_element_class_lookup(html.HtmlElementClassLookup())
    try:
        return etree.fromstring(markup.encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        raise IngestError(f"{doc_id}: line {error.lineno}: the XML is not well formed") from None


def _label(block: Element) -> str:
    return squeeze(block.get("titulo") or "").strip("[]")


def _versions(block: Element) -> Iterator[tuple[Element, str, str]]:
    """(version, first day, last day), oldest first; "" is an unknown or open day."""
    dated = [(_first_day(v), v.get("fecha_publicacion") or "", v) for v in block.iter("version")]
    dated.sort(key=lambda item: item[:2])
    for i, (first, _, version) in enumerate(dated):
        following = dated[i + 1][0] if i + 1 < len(dated) else ""
        if following and following == first:
            continue
        last = day_before(following) if following else ""
        if not following and (expiry := compact_day(block.get("fecha_caducidad"))):
            last = expiry if not first or expiry >= first else ""
        yield version, first, last


def _first_day(version: Element) -> str:
    # Without a date of its own, a wording cannot have been in force before it was published.
    return compact_day(version.get("fecha_vigencia")) or compact_day(version.get("fecha_publicacion"))
