"""What SQL statements over many values need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_BATCH = 500


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts that fit SQLite's limit of variables in a statement."""
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def marks(items: Sequence[object]) -> str:
    """A question mark for each item, to bind it."""
    return ",".join("?" * len(items))
