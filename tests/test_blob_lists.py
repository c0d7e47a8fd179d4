"""Texts in lists are indexed, so that a condition on them reads the rows that match and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.engines.blob import chroma_where, project
from fiscal_rag_plugin.filters import matches, parse_filter
from fiscal_rag_plugin.view import View

ITEMS = st.sampled_from(["a", "b", "", "x" * 2_000, 1, 2.5, True, None])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[View]:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    yield view
    view.close()


def put(store: View, tags: Any) -> None:
    metadata = ChunkMetadata(
        doc_id="d", doc_type="t", source_scope="public", extra={} if tags is None else {"tags": tags}
    )
    store.add_chunks([Chunk("text", "text", metadata, 0, 4)], vectors=[[1.0, 0.0]])


def found(store: View, where: Any) -> bool:
    return bool(list(store.scan(Condition(parse_filter(where)))))


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        ({"tags": {"$contains": "a"}}, {"tags": {"$contains": "a"}}),
        ({"tags": {"$any": ["a", "b"]}}, {"$or": [{"tags": {"$contains": "a"}}, {"tags": {"$contains": "b"}}]}),
        ({"tags": {"$all": ["a", "b"]}}, {"$and": [{"tags": {"$contains": "a"}}, {"tags": {"$contains": "b"}}]}),
        ({"tags": {"$any": ["a", 1]}}, None), ({"tags": {"$contains": ""}}, None),
        ({"tags": {"$contains": "x" * 2_000}}, None), ({"tags": {"$not_contains": "a"}}, None), ({"tags": {"$any": []}}, None),
    ],
)  # fmt: skip
def test_what_is_looked_for_in_lists_is_pushed_down_when_every_row_has_it_indexed(
    where: Any, pushed: Any
) -> None:
    assert chroma_where(Condition(parse_filter(where))) == pushed


@given(
    st.lists(ITEMS), st.sampled_from(["contains", "any", "all"]), st.lists(ITEMS, min_size=1, max_size=3)
)
def test_what_is_pushed_down_lets_every_match_through(tags: list[Any], op: str, wanted: list[Any]) -> None:
    operand = wanted[0] if op == "contains" else wanted
    if op == "contains" and operand is None:
        return
    condition = Condition(parse_filter({"tags": {f"${op}": operand}}))
    if matches(condition.filter, {"tags": tags}) and (where := chroma_where(condition)):
        indexed = project(Record("i", "public", None, None, "t", {"tags": tags})).get("tags") or []
        clauses = [
            part["tags"]["$contains"] in indexed
            for part in where.get("$or") or where.get("$and") or [where]
        ]
        assert any(clauses) if "$or" in where else all(clauses)


@pytest.mark.parametrize("later", [None, "a", 7, [], ["b"], [1], ["b", None], {"a": 1}])
def test_a_list_that_was_replaced_is_not_found_by_what_it_had(store: View, later: Any) -> None:
    put(store, ["a", "b", "b"])
    assert found(store, {"tags": {"$contains": "a"}})
    put(store, later)
    assert not found(store, {"tags": {"$contains": "a"}})
    assert found(store, {"tags": {"$contains": "b"}}) is (isinstance(later, list) and "b" in later)
    [record] = store.scan()
    assert record.metadata.get("tags") == later
    put(store, ["a"])
    assert found(store, {"tags": {"$all": ["a"]}})


@pytest.mark.parametrize(
    "tags", [["a", 1, None, True, 2.5], ["a", ["a"], {"a": 1}], ["a", ""], ["a", "x" * 2_000]]
)
def test_a_mixed_list_comes_back_as_it_was_and_is_found_by_its_texts(store: View, tags: list[Any]) -> None:
    put(store, tags)
    assert found(store, {"tags": {"$contains": "a"}})
    assert [record.metadata["tags"] for record in store.scan()] == [tags]
    assert store.check() == []
