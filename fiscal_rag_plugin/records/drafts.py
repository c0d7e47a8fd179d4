"""A record as the corpus stores it, and the canonical record again from what is stored."""

from __future__ import annotations

from typing import cast

from ..chunks import SCOPE_KEY, SESSION_KEY, Json, Scope, copy_json
from ..drafts import Draft
from ..engines.base import Record
from .canonical import RecordJson, block, chunk_id_of

COMPONENTS_KEY = "component_ids"
_COMPONENT_SOURCES = ("component_ids", "primary_component_id", "component_id")
_PROVENANCE_KEYS = ("section_path", "page_start", "page_end", "authority_level", "section_role")
_RAW_TEXT = ("enrichment", "raw_text")
_EMBEDDING_TEXT = ("embedding_text",)


def draft_of(record: RecordJson, doc_type: str, scope: Scope, session_id: str | None) -> Draft:
    """What is written for a canonical record in the collection of ``doc_type``.

    The whole record travels in the shell, so that any process that may read the row can hydrate
    it. Its longest text is the row's own and is not stored twice.
    """
    place, text = _text_of(record)
    stored = Record(
        id=str(record["record_id"]), scope=scope, session_id=session_id, ref=str(record["doc_id"]),
        text=text, metadata=index_metadata(record, doc_type), kind="document",
        shell={"record": _with_text(record, place, None), "text": list(place)},
    )  # fmt: skip
    return Draft(stored, str(record["embedding_text"]))


def canonical_text(record: RecordJson) -> str:
    """The text a record stands for: the source's raw text where it has one, else the embedded one."""
    return _text_of(record)[1]


def _text_of(record: RecordJson) -> tuple[tuple[str, ...], str]:
    raw = block(record, "enrichment").get("raw_text")
    if isinstance(raw, str) and raw.strip():
        return _RAW_TEXT, raw
    return _EMBEDDING_TEXT, str(record["embedding_text"])


def _with_text(record: RecordJson, place: tuple[str, ...], text: str | None) -> RecordJson:
    """``record`` with another value at ``place``, its keys in the same order."""
    key, *rest = place
    inner: Json = text if not rest else _with_text(block(record, key), tuple(rest), text)
    return {**record, key: inner}


def hydrated(stored: Record) -> RecordJson | None:
    """The canonical record of a row, None when the row holds none."""
    record, place = stored.shell.get("record"), stored.shell.get("text")
    if not isinstance(record, dict) or place not in (list(_RAW_TEXT), list(_EMBEDDING_TEXT)):
        return None
    whole = cast("RecordJson", copy_json(record, "the record"))
    return _with_text(whole, tuple(cast("list[str]", place)), stored.text)


def index_metadata(record: RecordJson, doc_type: str) -> dict[str, Json]:
    """What filters see: the record's metadata, its identity, and where it comes from.

    ``doc_type`` is the collection's, also where it was overridden. ``component_ids`` names every
    component the record has under any of its keys, so that one condition finds them all.
    """
    flat = cast("dict[str, Json]", copy_json(record["metadata"], "metadata"))
    for key in (SCOPE_KEY, SESSION_KEY):
        flat.pop(key, None)
    provenance = block(record, "provenance")
    for key in _PROVENANCE_KEYS:
        if provenance.get(key) is not None:
            flat.setdefault(key, copy_json(provenance[key], key))
    if (chunk_id := chunk_id_of(record)) is not None:
        flat["chunk_id"] = chunk_id
    if components := _components(flat):
        flat[COMPONENTS_KEY] = components
    for key in ("record_id", "doc_id", "chunk_index"):
        flat[key] = record[key]
    flat["doc_type"] = doc_type
    return flat


def _components(flat: dict[str, Json]) -> list[Json]:
    found: list[Json] = []
    for key in _COMPONENT_SOURCES:
        value = flat.get(key)
        for item in value if isinstance(value, list) else [value]:
            if item is not None and item != "" and item not in found:
                found.append(item)
    return found
