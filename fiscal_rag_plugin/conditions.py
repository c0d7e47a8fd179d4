"""The AST of functional filters, and ``matches()``, which defines what they mean on every engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Scalar: TypeAlias = "str | int | float | bool"
Value: TypeAlias = "Scalar | tuple[Scalar | None, ...] | None"


@dataclass(frozen=True, slots=True)
class Compare:
    """One condition on one metadata key; ``op`` is one of OPERATORS."""

    key: str
    op: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class InForce:
    """The law in force on an ISO day: valid_from empty or <= day, valid_to empty or >= day."""

    day: str


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    item: Filter


Filter: TypeAlias = "Compare | InForce | And | Or | Not"

LIST_OPERATORS = frozenset({"in", "nin", "any", "all"})
RANGE_OPERATORS = frozenset({"gt", "gte", "lt", "lte"})
OPERATORS = LIST_OPERATORS | RANGE_OPERATORS | {
    "eq", "ne", "contains", "not_contains", "text_match", "text_match_insensitive", "is_empty",
}  # fmt: skip
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def matches(condition: Filter | None, metadata: Mapping[str, Any]) -> bool:
    """Whether flat ``metadata`` fulfils ``condition``; None is no condition.

    A missing key or a stored None matches nothing but ne, nin, NOT and is_empty, which eq with None
    says, too; None in a list matches nothing. Ints and floats
    compare as numbers, a bool only equals a bool, a string is never a number. Ranges compare
    numbers, or dates written YYYY, YYYY-MM or YYYY-MM-DD, as text.
    """
    if condition is None:
        return True
    if isinstance(condition, Compare):
        return _compare(condition.op, metadata.get(condition.key), condition.value)
    if isinstance(condition, And):
        return all(matches(item, metadata) for item in condition.items)
    if isinstance(condition, Or):
        return any(matches(item, metadata) for item in condition.items)
    if isinstance(condition, Not):
        return not matches(condition.item, metadata)
    first, last = validity(metadata)
    return first <= day_number(condition.day) <= last


def can_match(condition: Filter | None, known: Mapping[str, Any]) -> bool:
    """Whether any metadata with these known keys (None: absent) may fulfil ``condition``."""
    return condition is None or _decided(condition, known) is not False


def _decided(condition: Filter, known: Mapping[str, Any]) -> bool | None:
    """What the known keys alone make of a condition; None when other keys decide."""
    if isinstance(condition, Compare):
        if condition.key not in known:
            return None
        return _compare(condition.op, known[condition.key], condition.value)
    if isinstance(condition, Not):
        inner = _decided(condition.item, known)
        return None if inner is None else not inner
    if isinstance(condition, (And, Or)):
        settles = isinstance(condition, Or)
        parts = [_decided(item, known) for item in condition.items]
        if settles in parts:
            return settles
        return None if None in parts else not settles
    return None


def _compare(op: str, stored: Any, value: Any) -> bool:
    if op == "is_empty" or (op == "eq" and value is None):
        return stored is None or stored == []
    if op == "ne":
        return not _compare("eq", stored, value)
    if op == "nin":
        return not _compare("in", stored, value)
    if op == "not_contains":
        return not _compare("contains", stored, value)
    if stored is None:
        return False
    if op == "eq":
        return equal(stored, value)
    if op == "in":
        return any(equal(stored, v) for v in value)
    if op in RANGE_OPERATORS:
        return _in_range(op, stored, value)
    if op in ("text_match", "text_match_insensitive"):
        if not isinstance(stored, str):
            return False
        return value in stored if op == "text_match" else value.casefold() in stored.casefold()
    if not isinstance(stored, list):
        return False
    wanted = value if op in LIST_OPERATORS else (value,)
    found = (any(equal(s, v) for s in stored) for v in wanted)
    return any(found) if op == "any" else all(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(a: Any, b: Any) -> bool:
    """JSON equality in which 7 is 7.0, True is not 1 and "7" is not 7."""
    if _is_number(a) and _is_number(b):
        return bool(a == b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def _in_range(op: str, stored: Any, value: Any) -> bool:
    both_dates = (
        isinstance(stored, str) and isinstance(value, str)
        and _DATE.fullmatch(stored) is not None and _DATE.fullmatch(value) is not None
    )  # fmt: skip
    if not both_dates and not (_is_number(stored) and _is_number(value)):
        return False
    if op in ("gt", "lte"):
        return bool(stored > value) == (op == "gt")
    return bool(stored < value) == (op == "lt")


def day_number(day: str) -> int:
    """2024-05-01 as 20240501; a year or a month stands for its first day."""
    return int((day.replace("-", "") + "0101")[:8])


_ALWAYS, _NEVER = (0, 99_999_999), (99_999_999, 0)


def validity(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """First and last day in force as numbers (20240501); an empty date leaves that side open.

    A validity that is not a date is never in force: nobody can say that it was.
    """
    first, last = _ALWAYS
    start, end = metadata.get("valid_from"), metadata.get("valid_to")
    if start not in (None, ""):
        if not isinstance(start, str) or not _DATE.fullmatch(start):
            return _NEVER
        first = day_number(start)
    if end not in (None, ""):
        if not isinstance(end, str) or not _DATE.fullmatch(end):
            return _NEVER
        digits = end.replace("-", "")
        last = int(digits + "1231"[len(digits) - 4 :])
    return first, last
