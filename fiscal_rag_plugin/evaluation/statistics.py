"""How sure a mean is, and a difference: over questions, with seeds that are fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SEED = 20261201
RESAMPLES = 9_999


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over questions with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The mean difference of two configurations on the same questions.

    ``p`` is two-sided, by permutation of signs: how often chance alone does as much.
    """

    difference: float
    p: float


def interval(values: Sequence[float]) -> Interval:
    """The mean of one value a question, and where it lies in 95 % of resampled question sets."""
    from scipy.stats import bootstrap

    mean = float(np.mean(values))
    if len(values) < 2 or len(set(values)) == 1:
        return Interval(mean, mean, mean)
    found = bootstrap(
        (np.asarray(values),), np.mean, n_resamples=RESAMPLES, method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Interval(mean, float(found.low), float(found.high))


def paired(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """``first`` minus ``second``, question by question; both hold one value a question, in one order."""
    from scipy.stats import permutation_test

    differences = np.asarray(first) - np.asarray(second)
    if not differences.any():
        return Comparison(0.0, 1.0)
    # Over differences: a permutation of two samples in pairs is a permutation of signs.
    found = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    )  # fmt: skip
    return Comparison(float(differences.mean()), float(found.pvalue))
