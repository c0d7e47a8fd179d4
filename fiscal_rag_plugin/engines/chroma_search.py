"""Finding public chunks: plans that look at few rows first, each exact in meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..access import Access
from ..chunks import PUBLIC
from ..filters import And, Compare, Filter, Not, Or
from ..vectors import Matrix, Vector, rounded, similarities
from .base import Condition, Found, Hit, Record
from .blob import BLOB_KEY, chroma_where, decode, project

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

MARGIN = 8
"""Candidates beyond k: they show whether the k-th place is tied at six decimals."""
MAX_CANDIDATES = 16_384
"""The cap of over-fetching for ties and refused rows."""
FIRST_LOOK = 64
"""Nearest rows looked at before anything is known of a filter."""
WORTH_FETCHING = 512
"""Over-fetch while the matches are expected among this many; a row's metadata costs 0.1 ms and more."""
EXACT_LIMIT = 2_000
"""Rows that a filter leaves are scored exactly up to here; beyond, HNSW walks with the filter."""
PAGE = 1_000


class Search:
    """One query on one view of the collection; ``hidden`` ids belong to an unfinished replacement.

    ``ratios`` remembers, by a filter's keys and operators, which part of the rows matched before.
    It chooses the plan and never the answer.
    """

    def __init__(
        self, collection: Collection, hidden: frozenset[str], vector: Vector, k: int,
        access: Access, condition: Condition, ratios: dict[str, float],
    ) -> None:  # fmt: skip
        self._collection = collection
        self._hidden = hidden
        self._vector = vector
        self._k = k
        self._access = access
        self._condition = condition
        self._ratios = ratios
        self._fetched: dict[str, Record] = {}
        self._looked_at = 0
        self._matched = 0

    def run(self) -> Found:
        if self._condition.ids is not None:
            return self._exact(sorted(self._condition.ids), "ids")
        if self._condition.is_empty:
            return Found(self._nearest(self._k + MARGIN, MAX_CANDIDATES)[0], "nearest")
        where = chroma_where(self._condition)
        shape = condition_shape(self._condition)
        if where is None or self._ratios.get(shape, 1.0) * FIRST_LOOK >= self._k:
            hits = self._over_fetched(shape)
            if hits is not None:
                return Found(hits, "over-fetch")
        if where is None:
            everything = self._collection.count() + len(self._hidden)
            return Found(self._nearest(4 * WORTH_FETCHING, everything)[0], "over-fetch all")
        ids = self._collection.get(where=where, include=[])["ids"]
        self._ratios[shape] = len(ids) / max(self._collection.count(), 1)
        if len(ids) <= EXACT_LIMIT:
            return self._exact(ids, "exact")
        return Found(self._nearest(max(FIRST_LOOK, 4 * self._k), len(ids), where)[0], "filtered")

    def _over_fetched(self, shape: str) -> list[Hit] | None:
        """The answer when it lies among few nearest rows, judged by how many of the first match."""
        first = max(FIRST_LOOK, 4 * self._k)
        hits, certain = self._nearest(first, first)
        if not certain and self._matched:
            wanted = int(1.5 * self._k * self._looked_at / self._matched)
            if first < wanted <= WORTH_FETCHING:
                hits, certain = self._nearest(wanted, 2 * WORTH_FETCHING)
        self._ratios[shape] = self._matched / max(self._looked_at, 1)
        return hits if certain else None

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
            best = self._accepted(ids, values, matrix)
            full = len(best) == self._k
            if len(ids) < n or (full and min(map(rounded, values)) < rounded(best[-1].similarity)):
                return best, True
            if n >= cap:
                return best, False
            n *= 4

    def _accepted(self, ids: Sequence[str], values: list[float], matrix: Matrix) -> list[Hit]:
        """The first k candidates that are permitted and match; records are fetched as needed."""
        order = sorted(range(len(ids)), key=lambda i: (-rounded(values[i]), ids[i]))
        block = self._k if self._condition.is_empty else 2 * self._k
        hits: list[Hit] = []
        for start in range(0, len(order), block):
            part = order[start : start + block]
            missing = [ids[i] for i in part if ids[i] not in self._fetched]
            self._fetched.update(records_of(self._collection, missing))
            for i in part:
                record = self._fetched.get(ids[i])
                if record is not None and self._keeps(record):
                    hits.append(Hit(record, values[i], matrix[i]))
            self._looked_at += len(part)
            if len(hits) >= self._k:
                break
        self._matched += len(hits)
        return hits[: self._k]

    def _keeps(self, record: Record) -> bool:
        return (
            record.id not in self._hidden
            and self._access.permits(record.flat())
            and self._condition.matches(record)
        )

    def _exact(self, ids: Sequence[str], plan: str) -> Found:
        """Score every row of ``ids``; only the best are read whole."""
        found_ids: list[str] = []
        parts: list[Matrix] = []
        for start in range(0, len(ids), PAGE):
            found = self._collection.get(ids=list(ids[start : start + PAGE]), include=["embeddings"])
            if found["ids"]:
                found_ids += found["ids"]
                parts.append(np.asarray(found["embeddings"], dtype=np.float32))
        if not found_ids:
            return Found([], plan)
        matrix = np.concatenate(parts)
        return Found(self._accepted(found_ids, similarities(self._vector, matrix).tolist(), matrix), plan)


def condition_shape(condition: Condition) -> str:
    """A condition's keys and operators without its values: filters of one shape match alike."""
    doc_ids = "" if condition.doc_ids is None else f"doc_ids:{len(condition.doc_ids).bit_length()};"
    return doc_ids + _shape(condition.filter)


def _shape(condition: Filter | None) -> str:
    if isinstance(condition, Compare):
        return f"{condition.key} {condition.op}"
    if isinstance(condition, Not):
        return f"not({_shape(condition.item)})"
    if isinstance(condition, (And, Or)):
        return f"{type(condition).__name__}({','.join(_shape(item) for item in condition.items)})"
    return type(condition).__name__


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
