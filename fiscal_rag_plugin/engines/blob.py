"""How a record is written: one JSON blob that decides, and a flat projection an engine can index."""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias, cast

from ..chunks import SCOPE_KEY, SESSION_KEY
from ..filters import RANGE_OPERATORS, And, Compare, Filter, InForce, Or, day_number, matches, validity
from .base import Condition, Record

BLOB_KEY = "fiscal:blob"
REF_KEY = "fiscal:ref"
FROM_KEY = "fiscal:from"
TO_KEY = "fiscal:to"

Projected: TypeAlias = "str | int | float | bool | list[str]"

_MAX_PROJECTED_CHARS = 1_000
_EXACT_INT = 2**53
_MAX_PUSHED_IDS = 5_000  # SQLite limits the variables of a statement


def encode(record: Record) -> str:
    """The blob of a record: all of it but its text and vector."""
    return json.dumps(
        {
            "id": record.id, "scope": record.scope, "session": record.session_id,
            "ref": record.ref, "kind": record.kind, "shell": record.shell,
            "metadata": record.metadata, "fingerprint": record.fingerprint,
        },
        ensure_ascii=False, separators=(",", ":"), allow_nan=False,
    )  # fmt: skip


def decode(
    blob: Any, text: Any, *, id: str, scope: str, session_id: str | None, expires_at: float | None = None
) -> Record | None:
    """The record of a blob, or None when the blob disagrees with where it was found.

    A row whose inside names another id, scope or session than its outside has been edited, and
    is nobody's.
    """
    if not isinstance(blob, str) or not isinstance(text, str):
        return None
    try:
        inner = json.loads(blob)
        record = Record(
            id=inner["id"], scope=inner["scope"], session_id=inner["session"], ref=inner["ref"],
            text=text, metadata=inner["metadata"], kind=inner["kind"], shell=inner["shell"],
            fingerprint=inner["fingerprint"], expires_at=expires_at,
        )  # fmt: skip
        # A caller's metadata may repeat the access keys, as a Chunk's does, or hold None there, which
        # claims nothing; it may not contradict them.
        claims = [record.metadata.get(SCOPE_KEY), record.metadata.get(SESSION_KEY)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if (record.id, record.scope, record.session_id) != (id, scope, session_id):
        return None
    contradicted = any(c not in (None, own) for c, own in zip(claims, (scope, session_id), strict=True))
    return None if contradicted else record


def project(record: Record) -> dict[str, Projected]:
    """What an engine may index: scalars of the metadata, access, source and validity as integers."""
    flat = record.flat()
    row = {k: p for k, v in flat.items() if (p := _projectable(v)) is not None}
    row[FROM_KEY], row[TO_KEY] = validity(flat)
    if record.ref is not None:
        row[REF_KEY] = record.ref
    return row


def _projectable(value: Any) -> Projected | None:
    if isinstance(value, bool):
        return value
    if value in ("", 0):
        # Most of a chunk's fields are unknown: half the rows of Chroma's metadata table are saved.
        return None
    if isinstance(value, int):
        # Beyond 2**53 an engine's int and float columns disagree; only the order is kept.
        return value if abs(value) <= _EXACT_INT else (1e300 if value > 0 else -1e300)
    if isinstance(value, float):
        return value
    if isinstance(value, str) and len(value) <= _MAX_PROJECTED_CHARS:
        return value
    if isinstance(value, list):
        # Chroma indexes lists of one type: the texts in it, which are what is looked for.
        texts = [v for v in value if _in_lists(v)]
        return texts or None
    return None


def chroma_where(condition: Condition) -> dict[str, Any] | None:
    """A ``where`` that every matching record fulfils, or None when nothing can be pushed down.

    It may let more through than the condition does; ``condition.matches`` decides above it.
    """
    parts: list[dict[str, Any] | None] = []
    if condition.doc_ids and len(condition.doc_ids) <= _MAX_PUSHED_IDS:
        parts.append({REF_KEY: {"$in": sorted(condition.doc_ids)}})
    if condition.filter is not None:
        parts.append(_where(condition.filter))
    return _join("$and", [p for p in parts if p is not None])


def _join(operator: str, parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(parts) > 1:
        return {operator: parts}
    return parts[0] if parts else None


def _where(condition: Filter) -> dict[str, Any] | None:
    if isinstance(condition, InForce):
        day = day_number(condition.day)
        return {"$and": [{FROM_KEY: {"$lte": day}}, {TO_KEY: {"$gte": day}}]}
    if isinstance(condition, And):
        return _join("$and", [w for c in condition.items if (w := _where(c)) is not None])
    if isinstance(condition, Or):
        parts = [_where(c) for c in condition.items]
        return None if None in parts else _join("$or", [p for p in parts if p is not None])
    if isinstance(condition, Compare):
        return _where_compare(condition)
    return None


def _where_compare(condition: Compare) -> dict[str, Any] | None:
    """Positive comparisons of values that are projected; the rest is evaluated above."""
    op, value = condition.op, condition.value
    # "" and 0 are not projected, so nothing that they fulfil can be pushed down.
    if any(matches(condition, {condition.key: unprojected}) for unprojected in ("", 0)):
        return None
    if op == "in" and isinstance(value, tuple) and value and all(_pushable(v) for v in value):
        return _join("$or", [_one_of(condition.key, list(values)) for values in _by_type(value)])
    if op == "eq" and not isinstance(value, tuple) and _pushable(value):
        return {condition.key: {"$eq": value}}
    if op == "contains" and _in_lists(value):
        return {condition.key: {"$contains": value}}
    if op in ("any", "all") and isinstance(value, tuple) and value and all(_in_lists(v) for v in value):
        parts = [{condition.key: {"$contains": v}} for v in value]
        return _join("$or" if op == "any" else "$and", cast("list[dict[str, Any]]", parts))
    if op in RANGE_OPERATORS and _is_plain_number(value):
        return _where_range(condition.key, op, cast("float", value))
    return None


def _where_range(key: str, op: str, bound: float) -> dict[str, Any]:
    where = {key: {f"${op}": bound}}
    if bound == int(bound):
        return where
    # Chroma truncates a float bound when it compares a stored int: 0 < 0.5 is false there.
    nearest = math.ceil(bound) if op in ("gt", "gte") else math.floor(bound)
    return {"$or": [where, {key: {f"${op[:2]}e": nearest}}]}


def _one_of(key: str, values: list[Any]) -> dict[str, Any]:
    return {key: {"$in": values}} if len(values) > 1 else {key: {"$eq": values[0]}}


def _by_type(values: tuple[Any, ...]) -> list[list[Any]]:
    """Chroma wants one type in a list."""
    groups: dict[type, list[Any]] = {}
    for value in values:
        groups.setdefault(type(value), []).append(value)
    return list(groups.values())


def _in_lists(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_PROJECTED_CHARS


def _pushable(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_PROJECTED_CHARS
    return isinstance(value, bool) or _is_plain_number(value)


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _EXACT_INT
