from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiscal_rag_plugin.errors import InvalidVectorError
from fiscal_rag_plugin.vectors import as_matrix, as_vector, mmr_order, rounded, similarities


@pytest.mark.parametrize(
    "vectors",
    [
        [[float("nan"), 0.0]],
        [[float("inf"), 0.0]],
        [[-float("inf"), 1.0]],
        [[1e39, 0.0]],
        [[0.0, 0.0]],
        [[1.0], [1.0, 2.0]],
        [[1.0, 2.0], [1.0, 2.0]],
        [[]],
        [["a", "b"]],
        [[1.0, 2.0, 3.0]],
        [1.0, 2.0],
        None,
    ],
)
def test_vectors_without_a_direction_or_of_another_shape_are_refused(vectors: Any) -> None:
    with pytest.raises(InvalidVectorError):
        as_matrix(vectors, 1, 2)


@pytest.mark.parametrize("vector", [[], 7, None, "abc", [[1.0, 2.0]], [float("nan"), 1.0]])
def test_a_query_vector_that_is_none_is_refused(vector: Any) -> None:
    with pytest.raises(InvalidVectorError):
        as_vector(vector)


def test_numpy_and_lists_are_the_same_vector() -> None:
    assert np.array_equal(as_vector(np.array([0.6, 0.8])), as_vector([0.6, 0.8]))
    assert as_vector([3, 4]).dtype == np.float32


def test_similarity_is_the_cosine_clamped_to_one() -> None:
    rows = as_matrix([[1, 0], [0.6, 0.8], [-1, 0], [5, 0]], 4)
    assert similarities(as_vector([1, 0]), rows).tolist() == pytest.approx([1.0, 0.6, -1.0, 1.0], abs=1e-7)
    assert similarities(as_vector([1e-3, 1e-3]), as_matrix([[7, 7]], 1))[0] <= 1.0


def test_a_rows_similarity_is_bit_identical_whatever_is_scored_with_it() -> None:
    generator = np.random.default_rng(7)
    matrix = generator.normal(size=(1_000, 384)).astype(np.float32)
    query = generator.normal(size=384).astype(np.float32)
    together = similarities(query, matrix)
    alone = np.array([similarities(query, matrix[i : i + 1])[0] for i in range(len(matrix))])
    odd = similarities(query, matrix[3:1_000:7])
    assert together.tobytes() == alone.tobytes()
    assert together[3:1_000:7].tobytes() == odd.tobytes()


def test_mmr_prefers_what_adds_something() -> None:
    query = as_vector([1, 0])
    rows = as_matrix([[1, 0], [0.999, 0.04], [0.7, 0.7]], 3)
    assert mmr_order(query, rows, ["a", "b", "c"], 2, 0.3) == [0, 2]
    assert mmr_order(query, rows, ["a", "b", "c"], 2, 1.0) == [0, 1]


def test_mmr_ties_go_to_the_smaller_id() -> None:
    rows = as_matrix([[1, 0], [1, 0]], 2)
    assert mmr_order(as_vector([1, 0]), rows, ["b", "a"], 1) == [1]


def test_order_sees_six_decimals() -> None:
    assert rounded(0.12345649) == rounded(0.1234560) == 0.123456
