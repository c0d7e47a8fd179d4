"""Filters as exact terms: what of a condition the index can apply by itself before its top k.

A facet is one term for one value under one key. Like pushing down to Chroma it is a hint: what
is left may be more than what matches, never less, and ``Condition.matches`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..chunks import Json
from ..conditions import And, Compare, Filter, Or
from ..engines.base import Condition, Record

Groups: TypeAlias = "tuple[frozenset[str], ...]"
"""A text passes when it has at least one facet of every group; an empty group lets nothing pass."""

MAX_VALUE_CHARS = 1_000
MAX_LIST_VALUES = 1_000
MAX_GROUP = 5_000
"""Conditions with more values are left to what comes after."""
_EXACT_INT = 2**53
_SEPARATOR = "\x1f"  # no metadata key has control characters
_ELEMENT, _UNLISTED = "[]", "[*]"
ID_PREFIX = f"{_SEPARATOR}id{_SEPARATOR}"
MARK = f"{_SEPARATOR}mark"
"""The facet of the one document that is no text: it says what the index is."""


def facets(record: Record) -> list[str]:
    """The facets of a stored record: its id, its source, each scalar and each element of a list."""
    found: list[str | None] = [id_facet(record.id)]
    if record.ref is not None:
        found.append(_ref(record.ref))
    for key, value in record.flat().items():
        found += _elements(key, value) if isinstance(value, list) else [_scalar(key, value)]
    return sorted({facet for facet in found if facet is not None})


def facet_query(condition: Condition) -> Groups:
    """Groups that every record fulfils which matches ``condition``; () when nothing can be said."""
    groups: list[frozenset[str]] = []
    if condition.ids is not None and len(condition.ids) <= MAX_GROUP:
        groups.append(frozenset(map(id_facet, condition.ids)))
    if condition.doc_ids is not None and len(condition.doc_ids) <= MAX_GROUP:
        groups += _any_of([_ref(doc_id) for doc_id in condition.doc_ids])
    if condition.filter is not None:
        groups += _groups(condition.filter)
    return tuple(groups)


def is_expressed(condition: Condition) -> bool:
    """Whether :func:`facet_query` says all of ``condition``: whoever passes it matches.

    What passes and yet does not match is refused when it is read, so this decides speed alone.
    """
    if condition.ids is not None and len(condition.ids) > MAX_GROUP:
        return False
    if condition.doc_ids is not None and not facet_query(Condition(doc_ids=condition.doc_ids)):
        return False
    return condition.filter is None or _is_expressed(condition.filter)


def _is_expressed(condition: Filter) -> bool:
    if isinstance(condition, And):
        return all(_is_expressed(item) for item in condition.items)
    if isinstance(condition, Or):
        # Each branch by one group: the union then says no more than they do.
        branches = [_groups(item) for item in condition.items]
        small = sum(len(group) for groups in branches for group in groups) <= MAX_GROUP
        return small and all(
            len(groups) == 1 and _is_expressed(item)
            for groups, item in zip(branches, condition.items, strict=True)
        )
    return isinstance(condition, Compare) and condition.op in ("eq", "in") and bool(_compare(condition))


def _groups(condition: Filter) -> list[frozenset[str]]:
    if isinstance(condition, And):
        return [group for item in condition.items for group in _groups(item)]
    if isinstance(condition, Or):
        # One group of each branch is fulfilled by whatever fulfils the branch.
        branches = [_groups(item) for item in condition.items]
        if not all(branches):
            return []
        union = frozenset[str]().union(*(min(branch, key=len) for branch in branches))
        return [union] if len(union) <= MAX_GROUP else []
    return _compare(condition) if isinstance(condition, Compare) else []


def _compare(condition: Compare) -> list[frozenset[str]]:
    key, value = condition.key, condition.value
    if condition.op == "eq" and not isinstance(value, tuple):
        return _any_of([_scalar(key, value)])
    if condition.op == "contains" and not isinstance(value, tuple):
        return _any_of([_facet(key + _ELEMENT, value), _unlisted(key)])
    if not isinstance(value, tuple) or len(value) > MAX_GROUP:
        return []
    if condition.op == "in":
        return _any_of([_scalar(key, v) for v in value])
    if condition.op == "any":
        return _any_of([*(_facet(key + _ELEMENT, v) for v in value), _unlisted(key)])
    if condition.op == "all":
        return [g for v in value for g in _any_of([_facet(key + _ELEMENT, v), _unlisted(key)])]
    return []


def _any_of(alternatives: Sequence[str | None]) -> list[frozenset[str]]:
    """One group, or none when one of the alternatives is no facet."""
    found = [facet for facet in alternatives if facet is not None]
    return [frozenset(found)] if len(found) == len(alternatives) else []


def _scalar(key: str, value: object) -> str | None:
    """Empty and zero fields, most of a chunk's, have no facet."""
    blank = value == "" or (value == 0 and not isinstance(value, bool))
    return None if blank else _facet(key, value)


def _facet(key: str, value: object) -> str | None:
    """One term for one value; 7 and 7.0 are one, 7, "7" and True are three."""
    if isinstance(value, bool):
        return f"{key}{_SEPARATOR}b{value}"
    if isinstance(value, (int, float)):
        if abs(value) > _EXACT_INT:
            return None
        return f"{key}{_SEPARATOR}n{int(value) if value == int(value) else value!r}"
    if isinstance(value, str) and len(value) <= MAX_VALUE_CHARS:
        return f"{key}{_SEPARATOR}s{value}"
    return None


def _elements(key: str, values: Sequence[Json]) -> Sequence[str | None]:
    if len(values) > MAX_LIST_VALUES:
        return [_unlisted(key)]
    listed = [_facet(key + _ELEMENT, value) for value in values]
    return [*listed, _unlisted(key)] if None in listed else listed


def _unlisted(key: str) -> str:
    """Says of a list that not all of it has facets."""
    return key + _UNLISTED


def _ref(doc_id: str) -> str | None:
    return f"{_SEPARATOR}ref{_SEPARATOR}{doc_id}" if len(doc_id) <= MAX_VALUE_CHARS else None


def id_facet(id: str) -> str:
    """The term by which one text is replaced, deleted and found."""
    return ID_PREFIX + id
