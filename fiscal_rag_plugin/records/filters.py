"""``filter_meta``, DACKAR's filter dict, as the one filter syntax of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidFilterError
from .canonical import type_key
from .drafts import COMPONENTS_KEY

_ALIASES = {"doc_ids": "doc_id", "doc_types": "doc_type"}
_CONTAINERS = (list, tuple, set, frozenset)


def record_where(filter_meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """A ``where`` for ``parse_filter``.

    ``doc_ids`` and ``doc_types`` are ``doc_id`` and ``doc_type`` (in any case), a list is ``$in``,
    ``component_ids`` asks for any of the components. None and empty containers add no condition.
    Operators (``{"chunk_index": {"$gte": 3}}``, ``$and``, ``$or``, ``$not``) mean what they mean
    everywhere in this package.

    Raises:
        InvalidFilterError: ``filter_meta`` is no mapping with str keys.
    """
    if filter_meta is None:
        return {}
    if not isinstance(filter_meta, Mapping):
        raise InvalidFilterError(f"filter_meta is a dict, not {type(filter_meta).__name__}")
    conditions: list[dict[str, Any]] = []
    for key, value in filter_meta.items():
        if not isinstance(key, str):
            raise InvalidFilterError(f"filter_meta has a key that is no str: {key!r:.40}")
        given = _given(value)
        if given is not None:
            conditions.append(_condition(key, given))
    # One condition a key: doc_id and doc_ids side by side both count.
    return conditions[0] if len(conditions) == 1 else {"$and": conditions} if conditions else {}


def _given(value: Any) -> Any:
    """``value`` without what says nothing; None when nothing is left."""
    if isinstance(value, _CONTAINERS):
        return [item for item in value if item is not None] or None
    if isinstance(value, Mapping) and not value:
        return None
    return value


def _condition(key: str, value: Any) -> dict[str, Any]:
    if key in ("$and", "$or"):
        return {key: [record_where(part) for part in (value if isinstance(value, list) else [value])]}
    if key == "$not":
        return {key: record_where(value)}
    name = _ALIASES.get(key, key)
    if name == COMPONENTS_KEY and not isinstance(value, Mapping):
        return {name: {"$any": value if isinstance(value, list) else [value]}}
    if name == "doc_type":
        value = _same_case(value)
    return {name: {"$in": value} if isinstance(value, list) else value}


def _same_case(value: Any) -> Any:
    if isinstance(value, str):
        return type_key(value)
    if isinstance(value, _CONTAINERS):
        return [_same_case(item) for item in value]
    if isinstance(value, Mapping):
        return {operator: _same_case(operand) for operator, operand in value.items()}
    return value
