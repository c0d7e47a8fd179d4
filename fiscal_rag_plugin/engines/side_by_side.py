"""Two halves of a query at once: Chroma's and tantivy's native code lets other Python threads run."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


class SideBySide:
    """A few threads of one store. Kept, because each thread that reads SQLite opens a connection."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="fiscal-rag")

    def run(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """The answers of both; ``second`` runs in this thread, and ``first`` too while all are busy.

        Neither may hold a lock that the other needs. When both fail, ``second``'s error is raised.
        """
        try:
            other = self._pool.submit(first)
        except RuntimeError:  # closed, or the interpreter is about to end
            return first(), second()
        try:
            answer = second()
        except BaseException:
            if not other.cancel():
                wait([other])
            raise
        return (first() if other.cancel() else other.result()), answer

    def close(self) -> None:
        """Let the threads end; what runs is finished."""
        self._pool.shutdown(wait=False)
