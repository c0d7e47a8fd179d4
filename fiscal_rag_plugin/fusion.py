"""Weighted reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): ranks, never scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import InvalidQueryError

RANK_CONSTANT = 60

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fused(Generic[K]):
    """One key of the fused order. Ranks count from 1; None: not in that list."""

    key: K
    value: float
    dense_rank: int | None
    lexical_rank: int | None


def check_weight(weight: object) -> float:
    """``weight`` when it is a number in [0, 1], not a bool."""
    number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not number or not 0 <= weight <= 1:  # type: ignore[operator]
        raise InvalidQueryError(f"hybrid_weight must be a number in [0, 1], not {weight!r:.40}")
    return float(weight)  # type: ignore[arg-type]


def reciprocal_ranks(legs: Iterable[tuple[Sequence[K], float]]) -> dict[K, float]:
    """The sum of weight / (60 + rank) of each key over (ranking, weight) legs.

    A key counts once in a leg, at its best rank; a leg of weight 0 adds no keys. Weights may be any
    finite numbers of at least 0. The sum does not depend on the order of the legs.
    """
    parts: dict[K, list[float]] = {}
    for ranking, weight in legs:
        if isinstance(weight, bool) or not math.isfinite(weight) or weight < 0:
            raise InvalidQueryError(f"a leg's weight must be finite and at least 0, not {weight!r:.40}")
        if weight > 0:
            for key, rank in _ranks(ranking).items():
                parts.setdefault(key, []).append(weight / (RANK_CONSTANT + rank))
    return {key: math.fsum(values) for key, values in parts.items()}


def fuse(
    dense: Sequence[K], lexical: Sequence[K], weight: float = 0.5, *, tie: Callable[[K], Any] | None = None
) -> list[Fused[K]]:
    """Both rankings as one, best first; ``weight`` is the dense leg's, 1 - ``weight`` the lexical one's.

    Equal values are ordered by ``tie`` of the key (default: the key itself). At 1.0 or 0.0 the
    other leg adds no hits; its ranks of the keys that stay are still told.

    Raises:
        InvalidQueryError: a weight outside [0, 1].
    """
    weight = check_weight(weight)
    values = reciprocal_ranks([(dense, weight), (lexical, 1 - weight)])
    dense_ranks, lexical_ranks = _ranks(dense), _ranks(lexical)
    order = sorted(values, key=lambda key: (-values[key], key if tie is None else tie(key)))
    return [Fused(key, values[key], dense_ranks.get(key), lexical_ranks.get(key)) for key in order]


def _ranks(ranking: Sequence[K]) -> dict[K, int]:
    """The rank of each key, counted from 1 over different keys."""
    return {key: rank for rank, key in enumerate(dict.fromkeys(ranking), 1)}
