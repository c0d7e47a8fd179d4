from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from fiscal_rag_plugin.errors import InvalidFilterError
from fiscal_rag_plugin.filters import can_match, in_force, matches, parse_filter, validity

IVA: dict[str, Any] = {
    "tax": "IVA", "year": 2024, "rate": 0.21, "vigente": True, "tags": ["iva", "tipos"], "vacía": [],
    "nulo": None, "fecha": "2024-05-01", "código": "007", "mixta": ["a", 1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"tax": "IVA"}, True),
        ({"tax": "iva"}, False),
        ({"tax": "IVA", "year": 2024}, True),
        ({"tax": "IVA", "year": 2023}, False),
        ({"year": 2024.0}, True),
        ({"year": "2024"}, False),
        ({"código": 7}, False),
        ({"código": "007"}, True),
        ({"vigente": True}, True),
        ({"vigente": 1}, False),
        ({"year": {"$gt": 2023, "$lt": 2025}}, True),
        ({"year": {"$gte": 2024, "$lte": 2024}}, True),
        ({"rate": {"$lt": 1}}, True),
        ({"vigente": {"$gte": 0}}, False),
        ({"tax": {"$in": ["IVA", "IRPF"]}}, True),
        ({"tax": {"$in": []}}, False),
        ({"tax": {"$nin": []}}, True),
        ({"tax": {"$nin": ["IVA"]}}, False),
        ({"absent": {"$nin": ["IVA"]}}, True),
        ({"absent": {"$ne": "x"}}, True),
        ({"nulo": {"$ne": "x"}}, True),
        ({"nulo": ""}, False),
        ({"nulo": None}, True),
        ({"absent": None}, True),
        ({"tax": {"$ne": None}}, True),
        ({"absent": {"$is_empty": True}}, True),
        ({"vacía": {"$is_empty": None}}, True),
        ({"tags": {"$is_empty": True}}, False),
        ({"absent": {"$in": [None]}}, False),
        ({"absent": {"$gt": 1}}, False),
        ({"fecha": {"$gte": "2024-01-01"}}, True),
        ({"fecha": {"$gte": "2024"}}, True),
        ({"fecha": {"$lt": "2024-05"}}, False),
        ({"fecha": {"$gt": 2023}}, False),
        ({"tax": {"$gt": "A"}}, False),
        ({"year": {"$gt": "2000"}}, False),
        ({"tags": {"$contains": "iva"}}, True),
        ({"tags": {"$contains": "iv"}}, False),
        ({"tags": {"$not_contains": "iva"}}, False),
        ({"tags": {"$any": ["x", "tipos"]}}, True),
        ({"tags": {"$all": ["iva", "x"]}}, False),
        ({"mixta": {"$contains": 1.0}}, True),
        ({"tags": "iva"}, False),
        ({"tags": ["iva", "tipos"]}, True),
        ({"tax": {"$text_match": "VA"}}, True),
        ({"tax": {"$text_match": "va"}}, False),
        ({"tax": {"$text_match_insensitive": "va"}}, True),
        ({"year": {"$text_match": "2"}}, False),
        ({"$or": [{"tax": "IRPF"}, {"year": 2024}]}, True),
        ({"$or": [{"tax": "IRPF"}]}, False),
        ({"$and": [{"tax": "IVA"}]}, True),
        ({"$not": {"tax": "IVA"}}, False),
        ({"$not": {"absent": "x"}}, True),
        ({"tax": "IVA", "$or": [{"year": 1}, {"year": 2024}]}, True),
        ({}, True),
        ({"$and": []}, True),
        ({"$or": [{}, {"$and": []}]}, True),
        ({"$or": [{}, {"tax": "IRPF"}]}, False),
        ({"$not": {}}, True),
    ],
)
def test_a_where_dict_means(where: dict[str, Any], expected: bool) -> None:
    assert matches(parse_filter(where), IVA) is expected


def llama(*filters: Any, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=condition)


@pytest.mark.parametrize(
    ("operator", "key", "value", "expected"),
    [
        (FilterOperator.EQ, "tax", "IVA", True),
        (FilterOperator.NE, "absent", "IVA", True),
        (FilterOperator.GT, "year", 2024, False),
        (FilterOperator.GTE, "year", 2024, True),
        (FilterOperator.LT, "year", 2025, True),
        (FilterOperator.LTE, "rate", 0.2, False),
        (FilterOperator.IN, "tax", ["IVA"], True),
        (FilterOperator.IN, "tax", [], False),
        (FilterOperator.NIN, "tax", [], True),
        (FilterOperator.ANY, "tags", ["x", "iva"], True),
        (FilterOperator.ALL, "tags", ["iva", "tipos"], True),
        (FilterOperator.CONTAINS, "tags", "tipos", True),
        (FilterOperator.TEXT_MATCH, "tax", "V", True),
        (FilterOperator.TEXT_MATCH_INSENSITIVE, "tax", "v", True),
        (FilterOperator.IS_EMPTY, "nulo", None, True),
        (FilterOperator.IS_EMPTY, "tax", None, False),
    ],
)
def test_every_llamaindex_operator_means(
    operator: FilterOperator, key: str, value: Any, expected: bool
) -> None:
    assert (
        matches(parse_filter(llama(MetadataFilter(key=key, value=value, operator=operator))), IVA)
        is expected
    )


def test_llamaindex_groups_nest_and_not_means_none_of_them() -> None:
    yes, no = MetadataFilter(key="tax", value="IVA"), MetadataFilter(key="tax", value="IRPF")
    assert matches(
        parse_filter(llama(no, llama(no, yes, condition=FilterCondition.OR), condition=FilterCondition.OR)),
        IVA,
    )
    assert not matches(parse_filter(llama(yes, no)), IVA)
    assert not matches(parse_filter(llama(no, yes, condition=FilterCondition.NOT)), IVA)
    assert matches(parse_filter(llama(no, condition=FilterCondition.NOT)), IVA)


@pytest.mark.parametrize(
    "empty",
    [
        None,
        {},
        llama(),
        llama(llama(condition=FilterCondition.OR)),
        llama(llama(), condition=FilterCondition.NOT),
    ],
)
def test_an_empty_filter_is_no_condition(empty: Any) -> None:
    assert parse_filter(empty) is None


def nested(depth: int) -> dict[str, Any]:
    where: dict[str, Any] = {"tax": "IVA"}
    for _ in range(depth):
        where = {"$and": [where, {"year": 1}]}
    return where


@pytest.mark.parametrize(
    "where",
    [
        "tax = 'IVA'",
        [],
        7,
        {"tax": {"$regex": "I"}},
        {"tax": {}},
        {"tax": {"eq": "IVA"}},
        {"$and": {"tax": "IVA"}},
        {"$or": ["tax"]},
        {"$not": []},
        {"$nor": [{"tax": "IVA"}]},
        {"$where": "1"},
        {"#document": "x"},
        {"chroma:document": "x"},
        {"fiscal:blob": "x"},
        {"_node_content": "x"},
        {"": 1},
        {7: 1},
        {"a\x00": 1},
        {"tax": {"$in": "IVA"}},
        {"tax": {"$gt": None}},
        {"tax": {"$gt": [1]}},
        {"tax": {"$text_match": 7}},
        {"tax": {"$is_empty": False}},
        {"tax": float("nan")},
        {"tax": float("inf")},
        {"tax": b"IVA"},
        {"tax": "x" * 1_000_000},
        {"tax": {"$in": list(range(5_000))}},
        {"$or": [{"year": i} for i in range(5_000)]},
        nested(200),
    ],
)
def test_a_filter_that_cannot_be_meant_or_exceeds_a_limit_is_refused(where: Any) -> None:
    with pytest.raises(InvalidFilterError):
        parse_filter(where)


def test_a_llamaindex_filter_two_hundred_levels_deep_is_refused() -> None:
    deep = llama(MetadataFilter(key="tax", value="IVA"))
    for _ in range(200):
        deep = llama(deep)
    with pytest.raises(InvalidFilterError, match="32 levels"):
        parse_filter(deep)


def test_a_filter_at_its_limits_still_works() -> None:
    assert matches(
        parse_filter(nested(30) | {"year": {"$in": list(range(4_096))}}), {"tax": "IVA", "year": 1}
    )


@pytest.mark.parametrize(
    ("metadata", "day", "expected"),
    [
        ({}, "2024-05-01", True),
        ({"valid_from": "", "valid_to": ""}, "2024-05-01", True),
        ({"valid_from": "2024-05-01"}, "2024-05-01", True),
        ({"valid_from": "2024-05-02"}, "2024-05-01", False),
        ({"valid_to": "2024-05-01"}, "2024-05-01", True),
        ({"valid_to": "2024-04-30"}, "2024-05-01", False),
        ({"valid_from": "2023", "valid_to": "2024"}, "2024-12-31", True),
        ({"valid_to": "2024-02"}, "2024-02-29", True),
        ({"valid_from": "mañana"}, "2024-05-01", False),
        ({"valid_to": 20240101}, "2024-05-01", False),
    ],
)
def test_as_of_keeps_what_was_in_force_that_day(metadata: dict[str, Any], day: str, expected: bool) -> None:
    assert matches(in_force(as_of=day), metadata) is expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"fiscal_year": 2024}, True),
        ({"fiscal_year": 0}, True),
        ({}, True),
        ({"fiscal_year": 2023}, False),
        ({"fiscal_year": 2024, "valid_to": "2024-12-30"}, False),
        ({"valid_from": "2024-12-31"}, True),
    ],
)
def test_tax_year_is_its_accrual_on_31_december(metadata: dict[str, Any], expected: bool) -> None:
    assert matches(in_force(tax_year=2024), metadata) is expected


@pytest.mark.parametrize(
    "arguments",
    [{"as_of": "2024"}, {"as_of": "ayer"}, {"as_of": 2024}, {"tax_year": "2024"}, {"tax_year": True}],
)
def test_a_day_or_year_that_is_none_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidFilterError):
        in_force(**arguments)


def test_validity_is_two_numbers_and_open_where_unknown() -> None:
    assert validity({"valid_from": "2024-05-01"}) == (20240501, 99999999)
    assert validity({"valid_to": "2024-06"}) == (0, 20240631)


@pytest.mark.parametrize(
    ("where", "known", "expected"),
    [
        ({"source_scope": "private"}, {"source_scope": "public"}, False),
        ({"source_scope": "private"}, {"source_scope": "private"}, True),
        ({"session_id": "A"}, {"session_id": None}, False),
        ({"session_id": {"$ne": "A"}}, {"session_id": None}, True),
        ({"$or": [{"source_scope": "private"}, {"tax": "IVA"}]}, {"source_scope": "public"}, True),
        (
            {"$or": [{"source_scope": "private"}, {"session_id": "A"}]},
            {"source_scope": "public", "session_id": None},
            False,
        ),
        ({"source_scope": "private", "tax": "IVA"}, {"source_scope": "public"}, False),
        ({"$not": {"source_scope": "public"}}, {"source_scope": "public"}, False),
        ({"$not": {"tax": "IVA"}}, {"source_scope": "public"}, True),
        ({}, {"source_scope": "public"}, True),
    ],
)
def test_what_is_known_of_a_partition_may_rule_it_out(
    where: dict[str, Any], known: dict[str, Any], expected: bool
) -> None:
    assert can_match(parse_filter(where), known) is expected
