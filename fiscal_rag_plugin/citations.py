"""Retrieved objects of either framework as numbered passages and citations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import SettingsError

SIMILARITY_KEY = "similarity"
UNKNOWN_SOURCE = "fuente desconocida"
UNKNOWN_PAGES = "Pág. N/A"


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a passage comes from. ``[number]`` is how the answer refers to it, counted from 1."""

    number: int
    source: str
    """the caller's ``source``, else ``source_url``, else ``doc_id``; "" when none is known"""
    article: str
    """``section_label``, "" when unknown"""
    pages: str
    """as printed: "Pág. N/A", "Pág. 5" or "Págs. 5–7" """
    page: int
    """counted from 1, 0 when unknown"""
    page_end: int
    """the last page; ``page`` when there is only one"""
    similarity: float | None
    doc_id: str | None

    def __str__(self) -> str:
        similarity = None if self.similarity is None else f"similitud {self.similarity:.3f}"
        parts = (one_line(self.source) or UNKNOWN_SOURCE, one_line(self.article), self.pages, similarity)
        return f"[{self.number}] " + " · ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Passage:
    """What is shown of a retrieved object: its text, its citation and when it was in force."""

    text: str
    citation: Citation
    validity: str
    """"desde 2012-09-01", "hasta 2012-08-31", both, or "" when unknown"""

    def __repr__(self) -> str:
        return f"Passage({self.citation.number}, {len(self.text)} characters)"


def passages_of(documents: Sequence[Any], similarity_key: str = SIMILARITY_KEY) -> list[Passage]:
    """The passages of LlamaIndex ``NodeWithScore`` or LangChain ``Document`` objects, in their order.

    A node's similarity is its score; a document's, the number under ``similarity_key`` in its metadata.

    Raises:
        SettingsError: an object is neither, so the retriever is not one of these frameworks'.
    """
    return [_passage(document, number, similarity_key) for number, document in enumerate(documents, 1)]


def _passage(document: Any, number: int, similarity_key: str) -> Passage:
    metadata = getattr(document, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    if (node := getattr(document, "node", None)) is not None:
        text, similarity, ref = document.get_content(), document.score, getattr(node, "ref_doc_id", None)
    elif isinstance(text := getattr(document, "page_content", None), str):
        similarity, ref = metadata.get(similarity_key), None
    else:
        raise SettingsError(
            f"the retriever must return NodeWithScore or Document objects, not {type(document).__name__}"
        )
    doc_id = _first(metadata, "doc_id") or ref
    page, page_end = page_span(metadata.get("page"), metadata.get("page_end"))
    citation = Citation(
        number=number,
        source=_first(metadata, "source", "source_url", "doc_id") or ref or "",
        article=_first(metadata, "section_label"),
        pages=page_label(page, page_end), page=page, page_end=page_end,
        similarity=_finite(similarity), doc_id=doc_id,
    )  # fmt: skip
    return Passage(text, citation, _validity(metadata))


def page_span(page: object, page_end: object = 0) -> tuple[int, int]:
    """(first, last) page counted from 1, (0, 0) when the first is unknown.

    Only an int of at least 1 is a page number: a loader's "iv", True or -1 is none. A last page
    before the first says nothing, so one page is left.
    """
    if not _is_page(page):
        return 0, 0
    return page, page_end if _is_page(page_end) and page_end > page else page  # type: ignore[return-value,operator]


def page_label(page: object, page_end: object = 0) -> str:
    """ "Pág. N/A", "Pág. 5" or "Págs. 5–7" (an en dash, as Spanish typography has it)."""
    first, last = page_span(page, page_end)
    if not first:
        return UNKNOWN_PAGES
    return f"Pág. {first}" if first == last else f"Págs. {first}–{last}"


def one_line(value: str) -> str:
    """``value`` in one printable line: metadata is a document's text too, and may hold anything."""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())


def _is_page(value: object) -> bool:
    return type(value) is int and value >= 1


def _first(metadata: Mapping[str, Any], *keys: str) -> str:
    """The first value that is non-blank text, as it is; "" when there is none."""
    values = (metadata.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def _finite(value: object) -> float | None:
    """A finite number as a float (numpy's too), else None."""
    if value is None or isinstance(value, (bool, str)):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _validity(metadata: Mapping[str, Any]) -> str:
    parts = (("desde", _first(metadata, "valid_from")), ("hasta", _first(metadata, "valid_to")))
    return " ".join(f"{word} {day}" for word, day in parts if day)
