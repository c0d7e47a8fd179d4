"""A condition as facets: what it lets through is never less than what matches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.conditions import And, Compare, Filter, InForce, Not, Or
from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import facet_query, facets

SCALARS = st.sampled_from(["", "a", "7", "x" * 2_000, 0, 7, 7.0, -0.0, 2.5, 2**60, -(2**60), True, False])
KEYS = st.sampled_from(["tax", "n", "tags", "source_scope"])
METADATA = st.dictionaries(
    KEYS, SCALARS | st.none() | st.lists(SCALARS | st.none() | st.just([1]), max_size=4)
)
COMPARISONS = st.one_of(
    st.builds(Compare, KEYS, st.sampled_from(["eq", "ne", "contains", "not_contains", "gt", "lte"]), SCALARS),
    st.builds(Compare, KEYS, st.sampled_from(["in", "nin", "any", "all"]), st.lists(SCALARS | st.none(), max_size=3).map(tuple)),
    st.builds(Compare, KEYS, st.just("eq"), st.lists(SCALARS, max_size=2).map(tuple)),
    st.builds(Compare, KEYS, st.sampled_from(["is_empty", "eq"])),
    st.just(InForce("2024-01-01")),
)  # fmt: skip
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(Not, inner)
    ),
    max_leaves=6,
)
CONDITIONS = st.builds(
    Condition,
    st.none() | FILTERS,
    st.none() | st.frozensets(st.sampled_from(["d1", "d2", "d" * 2_000]), max_size=2),
    st.none() | st.frozensets(st.sampled_from(["1", "2"]), max_size=2),
)


def record(metadata: dict[str, Any], id: str = "1", ref: str | None = "d1") -> Record:
    return Record(id=id, scope="public", session_id=None, ref=ref, text="t", metadata=metadata)


def passes(condition: Condition, one: Record) -> bool:
    own = set(facets(one))
    return all(own & group for group in facet_query(condition))


@settings(deadline=None)
@given(METADATA, CONDITIONS, st.sampled_from(["1", "2"]), st.sampled_from(["d1", "d2", "d" * 2_000, None]))
@example({"tax": True}, Condition(Compare("tax", "eq", True)), "1", "d1")
def test_whatever_matches_has_the_facets(
    metadata: dict[str, Any], condition: Condition, id: str, ref: str | None
) -> None:
    one = record(metadata, id, ref)
    if condition.matches(one):
        assert passes(condition, one)


def condition(where: dict[str, Any]) -> Condition:
    return Condition(filter=parse_filter(where))


@pytest.mark.parametrize(
    ("where", "inside", "outside"),
    [
        ({"tax": "IVA"}, {"tax": "IVA"}, {"tax": "IVAX"}),
        ({"n": 7}, {"n": 7.0}, {"n": "7"}),
        ({"n": True}, {"n": True}, {"n": 1}),
        ({"n": False}, {"n": False}, {"n": 0}),
        ({"tax": {"$in": ["IVA", "IS"]}}, {"tax": "IS"}, {"tax": "IRPF"}),
        ({"tags": {"$contains": "a"}}, {"tags": ["b", "a"]}, {"tags": ["b"]}),
        ({"tags": {"$any": ["a", 0]}}, {"tags": [0]}, {"tags": ["b"]}),
        ({"tags": {"$all": ["a", "b"]}}, {"tags": ["b", "a"]}, {"tags": ["b"]}),
        ({"$or": [{"tax": "IVA"}, {"tax": "IS", "n": 1}]}, {"tax": "IS", "n": 1}, {"tax": "IRPF", "n": 2}),
        ({"tax": "IVA", "n": {"$gt": 5}}, {"tax": "IVA", "n": 1}, {"tax": "IS", "n": 6}),
    ],
)
def test_equality_and_membership_are_applied_by_the_index(
    where: dict[str, Any], inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    assert passes(condition(where), record(inside))
    assert not passes(condition(where), record(outside))


def test_an_empty_list_lets_nothing_pass() -> None:
    for nothing in (
        condition({"tax": {"$in": []}}),
        Condition(ids=frozenset()),
        Condition(doc_ids=frozenset()),
    ):
        assert frozenset() in facet_query(nothing)


def test_a_list_too_long_for_facets_is_left_to_the_caller() -> None:
    long: dict[str, Any] = {"tags": [str(i) for i in range(2_000)]}
    assert len(facets(record(long))) < 10
    assert passes(condition({"tags": {"$contains": "1999"}}), record(long))
