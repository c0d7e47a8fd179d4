"""HTML and XML to one source: the BOE's two forms, and any other page."""

from __future__ import annotations

from fiscal_rag_plugin.errors import IngestError

from .boe_html import is_boe_page, read_boe_page
from .boe_xml import is_boe_xml, read_boe_xml
from .html import parse_html, read_html
from .source import Source


def read_markup(markup: str, doc_id: str, suffix: str) -> Source:
    """The source in a page.

    Raises:
        IngestError: XML that is not the BOE's, or a page with nothing to read.
    """
    if is_boe_xml(markup):
        return read_boe_xml(markup, doc_id)
    if suffix == ".xml":
        raise IngestError(f"{doc_id}: XML is read only when it is the BOE's open data (bloque, version)")
    root = parse_html(markup, doc_id)
    return read_boe_page(root, doc_id) if is_boe_page(root) else read_html(root, doc_id)
