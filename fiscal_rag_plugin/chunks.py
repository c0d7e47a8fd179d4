"""Chunk, ChunkMetadata and chunk_id: what is stored, and what makes it the same thing again."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, cast

from .errors import InvalidChunkError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Scope = Literal["public", "private"]

PUBLIC: Scope = "public"
PRIVATE: Scope = "private"
SCOPE_KEY = "source_scope"
SESSION_KEY = "session_id"
# Keys under which we, LlamaIndex or Chroma keep their own record of a chunk.
RESERVED_KEYS = frozenset({"_node_content", "_node_type", "chroma:document"})
RESERVED_PREFIXES = ("$", "#", "fiscal:")
MAX_SESSION_CHARS = 128
MAX_KEY_CHARS = 256
MAX_ID_CHARS = 1024
MAX_METADATA_DEPTH = 32
MAX_INT_BITS = 1024


def has_surrogate(value: str) -> bool:
    """Whether a text has half a character, which no file and no database takes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _has_control(value: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cs") for c in value)


def validate_session_id(value: object) -> str:
    """The session id itself, when it is one: an exact ``str`` of 1 to 128 characters.

    Nothing is trimmed or normalised: ``A``, ``a`` and `` A `` are three sessions.

    Raises:
        InvalidChunkError: another type, blank, too long, or with control characters.
    """
    if type(value) is not str:
        raise InvalidChunkError(f"session_id must be a str, not {type(value).__name__}")
    if not value.strip():
        raise InvalidChunkError("session_id must not be blank")
    if len(value) > MAX_SESSION_CHARS:
        raise InvalidChunkError(f"session_id must have at most {MAX_SESSION_CHARS} characters")
    if _has_control(value):
        raise InvalidChunkError("session_id must not contain control or surrogate characters")
    return value


def validate_id(value: object) -> str:
    """A caller's chunk id: any non-empty text of at most 1,024 characters."""
    if not isinstance(value, str) or not value:
        raise InvalidChunkError(f"a chunk id must be a non-empty str, not {value!r:.40}")
    if len(value) > MAX_ID_CHARS or _has_control(value):
        raise InvalidChunkError(
            f"a chunk id must have at most {MAX_ID_CHARS} characters and no control characters"
        )
    return str(value)


def key_problem(key: object) -> str | None:
    """Why ``key`` cannot be a metadata key, in metadata or in a filter; None when it can."""
    if not isinstance(key, str) or not key.strip():
        return f"metadata keys must be non-blank str, not {key!r:.40}"
    if len(key) > MAX_KEY_CHARS:
        return f"metadata keys must have at most {MAX_KEY_CHARS} characters"
    if _has_control(key):
        return "metadata keys must not contain control or surrogate characters"
    if key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES):
        return f"metadata key {key!r} is reserved; use another name"
    return None


def validate_text(value: object, what: str) -> str:
    """``value`` when it is text that can be stored and found: not blank, no lone surrogates."""
    if not isinstance(value, str):
        raise InvalidChunkError(f"{what} must be a str, not {type(value).__name__}")
    if not value.strip():
        raise InvalidChunkError(f"{what} must not be blank")
    if has_surrogate(value):
        raise InvalidChunkError(f"{what} contains a lone surrogate; decode the source again")
    return str(value)


def copy_json(value: object, where: str, depth: int = 0) -> Json:
    """A deep copy of a JSON value; tuples become lists.

    Raises:
        InvalidChunkError: a type JSON does not have, NaN or infinity, nesting over 32 levels.
    """
    if depth > MAX_METADATA_DEPTH:
        raise InvalidChunkError(f"{where} is nested more than {MAX_METADATA_DEPTH} levels deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        if has_surrogate(value):
            raise InvalidChunkError(f"{where} contains a lone surrogate")
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise InvalidChunkError(f"{where} has more than {MAX_INT_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidChunkError(f"{where} is NaN or infinite")
        return float(value)
    if isinstance(value, (list, tuple)):
        return [copy_json(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        copied: dict[str, Json] = {}
        for key, inner in value.items():
            if not isinstance(key, str) or has_surrogate(key):
                raise InvalidChunkError(f"{where} has a key that is not text")
            copied[key] = copy_json(inner, f"{where}.{key}", depth + 1)
        return copied
    raise InvalidChunkError(f"{where} must be a JSON value, not {type(value).__name__}")


def copy_metadata(metadata: Mapping[str, object]) -> dict[str, Json]:
    """A checked deep copy of flat metadata: usable keys, JSON values."""
    if not isinstance(metadata, Mapping):
        raise InvalidChunkError(f"metadata must be a mapping, not {type(metadata).__name__}")
    copied: dict[str, Json] = {}
    for key, value in metadata.items():
        if problem := key_problem(key):
            raise InvalidChunkError(problem)
        copied[str(key)] = copy_json(value, f"metadata {key!r}")
    return copied


def require_iso_date(value: object, name: str) -> str:
    """``value`` when it is an ISO day (YYYY-MM-DD), else InvalidChunkError."""
    if isinstance(value, str) and len(value) == 10:
        try:
            dt.date.fromisoformat(value)
        except ValueError:
            pass
        else:
            return value
    raise InvalidChunkError(f"{name} must be a date YYYY-MM-DD, not {value!r:.40}")


def check_scope(scope: object, session_id: object) -> None:
    """Raise unless (scope, session) is public without, or private with, a session."""
    if type(scope) is not str or scope not in (PUBLIC, PRIVATE):
        raise InvalidChunkError(f"{SCOPE_KEY} must be 'public' or 'private', not {scope!r:.40}")
    if scope == PRIVATE:
        if session_id is None:
            raise InvalidChunkError("a private chunk needs a session_id")
        validate_session_id(session_id)
    elif session_id is not None:
        raise InvalidChunkError("a public chunk must not have a session_id")


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """What is known of a chunk's source. Dates are ISO days or "", pages count from 1 (0: unknown)."""

    doc_id: str
    doc_type: str
    source_scope: Scope
    tax: str = "GENERAL"
    fiscal_year: int = 0
    valid_from: str = ""
    valid_to: str = ""
    section_label: str = ""
    section_path: str = ""
    page: int = 0
    page_end: int = 0
    source_url: str = ""
    retrieved_at: str = ""
    chunk_index: int = 0
    session_id: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("doc_id", "doc_type", "tax"):
            validate_text(getattr(self, name), name)
        for name in ("section_label", "section_path", "source_url", "retrieved_at"):
            value = getattr(self, name)
            if not isinstance(value, str) or has_surrogate(value):
                raise InvalidChunkError(f"{name} must be text, not {type(value).__name__}")
        for name in ("fiscal_year", "page", "page_end", "chunk_index"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InvalidChunkError(f"{name} must be an int of at least 0, not {value!r:.40}")
        for name in ("valid_from", "valid_to"):
            if getattr(self, name) != "":
                require_iso_date(getattr(self, name), name)
        if self.valid_from and self.valid_to and self.valid_to < self.valid_from:
            raise InvalidChunkError(f"valid_to {self.valid_to} is before valid_from {self.valid_from}")
        if self.page and self.page_end and self.page_end < self.page:
            raise InvalidChunkError(f"page_end {self.page_end} is before page {self.page}")
        check_scope(self.source_scope, self.session_id)
        extra = copy_metadata(self.extra)
        if shadowed := sorted(set(extra) & FIELD_NAMES):
            raise InvalidChunkError(f"extra must not shadow the fields {shadowed}")
        object.__setattr__(self, "extra", extra)

    def to_store_dict(self) -> dict[str, Json]:
        """Fields and the caller's keys side by side; fields that are None are left out."""
        flat: dict[str, Json] = {
            name: value for name in FIELD_ORDER if (value := getattr(self, name)) is not None
        }
        flat.update(cast("dict[str, Json]", copy_json(self.extra, "extra")))
        return flat

    @classmethod
    def from_store_dict(cls, flat: Mapping[str, Json]) -> ChunkMetadata:
        """The inverse of :meth:`to_store_dict`."""
        known: dict[str, Any] = {k: v for k, v in flat.items() if k in FIELD_NAMES}
        return cls(**known, extra={k: v for k, v in flat.items() if k not in FIELD_NAMES})


FIELD_ORDER = tuple(f.name for f in fields(ChunkMetadata) if f.name != "extra")
FIELD_NAMES = frozenset(FIELD_ORDER) | {"extra"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a source text.

    ``text`` is the source's own text between the offsets ``start`` and ``end``, stored and cited.
    ``embedding_text`` (title, headings, text) only makes the vector and is never stored.
    """

    text: str
    embedding_text: str
    metadata: ChunkMetadata
    start: int
    end: int
    token_count: int = 0
    overlap_tokens: int = 0

    def __post_init__(self) -> None:
        validate_text(self.text, "text")
        validate_text(self.embedding_text, "embedding_text")
        if not isinstance(self.metadata, ChunkMetadata):
            raise InvalidChunkError("metadata must be a ChunkMetadata")
        for name in ("start", "end", "token_count", "overlap_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InvalidChunkError(f"{name} must be an int of at least 0, not {value!r:.40}")
        if self.end < self.start:
            raise InvalidChunkError(f"end {self.end} is before start {self.start}")


def chunk_id(chunk: Chunk) -> str:
    """SHA-256 hex of what a chunk is: scope, session, source, place and both texts.

    A JSON array is the unambiguous encoding. ``retrieved_at`` is no part of it, so a later
    ingest of the same text updates the same chunk.
    """
    m = chunk.metadata
    identity = [
        m.source_scope, m.session_id, m.doc_id, m.chunk_index,
        chunk.start, chunk.end, chunk.text, chunk.embedding_text,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(identity, ensure_ascii=True).encode("ascii")).hexdigest()
