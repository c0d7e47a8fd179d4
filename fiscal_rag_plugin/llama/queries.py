"""LlamaIndex's queries, filters and ids in the words of the corpus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import VectorStoreQuery

from ..engines.base import Condition
from ..errors import InvalidQueryError, UnexpectedArgumentError
from ..filters import all_of, parse_filter
from ..ranking import Mode, SearchQuery, check_mode, check_top_k

QUERY_KEYWORDS = ("filter", "top_k", "mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k")


def refuse_keywords(given: Mapping[str, Any], method: str, known: Iterable[str] = ()) -> None:
    """Raise UnexpectedArgumentError for a keyword that would otherwise be ignored silently."""
    if unknown := sorted(set(given) - set(known)):
        raise UnexpectedArgumentError(
            f"{method}() got unexpected keywords {unknown}; access is bound with for_session() or "
            "for_access(), never passed per call"
        )


def mode_of(mode: object) -> Mode:
    """Our name of a mode, given as ours or LlamaIndex's; UnsupportedModeError names any other."""
    name = getattr(mode, "value", mode)
    return check_mode("dense" if name == "default" else name)


def ids_of(values: object, name: str) -> frozenset[str]:
    """A set of ids; a single str is not taken for its letters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidQueryError(f"{name} must be a list of ids, not {type(values).__name__}")
    ids = list(values)
    if any(not isinstance(value, str) for value in ids):
        raise InvalidQueryError(f"{name} must contain only str")
    return frozenset(ids)


def search_query(query: VectorStoreQuery, keywords: Mapping[str, Any]) -> SearchQuery:
    """The query with its keywords; each one may narrow or count, none concerns access.

    In mode HYBRID ``hybrid_top_k`` is how many are answered, ``sparse_top_k`` how many BM25 brings,
    ``alpha`` the weight of the dense ranks. ``doc_ids=[]`` matches nothing; ``node_ids=[]``, which
    LlamaIndex always passes, is no restriction.
    """
    refuse_keywords(keywords, "query", QUERY_KEYWORDS)
    condition = Condition(
        filter=all_of(parse_filter(query.filters), parse_filter(keywords.get("filter"))),
        doc_ids=None if query.doc_ids is None else ids_of(query.doc_ids, "doc_ids"),
        ids=ids_of(query.node_ids, "node_ids") if query.node_ids else None,
    )
    mode = mode_of(query.mode)
    wanted = {"sparse": query.sparse_top_k, "hybrid": query.hybrid_top_k}.get(mode)
    top_k = check_top_k(wanted if wanted is not None else query.similarity_top_k)
    if keywords.get("top_k") is not None:
        top_k = check_top_k(keywords["top_k"])
    trade_off = keywords.get("mmr_threshold")
    if trade_off is None:
        trade_off = query.mmr_threshold
    return SearchQuery(
        vector=query.query_embedding, text=query.query_str, top_k=top_k, mode=mode,
        condition=condition, mmr_threshold=0.5 if trade_off is None else trade_off,
        mmr_prefetch_k=_prefetch(keywords, top_k),
        hybrid_weight=0.5 if query.alpha is None else query.alpha, lexical_k=query.sparse_top_k,
    )  # fmt: skip


def _prefetch(keywords: Mapping[str, Any], top_k: int) -> int | None:
    count, factor = keywords.get("mmr_prefetch_k"), keywords.get("mmr_prefetch_factor")
    if factor is None:
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidQueryError(f"mmr_prefetch_k must be an int of at least 1, not {count!r:.40}")
        return count
    if count is not None:
        raise InvalidQueryError("give mmr_prefetch_k or mmr_prefetch_factor, not both")
    number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if not number or not math.isfinite(factor) or factor <= 0:
        raise InvalidQueryError(f"mmr_prefetch_factor must be a number above 0, not {factor!r:.40}")
    return max(top_k, int(top_k * factor))
