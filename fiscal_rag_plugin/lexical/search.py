"""Searching texts within an access: public ones in the index, a session's in process."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ..access import Access
from ..chunks import PRIVATE, PUBLIC
from ..engines.base import ANYTHING, Condition, Hit, Key, Record
from ..engines.chroma_rows import PublicView
from ..engines.embedded import EmbeddedEngine, asks_public, narrowed
from ..engines.sessions import SessionCache
from ..vectors import Vector, similarities
from .analysis import ANALYSIS_VERSION, analyse
from .bm25 import Bag, Statistics, scores
from .facets import facet_query
from .texts import Texts, searchable

if TYPE_CHECKING:
    from .snapshot import Snapshot

T = TypeVar("T")
_BYTES_OF_A_TOKEN = 100


@dataclass(frozen=True, slots=True)
class _SessionTexts:
    """The keys of a session's rows and what BM25 sees of each."""

    keys: list[Key]
    bags: list[Bag]

    @property
    def bytes(self) -> int:
        return sum(len(bag.counts) for bag in self.bags) * _BYTES_OF_A_TOKEN


class LexicalSearch:
    """BM25 over what an access permits. A session's texts are scored with the statistics of the
    public ones, so that values compare and no session can notice another."""

    def __init__(self, engine: EmbeddedEngine, texts: Texts) -> None:
        self._engine = engine
        self._texts = texts
        self._own: SessionCache[_SessionTexts] = engine.private.cache(lambda texts: texts.bytes)

    def search(
        self, tokens: Sequence[str], vector: Vector | None, k: int, access: Access,
        condition: Condition = ANYTHING,
    ) -> list[Hit]:  # fmt: skip
        """The k best hits that have at least one of the tokens, by BM25, then id.

        Their ``similarity`` is that with ``vector``, NaN without one.
        """
        empty = condition.doc_ids == frozenset() or condition.ids == frozenset()
        if not tokens or empty:
            return []
        public_too = asks_public(condition)

        def look(snapshot: Snapshot, view: PublicView) -> tuple[list[Hit], Statistics]:
            hits: list[Hit] = []
            if public_too:
                hits = _Public(snapshot, view, access, condition).search(tokens, vector, k)
            return hits, snapshot.statistics(tokens)

        public, statistics = self._read(look)
        own = self._search_own(tokens, statistics, vector, k, narrowed(access, condition), condition)
        return sorted([*public, *own], key=_order)[:k]

    def scored(self, tokens: Sequence[str], hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, each with its BM25."""
        ids = {hit.record.id for hit in hits if hit.record.scope == PUBLIC and hit.bm25 is None}
        found, statistics = self._read(
            lambda snapshot, _: (snapshot.scores(tokens, ids) if ids else {}, snapshot.statistics(tokens))
        )
        own = [hit.record for hit in hits if hit.record.scope == PRIVATE and hit.bm25 is None]
        bags = [Bag.of(analyse(searchable(record))) for record in own]
        values = {r.key: v for r, v in zip(own, scores(tokens, bags, statistics).tolist(), strict=True)}
        values |= {(PUBLIC, "", id): value for id, value in found.items()}
        return [
            hit if hit.bm25 is not None else replace(hit, bm25=values.get(hit.record.key, 0.0))
            for hit in hits
        ]

    def count(self) -> int:
        """How many public texts are indexed, once nothing is left to be indexed."""
        return self._read(lambda snapshot, _: snapshot.count)

    def repair(self) -> int:
        """Index every public text anew; returns how many."""
        self._texts.discard()
        return self.count()

    def _read(self, query: Callable[[Snapshot, PublicView], T]) -> T:
        """``query`` on an index that has every public chunk of the moment."""

        def attempt(view: PublicView) -> tuple[T] | None:
            if self._texts.is_behind():
                return None
            return (query(self._texts.snapshot(), view),)

        while (answer := self._engine.public.read(attempt)) is None:
            self._engine.public.mend(self._texts.mend)
        return answer[0]

    def _search_own(
        self, tokens: Sequence[str], statistics: Statistics, vector: Vector | None, k: int,
        access: Access, condition: Condition,
    ) -> list[Hit]:  # fmt: skip
        """Every text of the sessions is scored; the best are read whole."""
        private = self._engine.private
        if not access.read:
            return []
        with private.snapshot():
            held = self._own.of(sorted(access.read), ANALYSIS_VERSION, self._load)
            keys = [key for texts in held for key in texts.keys]
            values = scores(tokens, [bag for texts in held for bag in texts.bags], statistics).tolist()
            order = sorted(
                (i for i, value in enumerate(values) if value > 0), key=lambda i: (-values[i], keys[i][2])
            )
            hits: list[Hit] = []
            start, block = 0, 2 * k
            while start < len(order) and len(hits) < k:
                part = order[start : start + block]
                stored = private.with_vectors([keys[i] for i in part])
                for i in part:
                    record, own = stored.get(keys[i], (None, None))
                    if record is not None and access.permits(record.flat()) and condition.matches(record):
                        hits.append(Hit(record, _cosine(vector, own), own, bm25=values[i]))
                start, block = start + block, 2 * block
        return hits

    def _load(self, session: str) -> _SessionTexts:
        records = self._engine.private.texts(session)
        bags = [Bag.of(analyse(searchable(record))) for record in records]
        return _SessionTexts([record.key for record in records], bags)


class _Public:
    """One lexical search of the public chunks."""

    def __init__(self, snapshot: Snapshot, view: PublicView, access: Access, condition: Condition) -> None:
        self._snapshot = snapshot
        self._view = view
        self._access = access
        self._condition = condition
        self._refused: set[str] = set()

    def search(self, tokens: Sequence[str], vector: Vector | None, k: int) -> list[Hit]:
        required = facet_query(self._condition)
        while True:
            # Without a condition every text may be answered, unless it turned out that it may not.
            free = self._condition.is_empty and not self._refused and not self._view.hidden
            found = self._snapshot.search(tokens, k, required, None if free else self._kept)
            records = self._view.records([id for id, _ in found])
            refused = {id for id, _ in found if not self._may_show(records.get(id))}
            if not refused:
                break
            self._refused |= refused
        if vector is None:
            return [Hit(records[id], math.nan, bm25=value) for id, value in found]
        ids, matrix = self._view.vectors([id for id, _ in found], len(vector))
        rows = dict(zip(ids, zip(similarities(vector, matrix).tolist(), matrix, strict=True), strict=True))
        return [Hit(records[id], *rows[id], bm25=value) for id, value in found if id in rows]

    def _kept(self, ids: Sequence[str]) -> Collection[str]:
        left = [id for id in ids if id not in self._refused]
        if self._condition.is_empty:
            return [id for id in left if id not in self._view.hidden]
        outlines = self._view.rows.outlines(left)
        return [id for id in left if self._may_show(outlines.get(id))]

    def _may_show(self, record: Record | None) -> bool:
        return (
            record is not None
            and record.id not in self._view.hidden
            and self._access.permits(record.flat())
            and self._condition.matches(record)
        )


def _cosine(vector: Vector | None, stored: Vector | None) -> float:
    if vector is None or stored is None or len(vector) != len(stored):
        return math.nan
    return float(similarities(vector, stored[None, :])[0])


def _order(hit: Hit) -> tuple[float, str, Key]:
    return (-(hit.bm25 or 0.0), hit.record.id, hit.record.key)
