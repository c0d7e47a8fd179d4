"""Finding public chunks: plans that look at few rows first, each exact in meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..access import Access
from ..chunks import PUBLIC
from ..vectors import Matrix, Vector, rounded, similarities
from .base import Condition, Found, Hit, Record
from .blob import BLOB_KEY, chroma_where, decode, project

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

MARGIN = 8
"""Candidates beyond k: they show whether the k-th place is tied at six decimals."""
MAX_CANDIDATES = 16_384
"""The cap of over-fetching for ties and refused rows."""
EXACT_LIMIT = 2_000
"""Rows that a filter leaves are scored exactly up to here; beyond, HNSW walks with the filter."""
PAGE = 1_000


class Search:
    """One query on one view of the collection; ``hidden`` ids belong to an unfinished replacement."""

    def __init__(
        self, collection: Collection, hidden: frozenset[str], vector: Vector, k: int,
        access: Access, condition: Condition,
    ) -> None:  # fmt: skip
        self._collection = collection
        self._hidden = hidden
        self._vector = vector
        self._k = k
        self._access = access
        self._condition = condition
        self._fetched: dict[str, Record] = {}

    def run(self) -> Found:
        if self._condition.ids is not None:
            return self._exact(sorted(self._condition.ids), "ids")
        if self._condition.is_empty:
            return Found(self._nearest(self._k + MARGIN, MAX_CANDIDATES)[0], "nearest")
        hits, certain = self._nearest(max(64, 4 * self._k), 256)
        if certain:
            return Found(hits, "over-fetch")
        where = chroma_where(self._condition)
        if where is None:
            return Found(
                self._nearest(1_024, self._collection.count() + len(self._hidden))[0], "over-fetch all"
            )
        ids = self._collection.get(where=where, include=[])["ids"]
        if len(ids) <= EXACT_LIMIT:
            return self._exact(ids, "exact")
        return Found(self._nearest(max(64, 4 * self._k), len(ids), where)[0], "filtered")

    def _nearest(self, n: int, cap: int, where: dict[str, Any] | None = None) -> tuple[list[Hit], bool]:
        """Hits among the n nearest, in growing steps; True when no further row can change them."""
        while True:
            n = min(n, cap)
            found = self._collection.query(
                query_embeddings=self._vector[None, :], n_results=max(n, 1), where=where,
                include=["embeddings"],
            )  # fmt: skip
            ids = found["ids"][0]
            if not ids:
                return [], True
            matrix = np.asarray(cast("Any", found["embeddings"])[0], dtype=np.float32)
            values = similarities(self._vector, matrix).tolist()
            hits = self._accepted(ids, values, matrix)
            best = hits[: self._k]
            full = len(best) == self._k
            if len(ids) < n or (full and min(map(rounded, values)) < rounded(best[-1].similarity)):
                return best, True
            if n >= cap:
                return best, False
            n *= 4

    def _accepted(self, ids: list[str], values: list[float], matrix: Matrix) -> list[Hit]:
        """Candidates that are permitted and match, in order; records are fetched as they are needed."""
        order = sorted(range(len(ids)), key=lambda i: (-rounded(values[i]), ids[i]))
        block = self._k if self._condition.is_empty else len(order)
        hits: list[Hit] = []
        for start in range(0, len(order), max(block, 1)):
            part = order[start : start + block]
            missing = [ids[i] for i in part if ids[i] not in self._fetched]
            self._fetched.update(records_of(self._collection, missing))
            for i in part:
                record = self._fetched.get(ids[i])
                if record is not None and self._keeps(record):
                    hits.append(Hit(record, values[i], matrix[i]))
            if len(hits) >= self._k:
                break
        return hits

    def _keeps(self, record: Record) -> bool:
        return (
            record.id not in self._hidden
            and self._access.permits(record.flat())
            and self._condition.matches(record)
        )

    def _exact(self, ids: Sequence[str], plan: str) -> Found:
        """Score every row of ``ids``."""
        hits: list[Hit] = []
        for start in range(0, len(ids), PAGE):
            found = self._collection.get(
                ids=list(ids[start : start + PAGE]), include=["embeddings", "metadatas", "documents"]
            )
            if not found["ids"]:
                continue
            matrix = np.asarray(found["embeddings"], dtype=np.float32)
            values = similarities(self._vector, matrix).tolist()
            records = decoded(found)
            for id, value, row in zip(found["ids"], values, matrix, strict=True):
                record = records.get(id)
                if record is not None and self._keeps(record):
                    hits.append(Hit(record, value, row))
        return Found(sorted(hits, key=lambda hit: hit.order)[: self._k], plan)


def records_of(collection: Collection, ids: Sequence[str]) -> dict[str, Record]:
    """Records by id; ``get`` fails beyond SQLite's variable limit, so it is asked page by page."""
    records: dict[str, Record] = {}
    for start in range(0, len(ids), PAGE):
        page = list(ids[start : start + PAGE])
        records.update(decoded(collection.get(ids=page, include=["metadatas", "documents"])))
    return records


def decoded(found: Any) -> dict[str, Record]:
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
