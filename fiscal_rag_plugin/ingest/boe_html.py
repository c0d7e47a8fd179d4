"""The BOE's consolidated law as its web page: articles, the titles above them, dates in force."""

from __future__ import annotations

import re
from dataclasses import replace

from fiscal_rag_plugin.chunks import Json
from fiscal_rag_plugin.errors import IngestError

from .boe import add_block, lines_of, spanish_day
from .builder import TextBuilder
from .headings import Heading, sections_of, squeeze
from .html import Element
from .source import Source

_BLOCKS = './/div[@id="textoxslt"]//div[@class="bloque"]'
_IN_FORCE = re.compile(r"en vigor a partir del\s+(\d{2}/\d{2}/\d{4})")
_BOE_ID = re.compile(r"BOE-A-\d{4}-\d+")


def is_boe_page(root: Element) -> bool:
    """Whether a page is one of the BOE's consolidated laws."""
    return root.find('.//div[@id="textoxslt"]') is not None and root.find(_BLOCKS) is not None


def read_boe_page(root: Element, doc_id: str) -> Source:
    """A law's text without navigation and editors' notes, a section for each article.

    ``valid_from`` is the day from which the wording shown is in force: the block's own, or the
    law's entry into force where the block was never changed.
    """
    builder = TextBuilder()
    headings: list[Heading] = []
    names = _block_names(root)
    since = _entry_into_force(root)
    for block in root.iterfind(_BLOCKS):
        anchor = block.get("id") or ""
        template = Heading(0, 0, 1, "", names.get(anchor, ""), anchor, _valid_from(block) or since)
        for heading in add_block(builder, lines_of(block), template):
            # The index's name is for blocks without a heading; a heading names itself.
            headings.append(replace(heading, label="") if heading.text else heading)
    text = builder.text()
    if not text.strip():
        raise IngestError(f"{doc_id}: the BOE page has no text")
    fields, extra = _about(root)
    return Source(doc_id, text, sections_of(text, headings), fields=fields, extra=extra)


def _block_names(root: Element) -> dict[str, str]:
    links = root.iterfind('.//ul[@id="lista-marcadores"]//a')
    return {(a.get("href") or "").lstrip("#"): squeeze(a.text_content()).strip("[]") for a in links}


def _valid_from(block: Element) -> str:
    """From the version that is selected, or the note under a block that has only one."""
    for choice in block.iterfind(".//input[@checked]"):
        if match := _IN_FORCE.search(choice.getparent().text_content()):
            return spanish_day(match[1])
    for note in block.iterfind('.//p[@class="pie_unico"]'):
        if match := _IN_FORCE.search(note.text_content()):
            return spanish_day(match[1])
    return ""


def _entry_into_force(root: Element) -> str:
    for term in root.iterfind('.//dl[@class="conso"]/dt'):
        if "Entrada en vigor" in term.text_content() and term.getnext() is not None:
            return spanish_day(term.getnext().text_content())
    return ""


def _about(root: Element) -> tuple[dict[str, str | int], dict[str, Json]]:
    fields: dict[str, str | int] = {}
    extra: dict[str, Json] = {}
    canonical = root.find('.//link[@rel="canonical"]')
    address = "" if canonical is None else canonical.get("href") or ""
    if address.startswith("https://www.boe.es/"):
        fields["source_url"] = address
    title = squeeze(root.findtext(".//title") or "")
    if match := _BOE_ID.match(title) or _BOE_ID.search(address):
        extra["boe_id"] = match[0]
    if title := title.removeprefix(str(extra.get("boe_id", ""))).strip():
        extra["title"] = title.rstrip(".")
    return fields, extra
