"""What is kept in memory of a session's rows while they are unchanged."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from .database import Database
from .statements import batches, marks

T = TypeVar("T")

MAX_BYTES = 64 * 2**20
"""Of each cache, all sessions together; as vectors of 384, 43,000. The least recently used go."""


class SessionCache(Generic[T]):
    """One value a session and ``form``, made again when any of the session's rows has changed.

    A trigger gives a session another random version with each of its rows, whoever writes it. To
    be called within a snapshot of the database, so that a value fits the version it is kept under.
    """

    def __init__(self, database: Database, collection: str, size: Callable[[T], int]) -> None:
        self._database = database
        self._collection = collection
        self._size = size
        self._kept: OrderedDict[tuple[str, Hashable], tuple[int, T]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def of(self, sessions: Sequence[str], form: Hashable, load: Callable[[str], T]) -> list[T]:
        """The values of those sessions that have rows; ``load`` makes one of a session."""
        versions: dict[str, int] = {}
        for batch in batches(sessions):
            versions.update(
                self._database.query(
                    "SELECT session_id, version FROM versions WHERE collection = ? "
                    f"AND session_id IN ({marks(batch)})",
                    (self._collection, *batch),
                )
            )
        return [self._of((session, form), version, load) for session, version in versions.items()]

    def _of(self, key: tuple[str, Hashable], version: int, load: Callable[[str], T]) -> T:
        with self._guard:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == version:
                self._kept.move_to_end(key)
                return kept[1]
        value = load(key[0])
        with self._guard:
            self._drop(key)
            self._kept[key] = (version, value)
            self._bytes += self._size(value)
            while self._bytes > MAX_BYTES:
                self._drop(next(iter(self._kept)))
        return value

    def forget(self, session: str) -> None:
        """Keep nothing of a session that was erased."""
        with self._guard:
            for key in [key for key in self._kept if key[0] == session]:
                self._drop(key)

    def _drop(self, key: tuple[str, Hashable]) -> None:
        if key in self._kept:
            self._bytes -= self._size(self._kept.pop(key)[1])
