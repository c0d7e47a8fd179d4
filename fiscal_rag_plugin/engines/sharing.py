"""A lock that many readers share and one writer holds alone, inside one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """Writers go first: a steady stream of queries cannot keep an upsert waiting.

    A thread that holds it alone may take it again, in either way.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._owner: int | None = None
        self._depth = 0
        self._single = threading.RLock()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it together with other readers; not to be taken twice by one thread."""
        me = threading.get_ident()
        if self._owner == me:
            yield
            return
        with self._condition:
            while self._owner is not None or self._writers_waiting:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold it alone."""
        me = threading.get_ident()
        if self._owner != me:
            with self._condition:
                self._writers_waiting += 1
                try:
                    while self._owner is not None or self._readers:
                        self._condition.wait()
                finally:
                    # Also when Ctrl-C ends the wait: readers stand back while anybody waits.
                    self._writers_waiting -= 1
                    self._condition.notify_all()
                self._owner = me
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                with self._condition:
                    self._owner = None
                    self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One thread at a time, while readers go on."""
        with self._single:
            yield
