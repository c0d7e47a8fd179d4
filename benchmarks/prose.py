"""Made-up Spanish prose: function words and words of Zipf's law, with the endings of Spanish."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fiscal_rag_plugin.lexical.words import STOP_WORDS

SEED = 20261130
VOCABULARY = 50_000
SYLLABLES = tuple(a + b for a in "bcdfglmnprstv" for b in "aeio")
ENDINGS = ["ción", "ciones", "miento", "ble", "bles", "dor", "ar", "ado", "ada", "o", "os", "a", "as"]


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[list[str], np.ndarray]:
    """The words, the commonest first, and how often words up to each occur."""
    generator = np.random.default_rng(SEED)
    parts = generator.integers(len(SYLLABLES), size=(VOCABULARY, 3))
    lengths = generator.integers(1, 4, size=VOCABULARY)
    endings = generator.integers(len(ENDINGS), size=VOCABULARY)
    words = [
        "".join(SYLLABLES[p] for p in row[:length]) + ENDINGS[end]
        for row, length, end in zip(parts.tolist(), lengths.tolist(), endings.tolist(), strict=True)
    ]
    # Zipf and Mandelbrot: the commonest is in a third of the texts, as "impuesto" is.
    shares = np.cumsum(1 / (np.arange(VOCABULARY) + 30.0))
    return words, shares / shares[-1]


def draw(generator: np.random.Generator, size: int) -> list[str]:
    """``size`` words, each drawn by how common it is."""
    words, shares = _vocabulary()
    return [words[i] for i in np.searchsorted(shares, generator.random(size), side="right").tolist()]


def prose(generator: np.random.Generator, count: int) -> list[str]:
    """``count`` texts of 60 to 300 words, 180 on average; every other word is a function word."""
    function_words = sorted(STOP_WORDS)
    halves = generator.integers(30, 151, size=count)
    total = int(halves.sum())
    said = draw(generator, total)
    between = generator.integers(len(function_words), size=total).tolist()
    pairs = [f"{function_words[i]} {word}" for i, word in zip(between, said, strict=True)]
    ends = np.cumsum(halves).tolist()
    return [" ".join(pairs[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
