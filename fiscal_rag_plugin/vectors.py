"""Vectors: what is accepted, the one similarity routine, and the one order of hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .errors import InvalidVectorError

Vector: TypeAlias = "npt.NDArray[np.float32]"
Matrix: TypeAlias = "npt.NDArray[np.float32]"

NO_VECTORS: Matrix = np.empty((0, 0), dtype=np.float32)

# Similarities that agree to six decimals are one rank: HNSW rebuilds and float32 storage move
# the seventh, and an order that depends on it is not reproducible.
ORDER_DECIMALS = 6

ESTIMATE_ERROR = 1e-5
"""Far above what float32 sums of some thousand products differ by (1e-7 measured at 384)."""


def as_matrix(vectors: Any, count: int, dimension: int | None = None) -> Matrix:
    """``vectors`` as float32 ``(count, dim)``.

    Raises:
        InvalidVectorError: another count or dimension, NaN or infinity (also after the cast to
            float32, so 1e39 is refused), or a zero vector, whose cosine is undefined.
    """
    try:
        with np.errstate(over="ignore"):
            matrix = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidVectorError("vectors must be equally long lists of numbers") from None
    if count == 0 and matrix.size == 0:
        return np.empty((0, dimension or 0), dtype=np.float32)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise InvalidVectorError(f"expected vectors of shape ({count}, dim), got {matrix.shape}")
    if matrix.shape[0] != count:
        raise InvalidVectorError(f"expected {count} vectors, got {matrix.shape[0]}")
    if dimension is not None and matrix.shape[1] != dimension:
        raise InvalidVectorError(f"the index has dimension {dimension}, these vectors {matrix.shape[1]}")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise InvalidVectorError(f"vector {bad[0]} contains NaN, infinity or a value beyond float32")
    zero = np.flatnonzero(~matrix.any(axis=1))
    if zero.size:
        raise InvalidVectorError(f"vector {zero[0]} is zero; it has no direction to compare")
    return cast("Matrix", np.ascontiguousarray(matrix))


def as_vector(vector: Any, dimension: int | None = None) -> Vector:
    """One vector as float32 ``(dim,)``; raises like :func:`as_matrix`."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=np.float32)
    if array.ndim != 1 or not array.size:
        raise InvalidVectorError("a query vector must be a non-empty list of numbers")
    return cast("Vector", as_matrix(array[None, :], 1, dimension)[0])


def similarities(query: Vector, matrix: Matrix) -> npt.NDArray[np.float32]:
    """Cosines in [-1, 1] of ``query (dim,)`` with each row of ``matrix (n, dim)``, float32 ``(n,)``.

    Computed in float64, row by row: a row's value never depends on which other rows are scored
    with it, as it may with a BLAS product. That keeps one caller's numbers bit-identical
    whatever else the index holds.
    """
    if not len(matrix):
        return np.empty(0, dtype=np.float32)
    rows = np.ascontiguousarray(matrix, dtype=np.float64)
    wanted = np.asarray(query, dtype=np.float64)
    products = np.add.reduce(rows * wanted, axis=1)
    norms = np.sqrt(np.add.reduce(rows * rows, axis=1)) * np.sqrt(np.add.reduce(wanted * wanted))
    return cast("npt.NDArray[np.float32]", np.clip(products / norms, -1.0, 1.0).astype(np.float32))


def estimates(query: Vector, matrix: Matrix) -> npt.NDArray[np.float32]:
    """:func:`similarities` to within ESTIMATE_ERROR in a tenth of the time: to choose by, never to show."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", matrix, matrix) * np.dot(query, query)
    # Very long and very short vectors leave float32's range when they are multiplied.
    if not np.all((squares > 1e-12) & (squares < 1e12)):
        return similarities(query, matrix)
    # einsum, not BLAS: waking its threads takes longer than a session's few rows.
    return cast("npt.NDArray[np.float32]", np.einsum("ij,j->i", matrix, query) / np.sqrt(squares))


def rounded(similarity: float) -> float:
    """The similarity as ordering sees it."""
    return round(float(similarity), ORDER_DECIMALS)


def mmr_order(
    query: Vector, matrix: Matrix, ids: Sequence[Any], k: int, trade_off: float = 0.5
) -> list[int]:
    """Indices of up to ``k`` rows by maximal marginal relevance (Carbonell & Goldstein, 1998).

    Each step takes the row with the highest ``trade_off * sim(query, row) - (1 - trade_off) *
    max(sim(row, taken))``; ties go to the smaller id. At 1.0 that is the plain order.
    """
    relevance = similarities(query, matrix).astype(np.float64)
    closest = np.zeros(len(ids))
    left = list(range(len(ids)))
    taken: list[int] = []
    while left and len(taken) < k:
        value = (trade_off * relevance - (1 - trade_off) * closest).tolist()
        best = min(left, key=lambda i, value=value: (-rounded(value[i]), ids[i]))  # type: ignore[misc]
        left.remove(best)
        nearness = similarities(matrix[best], matrix).astype(np.float64)
        closest = np.maximum(closest, nearness) if taken else nearness
        taken.append(best)
    return taken
