"""The one place where a question to records becomes a SearchQuery, and a hit an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document

from ..engines.base import Condition, Hit
from ..errors import InvalidFilterError, InvalidQueryError
from ..filters import parse_filter
from ..ranking import SearchQuery, check_parameters
from .canonical import record_type
from .filters import record_where

DEFAULT_MODE = "hybrid"
"""What a store asks in when nobody says otherwise."""
DEFAULT_HYBRID_WEIGHT = 0.5


def record_query(
    text: str, *, top_k: int, filter_meta: Mapping[str, Any] | None, mode: str, hybrid_weight: float
) -> SearchQuery:
    """A question to one collection, every parameter checked.

    ``hybrid_weight`` in [0, 1] is the dense part of mode hybrid; the other modes have no two parts.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidQueryError("query_text must be a non-blank str")
    try:
        where = record_where(filter_meta)
    except RecursionError:
        raise InvalidFilterError("filter_meta is nested too deep") from None
    condition = Condition(parse_filter(where))
    query = SearchQuery(text=text, top_k=top_k, mode=mode, condition=condition, hybrid_weight=hybrid_weight)
    check_parameters(query)
    return query


def asked_types(doc_types: object) -> list[str]:
    """The types a question goes to, each once, in their order; one text is one type.

    Raises:
        InvalidQueryError: there is none.
    """
    given = [doc_types] if isinstance(doc_types, str) else doc_types
    if not isinstance(given, Iterable):
        raise InvalidQueryError(f"doc_types is a list of record types, not {type(given).__name__}")
    types = list(dict.fromkeys(record_type(doc_type) for doc_type in given))
    if not types:
        raise InvalidQueryError("doc_types must name at least one type")
    return types


def score_of(hit: Hit) -> float:
    """What the order of a mode is made of: the fused value in hybrid, BM25 in sparse, else the cosine."""
    if hit.rrf is not None:
        return hit.rrf
    return hit.similarity if hit.bm25 is None else hit.bm25


def document_of(hit: Hit) -> Document:
    """A LangChain document: the record's text and index metadata, with ``_score``,
    ``_similarity`` (the cosine) and ``_bm25_available`` (whether words were searched)."""
    metadata = {
        **hit.record.flat(),
        "_score": score_of(hit),
        "_similarity": hit.score,
        "_bm25_available": hit.bm25 is not None,
    }
    return Document(id=hit.record.id, page_content=hit.record.text, metadata=metadata)
