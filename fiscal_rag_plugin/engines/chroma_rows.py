"""The rows of a public collection: what is stored beside the vectors, by id or by what it says.

Chroma's own ``get`` takes 0.3 ms a row and time linear in the collection for a ``where``, because
its statements walk every row. The tables it reads have indexes that answer in a hundredth of
that, so they are read directly, and only read. A schema other than the one known here is read
through ``get``: slower, with the same answers.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..chunks import PUBLIC
from .base import Record
from .blob import BLOB_KEY, decode, project
from .connections import Connections
from .statements import batches, marks

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

PAGE = 1_000
_DOCUMENT = "chroma:document"


class Rows(Protocol):
    """Public records of one collection."""

    def records(self, ids: Sequence[str]) -> dict[str, Record]:
        """Whole records by id; a row that disagrees with itself has been edited and is left out."""
        ...

    def outlines(self, ids: Sequence[str]) -> dict[str, Record]:
        """Records by id for a filter to look at: perhaps without text, and not checked."""
        ...

    def narrow(self, where: Mapping[str, Any], limit: int) -> list[str] | None:
        """Ids of at most ``limit`` rows among which are all that fulfil ``where``; None: too many."""
        ...


def open_rows(collection: Collection, connections: Connections) -> Rows:
    """The faster way to the collection's rows that this version of Chroma allows."""
    try:
        return TableRows(collection, connections)
    except (sqlite3.OperationalError, LookupError):
        logger.info("Chroma's tables have another form than the one known; its slower API is used")
        return ApiRows(collection)


class ApiRows:
    """Through Chroma's ``get``, which fails beyond SQLite's variable limit: page by page."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def records(self, ids: Sequence[str]) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for start in range(0, len(ids), PAGE):
            page = list(ids[start : start + PAGE])
            records.update(decoded(self._collection.get(ids=page, include=["metadatas", "documents"])))
        return records

    outlines = records

    def narrow(self, where: Mapping[str, Any], limit: int) -> list[str] | None:  # noqa: ARG002
        """Always None: to find out takes as long as any other plan."""
        return None


class TableRows:
    """From chroma.sqlite3, in statements of microseconds.

    Raises:
        sqlite3.OperationalError, LookupError: the tables are not the ones known here.
    """

    def __init__(self, collection: Collection, connections: Connections) -> None:
        self._connections = connections
        # What a killed writer left in Chroma's log reaches the tables at the first call.
        collection.get(ids=["-"], include=[])
        found = self._query(
            "SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA' "
            "AND type = 'urn:chroma:segment/metadata/sqlite'",
            [str(collection.id)],
        )
        self._segment = found[0][0]
        self.records(["-"])
        self.narrow({"key": {"$gte": 1}}, 1)

    def _query(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        # Not a StorageError yet: the caller first looks whether the files only moved.
        return self._connections.get().execute(sql, values).fetchall()

    def records(self, ids: Sequence[str]) -> dict[str, Record]:
        rows: dict[str, dict[str, Any]] = {}
        for batch in batches(ids):
            for id, key, text, whole, real, flag in self._query(
                "SELECT e.embedding_id, m.key, m.string_value, m.int_value, m.float_value, m.bool_value "
                "FROM embeddings e JOIN embedding_metadata m ON m.id = e.id "
                f"WHERE e.segment_id = ? AND e.embedding_id IN ({marks(batch)})",
                [self._segment, *batch],
            ):
                values = (text, whole, real, None if flag is None else bool(flag))
                rows.setdefault(id, {})[key] = next((v for v in values if v is not None), None)
        documents = [row.pop(_DOCUMENT, None) for row in rows.values()]
        return decoded({"ids": list(rows), "metadatas": list(rows.values()), "documents": documents})

    def outlines(self, ids: Sequence[str]) -> dict[str, Record]:
        outlines: dict[str, Record] = {}
        for batch in batches(ids):
            for id, blob in self._query(
                "SELECT e.embedding_id, m.string_value FROM embeddings e JOIN embedding_metadata m "
                f"ON m.id = e.id AND m.key = '{BLOB_KEY}' "
                f"WHERE e.segment_id = ? AND e.embedding_id IN ({marks(batch)})",
                [self._segment, *batch],
            ):
                record = decode(blob, "", id=id, scope=PUBLIC, session_id=None)
                if record is not None:
                    outlines[id] = record
        return outlines

    def narrow(self, where: Mapping[str, Any], limit: int) -> list[str] | None:
        found = self._narrowest(where, limit)
        if found is None:
            return None
        ids = {
            id
            for sql, values in found[1]
            for (id,) in self._query(
                # CROSS JOIN: from the few matching entries to their rows, never the other way.
                "SELECT e.embedding_id FROM embedding_metadata m CROSS JOIN embeddings e ON e.id = m.id "
                f"WHERE {sql} AND e.segment_id = ?",
                [*values, self._segment],
            )
        }
        return sorted(ids)

    def _narrowest(self, where: Mapping[str, Any], limit: int) -> tuple[int, list[_Span]] | None:
        """(entries, spans) of the narrowest part of ``where`` that every match must fulfil."""
        ((key, value),) = where.items()
        if key == "$and":
            parts = [p for item in value if (p := self._narrowest(item, limit)) is not None]
            return min(parts, key=lambda part: part[0], default=None)
        spans: list[_Span] = []
        total = 0
        if key == "$or":
            for item in value:
                part = self._narrowest(item, limit - total)
                if part is None:
                    return None
                total, spans = total + part[0], spans + part[1]
            return total, spans
        spans += _spans(key, value)
        for sql, values in spans:
            counted = "SELECT COUNT(*) FROM (SELECT 1 FROM embedding_metadata m WHERE {} LIMIT ?)"
            total += self._query(counted.format(sql), [*values, limit - total + 1])[0][0]
            if total > limit:
                return None
        return total, spans


_Span = tuple[str, list[Any]]
"""A condition on a range of one index of Chroma's metadata table, and its values."""
_SQL = {"$eq": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def _spans(key: str, condition: Mapping[str, Any]) -> Iterator[_Span]:
    """Spans that cover every row of which ``key`` fulfils a comparison of a ``where``."""
    ((operator, value),) = condition.items()
    for part in batches(value) if operator == "$in" else [[value]]:
        compared = f"IN ({marks(part)})" if operator == "$in" else f"{_SQL[operator]} ?"
        for column in _columns(part[0]):
            yield f"m.key = ? AND m.{column} {compared}", [key, *part]


def _columns(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("bool_value",)
    return ("string_value",) if isinstance(value, str) else ("int_value", "float_value")


def decoded(found: Mapping[str, Any]) -> dict[str, Record]:
    """Rows whose blob, text and index entry agree; any other has been edited and is nobody's."""
    records: dict[str, Record] = {}
    for id, metadata, text in zip(found["ids"], found["metadatas"], found["documents"], strict=True):
        if metadata is None:
            continue
        row = dict(metadata)
        record = decode(row.pop(BLOB_KEY, None), text, id=id, scope=PUBLIC, session_id=None)
        if record is not None and row == project(record):
            records[id] = record
    return records
