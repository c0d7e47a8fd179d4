"""Both halves of an embedded collection as one engine: public in Chroma, private in SQLite."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from ..access import Access
from ..chunks import PRIVATE, PUBLIC, SCOPE_KEY, SESSION_KEY
from ..filters import can_match
from ..vectors import Matrix, Vector
from .base import ANYTHING, Condition, Found, Hit, Key, Record, Swap
from .chroma import ChromaEngine
from .private import PrivateEngine


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

    def close(self) -> None:
        self.public.close()


def asks_public(condition: Condition) -> bool:
    """Whether a public chunk could match; a filter on private ones alone need not ask Chroma."""
    return can_match(condition.filter, {SCOPE_KEY: PUBLIC, SESSION_KEY: None})


def narrowed(access: Access, condition: Condition) -> Access:
    """The access without sessions of which no chunk could match."""
    if condition.filter is None:
        return access
    known = {SCOPE_KEY: PRIVATE}
    return Access(s for s in access.read if can_match(condition.filter, {**known, SESSION_KEY: s}))
