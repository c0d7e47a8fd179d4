from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.errors import InvalidAccessError
from fiscal_rag_plugin.filters import matches, parse_filter

PUBLIC = {"source_scope": "public"}


def private(session: object) -> dict[str, Any]:
    return {"source_scope": "private", "session_id": session}


def test_nobody_sees_more_than_public_chunks_without_a_session() -> None:
    access = Access.public()
    assert access.permits(PUBLIC)
    assert not access.permits(private("A"))


def test_a_session_sees_public_chunks_and_its_own() -> None:
    access = Access.session("A")
    assert access.permits(PUBLIC)
    assert access.permits(private("A"))
    assert not access.permits(private("B"))


@pytest.mark.parametrize("other", ["a", " A ", "A ", "AA", "", None, 1, ["A"], True])
def test_a_session_is_compared_exactly(other: object) -> None:
    assert not Access.session("A").permits(private(other))


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"source_scope": "private"},
        {"source_scope": "Public"},
        {"source_scope": ["public"]},
        {"source_scope": None},
        {"source_scope": "public", "session_id": "A"},
        {"session_id": "A"},
    ],
)
def test_whatever_is_not_clearly_permitted_is_denied(metadata: dict[str, Any] | None) -> None:
    assert not Access.session("A").permits(metadata)


def test_an_access_reads_several_sessions_and_writes_one() -> None:
    access = Access(read={"A", "B"}, write="A")
    assert access.permits(private("A"))
    assert access.permits(private("B"))
    assert access.write == "A"


@pytest.mark.parametrize(
    "arguments",
    [
        {"read": "A"},
        {"read": {"A"}, "write": "B"},
        {"write": "A"},
        {"read": {""}},
        {"read": {1}},
        {"read": [["A"]]},
        {"read": {"A"}, "write": 1},
        {"read": 7},
    ],
)
def test_an_access_that_cannot_be_meant_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidAccessError):
        Access(**arguments)


def test_an_access_cannot_be_changed_and_copies_keep_it() -> None:
    access = Access.session("A")
    with pytest.raises(AttributeError):
        access.read = frozenset({"B"})  # type: ignore[misc]
    with pytest.raises(AttributeError):
        access.other = 1  # type: ignore[attr-defined]
    for copied in (copy.copy(access), copy.deepcopy(access), pickle.loads(pickle.dumps(access))):
        assert copied == access


def test_its_repr_names_no_session() -> None:
    assert "cliente-17" not in repr(Access.session("cliente-17"))


SESSIONS = st.sampled_from(["A", "a", " A ", "B", "007"])
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "source_scope": st.sampled_from(["public", "private", "PUBLIC", "", None, 1]),
        "session_id": st.one_of(SESSIONS, st.none()),
    },
)


@given(read=st.frozensets(SESSIONS), metadata=RECORDS)
def test_the_mandatory_filter_means_what_permits_means(
    read: frozenset[str], metadata: dict[str, Any]
) -> None:
    access = Access(read)
    assert matches(parse_filter(access.where()), metadata) == access.permits(metadata)
