"""Records from JSONL and from batches: good ones go on, bad ones are reported, skipped and counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..errors import FiscalRagError, IngestError
from .canonical import RecordJson, canonical
from .errors import InvalidRecordError

logger = logging.getLogger(__name__)

LOGGED_ONE_BY_ONE = 20


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A line of a file, or a place in a batch, both counted from 1, and why it was skipped."""

    number: int
    reason: str


OnProblem: TypeAlias = Callable[[BadRecord], None]
Numbered: TypeAlias = "tuple[int, RecordJson]"
"""A record, and its line in a file or its place in a batch."""


class Problems:
    """Collects what was skipped, logs it, and hands each to ``on_problem``."""

    def __init__(self, where: str, on_problem: OnProblem | None = None) -> None:
        self.bad: list[BadRecord] = []
        self._where = where
        self._on_problem = on_problem

    def skip(self, number: int, error: FiscalRagError) -> None:
        problem = BadRecord(number, str(error))
        self.bad.append(problem)
        if len(self.bad) <= LOGGED_ONE_BY_ONE:
            logger.warning("%s %d is skipped: %s", self._where, number, problem.reason)
        if self._on_problem is not None:
            self._on_problem(problem)

    def log_total(self) -> None:
        if len(self.bad) > LOGGED_ONE_BY_ONE:
            logger.warning("%s: %d were skipped in all", self._where, len(self.bad))


def of_file(path: Path, problems: Problems) -> Iterator[Numbered]:
    """(line number, record) of each good line; blank lines are nothing.

    Raises:
        IngestError: the file itself cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip().removeprefix(b"\xef\xbb\xbf"):
                    continue
                try:
                    yield number, canonical(_parsed(line))
                except InvalidRecordError as error:
                    problems.skip(number, error)
    except OSError as error:
        raise IngestError(f"{path.name}: cannot be read: {error.strerror or error}") from None


def of_batch(records: Iterable[object], problems: Problems) -> Iterator[Numbered]:
    """(place, record) of each good record of a batch.

    Raises:
        InvalidRecordError: there is no batch: a single record, a text, or nothing.
    """
    if isinstance(records, (Mapping, str, bytes)) or not isinstance(records, Iterable):
        raise InvalidRecordError(
            f"records is a list of records, not {type(records).__name__}; pass one record as [record]"
        )
    for number, value in enumerate(records, start=1):
        try:
            yield number, canonical(value)
        except InvalidRecordError as error:
            problems.skip(number, error)


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"not UTF-8 at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise InvalidRecordError(f"not JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InvalidRecordError("not JSON: a number out of range, or nested too deep") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
