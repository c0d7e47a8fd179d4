"""Finding public chunks: plans that look at few rows first, each exact in meaning.

A plan is chosen by how many rows a filter leaves. Chroma is never given the filter unless every
cheaper way has failed: a ``where`` there takes time linear in the collection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from ..access import Access
from ..vectors import Matrix, Vector, rounded, similarities
from .base import Condition, Found, Hit, Record
from .blob import chroma_where
from .chroma_rows import PAGE, PublicView

MARGIN = 1
"""Candidates beyond k: the next one shows whether the k-th place is tied at six decimals."""
MAX_CANDIDATES = 16_384
"""The cap of over-fetching for ties and refused rows."""
NARROW = 256
"""Rows that a filter leaves are scored at once up to here; a vector takes Chroma 0.1 ms."""
FIRST_LOOK, LAST_LOOK = 64, 1_024
"""Nearest rows looked at for a filter, first and at most; of a thousand, ids alone take 20 ms."""
EXACT_LIMIT = 2_000
"""When the nearest have too few matches, all are scored up to here; beyond, HNSW walks with the filter."""
SLACK = 2e-5
"""More than Chroma's distances, in float32, can differ from the similarity of the same vectors."""


class Search:
    """One query on one view of the public chunks."""

    def __init__(
        self, view: PublicView, vector: Vector, k: int, access: Access, condition: Condition
    ) -> None:
        self._view = view
        self._vector = vector
        self._k = k
        self._access = access
        self._condition = condition
        self._keeps: dict[str, bool] = {}

    def run(self) -> Found:
        if self._condition.ids is not None:
            return Found(self._exact(sorted(self._condition.ids)), "ids")
        if self._condition.is_empty:
            return Found(self._nearest(self._k + MARGIN, MAX_CANDIDATES)[0], "nearest")
        where = chroma_where(self._condition)
        few = None if where is None else self._view.rows.narrow(where, NARROW)
        if few is not None:
            return Found(self._exact(few), "narrow")
        hits, certain = self._nearest(max(FIRST_LOOK, 4 * self._k), max(LAST_LOOK, 4 * self._k))
        if certain:
            return Found(hits, "over-fetch")
        ids = self._view.collection.get(where=where, include=[])["ids"]
        if where is None or len(ids) <= EXACT_LIMIT:
            return Found(self._exact(ids), "exact")
        return Found(self._nearest(max(FIRST_LOOK, 4 * self._k), len(ids), where)[0], "filtered")

    def _nearest(self, n: int, cap: int, where: dict[str, Any] | None = None) -> tuple[list[Hit], bool]:
        """Hits among the n nearest, in growing steps; True when no further row can change them."""
        # For few rows their vectors come along; of many, only the best are scored exactly.
        scored = self._condition.is_empty
        while True:
            n = max(min(n, cap), 1)
            found = self._view.collection.query(
                query_embeddings=self._vector[None, :], n_results=n, where=where,
                include=["embeddings" if scored else "distances"],
            )  # fmt: skip
            ids = found["ids"][0]
            if not ids:
                return [], True
            matrix: Matrix | None = None
            if scored:
                matrix = np.asarray(cast("Any", found["embeddings"])[0], dtype=np.float32)
                values = similarities(self._vector, matrix).tolist()
            else:
                values = [1.0 - distance for distance in cast("Any", found["distances"])[0]]
            hits = self._best(ids, values, matrix)
            # An approximate value on either side of the comparison.
            slack = 0.0 if scored else 2 * SLACK
            full = len(hits) == self._k
            if len(ids) < n or (full and rounded(min(values)) + slack < rounded(hits[-1].similarity)):
                return hits, True
            if n >= cap:
                return hits, False
            n *= 4

    def _exact(self, ids: Sequence[str]) -> list[Hit]:
        """Score every row of ``ids`` that matches; only the best are read whole."""
        kept: list[str] = []
        values: list[float] = []
        parts: list[Matrix] = []
        for start in range(0, len(ids), PAGE):
            page = self._kept(ids[start : start + PAGE])
            found, matrix = self._view.vectors(page, len(self._vector))
            kept += found
            values += similarities(self._vector, matrix).tolist()
            # Of very many rows only the values are kept.
            parts = [*parts, matrix] if len(ids) <= EXACT_LIMIT else []
        return self._best(kept, values, np.concatenate(parts) if parts else None, slack=0.0)

    def _best(
        self, ids: Sequence[str], values: Sequence[float], matrix: Matrix | None, slack: float = SLACK
    ) -> list[Hit]:
        """The k best of the candidates that are permitted and match.

        ``values`` are similarities, to within ``slack`` unless their ``matrix`` is given.
        """
        order = sorted(range(len(ids)), key=lambda i: (-rounded(values[i]), ids[i]))
        margin = 0.0 if matrix is not None else 2 * slack
        while True:
            chosen: list[int] = []
            for i in self._matching(ids, order):
                last = values[chosen[self._k - 1]] if len(chosen) >= self._k else -math.inf
                if rounded(values[i]) + margin < rounded(last):
                    break
                chosen.append(i)
            records = self._view.rows.records([ids[i] for i in chosen])
            refused = [ids[i] for i in chosen if not self._may_show(records.get(ids[i]))]
            if not refused:
                break
            # An edited row is nobody's: its place goes to the next.
            self._keeps.update(dict.fromkeys(refused, False))
        best = [ids[i] for i in chosen]
        if matrix is None:
            best, vectors = self._view.vectors(best, len(self._vector))
            exact = similarities(self._vector, vectors).tolist()
        else:
            vectors, exact = matrix[chosen], [values[i] for i in chosen]
        scored = zip(best, exact, vectors, strict=True)
        hits = [Hit(records[id], value, vector) for id, value, vector in scored]
        return sorted(hits, key=lambda hit: hit.order)[: self._k]

    def _matching(self, ids: Sequence[str], order: Sequence[int]) -> Iterator[int]:
        """Indices in ``order`` of rows that are kept; the rows are read in growing blocks, as needed."""
        start, block = 0, 2 * self._k
        while start < len(order):
            part = order[start : start + block]
            kept = set(self._kept([ids[i] for i in part]))
            yield from (i for i in part if ids[i] in kept)
            start, block = start + block, 2 * block

    def _kept(self, ids: Sequence[str]) -> list[str]:
        """Those of ``ids`` that count, are permitted and match."""
        unknown = [id for id in ids if id not in self._keeps]
        if self._condition.is_empty:
            # Only the best are read, and then whole.
            self._keeps.update((id, id not in self._view.hidden) for id in unknown)
        elif unknown:
            outlines = self._view.rows.outlines(unknown)
            self._keeps.update((id, self._may_show(outlines.get(id))) for id in unknown)
        return [id for id in ids if self._keeps[id]]

    def _may_show(self, record: Record | None) -> bool:
        return (
            record is not None
            and record.id not in self._view.hidden
            and self._access.permits(record.flat())
            and self._condition.matches(record)
        )
