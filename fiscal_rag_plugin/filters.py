"""Functional filters: two syntaxes that parse into one AST, within limits.

``matches()`` defines what a filter means on every engine; an engine may only use it to look at
fewer rows. A filter narrows what access permits and never widens it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from .chunks import has_surrogate, key_problem, require_iso_date
from .conditions import (
    LIST_OPERATORS,
    OPERATORS,
    RANGE_OPERATORS,
    And,
    Compare,
    Filter,
    InForce,
    Not,
    Or,
    Scalar,
    can_match,
    day_number,
    matches,
    validity,
)
from .errors import InvalidChunkError, InvalidFilterError

__all__ = [
    "RANGE_OPERATORS", "And", "Compare", "Filter", "InForce", "Not", "Or",
    "all_of", "can_match", "day_number", "in_force", "matches", "parse_filter", "validity",
]  # fmt: skip

MAX_DEPTH = 32
MAX_CONDITIONS = 1_000
MAX_LIST_VALUES = 4_096
MAX_VALUE_CHARS = 10_000

_CHROMA = {f"${op}": op for op in OPERATORS}
_LLAMA = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in",
    "nin": "nin", "any": "any", "all": "all", "contains": "contains", "text_match": "text_match",
    "text_match_insensitive": "text_match_insensitive", "is_empty": "is_empty",
}  # fmt: skip


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
        if has_surrogate(value):
            raise InvalidFilterError(f"the value on {key!r} contains a lone surrogate")
        return str.__str__(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidFilterError(f"the value on {key!r} is NaN or infinite")
    if value is None or isinstance(value, (bool, int, float)):
        return cast("Scalar | None", value)
    raise InvalidFilterError(f"the value on {key!r} cannot be a {type(value).__name__}")
