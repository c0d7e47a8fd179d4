"""Private chunks: rows of fiscal.sqlite3, read by session and scored exactly.

They are kept out of the public index so that it needs no authorization filter, so that one
session's rows cost nothing to another, and so that a delete leaves no byte behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from sqlite3 import Connection
from typing import TypeVar

import numpy as np

from ..access import Access
from ..chunks import PRIVATE
from ..errors import StorageError
from ..vectors import ESTIMATE_ERROR, Matrix, Vector, estimates, rounded, similarities
from .base import ANYTHING, Condition, Found, Hit, Key, Record, Swap, check_unmoved
from .blob import encode
from .database import Database
from .private_rows import ALIVE, PrivateRows, SessionVectors
from .sessions import SessionCache
from .statements import batches, marks

T = TypeVar("T")
_KEY = "collection = ? AND session_id = ? AND id = ?"


class PrivateEngine(PrivateRows):
    """The private half of one collection; any process may write, in short transactions."""

    def __init__(self, database: Database, collection: str) -> None:
        super().__init__(database, collection)
        self._vectors: SessionCache[SessionVectors] = self.cache(lambda vectors: vectors.matrix.nbytes)

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        with self._database.transaction() as connection:
            self._insert(connection, records, vectors)

    def update(self, records: Sequence[Record]) -> None:
        if records:
            with self._database.transaction() as connection:
                self._refresh(connection, records)

    def delete(self, keys: Sequence[Key], done: Callable[[], None] = lambda: None) -> None:
        """Remove rows, and do ``done``, in one transaction."""
        gone = [(self._collection, session, id) for scope, session, id in keys if scope == PRIVATE]
        with self._database.transaction() as connection:
            connection.executemany(f"DELETE FROM private WHERE {_KEY}", gone)
            done()
        if gone:
            self._database.forget()

    def swap(self, swap: Swap, done: Callable[[], None]) -> int:
        """Replace sources, and do ``done``, in one transaction; returns how many rows went.

        Raises:
            MovedError: a row that was to stay is gone, or has another text or vector by now.
        """
        mine = (self._collection, swap.session_id)
        with self._database.transaction() as connection:
            self._check(swap.kept)
            gone = [
                (*mine, id)
                for batch in batches(sorted(swap.doc_ids))
                for (id,) in connection.execute(
                    "SELECT id FROM private WHERE collection = ? AND session_id = ? "
                    f"AND ref IN ({marks(batch)})",
                    (*mine, *batch),
                )
                if id not in swap.ids
            ]
            connection.executemany(f"DELETE FROM private WHERE {_KEY}", gone)
            self._refresh(connection, swap.changed)
            self._insert(connection, swap.new, swap.vectors)
            done()
        if gone:
            self._database.forget()
        return len(gone)

    def _insert(self, connection: Connection, records: Sequence[Record], vectors: Matrix) -> None:
        rows = [
            (self._collection, r.session_id, r.id, r.ref, r.expires_at, v.tobytes(), r.text, encode(r))
            for r, v in zip(records, np.asarray(vectors, dtype="<f4"), strict=True)
        ]
        connection.executemany("INSERT OR REPLACE INTO private VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _refresh(self, connection: Connection, records: Sequence[Record]) -> None:
        self._check(records)
        connection.executemany(
            f"UPDATE private SET ref = ?, expires_at = ?, blob = ? WHERE {_KEY}",
            [(r.ref, r.expires_at, encode(r), self._collection, r.session_id, r.id) for r in records],
        )

    def _check(self, expected: Sequence[Record]) -> None:
        stored = self.get([record.key for record in expected])
        by_session: dict[str | None, list[Record]] = {}
        for record in expected:
            by_session.setdefault(record.session_id, []).append(record)
        for session, records in by_session.items():
            check_unmoved(records, {r.id: r for r in stored.values() if r.session_id == session})

    def delete_session(self, session_id: str) -> int:
        """Erase all that the directory has of a session, in every collection; returns how many chunks.

        Raises:
            StorageError: the rows are gone, but a reader holds the log that still has their bytes.
        """
        with self._database.transaction() as connection:
            gone = connection.execute("DELETE FROM private WHERE session_id = ?", (session_id,)).rowcount
            connection.execute("DELETE FROM files WHERE session_id = ?", (session_id,))
            connection.execute("DELETE FROM staged WHERE session_id = ?", (session_id,))
        for cache in self._caches:
            cache.forget(session_id)
        if not self._database.forget():
            raise StorageError(
                f"the session is deleted, but another process reads {self._database.path} and keeps the "
                "deleted bytes in its log; end it and delete the session again"
            )
        return gone

    def purge_expired(self) -> int:
        """Erase rows and file hashes whose time has come; they were never returned since."""
        now = time.time()
        if not self._database.query(
            "SELECT 1 FROM private WHERE collection = ? AND expires_at <= ? LIMIT 1",
            (self._collection, now),
        ):
            return 0
        with self._database.transaction() as connection:
            mine = (self._collection, now)
            gone = connection.execute("DELETE FROM private WHERE collection = ? AND expires_at <= ?", mine)
            connection.execute("DELETE FROM files WHERE collection = ? AND expires_at <= ?", mine)
        self._database.forget()
        return gone.rowcount

    def sessions(self) -> list[tuple[str, int]]:
        """(session_id, chunks) of every session with chunks that have not expired."""
        return self._database.query(
            f"SELECT session_id, COUNT(*) FROM private WHERE collection = ? AND {ALIVE} "
            "GROUP BY session_id ORDER BY session_id",
            (self._collection, time.time()),
        )

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        ids = None if condition.ids is None else sorted(condition.ids)
        groups: Iterable[Sequence[str] | None] = [None] if ids is None else batches(ids)
        records = [
            record
            for group in groups
            for record, _ in self._rows(sorted(access.read), ids=group)
            if access.permits(record.flat()) and condition.matches(record)
        ]
        return iter(sorted(records, key=lambda record: (record.id, record.key)))

    def search(
        self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING, floor: float = -1.0
    ) -> Found:
        """Exact: every row of the sessions is estimated, and what may be among the best is scored.

        Rows certainly below ``floor``, a similarity, may be left out.
        """
        if not access.read:
            return Found([], "none")
        with self._database.snapshot():
            hits = self._best(vector, k, access, condition, floor)
        return Found(hits, "exact" if condition.is_empty else "exact+filter")

    def _best(
        self, vector: Vector, k: int, access: Access, condition: Condition, floor: float
    ) -> list[Hit]:
        sessions = sorted(access.read)
        held = self._vectors.of(sessions, len(vector), lambda s: self._load(s, len(vector)))
        if not held:
            return []
        rowids = np.concatenate([vectors.rowids for vectors in held])
        estimated = np.concatenate([estimates(vector, vectors.matrix) for vectors in held])
        order = np.argsort(-estimated, kind="stable")
        order = order[estimated[order] >= floor - ESTIMATE_ERROR]
        hits: list[Hit] = []
        start, block = 0, 2 * k
        # Rows are read best first, in growing blocks, until no other can be among the k best.
        while start < len(order):
            if len(hits) >= k:
                hits = sorted(hits, key=lambda hit: hit.order)[:k]
                if estimated[order[start]] + ESTIMATE_ERROR < rounded(hits[-1].similarity):
                    break
            wanted = rowids[order[start : start + block]].tolist()
            rows = [
                (record, stored)
                for batch in batches(wanted)
                for record, stored in self._rows(sessions, rowids=batch)
                if access.permits(record.flat()) and condition.matches(record)
            ]
            hits += _scored(vector, rows)
            start, block = start + block, 2 * block
        return sorted(hits, key=lambda hit: hit.order)[:k]

    def rank(self, vector: Vector, k: int, access: Access, floor: float = -1.0) -> dict[Key, float]:
        """Keys and exact similarities of the k best and of what ties with them; no row is read.

        Those certainly below ``floor`` may be left out. A row may turn out to be nobody's when it is read.
        """
        sessions = sorted(access.read)
        with self._database.snapshot():
            held = self._vectors.of(sessions, len(vector), lambda s: self._load(s, len(vector)))
        if not held:
            return {}
        matrix = np.concatenate([vectors.matrix for vectors in held])
        estimated = np.concatenate([estimates(vector, vectors.matrix) for vectors in held])
        alive = np.concatenate([vectors.expiries for vectors in held]) > time.time()
        estimated = np.where(alive, estimated, -np.inf)
        if len(estimated) > k:
            floor = max(floor, float(np.partition(estimated, -k)[-k]) - ESTIMATE_ERROR)
        near = np.flatnonzero(estimated >= floor - ESTIMATE_ERROR)
        keys = [key for vectors in held for key in vectors.keys]
        values = similarities(vector, matrix[near]).tolist()
        return {keys[i]: value for i, value in zip(near.tolist(), values, strict=True)}

    def close(self) -> None:
        """The database belongs to the directory."""


def _scored(vector: Vector, rows: list[tuple[Record, Vector]]) -> list[Hit]:
    if not rows:
        return []
    values = similarities(vector, np.stack([stored for _, stored in rows]))
    return [Hit(record, float(value), stored) for (record, stored), value in zip(rows, values, strict=True)]
