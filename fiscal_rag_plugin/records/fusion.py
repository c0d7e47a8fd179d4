"""Reciprocal rank fusion over record types (Cormack, Clarke, Buettcher, SIGIR 2009)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..engines.base import Hit, Key
from ..errors import InvalidQueryError
from ..fusion import RANK_CONSTANT, reciprocal_ranks

RRF_K = RANK_CONSTANT


@dataclass(slots=True)
class Fused:
    """A record with its fused score, and its hit and rank (from 1) in each type that found it."""

    hit: Hit
    score: float = 0.0
    views: dict[str, tuple[int, Hit]] = field(default_factory=dict)


def fuse(found: Mapping[str, Sequence[Hit]], weights: Mapping[str, float], k: int) -> list[Fused]:
    """The k best by the sum of weight/(60 + rank), ties by record id.

    Keyed by (scope, session, record id), never by content. A type of weight 0 adds no hit.
    """
    fused: dict[Key, Fused] = {}
    legs = {name: (hits, weights.get(name, 1.0)) for name, hits in found.items()}
    scores = reciprocal_ranks(([hit.record.key for hit in hits], weight) for hits, weight in legs.values())
    for doc_type, (hits, _) in legs.items():
        for rank, hit in enumerate(hits, start=1):
            if hit.record.key in scores:
                entry = fused.setdefault(hit.record.key, Fused(hit, scores[hit.record.key]))
                entry.views[doc_type] = (rank, hit)
    return sorted(fused.values(), key=lambda f: (-f.score, f.hit.record.id, f.hit.record.key))[:k]


def check_weight(weight: object, what: str) -> float:
    """``weight`` when it is a finite number of at least 0, not a bool."""
    if isinstance(weight, (int, float)) and not isinstance(weight, bool):
        # An int may be beyond float, and too long to be printed.
        if 0 <= weight <= sys.float_info.max:
            return float(weight)
        raise InvalidQueryError(f"{what} must be a finite number of at least 0")
    raise InvalidQueryError(f"{what} must be a number, not {type(weight).__name__}")
