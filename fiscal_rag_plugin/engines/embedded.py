"""Both halves of an embedded collection as one engine: public in Chroma, private in SQLite."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from ..access import Access
from ..chunks import PRIVATE, PUBLIC, SCOPE_KEY, SESSION_KEY
from ..filters import can_match
from ..vectors import Matrix, Vector, rounded, similarities
from .base import ANYTHING, Condition, Found, Hit, Key, Record, Swap
from .chroma import ChromaEngine
from .chroma_search import SLACK, Candidate
from .private import PrivateEngine

NEAR = 2e-6
"""Of candidates this near to each other the vectors decide: order is by six decimals, and Chroma's
float32 sums of 384 products err by some 1e-7. A rank that is off where they err by more changes no
similarity, no filter and no access."""


class EmbeddedEngine:
    """A :class:`VectorEngine` over the two; a caller's answer never depends on other sessions' rows."""

    def __init__(self, public: ChromaEngine, private: PrivateEngine) -> None:
        self.public = public
        self.private = private

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        public = [i for i, record in enumerate(records) if record.scope == PUBLIC]
        private = [i for i, record in enumerate(records) if record.scope == PRIVATE]
        if private:
            self.private.upsert([records[i] for i in private], vectors[private])
        if public:
            self.public.upsert([records[i] for i in public], vectors[public])

    def update(self, records: Sequence[Record]) -> None:
        self.private.update([record for record in records if record.scope == PRIVATE])
        self.public.update([record for record in records if record.scope == PUBLIC])

    def swap(self, swap: Swap, done: Callable[[], None]) -> int:
        """Replace sources within one (scope, session) and do ``done``, all or nothing of it seen."""
        return (self.public if swap.session_id is None else self.private).swap(swap, done)

    def delete(self, keys: Sequence[Key]) -> None:
        self.private.delete(keys)
        self.public.delete(keys)

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        return {**self.public.get(keys), **self.private.get(keys)}

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        mine = narrowed(access, condition)
        return heapq.merge(
            self.public.scan(access, condition) if asks_public(condition) else (),
            self.private.scan(mine, condition),
            key=lambda record: (record.id, record.key),
        )

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        public = Found([], "none")
        if asks_public(condition):
            public = self.public.search(vector, k, access, condition)
        # What is worse than k public hits need not be read.
        floor = public.hits[-1].similarity if len(public.hits) == k else -1.0
        private = self.private.search(vector, k, narrowed(access, condition), condition, floor)
        hits: list[Hit] = sorted([*public.hits, *private.hits], key=lambda hit: hit.order)
        return Found(
            [hit for hit in hits if access.permits(hit.record.flat())][:k],
            f"public: {public.plan}; private: {private.plan}",
        )

    def rank(
        self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING,
        refused: Collection[Key] = (),
    ) -> tuple[list[Key], str]:  # fmt: skip
        """The keys of :meth:`search` in its order, and the plan, without reading the public rows.

        What is refused is left out, as if it were not there. A key may turn out to be nobody's
        when it is read.
        """
        public: list[Candidate] = []
        plan = "none"
        if asks_public(condition):
            hidden = [id for scope, _, id in refused if scope == PUBLIC]
            public, plan = self.public.candidates(vector, k, access, condition, hidden)
        floor = public[k - 1].similarity - 2 * SLACK if len(public) >= k else -1.0
        mine = narrowed(access, condition)
        if condition.is_empty:
            own = self.private.rank(vector, k + len(refused), mine, floor)
        else:
            found = self.private.search(vector, k + len(refused), mine, condition, floor)
            own = {hit.record.key: hit.similarity for hit in found.hits}
        values = {key: value for key, value in own.items() if key not in refused}
        values |= {(PUBLIC, "", c.id): c.similarity for c in public}
        unsure = _near_ties(values) & {(PUBLIC, "", c.id) for c in public if c.vector is None}
        exact = self.public.similarities(sorted(id for _, _, id in unsure), vector)
        values |= {(PUBLIC, "", id): value for id, value in exact.items()}
        order = sorted(values, key=lambda key: (-rounded(values[key]), key[2], key))
        exact_plan = ("exact" if condition.is_empty else "exact+filter") if mine.read else "none"
        return order[:k], f"public: {plan}; private: {exact_plan}"

    def hits(
        self, keys: Sequence[Key], vector: Vector | None, access: Access, condition: Condition = ANYTHING
    ) -> dict[Key, Hit]:
        """Those of ``keys`` that exist, are permitted and match; similarity is NaN without a vector."""
        found = {
            (PUBLIC, "", id): hit
            for id, hit in self.public.hits([id for s, _, id in keys if s == PUBLIC], vector).items()
        }
        rows = self.private.with_vectors([key for key in keys if key[0] == PRIVATE])
        hits = {**found, **{key: Hit(record, _cosine(vector, v), v) for key, (record, v) in rows.items()}}
        return {
            key: hit
            for key, hit in hits.items()
            if access.permits(hit.record.flat()) and condition.matches(hit.record)
        }

    def close(self) -> None:
        self.public.close()


def _near_ties(values: Mapping[Key, float]) -> set[Key]:
    """Keys whose value is so near another's that either may be the greater one."""
    order = sorted(values, key=lambda key: -values[key])
    near: set[Key] = set()
    for before, after in pairwise(order):
        if values[before] - values[after] <= NEAR:
            near |= {before, after}
    return near


def _cosine(vector: Vector | None, stored: Vector) -> float:
    if vector is None or len(vector) != len(stored):
        return math.nan
    return float(similarities(vector, stored[None, :])[0])


def asks_public(condition: Condition) -> bool:
    """Whether a public chunk could match; a filter on private ones alone need not ask Chroma."""
    return can_match(condition.filter, {SCOPE_KEY: PUBLIC, SESSION_KEY: None})


def narrowed(access: Access, condition: Condition) -> Access:
    """The access without sessions of which no chunk could match."""
    if condition.filter is None:
        return access
    known = {SCOPE_KEY: PRIVATE}
    return Access(s for s in access.read if can_match(condition.filter, {**known, SESSION_KEY: s}))
