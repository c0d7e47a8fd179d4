"""What is compared: ways to search, from ``mode=dense,sparse`` and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..engines.base import Condition
from ..errors import InvalidQueryError
from ..fusion import check_weight
from ..ranking import SearchQuery, check_mode, check_threshold


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to search; ``hybrid_weight`` counts in mode "hybrid" only."""

    mode: str = "dense"
    hybrid_weight: float = 0.5
    score_threshold: float | None = None

    @property
    def name(self) -> str:
        """Short, and different for different configurations: ``hybrid 0.7 ≥ 0.82``."""
        parts = [self.mode]
        if self.mode == "hybrid" and self.hybrid_weight != 0.5:
            parts.append(f"{self.hybrid_weight:g}")
        if self.score_threshold is not None:
            parts.append(f"≥ {self.score_threshold:g}")
        return " ".join(parts)

    def query(self, text: str, vector: Any, top_k: int, condition: Condition) -> SearchQuery:
        return SearchQuery(
            vector=vector, text=text, top_k=top_k, mode=self.mode, hybrid_weight=self.hybrid_weight,
            score_threshold=self.score_threshold, condition=condition,
        )  # fmt: skip


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidQueryError(f"{text!r:.40} is not a number") from None


_READERS: Mapping[str, Callable[[str], Any]] = {
    "mode": check_mode,
    "hybrid_weight": lambda text: check_weight(_number(text)),
    "score_threshold": lambda text: None if text == "none" else check_threshold(_number(text)),
}
DEFAULT_COMPARISON = ("mode=dense,sparse,hybrid",)


def configurations(compared: Iterable[str] = DEFAULT_COMPARISON) -> list[Configuration]:
    """Every combination of ``key=value,value`` settings, each once, in the order given.

    Raises:
        InvalidQueryError: another key than mode, hybrid_weight or score_threshold, or a bad value.
    """
    values: dict[str, Sequence[Any]] = {}
    for setting in compared:
        key, equals, listed = setting.partition("=")
        reader = _READERS.get(key.strip())
        if reader is None or not equals or not listed.strip():
            raise InvalidQueryError(
                f"cannot compare {setting!r:.60}: write one of {', '.join(_READERS)} as key=value,value"
            )
        try:
            values[key.strip()] = [reader(value.strip()) for value in listed.split(",")]
        except InvalidQueryError as error:
            raise InvalidQueryError(f"cannot compare {setting!r:.60}: {error}") from None
    if "hybrid_weight" in values and "mode" not in values:
        values["mode"] = ["hybrid"]
    found = [
        Configuration(**dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())
    ]
    alike = {c if c.mode == "hybrid" else replace(c, hybrid_weight=0.5): None for c in found}
    return list(alike)
