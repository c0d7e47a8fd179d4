"""Two halves of a query at once: both answers, whoever computes them, and the error that was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fiscal_rag_plugin.engines.side_by_side import SideBySide


@pytest.fixture
def beside() -> Iterator[SideBySide]:
    made = SideBySide()
    yield made
    made.close()


def test_the_first_runs_elsewhere_while_the_second_runs_here(beside: SideBySide) -> None:
    meeting = threading.Barrier(2, timeout=30)  # broken unless both are under way at once

    def where() -> int:
        meeting.wait()
        return threading.get_ident()

    first, second = beside.run(where, where)
    assert second == threading.get_ident() != first


def test_while_every_thread_is_busy_the_caller_runs_both(beside: SideBySide) -> None:
    release = threading.Event()
    started = threading.Semaphore(0)

    def occupy() -> None:
        started.release()
        release.wait(30)

    workers = beside._pool._max_workers
    busy = [beside._pool.submit(occupy) for _ in range(workers)]
    for _ in range(workers):
        assert started.acquire(timeout=30)
    try:
        assert beside.run(threading.get_ident, threading.get_ident) == (threading.get_ident(),) * 2
    finally:
        release.set()
        for one in busy:
            one.result(30)


def test_halves_within_halves_end(beside: SideBySide) -> None:
    def count(depth: int) -> int:
        return 1 if not depth else sum(beside.run(lambda: count(depth - 1), lambda: count(depth - 1)))

    assert count(7) == 2**7


@pytest.mark.parametrize("failing", ["first", "second"])
def test_an_error_of_either_reaches_the_caller(beside: SideBySide, failing: str) -> None:
    def half(name: str) -> str:
        if name == failing:
            raise ValueError(name)
        return name

    with pytest.raises(ValueError, match=failing):
        beside.run(lambda: half("first"), lambda: half("second"))
    assert beside.run(lambda: half("third"), lambda: half("fourth")) == ("third", "fourth")


def test_an_error_waits_for_what_is_under_way(beside: SideBySide) -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        started.set()
        release.wait(30)
        ended.set()

    def second() -> None:
        assert started.wait(30)
        threading.Timer(0.05, release.set).start()
        raise ValueError("second")

    with pytest.raises(ValueError, match="second"):
        beside.run(first, second)
    assert ended.is_set()


def test_when_closed_the_caller_runs_both() -> None:
    closed = SideBySide()
    closed.close()
    assert closed.run(lambda: threading.get_ident(), lambda: 2) == (threading.get_ident(), 2)
