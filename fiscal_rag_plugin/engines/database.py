"""fiscal.sqlite3: private rows, manifest, journal, file hashes, and the generation of the index."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..chunks import Json
from ..errors import StorageError
from .connections import BUSY_SECONDS, Connections

logger = logging.getLogger(__name__)

LAYOUT = 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS manifest (
    collection TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (collection, name)
) WITHOUT ROWID

CREATE TABLE IF NOT EXISTS generation (
    one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL, writing INTEGER NOT NULL
)

INSERT OR IGNORE INTO generation VALUES (1, 0, 0)

CREATE TABLE IF NOT EXISTS journal (
    collection TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (collection, id)
) WITHOUT ROWID

CREATE TABLE IF NOT EXISTS unindexed (
    collection TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (collection, id)
) WITHOUT ROWID

CREATE TABLE IF NOT EXISTS private (
    collection TEXT NOT NULL, session_id TEXT NOT NULL, id TEXT NOT NULL, ref TEXT,
    expires_at REAL, vector BLOB NOT NULL, text TEXT NOT NULL, blob TEXT NOT NULL,
    UNIQUE (collection, session_id, id)
)

CREATE INDEX IF NOT EXISTS private_expiry ON private (collection, expires_at) WHERE expires_at IS NOT NULL

CREATE TABLE IF NOT EXISTS versions (
    collection TEXT NOT NULL, session_id TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (collection, session_id)
) WITHOUT ROWID

CREATE TRIGGER IF NOT EXISTS private_inserted AFTER INSERT ON private BEGIN
    INSERT OR REPLACE INTO versions VALUES (NEW.collection, NEW.session_id, random());
END

CREATE TRIGGER IF NOT EXISTS private_updated AFTER UPDATE ON private BEGIN
    INSERT OR REPLACE INTO versions VALUES (OLD.collection, OLD.session_id, random());
    INSERT OR REPLACE INTO versions VALUES (NEW.collection, NEW.session_id, random());
END

CREATE TRIGGER IF NOT EXISTS private_deleted AFTER DELETE ON private BEGIN
    DELETE FROM versions WHERE collection = OLD.collection AND session_id = OLD.session_id;
    INSERT INTO versions SELECT OLD.collection, OLD.session_id, random() WHERE EXISTS (
        SELECT 1 FROM private WHERE collection = OLD.collection AND session_id = OLD.session_id
    );
END

INSERT OR IGNORE INTO versions
    SELECT collection, session_id, random() FROM private GROUP BY collection, session_id

CREATE TABLE IF NOT EXISTS staged (
    collection TEXT NOT NULL, session_id TEXT NOT NULL, fingerprint TEXT NOT NULL, vector BLOB NOT NULL,
    made_at REAL NOT NULL, PRIMARY KEY (collection, session_id, fingerprint)
)

CREATE TABLE IF NOT EXISTS files (
    collection TEXT NOT NULL, session_id TEXT NOT NULL, path TEXT NOT NULL,
    digest TEXT NOT NULL, chunks TEXT NOT NULL, expires_at REAL,
    PRIMARY KEY (collection, session_id, path)
) WITHOUT ROWID
"""


@contextmanager
def storage_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn SQLite's and the system's failures into a StorageError that names path and remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        remedy = "check that the disk is not full and that this user may write there"
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            remedy = "another process holds a long transaction; try again"
        elif not isinstance(error, sqlite3.OperationalError):
            remedy = "the file is damaged; keep it, and restore a copy or run `fiscal-rag check`"
        raise StorageError(f"{doing} {path} failed ({error}); {remedy}") from None
    except OSError as error:
        if isinstance(error, (StorageError, TimeoutError)):
            raise
        raise StorageError(f"{doing} {path} failed ({error.strerror or error})") from None


class Database:
    """One connection a thread to ``directory/fiscal.sqlite3``; usable from any process.

    WAL lets readers go on during a write. ``secure_delete`` overwrites what is deleted, and
    :meth:`forget` empties the log, so that no byte of a deleted row stays in a file.
    """

    def __init__(self, directory: Path, *, create: bool) -> None:
        self.path = directory / "fiscal.sqlite3"
        self._local = threading.local()
        self._connections = Connections(
            self.path,
            ["journal_mode = WAL", "secure_delete = ON", "synchronous = FULL", "temp_store = MEMORY"],
            create=create,
        )
        if not create and not self.path.is_file():
            raise StorageError(f"{self.path} does not exist; ingest something first, or check the path")
        with storage_errors(self.path, "opening"):
            connection = self.connection()
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found > LAYOUT:
                raise StorageError(
                    f"{self.path} has layout {found}, this version reads up to {LAYOUT}; "
                    "open it with the version of fiscal-rag-plugin that wrote it"
                )
            if found < LAYOUT:
                # Every statement may come again: what layout 1 lacked is added, and nothing is lost.
                with self.transaction():
                    for statement in _SCHEMA.split("\n\n"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {LAYOUT}")

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        return self._connections.get()

    def query(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement; one statement sees one moment of the database."""
        with storage_errors(self.path, "reading"):
            return self.connection().execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; writers of other processes wait their turn. One inside another is the outer."""
        with storage_errors(self.path, "writing"), self._block("BEGIN IMMEDIATE", "COMMIT") as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one moment."""
        with storage_errors(self.path, "reading"), self._block("BEGIN", "ROLLBACK"):
            yield

    @contextmanager
    def _block(self, begin: str, end: str) -> Iterator[sqlite3.Connection]:
        connection = self.connection()
        if getattr(self._local, "inside", False):
            yield connection
            return
        try:
            if connection.in_transaction:
                # An interruption came between the last statement and its end.
                connection.execute("ROLLBACK")
            connection.execute(begin)
            self._local.inside = True
            yield connection
            connection.execute(end)
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            self._local.inside = False

    def integrity(self) -> list[str]:
        """SQLite's own complaints about the file; none when it is whole."""
        return [row[0] for row in self.query("PRAGMA quick_check") if row[0] != "ok"]

    def forget(self, seconds: float = BUSY_SECONDS) -> bool:
        """Move the log into the file and empty it; False when readers held it all that time."""
        deadline = time.monotonic() + seconds
        with storage_errors(self.path, "checkpointing"):
            while True:
                busy = self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                if not busy:
                    return True
                if time.monotonic() >= deadline:
                    logger.warning("the log of %s is still read; it is emptied when it is not", self.path)
                    return False
                time.sleep(0.01)

    # --- generation -----------------------------------------------------------------------------

    def generation(self) -> tuple[int, bool]:
        """(value, whether a public write is under way); readers compare it around each query."""
        row = self.query("SELECT value, writing FROM generation")[0]
        return int(row[0]), bool(row[1])

    def bump_generation(self, *, writing: bool) -> int:
        with self.transaction() as connection:
            connection.execute("UPDATE generation SET value = value + 1, writing = ?", (writing,))
            return int(connection.execute("SELECT value FROM generation").fetchone()[0])

    # --- manifest -------------------------------------------------------------------------------

    def manifest(self, collection: str) -> dict[str, Json]:
        rows = self.query("SELECT name, value FROM manifest WHERE collection = ?", (collection,))
        return {name: json.loads(value) for name, value in rows}

    def set_manifest(self, collection: str, values: dict[str, Json]) -> None:
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO manifest VALUES (?, ?, ?)",
                [(collection, name, json.dumps(value)) for name, value in values.items()],
            )

    def claim_manifest(self, collection: str, values: dict[str, Json]) -> dict[str, Json]:
        """Set what is not set yet, and return the manifest that now holds: the first writer wins."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO manifest VALUES (?, ?, ?)",
                [(collection, name, json.dumps(value)) for name, value in values.items()],
            )
        return self.manifest(collection)

    # --- journal of a replacement: public ids that do not count -----------------------------------

    def pending(self, collection: str) -> frozenset[str]:
        rows = self.query("SELECT id FROM journal WHERE collection = ?", (collection,))
        return frozenset(row[0] for row in rows)

    def all_pending(self) -> dict[str, list[str]]:
        pending: dict[str, list[str]] = {}
        for collection, id in self.query("SELECT collection, id FROM journal"):
            pending.setdefault(collection, []).append(id)
        return pending

    def set_pending(self, collection: str, ids: list[str]) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM journal WHERE collection = ?", (collection,))
            connection.executemany("INSERT INTO journal VALUES (?, ?)", [(collection, i) for i in ids])

    # --- files ----------------------------------------------------------------------------------

    def file(self, collection: str, session_id: str, path: str) -> tuple[str, dict[str, int]] | None:
        """(digest, chunks by doc_id) of a file ingested before and not expired; session "" is public."""
        rows = self.query(
            "SELECT digest, chunks FROM files WHERE collection = ? AND session_id = ? AND path = ? "
            "AND (expires_at IS NULL OR expires_at > ?)",
            (collection, session_id, path, time.time()),
        )
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    def set_file(
        self, collection: str, session_id: str, path: str,
        digest: str, chunks: dict[str, int], expires_at: float | None,
    ) -> None:  # fmt: skip
        """Remember a file; another file that gave the same documents is to be read again."""
        self.forget_files(collection, session_id, chunks)
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)",
                (collection, session_id, path, digest, json.dumps(chunks), expires_at),
            )

    def forget_files(
        self, collection: str, session_id: str, doc_ids: Collection[str] | None = None
    ) -> None:
        """Drop file hashes, so that the files are read again: of these documents, or all."""
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT path, chunks FROM files WHERE collection = ? AND session_id = ?",
                (collection, session_id),
            ).fetchall()
            gone = [
                p
                for p, chunks in rows
                if doc_ids is None or not json.loads(chunks).keys().isdisjoint(doc_ids)
            ]
            connection.executemany(
                "DELETE FROM files WHERE collection = ? AND session_id = ? AND path = ?",
                [(collection, session_id, path) for path in gone],
            )

    def close(self) -> None:
        if self._connections.usable:
            with suppress(StorageError):
                self.forget(seconds=0.0)
        self._connections.close()
