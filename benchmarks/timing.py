"""Questions in alternating order, and what is kept of the answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .peers.base import Ask

AT_LEAST = 10
"""Questions that also a slow peer answers."""


@dataclass
class Timing:
    """Seconds and labels by question; a slow peer has answered the first ones only."""

    seconds: list[float] = field(default_factory=list)
    answers: list[list[str]] = field(default_factory=list)

    @property
    def p50_ms(self) -> float:
        return float(np.median(self.seconds)) * 1e3

    @property
    def p95_ms(self) -> float:
        return float(np.percentile(self.seconds, 95)) * 1e3

    def recall(self, truth: Sequence[Sequence[str]]) -> float:
        """The mean part of the true best that was found."""
        pairs = zip(self.answers, truth, strict=False)
        return float(np.mean([len(set(answer) & set(best)) / len(best) for answer, best in pairs]))


def measure(
    asks: Mapping[str, Sequence[Ask]], warm: Mapping[str, Ask], vectors: np.ndarray, budget_seconds: float
) -> dict[str, Timing]:
    """Ask every peer every question in turn, each question beginning with the next peer.

    ``asks`` holds a way to ask for each question, used round; ``warm`` is asked once before. A peer
    that has used its budget sits out the rest, after AT_LEAST questions.
    """
    for ask in warm.values():
        ask(vectors[-1])
    timings = {name: Timing() for name in asks}
    names = list(asks)
    for number, vector in enumerate(vectors):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            timing = timings[name]
            if len(timing.seconds) >= AT_LEAST and sum(timing.seconds) > budget_seconds:
                continue
            ask = asks[name][number % len(asks[name])]
            started = time.perf_counter()
            answer = ask(vector)
            timing.seconds.append(time.perf_counter() - started)
            timing.answers.append(answer)
    return timings
