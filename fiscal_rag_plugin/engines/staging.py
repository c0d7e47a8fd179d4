"""Vectors that were made and not yet stored: what an interrupted ingest need not make again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from ..vectors import Vector
from .database import Database
from .statements import batches, marks

KEPT_SECONDS = 7 * 24 * 3600.0


class Staging:
    """Vectors by fingerprint, apart for each session: one's are never another's, and go with it."""

    def __init__(self, database: Database, collection: str) -> None:
        self._database = database
        self._collection = collection

    def keep(self, vectors: Mapping[tuple[str, str], Vector]) -> None:
        """Write vectors by (session, fingerprint); session "" is public."""
        now = time.time()
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO staged VALUES (?, ?, ?, ?, ?)",
                [
                    (self._collection, session, fingerprint, np.asarray(vector, dtype="<f4").tobytes(), now)
                    for (session, fingerprint), vector in vectors.items()
                ],
            )

    def kept(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Vector]:
        """Those of ``keys`` that an earlier run made."""
        if self._is_empty():
            return {}
        found: dict[tuple[str, str], Vector] = {}
        by_session: dict[str, list[str]] = {}
        for session, fingerprint in keys:
            by_session.setdefault(session, []).append(fingerprint)
        for session, fingerprints in by_session.items():
            for batch in batches(fingerprints):
                for fingerprint, vector in self._database.query(
                    "SELECT fingerprint, vector FROM staged WHERE collection = ? AND session_id = ? "
                    f"AND fingerprint IN ({marks(batch)})",
                    (self._collection, session, *batch),
                ):
                    found[session, fingerprint] = np.frombuffer(vector, dtype="<f4")
        return found

    def drop(self, keys: Sequence[tuple[str, str]]) -> None:
        """Forget vectors that are stored by now, and those that nobody came back for in a week."""
        if self._is_empty():
            return
        with self._database.transaction() as connection:
            connection.executemany(
                "DELETE FROM staged WHERE collection = ? AND session_id = ? AND fingerprint = ?",
                [(self._collection, *key) for key in keys],
            )
            connection.execute("DELETE FROM staged WHERE made_at < ?", (time.time() - KEPT_SECONDS,))

    def _is_empty(self) -> bool:
        any_row = "SELECT 1 FROM staged WHERE collection = ? LIMIT 1"
        return not self._database.query(any_row, (self._collection,))
