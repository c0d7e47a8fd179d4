"""Reading private rows: by key, by session, and what is kept in memory of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..chunks import PRIVATE
from ..vectors import Matrix, Vector
from .base import Key, Record
from .blob import decode
from .database import Database
from .sessions import SessionCache
from .statements import batches, marks

T = TypeVar("T")
ALIVE = "(expires_at IS NULL OR expires_at > ?)"


@dataclass(frozen=True, slots=True)
class SessionVectors:
    """A session's rows: ``rowids (n,)``, keys, when they expire, and ``matrix (n, dim)``, float32."""

    rowids: npt.NDArray[np.int64]
    keys: list[Key]
    expiries: npt.NDArray[np.float64]
    """POSIX seconds, infinity for never"""
    matrix: Matrix


class PrivateRows:
    """The private rows of one collection, as whoever opens it may read them: access is checked above."""

    def __init__(self, database: Database, collection: str) -> None:
        self._database = database
        self._collection = collection
        self._caches: list[SessionCache[Any]] = []

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        found: dict[Key, Record] = {}
        by_session: dict[str, list[str]] = {}
        for scope, session, id in keys:
            if scope == PRIVATE:
                by_session.setdefault(session, []).append(id)
        for session, ids in by_session.items():
            for batch in batches(ids):
                for record, _ in self._rows((session,), ids=batch):
                    found[record.key] = record
        return found

    def texts(self, session: str) -> list[Record]:
        """Every record of a session, expired ones too: what is kept of it is checked again when shown."""
        rows = self._database.query(
            "SELECT id, expires_at, text, blob FROM private WHERE collection = ? AND session_id = ?",
            (self._collection, session),
        )
        found = (
            decode(blob, text, id=id, scope=PRIVATE, session_id=session, expires_at=expires_at)
            for id, expires_at, text, blob in rows
        )
        return [record for record in found if record is not None]

    def with_vectors(self, keys: Sequence[Key]) -> dict[Key, tuple[Record, Vector]]:
        """The records of these keys that exist and have not expired, with their vectors."""
        wanted, found = set(keys), {}
        sessions = sorted({session for scope, session, _ in keys if scope == PRIVATE})
        for batch in batches(sorted({id for _, _, id in keys})):
            for record, vector in self._rows(sessions, ids=batch):
                if record.key in wanted:
                    found[record.key] = (record, vector)
        return found

    def cache(self, size: Callable[[T], int]) -> SessionCache[T]:
        """A cache of something else that is made of a session's rows; it forgets them with the rest."""
        made: SessionCache[T] = SessionCache(self._database, self._collection, size)
        self._caches.append(made)
        return made

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads of one moment."""
        return self._database.snapshot()

    def _load(self, session: str, dimension: int) -> SessionVectors:
        rows = self._database.query(
            "SELECT rowid, id, expires_at, vector FROM private WHERE collection = ? AND session_id = ? "
            "AND length(vector) = ?",
            (self._collection, session, 4 * dimension),
        )
        return SessionVectors(
            np.array([row[0] for row in rows], dtype=np.int64),
            [(PRIVATE, session, row[1]) for row in rows],
            np.array([math.inf if row[2] is None else row[2] for row in rows], dtype=np.float64),
            np.frombuffer(b"".join(row[3] for row in rows), dtype="<f4").reshape(len(rows), dimension),
        )

    def _rows(
        self,
        sessions: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        rowids: Sequence[int] | None = None,
    ) -> list[tuple[Record, Vector]]:
        rows: list[tuple[Record, Vector]] = []
        only: str = ""
        values: tuple[str | int, ...] = ()
        owner = "collection = ? AND session_id"
        if ids is not None:
            only, values = f" AND id IN ({marks(ids)})", tuple(ids)
        elif rowids is not None:
            only, values = f" AND rowid IN ({marks(rowids)})", tuple(rowids)
            # The plus keeps SQLite from walking every row of the sessions for a few of them.
            owner = "+collection = ? AND +session_id"
        for batch in batches(sessions):
            for session, id, expires_at, vector, text, blob in self._database.query(
                "SELECT session_id, id, expires_at, vector, text, blob FROM private "
                f"WHERE {owner} IN ({marks(batch)}) AND {ALIVE}{only}",
                (self._collection, *batch, time.time(), *values),
            ):
                record = decode(blob, text, id=id, scope=PRIVATE, session_id=session, expires_at=expires_at)
                if record is not None:
                    rows.append((record, np.frombuffer(vector, dtype="<f4")))
        return rows

    def unreadable(self, dimension: int | None) -> int:
        """How many rows disagree with themselves or have a vector of another dimension."""
        bad = 0
        for session, id, vector, text, blob in self._database.query(
            "SELECT session_id, id, length(vector), text, blob FROM private WHERE collection = ?",
            (self._collection,),
        ):
            record = decode(blob, text, id=id, scope=PRIVATE, session_id=session)
            bad += record is None or vector != 4 * (dimension or 0)
        return bad
