"""Embedding with the result checked before anything is written or searched with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fiscal_rag_plugin.errors import InvalidVectorError

from .port import Embedder, Matrix
from .service import EmbeddingService


def embed_checked(embedder: Embedder, texts: Sequence[str], labels: Sequence[str] | None = None) -> Matrix:
    """The texts' vectors, float32 ``(n, dim)``, row by row in their order; ``(0, 0)`` for none.

    ``labels`` (chunk ids) name texts in errors. What the embedder itself raises passes unchanged.

    Raises:
        InvalidVectorError: not one vector a text, rows of unequal length, no numbers, NaN,
            infinity (also a value beyond float32), or a zero vector, which has no cosine.
    """
    if not texts:
        return np.empty((0, 0), dtype=np.float32)
    if isinstance(embedder, EmbeddingService):
        returned: object = embedder.embed_documents(list(texts), labels)
    else:
        returned = embedder.embed_documents(list(texts))
    vectors = _numbers(returned)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
        raise InvalidVectorError(
            f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts;"
            f" expected ({len(texts)}, dimension)"
        )
    return _usable(vectors, labels if labels is not None else [f"text {i}" for i in range(len(texts))])


def embed_query_checked(embedder: Embedder, text: str) -> npt.NDArray[np.float32]:
    """The question's vector, float32 ``(dim,)``; checked and raising as :func:`embed_checked`."""
    vector = _numbers(embedder.embed_query(text))
    if vector.ndim != 1 or not vector.shape[0]:
        raise InvalidVectorError(
            f"the embedder returned an array of shape {vector.shape} for a query; expected (dimension,)"
        )
    return cast("npt.NDArray[np.float32]", _usable(vector[np.newaxis], ["the query"])[0])


def _numbers(returned: object) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.asarray(returned)
    except (TypeError, ValueError):
        raise InvalidVectorError("the embedder returned vectors of unequal length") from None
    # Text such as "0.5" would convert to a number, and True to 1: neither is a coordinate.
    if array.dtype.kind not in "fiu":
        raise InvalidVectorError(
            f"the embedder returned {type(returned).__name__} without numbers; expected lists of float"
        )
    return array


def _usable(vectors: npt.NDArray[Any], labels: Sequence[str]) -> Matrix:
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(vectors, dtype=np.float32)
    for problem, rows in (
        ("has NaN, infinity or a value beyond float32", ~np.isfinite(matrix).all(axis=1)),
        ("is zero, which has no direction", ~matrix.any(axis=1)),
    ):
        if rows.any():
            first = int(np.flatnonzero(rows)[0])
            raise InvalidVectorError(f"the vector of {labels[first]} {problem}; {rows.sum()} such vectors")
    return matrix
