"""Finding public chunks: plans that look at few rows first, each exact in meaning.

A plan is chosen by how many rows a filter leaves. Chroma is never given the filter unless every
cheaper way has failed: a ``where`` there takes time linear in the collection.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ..access import Access
from ..vectors import Matrix, Vector, rounded, similarities
from .base import Condition, Found, Hit, Record
from .blob import chroma_where
from .chroma_rows import PAGE, PublicView

MARGIN = 1
"""Candidates beyond k: the next one shows whether the k-th place is tied at six decimals."""
MORE_FOR = 16
"""And one for as many of k: where distances alone rank many, the next one is often too near to tell."""
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that is permitted and matches, with its similarity: exact with a vector, else within SLACK."""

    id: str
    similarity: float
    vector: Vector | None = None

    @property
    def order(self) -> tuple[float, str]:
        return (-rounded(self.similarity), self.id)


class Search:
    """One query on one view of the public chunks, in which ``refused`` ids do not count."""

    def __init__(
        self, view: PublicView, vector: Vector, k: int, access: Access, condition: Condition,
        refused: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._view = view
        self._vector = vector
        self._k = k
        self._access = access
        self._condition = condition
        self._keeps: dict[str, bool] = dict.fromkeys(refused, False)

    def run(self) -> Found:
        """The k best, read whole and scored from their vectors."""
        while True:
            candidates, plan = self._plan(scored=self._condition.is_empty)
            records = self._view.rows.records([c.id for c in candidates])
            refused = [c.id for c in candidates if not self._may_show(records.get(c.id))]
            if not refused:
                break
            # An edited row is nobody's: its place goes to the next.
            self._keeps.update(dict.fromkeys(refused, False))
        hits = [Hit(records[c.id], c.similarity, c.vector) for c in self._exactly(candidates)]
        return Found(sorted(hits, key=lambda hit: hit.order)[: self._k], plan)

    def candidates(self) -> tuple[list[Candidate], str]:
        """At least the k best, best first, and the plan; similarities within SLACK, rows not read."""
        return self._plan(scored=False)

    def _plan(self, *, scored: bool) -> tuple[list[Candidate], str]:
        """``scored``: the nearest come with their vectors, which is slower for many than distances."""
        if self._condition.ids is not None:
            return self._exact(sorted(self._condition.ids)), "ids"
        if self._condition.is_empty:
            n = self._k + MARGIN + self._k // MORE_FOR
            return self._nearest(n, MAX_CANDIDATES, scored=scored)[0], "nearest"
        where = chroma_where(self._condition)
        few = None if where is None else self._view.rows.narrow(where, NARROW)
        if few is not None:
            return self._exact(few), "narrow"
        best, certain = self._nearest(max(FIRST_LOOK, 4 * self._k), max(LAST_LOOK, 4 * self._k))
        if certain:
            return best, "over-fetch"
        ids = self._view.collection.get(where=where, include=[])["ids"]
        if where is None or len(ids) <= EXACT_LIMIT:
            return self._exact(ids), "exact"
        return self._nearest(max(FIRST_LOOK, 4 * self._k), len(ids), where)[0], "filtered"

    def _nearest(
        self, n: int, cap: int, where: dict[str, Any] | None = None, *, scored: bool = False
    ) -> tuple[list[Candidate], bool]:
        """The best among the n nearest, in growing steps; True when no further row can change them."""
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
            best = self._best(ids, values, matrix)
            # An approximate value on either side of the comparison.
            slack = 0.0 if scored else 2 * SLACK
            full = len(best) >= self._k
            if len(ids) < n or (
                full and rounded(min(values)) + slack < rounded(best[self._k - 1].similarity)
            ):
                return best, True
            if n >= cap:
                return best, False
            n *= 4

    def _exact(self, ids: Sequence[str]) -> list[Candidate]:
        """Score every row of ``ids`` that matches."""
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
    ) -> list[Candidate]:
        """The k best of the rows that are kept, and every one that may be as good, best first.

        ``values`` are similarities, to within ``slack`` unless their ``matrix`` is given.
        """
        order = sorted(range(len(ids)), key=lambda i: (-rounded(values[i]), ids[i]))
        margin = 0.0 if matrix is not None else 2 * slack
        chosen: list[int] = []
        for i in self._matching(ids, order):
            last = values[chosen[self._k - 1]] if len(chosen) >= self._k else -math.inf
            if rounded(values[i]) + margin < rounded(last):
                break
            chosen.append(i)
        return [Candidate(ids[i], values[i], None if matrix is None else matrix[i]) for i in chosen]

    def _exactly(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The same with vectors, and similarities from these; without those that are gone meanwhile."""
        bare = [candidate.id for candidate in candidates if candidate.vector is None]
        if not bare:
            return list(candidates)
        ids, vectors = self._view.vectors(bare, len(self._vector))
        values = similarities(self._vector, vectors).tolist()
        scored = [Candidate(*parts) for parts in zip(ids, values, vectors, strict=True)]
        return [*(c for c in candidates if c.vector is not None), *scored]

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
