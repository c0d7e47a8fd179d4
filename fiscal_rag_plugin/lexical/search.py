"""Searching texts within an access: public ones in the index, a session's in process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ..access import Access
from ..chunks import PRIVATE, PUBLIC
from ..engines.base import ANYTHING, Condition, Hit, Key
from ..engines.chroma_rows import PublicView
from ..engines.embedded import EmbeddedEngine, asks_public, narrowed
from ..engines.sessions import SessionCache
from .analysis import ANALYSIS_VERSION, analyse
from .bm25 import Bag, Statistics, scores
from .facets import facet_query, is_expressed
from .texts import Texts, searchable

if TYPE_CHECKING:
    from .snapshot import Keep, Snapshot

T = TypeVar("T")
_BYTES_OF_A_TOKEN = 100


@dataclass(frozen=True, slots=True)
class _SessionTexts:
    """The keys of a session's rows, when they expire, and what BM25 sees of each."""

    keys: list[Key]
    expiries: list[float]
    """POSIX seconds, infinity for never"""
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

    def rank(
        self, tokens: Sequence[str], k: int, access: Access, condition: Condition = ANYTHING,
        refused: Collection[Key] = (),
    ) -> dict[Key, float]:  # fmt: skip
        """The k best with at least one of the tokens, by BM25, then id: key to BM25, in order.

        What is refused is left out, as if it were not there. A key may turn out to be nobody's
        when it is read.
        """
        empty = condition.doc_ids == frozenset() or condition.ids == frozenset()
        if not tokens or empty:
            return {}
        public_too = asks_public(condition)
        hidden = frozenset(id for scope, _, id in refused if scope == PUBLIC)

        def look(snapshot: Snapshot, view: PublicView) -> tuple[list[tuple[str, float]], Statistics]:
            found: list[tuple[str, float]] = []
            if public_too:
                found = _Public(snapshot, view, access, condition, hidden).rank(tokens, k)
            return found, snapshot.statistics(tokens)

        public, statistics = self._read(look)
        values: dict[Key, float] = {(PUBLIC, "", id): value for id, value in public}
        values |= self._rank_own(tokens, statistics, k, narrowed(access, condition), condition, refused)
        order = sorted(values, key=lambda key: (-values[key], key[2], key))
        return {key: values[key] for key in order[:k]}

    def values(self, tokens: Sequence[str], keys: Collection[Key]) -> dict[Key, float]:
        """BM25 of each of these keys; 0.0 without one of the tokens, or gone."""
        if not keys:
            return {}
        ids = {id for scope, _, id in keys if scope == PUBLIC}
        found, statistics = self._read(
            lambda snapshot, _: (snapshot.scores(tokens, ids) if ids else {}, snapshot.statistics(tokens))
        )
        values = dict.fromkeys(keys, 0.0) | {(PUBLIC, "", id): value for id, value in found.items()}
        sessions = {session for scope, session, _ in keys if scope == PRIVATE}
        if sessions:
            with self._engine.private.snapshot():
                held = self._own.of(sorted(sessions), ANALYSIS_VERSION, self._load)
            own = {k: bag for t in held for k, bag in zip(t.keys, t.bags, strict=True) if k in values}
            values |= dict(zip(own, scores(tokens, list(own.values()), statistics).tolist(), strict=True))
        return values

    def scored(self, tokens: Sequence[str], hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, each with its BM25."""
        values = self.values(tokens, [hit.record.key for hit in hits])
        return [replace(hit, bm25=values[hit.record.key]) for hit in hits]

    def count(self) -> int:
        """How many public texts are indexed, once nothing is left to be indexed."""
        return self._read(lambda snapshot, _: snapshot.count)

    def repair(self) -> int:
        """Index every public text anew, while nobody reads or writes; returns how many."""
        self._engine.public.mend(self._texts.rebuild)
        return self.count()

    def outdated(self) -> int:
        """How many public texts words would be searched in that are not what is stored."""
        return self._read(lambda _, view: self._texts.outdated(view))

    def _read(self, query: Callable[[Snapshot, PublicView], T]) -> T:
        """``query`` on an index that has every public chunk of the moment."""

        def attempt(view: PublicView) -> tuple[T] | None:
            if self._texts.is_behind():
                return None
            return (query(self._texts.snapshot(), view),)

        while (answer := self._engine.public.read(attempt)) is None:
            self._engine.public.mend(self._texts.mend)
        return answer[0]

    def _rank_own(
        self, tokens: Sequence[str], statistics: Statistics, k: int, access: Access,
        condition: Condition, refused: Collection[Key],
    ) -> dict[Key, float]:  # fmt: skip
        """Every text of the sessions is scored; rows are read only to see whether they match."""
        private = self._engine.private
        if not access.read:
            return {}
        with private.snapshot():
            held = self._own.of(sorted(access.read), ANALYSIS_VERSION, self._load)
            keys = [key for texts in held for key in texts.keys]
            expiries = [expiry for texts in held for expiry in texts.expiries]
            values = scores(tokens, [bag for texts in held for bag in texts.bags], statistics).tolist()
            now = time.time()
            found = (i for i, v in enumerate(values) if v > 0 and expiries[i] > now)
            order = sorted(
                (i for i in found if keys[i] not in refused),
                key=lambda i: (-values[i], keys[i][2], keys[i]),
            )
            best: dict[Key, float] = {}
            start, block = 0, k if condition.is_empty else 2 * k
            while start < len(order) and len(best) < k:
                part = order[start : start + block]
                if condition.is_empty:
                    best |= {keys[i]: values[i] for i in part}
                else:
                    stored = private.get([keys[i] for i in part])
                    best |= {
                        keys[i]: values[i]
                        for i in part
                        if (record := stored.get(keys[i])) is not None and condition.matches(record)
                    }
                start, block = start + block, 2 * block
        return best

    def _load(self, session: str) -> _SessionTexts:
        records = self._engine.private.texts(session)
        bags = [Bag.of(analyse(searchable(record))) for record in records]
        expiries = [math.inf if r.expires_at is None else r.expires_at for r in records]
        return _SessionTexts([record.key for record in records], expiries, bags)


class _Public:
    """One lexical search of the public chunks, in which ``refused`` ids do not count."""

    def __init__(
        self, snapshot: Snapshot, view: PublicView, access: Access, condition: Condition,
        refused: Collection[str],
    ) -> None:  # fmt: skip
        self._snapshot = snapshot
        self._view = view
        self._access = access
        self._condition = condition
        self._left_out = {*refused, *view.hidden}

    def rank(self, tokens: Sequence[str], k: int) -> list[tuple[str, float]]:
        keep: Keep | None = self._matching
        if is_expressed(self._condition):
            keep = self._counted if self._left_out else None
        return self._snapshot.search(tokens, k, facet_query(self._condition), keep)

    def _counted(self, ids: Sequence[str]) -> Collection[str]:
        return [id for id in ids if id not in self._left_out]

    def _matching(self, ids: Sequence[str]) -> Collection[str]:
        outlines = self._view.rows.outlines(list(self._counted(ids)))
        return [
            id
            for id, record in outlines.items()
            if self._access.permits(record.flat()) and self._condition.matches(record)
        ]
