"""BM25 as tantivy (and Lucene) computes it, for texts that are in no index.

Robertson and Zaragoza, 2009: the sum over terms of ``idf * (k1 + 1) * tf / (tf + k1 * (1 - b +
b * length / average))``, with ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))``, in float32.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Scores: TypeAlias = "npt.NDArray[np.float32]"

K1, B = np.float32(1.2), np.float32(0.75)
_ONE, _HALF = np.float32(1), np.float32(0.5)

ASSUMED_LENGTH = 100.0
"""The average length where no public text says one: a value then depends on its own text alone."""


def _length_steps() -> list[int]:
    """Lengths that one byte can say: exact to 40, then three significant bits (Lucene's SmallFloat)."""
    steps = []
    for code in range(256):
        bits, shift = (code - 24) & 0b111, (code - 24) >> 3
        steps.append(code if code < 24 else 24 + (bits if shift == 0 else (bits | 8) << (shift - 1)))
    return steps


_STEPS = _length_steps()


def quantised(length: int) -> int:
    """The length as tantivy remembers it: the greatest step that is not above."""
    return _STEPS[bisect_right(_STEPS, length) - 1]


@dataclass(frozen=True, slots=True)
class Bag:
    """What BM25 sees of a text: how often each token occurs, and how many there are."""

    counts: Mapping[str, int]
    length: int

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Bag:
        """The bag of a text."""
        return cls(Counter(tokens), len(tokens))

    @classmethod
    def of_joined(cls, text: str, asked: Iterable[str]) -> Bag:
        """The bag of tokens joined by single spaces, with only the counts of the ``asked`` ones.

        Searching the text takes a tenth of splitting it and counting in the list.
        """
        apart = f" {text.replace(' ', '  ')} "  # neighbours share no space
        return cls({token: apart.count(f" {token} ") for token in asked}, len(text) and text.count(" ") + 1)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the public texts: how many, how long on average, and in how many each asked token occurs."""

    documents: int
    average_length: float
    frequencies: Mapping[str, int]

    def weight(self, token: str) -> np.float32:
        """idf times (k1 + 1). A token in no public text counts as in one, an empty index as one text."""
        frequency = max(self.frequencies.get(token, 0), 1)
        documents = max(self.documents, frequency)
        odds = (np.float32(documents - frequency) + _HALF) / (np.float32(frequency) + _HALF)
        # math.log, not numpy's: the same bits on every processor.
        return np.float32(math.log(float(_ONE + odds))) * (_ONE + K1)


def scores(tokens: Iterable[str], bags: Sequence[Bag], statistics: Statistics) -> Scores:
    """BM25 of each bag, float32 ``(n,)``; 0.0 exactly where no token occurs, above it elsewhere.

    Repeated tokens of a question count once. A bag's value never depends on the other bags.
    """
    average = np.float32(statistics.average_length or ASSUMED_LENGTH)
    lengths = np.array([quantised(bag.length) for bag in bags], dtype=np.float32)
    norms = K1 * (_ONE - B + B * lengths / average)
    total = np.zeros(len(bags), dtype=np.float32)
    for token in sorted(set(tokens)):
        counts = np.array([bag.counts.get(token, 0) for bag in bags], dtype=np.float32)
        if counts.any():
            total += statistics.weight(token) * (counts / (counts + norms))
    return total
