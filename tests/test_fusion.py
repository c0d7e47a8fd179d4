"""Reciprocal rank fusion: the worked values, and what holds for any two rankings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.errors import InvalidQueryError
from fiscal_rag_plugin.fusion import Fused, fuse, reciprocal_ranks

RANKINGS = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=8)
WEIGHTS = st.floats(0, 1)


def keys(fused: list[Fused[str]]) -> list[str]:
    return [one.key for one in fused]


def test_the_worked_values_at_one_half() -> None:
    (one,) = fuse(["a"], [])
    assert round(one.value, 7) == 0.0081967
    (both,) = fuse(["a"], ["a"])
    assert round(both.value, 7) == 0.0163934
    assert both == Fused("a", both.value, 1, 1)


def test_what_both_legs_have_comes_before_what_one_leads_with() -> None:
    fused = fuse(["a", "x"], ["x", "b"])
    assert keys(fused) == ["x", "a", "b"]
    assert (fused[0].dense_rank, fused[0].lexical_rank) == (2, 1)
    assert (fused[1].dense_rank, fused[1].lexical_rank) == (1, None)


def test_weights_flip_the_order() -> None:
    assert keys(fuse(["a", "b"], ["b", "a"], 0.9)) == ["a", "b"]
    assert keys(fuse(["a", "b"], ["b", "a"], 0.1)) == ["b", "a"]


def test_at_either_end_the_other_leg_adds_no_hits() -> None:
    assert fuse(["b", "a"], ["c", "a"], 1.0) == [Fused("b", 1 / 61, 1, None), Fused("a", 1 / 62, 2, 2)]
    assert fuse(["b", "a"], ["c", "a"], 0.0) == [Fused("c", 1 / 61, None, 1), Fused("a", 1 / 62, 2, 2)]


def test_equal_texts_with_different_ids_both_stay() -> None:
    assert keys(fuse(["a", "b"], [])) == ["a", "b"]


def test_ties_go_by_the_key_or_by_what_the_caller_says() -> None:
    assert keys(fuse(["b"], ["a"])) == ["a", "b"]
    own, public = ("private", "s", "1"), ("public", "", "2")
    assert [f.key for f in fuse([public], [own], tie=lambda key: key[2])] == [own, public]
    assert [f.key for f in fuse([public], [own], tie=lambda key: (-int(key[2]),))] == [public, own]


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_a_weight_outside_zero_and_one_is_refused(weight: object) -> None:
    with pytest.raises(InvalidQueryError):
        fuse(["a"], ["b"], weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan"), True])
def test_a_leg_needs_a_finite_weight(weight: float) -> None:
    with pytest.raises(InvalidQueryError):
        reciprocal_ranks([(["a"], weight)])


@settings(deadline=None)
@given(RANKINGS, RANKINGS, WEIGHTS)
def test_nothing_is_lost_nothing_is_added_and_each_key_comes_once(
    dense: list[str], lexical: list[str], weight: float
) -> None:
    found = keys(fuse(dense, lexical, weight))
    assert len(found) == len(set(found))
    assert set(found) == (set(dense) if weight > 0 else set()) | (set(lexical) if weight < 1 else set())


@settings(deadline=None)
@given(RANKINGS, RANKINGS, WEIGHTS)
def test_values_are_the_definition_and_their_order_the_answer(
    dense: list[str], lexical: list[str], weight: float
) -> None:
    fused = fuse(dense, lexical, weight)
    for one in fused:
        expected = (weight / (60 + one.dense_rank) if one.dense_rank else 0) + (
            (1 - weight) / (60 + one.lexical_rank) if one.lexical_rank else 0
        )
        assert one.value == pytest.approx(expected, rel=1e-12)
    assert fused == sorted(fused, key=lambda one: (-one.value, one.key))


@settings(deadline=None)
@given(RANKINGS, RANKINGS)
def test_at_one_half_the_legs_are_interchangeable(dense: list[str], lexical: list[str]) -> None:
    assert keys(fuse(dense, lexical)) == keys(fuse(lexical, dense))


@settings(deadline=None)
@given(RANKINGS)
def test_a_single_leg_keeps_its_order(ranking: list[str]) -> None:
    assert keys(fuse(ranking, [], 0.3)) == ranking == keys(fuse([], ranking, 0.3))


@settings(deadline=None)
@given(st.lists(st.tuples(RANKINGS, st.floats(0, 10)), max_size=5), st.randoms())
def test_many_legs_sum_to_the_same_in_any_order(
    legs: list[tuple[list[str], float]], random: object
) -> None:
    shuffled = list(legs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert reciprocal_ranks(legs) == reciprocal_ranks(shuffled)


def test_a_key_repeated_in_a_leg_counts_once_and_takes_no_rank() -> None:
    assert reciprocal_ranks([(["a", "a", "b"], 1.0)]) == {"a": 1 / 61, "b": 1 / 62}
