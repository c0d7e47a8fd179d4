"""The canonical record, a ``processed_text_record``: what it must have, and which text it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from ..chunks import Json, copy_json, copy_metadata, validate_id, validate_text
from ..errors import InvalidChunkError
from .errors import InvalidRecordError

RecordJson: TypeAlias = "dict[str, Json]"

WRAPPER = "processed_text_record"
REQUIRED = (
    "record_id", "doc_id", "doc_type", "chunk_index", "embedding_text", "metadata", "provenance",
)  # fmt: skip
RECORD_TYPES = ("CR", "WO", "SOP", "RCA", "ECA", "FMEA", "MANUAL")
"""DACKAR's own types; any other name is a type too."""
BLOCKS = ("enrichment", "condition_assessment", "eca", "oe_metadata")
MAX_TYPE_CHARS = 128


def canonical(value: object) -> RecordJson:
    """A checked deep copy of a record, given bare or wrapped under ``processed_text_record``.

    Keys that nobody asked for stay: the record comes back as the JSON value it was.

    Raises:
        InvalidRecordError: a required key is missing or of another type, or a value is no JSON.
    """
    if not isinstance(value, Mapping):
        raise InvalidRecordError(f"a record is a JSON object, not {type(value).__name__}")
    given: Mapping[object, object] = value
    if isinstance(wrapped := given.get(WRAPPER), Mapping):
        given = wrapped
    if missing := [key for key in REQUIRED if key not in given]:
        raise InvalidRecordError(f"{_named(given)} has no {', '.join(missing)}")
    try:
        record = cast("RecordJson", copy_json(given, "the record"))
        if not str(record["record_id"]).strip():
            raise InvalidRecordError("record_id must not be blank")
        validate_id(record["record_id"])
        validate_text(record["doc_id"], "doc_id")
        record_type(record["doc_type"])
        validate_text(record["embedding_text"], "embedding_text")
        copy_metadata(cast("Mapping[str, object]", record["metadata"]))
    except InvalidChunkError as error:
        raise InvalidRecordError(f"{_named(given)}: {error}") from None
    index = record["chunk_index"]
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidRecordError(f"{_named(given)}: chunk_index must be an int of at least 0")
    if not isinstance(record["provenance"], dict):
        raise InvalidRecordError(f"{_named(given)}: provenance must be an object")
    if wrong := [key for key in BLOCKS if not isinstance(record.get(key), dict | None)]:
        raise InvalidRecordError(f"{_named(given)}: {', '.join(wrong)} must be an object")
    return record


def _named(value: Mapping[object, object]) -> str:
    id = value.get("record_id")
    return f"record {id!r:.80}" if isinstance(id, str) else "a record without a record_id"


def record_type(value: object) -> str:
    """A record type as it is compared and stored: CR, WO, SOP, ... in capitals, single spaces.

    Raises:
        InvalidRecordError: no text, over 128 characters, or unprintable ones.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidRecordError(f"doc_type must be a non-blank str, not {value!r:.40}")
    name = type_key(value)
    if len(name) > MAX_TYPE_CHARS or not name.isprintable():
        raise InvalidRecordError(
            f"doc_type {name!r:.40} must have at most {MAX_TYPE_CHARS} characters, all printable"
        )
    return name


def type_key(value: str) -> str:
    """``value`` without the differences that do not make another type."""
    return " ".join(value.split()).upper()


def block(record: Mapping[str, Json], *path: str) -> dict[str, Json]:
    """The object at a path of keys, empty where there is none."""
    found: Json = cast("Json", record)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def chunk_id_of(record: RecordJson) -> str | None:
    """``provenance.chunk_id``, else a ``chunk_id`` of the record itself or of its metadata."""
    for place in (block(record, "provenance"), record, block(record, "metadata")):
        value = place.get("chunk_id")
        if isinstance(value, str) and value.strip():
            return value
    return None
