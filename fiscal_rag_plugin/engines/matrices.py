"""The vectors of sessions that were asked before, kept in memory while they are unchanged."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..vectors import Matrix
from .database import Database
from .statements import batches, marks

MAX_BYTES = 64 * 2**20
"""Of all sessions together: 43,000 vectors of 384. Reading 2,000 from SQLite takes 7 ms and more."""


@dataclass(frozen=True, slots=True)
class SessionVectors:
    """``rowids (n,)`` of a session's rows and their ``matrix (n, dim)``, float32."""

    rowids: npt.NDArray[np.int64]
    matrix: Matrix


class Matrices:
    """The least recently used are dropped. A session's version changes with each of its rows, whoever
    writes it, so that nothing outdated is ever used; to be called within a snapshot."""

    def __init__(self, database: Database, collection: str) -> None:
        self._database = database
        self._collection = collection
        self._kept: OrderedDict[tuple[str, int], tuple[int, SessionVectors]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def of(self, sessions: Sequence[str], dimension: int) -> list[SessionVectors]:
        """The vectors of ``dimension`` of those sessions that have any."""
        versions: dict[str, int] = {}
        for batch in batches(sessions):
            versions.update(
                self._database.query(
                    "SELECT session_id, version FROM versions WHERE collection = ? "
                    f"AND session_id IN ({marks(batch)})",
                    (self._collection, *batch),
                )
            )
        return [self._of(session, version, dimension) for session, version in versions.items()]

    def _of(self, session: str, version: int, dimension: int) -> SessionVectors:
        key = (session, dimension)
        with self._guard:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == version:
                self._kept.move_to_end(key)
                return kept[1]
        rows = self._database.query(
            "SELECT rowid, vector FROM private WHERE collection = ? AND session_id = ? "
            "AND length(vector) = ?",
            (self._collection, session, 4 * dimension),
        )
        matrix = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f4").reshape(len(rows), dimension)
        vectors = SessionVectors(np.array([row[0] for row in rows], dtype=np.int64), matrix)
        with self._guard:
            self._drop(key)
            self._kept[key] = (version, vectors)
            self._bytes += matrix.nbytes
            while self._bytes > MAX_BYTES:
                self._drop(next(iter(self._kept)))
        return vectors

    def forget(self, session: str) -> None:
        """Keep nothing of a session that was erased."""
        with self._guard:
            for key in [key for key in self._kept if key[0] == session]:
                self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        if key in self._kept:
            self._bytes -= self._kept.pop(key)[1].matrix.nbytes
