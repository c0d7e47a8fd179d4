"""What a document says about itself, sorted into ChunkMetadata fields and the document's own keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import yaml

from fiscal_rag_plugin.chunks import (
    FIELD_NAMES,
    PRIVATE,
    PUBLIC,
    SCOPE_KEY,
    SESSION_KEY,
    Json,
    Scope,
    check_scope,
    copy_metadata,
    require_iso_date,
)
from fiscal_rag_plugin.errors import IngestError, InvalidChunkError

ACCESS_KEYS = frozenset({SCOPE_KEY, SESSION_KEY})
# Facts of the cut, never of the document: chunk_index is counted here, extra is our own name.
DERIVED_KEYS = frozenset({"chunk_index", "extra"})
DATE_FIELDS = frozenset({"valid_from", "valid_to"})
INT_FIELDS = frozenset({"fiscal_year", "page", "page_end"})
SETTABLE_FIELDS = FIELD_NAMES - DERIVED_KEYS

Declared = tuple[dict[str, str | int], dict[str, Json]]


def split_metadata(raw: Mapping[str, object], where: str) -> Declared:
    """``raw`` as (fields, extra): known names become fields, all others stay the document's own.

    An empty (null) field is left out, a ``section_path`` list is joined by " > ", days
    become ISO days, a numeric string becomes a number where a field is one. Access keys stay
    among the fields as a claim, which :func:`check_claims` compares with the scope asked for.

    Raises:
        IngestError: a derived key, a value of the wrong type, a key or value that cannot be stored.
    """
    fields: dict[str, str | int] = {}
    extra: dict[str, object] = {}
    for key, value in raw.items():
        if key in DERIVED_KEYS:
            raise IngestError(f"{where}: {key!r} is computed while cutting; remove or rename it")
        if key not in FIELD_NAMES:
            extra[key] = _without_dates(value)
        elif value is not None:
            fields[key] = _field(key, value, where)
    try:
        return fields, copy_metadata(extra)
    except InvalidChunkError as error:
        raise IngestError(f"{where}: {error}") from None


def _field(key: str, value: object, where: str) -> str | int:
    if isinstance(value, dt.date):
        value = value.isoformat()[:10] if key in DATE_FIELDS else value.isoformat()
    if key in INT_FIELDS:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if type(value) is int and value >= 0:
            return value
        raise IngestError(f"{where}: {key} must be a whole number, not {type(value).__name__}")
    if key == "section_path" and isinstance(value, (list, tuple)):
        value = " > ".join(str(v) for v in value)
    if key in DATE_FIELDS and value != "":
        try:
            return require_iso_date(value, key)
        except InvalidChunkError as error:
            raise IngestError(f"{where}: {error}") from None
    if not isinstance(value, str):
        raise IngestError(f"{where}: {key} must be text, not {type(value).__name__}")
    return value


def _without_dates(value: object) -> object:
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {k: _without_dates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_dates(v) for v in value]
    return value


def check_claims(fields: Mapping[str, object], scope: Scope, session_id: str | None, where: str) -> None:
    """Refuse a document that says it belongs to another scope or session than the one asked for.

    A file never decides who may read it, and one that says "private" is never made public.

    Raises:
        InvalidChunkError: the claim disagrees, or (scope, session_id) is no valid pair.
    """
    check_scope(scope, session_id)
    asked: dict[str, str | None] = {SCOPE_KEY: scope, SESSION_KEY: session_id}
    for key in sorted(ACCESS_KEYS):
        claimed = fields.get(key)
        if claimed is not None and claimed != asked[key]:
            raise InvalidChunkError(
                f"{where}: its metadata has a {key} that is not the one asked for; remove the key, "
                f"or ingest it as what it says ({PUBLIC} or {PRIVATE}, with its session)"
            )


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases, in which a day is the text it is written as.

    Nine levels of nine aliases expand to millions of values.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(text: str, where: str, first_line: int = 1) -> object:
    """The value of a YAML text; ``first_line`` is its line number in the file.

    Raises:
        IngestError: naming the line, and never quoting the text.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        line = first_line + (error.problem_mark.line if error.problem_mark else 0)
        raise IngestError(f"{where}: line {line}: YAML cannot be read: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise IngestError(
            f"{where}: line {first_line}: YAML cannot be read ({type(error).__name__})"
        ) from None
