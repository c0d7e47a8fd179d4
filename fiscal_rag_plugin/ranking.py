"""From candidates to answers: query parameters, MMR, top k, threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from .engines.base import ANYTHING, Condition, Found, Hit
from .errors import InvalidQueryError, UnsupportedModeError
from .fusion import check_weight
from .vectors import Vector, mmr_order

Mode = Literal["dense", "sparse", "hybrid", "mmr"]
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid", "mmr")
LEG_DEPTH = 50
"""Hits that each leg of a hybrid search brings at least; 60 is the constant their ranks are added to."""
THRESHOLD_TOLERANCE = 1e-6
"""An exact cosine of 0.82 is 0.8199999 in float32 and passes a threshold of 0.82."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question: as a vector ``(dim,)`` or as text, with how many answers of what kind."""

    vector: Any = None
    text: str | None = None
    top_k: int = 8
    score_threshold: float | None = None
    mode: str = "dense"
    condition: Condition = ANYTHING
    mmr_threshold: float = 0.5
    """1.0 is plain similarity, 0.0 only diversity."""
    mmr_prefetch_k: int | None = None
    hybrid_weight: float = 0.5
    """Of the dense leg; BM25 has the rest. At 1.0 or 0.0 the other leg adds no hits."""
    lexical_k: int | None = None
    """How many hits BM25 brings to a hybrid search; at least LEG_DEPTH and top_k without it."""
    on_lexical_failure: str = "raise"
    """"dense": answer without words when they cannot be searched, and say so in the result."""

    @property
    def needs_text(self) -> bool:
        return self.mode in ("sparse", "hybrid")

    @property
    def candidates(self) -> int:
        """How many hits of both partitions are ranked: top_k, or what MMR chooses among."""
        if self.mode == "hybrid":
            return max(self.top_k, LEG_DEPTH)
        if self.mode != "mmr":
            return self.top_k
        return max(self.mmr_prefetch_k or max(20, 4 * self.top_k), self.top_k)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits in order; ``cut`` of the top k fell below the threshold, ``best`` was their best similarity."""

    hits: list[Hit]
    plan: str
    cut: int = 0
    best: float = float("nan")
    degraded: str = ""
    """Why words were not searched although the mode asked for it; empty when they were."""


def check_top_k(top_k: object) -> int:
    """``top_k`` when it is an int of at least 1, not a bool."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise InvalidQueryError(f"top_k must be an int of at least 1, not {top_k!r:.40}")
    return top_k


def check_threshold(threshold: object) -> float | None:
    """``threshold`` when it is None or a finite number in [-1, 1], not a bool."""
    if threshold is None:
        return None
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not -1 <= cast("float", threshold) <= 1:
        raise InvalidQueryError(
            f"score_threshold must be None or a number in [-1, 1], not {threshold!r:.40}"
        )
    return float(cast("float", threshold))


def check_mode(mode: object) -> Mode:
    """``mode`` when it is one of MODES; no mode silently becomes another."""
    if mode not in MODES:
        raise UnsupportedModeError(f"mode {mode!r:.40} is not supported; there are {', '.join(MODES)}")
    return mode


def check_lexical_failure(choice: object) -> str:
    """``choice`` when it is "raise" or "dense"."""
    if choice not in ("raise", "dense"):
        raise InvalidQueryError(f"on_lexical_failure must be 'raise' or 'dense', not {choice!r:.40}")
    return str(choice)


def check_parameters(query: SearchQuery) -> None:
    """Raise InvalidQueryError unless everything but the question itself is in its range."""
    check_mode(query.mode)
    check_top_k(query.top_k)
    check_threshold(query.score_threshold)
    if query.mmr_prefetch_k is not None:
        check_top_k(query.mmr_prefetch_k)
    if query.lexical_k is not None:
        check_top_k(query.lexical_k)
    check_weight(query.hybrid_weight)
    check_lexical_failure(query.on_lexical_failure)
    trade_off = query.mmr_threshold
    if isinstance(trade_off, bool) or not isinstance(trade_off, (int, float)) or not 0 <= trade_off <= 1:
        raise InvalidQueryError(f"mmr_threshold must be a number in [0, 1], not {trade_off!r:.40}")


def check_query(query: SearchQuery) -> None:
    """Raise InvalidQueryError unless there is a question and every parameter is in its range."""
    check_parameters(query)
    if query.text is not None and not isinstance(query.text, str):
        raise InvalidQueryError(
            f"the question must be a str, not {type(query.text).__name__}; "
            "in a chain, pick it out first: itemgetter('question') | retriever"
        )
    if query.vector is None and not (query.text or "").strip():
        raise InvalidQueryError("a query needs a non-blank text or a vector")
    if query.needs_text and not (query.text or "").strip():
        raise InvalidQueryError(f"mode {query.mode!r} searches words: it needs the question's text")


def select(query: SearchQuery, vector: Vector | None, found: Found) -> SearchResult:
    """Rank, cut to top_k, then apply the threshold; it never loosens by itself."""
    hits = found.hits
    if query.mode == "mmr" and hits and vector is not None:
        matrix = np.stack([cast("Vector", hit.vector) for hit in hits])
        keys = [hit.order[1:] for hit in hits]
        hits = [hits[i] for i in mmr_order(vector, matrix, keys, query.top_k, query.mmr_threshold)]
    hits = hits[: query.top_k]
    kept = [hit for hit in hits if passes(hit.similarity, query.score_threshold)]
    best = max((hit.similarity for hit in hits), default=float("nan"))
    return SearchResult(kept, found.plan, len(hits) - len(kept), best, found.degraded)


def passes(similarity: float, threshold: float | None) -> bool:
    """Whether a similarity reaches the threshold, within 1e-6."""
    return threshold is None or similarity >= threshold - THRESHOLD_TOLERANCE


@dataclass(frozen=True, slots=True)
class Explained:
    """One candidate and what became of it."""

    hit: Hit
    decision: str


def explain(query: SearchQuery, result: SearchResult, nearest: Sequence[Hit]) -> list[Explained]:
    """Every candidate, each with why it was kept or dropped: by similarity, with words the answer first."""
    kept = {hit.record.key: rank for rank, hit in enumerate(result.hits, 1)}
    candidates = {hit.record.key: hit for hit in [*nearest, *result.hits]}
    explained = []
    for key, hit in candidates.items():
        if key in kept:
            decision = f"kept, rank {kept[key]}"
        elif query.mode == "sparse" and hit.bm25 == 0:
            decision = "has no word of the question"
        elif not query.condition.matches(hit.record):
            decision = "dropped by the filter"
        elif not passes(hit.similarity, query.score_threshold):
            decision = f"below score_threshold {query.score_threshold:g}"
        else:
            decision = "not chosen by mmr" if query.mode == "mmr" else f"beyond top_k {query.top_k}"
        explained.append(Explained(hit, decision))
    if query.needs_text:
        # By what these modes order by: the answer, then the rest by similarity.
        ranks = {hit.record.key: rank for rank, hit in enumerate(result.hits)}
        last = len(ranks)
        return sorted(explained, key=lambda e: (ranks.get(e.hit.record.key, last), e.hit.order))
    return sorted(explained, key=lambda e: e.hit.order)
