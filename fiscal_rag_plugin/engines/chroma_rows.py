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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..chunks import PUBLIC
from ..vectors import Matrix
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


@dataclass(frozen=True, slots=True)
class PublicView:
    """The public chunks as they are at one moment; ``hidden`` ids do not count."""

    collection: Collection
    rows: Rows
    hidden: frozenset[str]

    def ids(self) -> list[str]:
        """Of every row that counts."""
        return [id for id in self.collection.get(include=[])["ids"] if id not in self.hidden]

    def records(self, ids: Sequence[str]) -> dict[str, Record]:
        """Whole records of those of ``ids`` that count."""
        return self.rows.records([id for id in ids if id not in self.hidden])

    def vectors(self, ids: Sequence[str], dimension: int) -> tuple[list[str], Matrix]:
        """(those of ``ids`` that exist, their vectors ``(n, dimension)``) in Chroma's order."""
        if not ids:
            return [], np.empty((0, dimension), dtype=np.float32)
        found = self.collection.get(ids=list(ids), include=["embeddings"])
        matrix = np.asarray(found["embeddings"], dtype=np.float32)
        return found["ids"], matrix.reshape(len(found["ids"]), -1)


class TextIndex(Protocol):
    """A second index over public records. Ids are noted on disk before they are written, so that it
    can always be brought up to date from the chunks."""

    def begin(self, ids: Sequence[str]) -> None:
        """These ids are about to be written or removed."""
        ...

    def put(self, records: Sequence[Record]) -> None:
        """These were written, should it help to have them."""
        ...

    def commit(self, view: PublicView) -> None:
        """What was begun is done, and ``view`` shows it."""
        ...

    def end(self) -> None:
        """The commit is over, done or failed: what was put may not be as it was."""
        ...

    def close(self) -> None: ...


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
            for id, key, text, whole, real, flag in self._cells(_SCALARS, batch):
                row = rows.setdefault(id, {})
                row[key] = text if text is not None else _value(text, whole, real, flag)
            # A blob without a bracket has no list; most have none.
            listed = [id for id in batch if "[" in str(rows.get(id, {}).get(BLOB_KEY))]
            for id, key, *values in self._cells(_LISTS, listed, " ORDER BY m.rowid"):
                rows[id].setdefault(key, []).append(_value(*values))
        documents = [row.pop(_DOCUMENT, None) for row in rows.values()]
        return decoded({"ids": list(rows), "metadatas": list(rows.values()), "documents": documents})

    def _cells(self, table: str, ids: Sequence[str], order: str = "") -> list[tuple[Any, ...]]:
        if not ids:
            return []
        return self._query(
            "SELECT e.embedding_id, m.key, m.string_value, m.int_value, m.float_value, m.bool_value "
            f"FROM embeddings e JOIN {table} m ON m.id = e.id "
            f"WHERE e.segment_id = ? AND e.embedding_id IN ({marks(ids)}){order}",
            [self._segment, *ids],
        )

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
                "SELECT e.embedding_id FROM {} CROSS JOIN embeddings e ON e.id = m.id "
                "WHERE {} AND e.segment_id = ?".format(*sql),
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
            counted = "SELECT COUNT(*) FROM (SELECT 1 FROM {} WHERE {} LIMIT ?)".format(*sql)
            total += self._query(counted, [*values, limit - total + 1])[0][0]
            if total > limit:
                return None
        return total, spans


_Span = tuple[tuple[str, str], list[Any]]
"""A table of Chroma's metadata, a condition on a range of one of its indexes, and its values."""
_SCALARS, _LISTS = "embedding_metadata", "embedding_metadata_array"
_SQL = {"$eq": "=", "$contains": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def _spans(key: str, condition: Mapping[str, Any]) -> Iterator[_Span]:
    """Spans that cover every row of which ``key`` fulfils a comparison of a ``where``."""
    ((operator, value),) = condition.items()
    table = f"{_LISTS if operator == '$contains' else _SCALARS} m"
    for part in batches(value) if operator == "$in" else [[value]]:
        compared = f"IN ({marks(part)})" if operator == "$in" else f"{_SQL[operator]} ?"
        for column in _columns(part[0]):
            yield (table, f"m.key = ? AND m.{column} {compared}"), [key, *part]


def _value(text: str | None, whole: int | None, real: float | None, flag: int | None) -> Any:
    values = (text, whole, real, None if flag is None else bool(flag))
    return next((value for value in values if value is not None), None)


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
