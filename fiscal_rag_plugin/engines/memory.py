"""The oracle: every vector in a dict, every query exact and obvious. Tests compare engines with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..access import Access
from ..vectors import Matrix, Vector, similarities
from .base import ANYTHING, Condition, Found, Hit, Key, Record


class MemoryEngine:
    """A :class:`VectorEngine` without an index, a file or a shortcut."""

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[Record, Vector]] = {}

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        for record, vector in zip(records, vectors, strict=True):
            self._rows[record.key] = (record, vector)

    def update(self, records: Sequence[Record]) -> None:
        for record in records:
            before, vector = self._rows[record.key]
            self._rows[record.key] = (replace(record, text=before.text), vector)

    def delete(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        return {key: self._rows[key][0] for key in keys if key in self._rows and self._alive(key)}

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        records = [self._rows[key][0] for key in self._visible(access, condition)]
        return iter(sorted(records, key=lambda record: (record.id, record.key)))

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        hits = [
            Hit(record, float(similarities(vector, stored[None, :])[0]), stored)
            for record, stored in (self._rows[key] for key in self._visible(access, condition))
        ]
        return Found(sorted(hits, key=lambda hit: hit.order)[:k], "memory")

    def close(self) -> None:
        self._rows.clear()

    def _alive(self, key: Key) -> bool:
        expires_at = self._rows[key][0].expires_at
        return expires_at is None or expires_at > time.time()

    def _visible(self, access: Access, condition: Condition) -> list[Key]:
        return [
            key
            for key, (record, _) in self._rows.items()
            if self._alive(key) and access.permits(record.flat()) and condition.matches(record)
        ]
