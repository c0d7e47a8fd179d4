"""SQLite connections: one a thread, none across a fork."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import StoreClosedError

BUSY_SECONDS = 10.0


class Connections:
    """Each thread's own connection to one file, opened when it first asks.

    ``create=False`` never makes the file.
    """

    def __init__(self, path: Path, pragmas: Sequence[str], *, create: bool) -> None:
        self.path = path
        self._pragmas = pragmas
        self._uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        self._pid = os.getpid()
        self._local = threading.local()
        self._open: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._guard = threading.Lock()
        self._closed = False

    def get(self) -> sqlite3.Connection:
        """This thread's connection; raises StoreClosedError after close() or a fork."""
        if self._closed:
            raise StoreClosedError("the store is closed; open it again")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                "this process was forked after the store was opened; open after the fork"
            )
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            for pragma in self._pragmas:
                connection.execute(f"PRAGMA {pragma}")
            self._local.connection = connection
            with self._guard:
                # A server with a thread a request would otherwise run out of file descriptors.
                for thread, ended in self._open:
                    if not thread.is_alive():
                        ended.close()
                self._open = [entry for entry in self._open if entry[0].is_alive()]
                self._open.append((threading.current_thread(), connection))
        return connection

    @property
    def usable(self) -> bool:
        return not self._closed and os.getpid() == self._pid

    def close(self) -> None:
        """Close every thread's connection; in a forked child, nothing."""
        if not self.usable:
            return
        self._closed = True
        with self._guard:
            for _, connection in self._open:
                with suppress(sqlite3.Error):
                    connection.close()
            self._open.clear()
