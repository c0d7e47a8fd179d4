"""Functional filters: one AST, two syntaxes that parse into it, one meaning.

``matches()`` defines what a filter means on every engine; an engine may only use it to look at
fewer rows. A filter narrows what access permits and never widens it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from .chunks import key_problem, require_iso_date
from .errors import InvalidChunkError, InvalidFilterError

MAX_DEPTH = 32
MAX_CONDITIONS = 1_000
MAX_LIST_VALUES = 4_096
MAX_VALUE_CHARS = 10_000

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
_CHROMA = {f"${op}": op for op in OPERATORS}
_LLAMA = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in",
    "nin": "nin", "any": "any", "all": "all", "contains": "contains", "text_match": "text_match",
    "text_match_insensitive": "text_match_insensitive", "is_empty": "is_empty",
}  # fmt: skip
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


# --- meaning -----------------------------------------------------------------------------------


def matches(condition: Filter | None, metadata: Mapping[str, Any]) -> bool:
    """Whether flat ``metadata`` fulfils ``condition``; None is no condition.

    A missing key or a stored None matches nothing but ne, nin, NOT and is_empty. Ints and floats
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
        return any(_compare("eq", stored, v) for v in value)
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


# --- building ----------------------------------------------------------------------------------


def all_of(*conditions: Filter | None) -> Filter | None:
    """The conjunction of the conditions that are any."""
    given = tuple(c for c in conditions if c is not None)
    if len(given) > 1:
        return And(given)
    return given[0] if given else None


def in_force(as_of: str | None = None, tax_year: int | None = None) -> Filter | None:
    """The condition for ``as_of`` (an ISO day) and ``tax_year`` (its 31 December, the accrual)."""
    conditions: list[Filter] = []
    if as_of is not None:
        try:
            conditions.append(InForce(require_iso_date(as_of, "as_of")))
        except InvalidChunkError as error:
            raise InvalidFilterError(str(error)) from None
    if tax_year is not None:
        if type(tax_year) is not int or not 1900 <= tax_year <= 9999:
            raise InvalidFilterError(f"tax_year must be a year such as 2024, not {tax_year!r:.40}")
        year: Filter = Or((Compare("fiscal_year", "in", (tax_year, 0)), Compare("fiscal_year", "is_empty")))
        conditions += [year, InForce(f"{tax_year}-12-31")]
    return all_of(*conditions)


def parse_filter(source: object) -> Filter | None:
    """A filter in either syntax, or None when it has no condition.

    Args:
        source: None, a Chroma ``where`` dict (several keys are an implicit AND, ``$and``, ``$or``
            and ``$not`` nest, lists may be empty), or LlamaIndex ``MetadataFilters``.

    Raises:
        InvalidFilterError: an unknown operator, an unusable key or value, or more than 32 levels,
            1,000 conditions, 4,096 values in a list or 10,000 characters in a value.
    """
    if source is None:
        return None
    budget = _Budget()
    if isinstance(source, Mapping):
        return _parse_where(source, budget, 0)
    # LlamaIndex's class is recognised by shape: importing it here would cost every caller 2 s.
    if hasattr(source, "filters") and hasattr(source, "condition"):
        return _parse_llama(source, budget, 0)
    raise InvalidFilterError(
        f"a filter is a dict in Chroma's where syntax or MetadataFilters, not {type(source).__name__}"
    )


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_CONDITIONS

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidFilterError(f"a filter may have at most {MAX_CONDITIONS} conditions")
        if depth > MAX_DEPTH:
            raise InvalidFilterError(f"a filter may be nested at most {MAX_DEPTH} levels deep")


def _parse_where(where: Mapping[Any, Any], budget: _Budget, depth: int) -> Filter | None:
    budget.spend(depth)
    conditions: list[Filter | None] = []
    for key, value in where.items():
        if key in ("$and", "$or"):
            if not isinstance(value, (list, tuple)) or not all(isinstance(v, Mapping) for v in value):
                raise InvalidFilterError(f"{key} takes a list of filters")
            parts = [_parse_where(v, budget, depth + 1) for v in value]
            conditions.append(_join(parts, "and" if key == "$and" else "or"))
        elif key == "$not":
            if not isinstance(value, Mapping):
                raise InvalidFilterError("$not takes a filter")
            inner = _parse_where(value, budget, depth + 1)
            conditions.append(Not(inner) if inner is not None else None)
        elif isinstance(value, Mapping):
            if not value:
                raise InvalidFilterError(f"the condition on {key!r:.80} has no operator")
            for operator, operand in value.items():
                if operator not in _CHROMA:
                    known = ", ".join(sorted(_CHROMA))
                    raise InvalidFilterError(f"unknown operator {operator!r:.40}; there are {known}")
                budget.spend(depth)
                conditions.append(_condition(key, _CHROMA[operator], operand))
        else:
            budget.spend(depth)
            conditions.append(_condition(key, "eq", value))
    return all_of(*conditions)


def _parse_llama(group: Any, budget: _Budget, depth: int) -> Filter | None:
    budget.spend(depth)
    parts: list[Filter | None] = []
    for item in group.filters:
        if hasattr(item, "filters"):
            parts.append(_parse_llama(item, budget, depth + 1))
            continue
        budget.spend(depth)
        operator = str(getattr(item.operator, "value", item.operator))
        if operator not in _LLAMA:
            raise InvalidFilterError(f"operator {operator!r} of key {item.key!r:.80} is not supported")
        parts.append(_condition(item.key, _LLAMA[operator], item.value))
    condition = str(getattr(group.condition, "value", group.condition or "and"))
    if condition not in ("and", "or", "not"):
        raise InvalidFilterError(f"unknown condition {condition!r}; there are and, or, not")
    return _join(parts, condition)


def _join(parts: Iterable[Filter | None], condition: str) -> Filter | None:
    """Groups without a condition add none; NOT means that none of the parts match."""
    given = tuple(p for p in parts if p is not None)
    if not given:
        return None
    if condition == "not":
        return Not(given[0] if len(given) == 1 else Or(given))
    if len(given) == 1:
        return given[0]
    return And(given) if condition == "and" else Or(given)


def _condition(key: Any, op: str, value: Any) -> Compare:
    if problem := key_problem(key):
        raise InvalidFilterError(problem)
    if op == "is_empty":
        # {"k": {"$is_empty": False}} would otherwise mean its opposite.
        if value not in (None, True):
            raise InvalidFilterError(f"is_empty on {key!r} takes no value, True or None")
        return Compare(key, op)
    if op in LIST_OPERATORS:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InvalidFilterError(f"operator {op} on {key!r} takes a list, not {type(value).__name__}")
        return Compare(key, op, _values(key, list(value)))
    if isinstance(value, (list, tuple)) and op in ("eq", "ne"):
        return Compare(key, op, _values(key, value))
    if value is None and op not in ("eq", "ne"):
        raise InvalidFilterError(f"operator {op} on {key!r} needs a value")
    checked = _scalar(key, value)
    if op.startswith("text_match") and not isinstance(checked, str):
        raise InvalidFilterError(f"operator {op} on {key!r} takes a str, not {type(value).__name__}")
    return Compare(key, op, checked)


def _values(key: str, values: Sequence[Any]) -> tuple[Scalar | None, ...]:
    if len(values) > MAX_LIST_VALUES:
        raise InvalidFilterError(f"the list on {key!r} has more than {MAX_LIST_VALUES} values")
    return tuple(_scalar(key, v) for v in values)


def _scalar(key: str, value: Any) -> Scalar | None:
    if isinstance(value, str):
        if len(value) > MAX_VALUE_CHARS:
            raise InvalidFilterError(f"the value on {key!r} has more than {MAX_VALUE_CHARS} characters")
        return str.__str__(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidFilterError(f"the value on {key!r} is NaN or infinite")
    if value is None or isinstance(value, (bool, int, float)):
        return cast("Scalar | None", value)
    raise InvalidFilterError(f"the value on {key!r} cannot be a {type(value).__name__}")
