"""Sixteen clients at once, as threads and as tasks of one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np

from .data import SESSIONS, questions
from .peers.base import Ask, Peer
from .peers.ours import Ours, query
from .results import Figure

CLIENTS = 16
TICK_SECONDS = 0.010
AsyncAsk = Callable[[np.ndarray], Awaitable[object]]


def threads_per_second(ask: Ask, vectors: np.ndarray) -> float:
    """Queries per second of 16 threads that share them."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        started = time.perf_counter()
        list(pool.map(ask, vectors))
        return len(vectors) / (time.perf_counter() - started)


def tasks_per_second(ask: AsyncAsk, vectors: np.ndarray) -> tuple[float, float]:
    """Queries per second of 16 tasks, and the longest time the loop did not come round, in ms.

    A ticker that sleeps 10 ms at a time is late by as long as anything blocks the loop.
    """

    async def client(mine: np.ndarray) -> None:
        for vector in mine:
            await ask(vector)

    async def run() -> tuple[float, float]:
        late: list[float] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter() + TICK_SECONDS
                await asyncio.sleep(TICK_SECONDS)
                late.append(time.perf_counter() - due)

        ticker = asyncio.create_task(tick())
        started = time.perf_counter()
        await asyncio.gather(*(client(part) for part in np.array_split(vectors, CLIENTS)))
        seconds = time.perf_counter() - started
        ticker.cancel()
        return len(vectors) / seconds, max(late, default=0.0) * 1e3

    return asyncio.run(run())


def concurrency_figures(ours: Ours, raw: Peer, n: int, count: int, rounds: int) -> Iterator[Figure]:
    """Medians of ``rounds``, ours and raw in turn, ``count`` questions each time."""
    vectors = questions(n, count)
    engine = ours.engine(SESSIONS[:1], None)
    (floor,) = raw.ways((), None).values()
    view = ours.store.for_session(SESSIONS[0])
    for ask in (engine, floor):
        ask(vectors[0])

    async def ours_async(vector: np.ndarray) -> object:
        return await view.aquery(query(vector, None))

    async def raw_async(vector: np.ndarray) -> object:
        return await asyncio.to_thread(floor, vector)

    threads: dict[str, list[float]] = {"ours": [], "raw": []}
    tasks: dict[str, list[float]] = {"ours": [], "raw": []}
    late: dict[str, list[float]] = {"ours": [], "raw": []}
    both: tuple[tuple[str, Ask, AsyncAsk], ...] = (("ours", engine, ours_async), ("raw", floor, raw_async))
    for turn in range(rounds):
        for name, ask, ask_async in both if turn % 2 else both[::-1]:
            threads[name].append(threads_per_second(ask, vectors))
            rate, gap = tasks_per_second(ask_async, vectors)
            tasks[name].append(rate)
            late[name].append(gap)
    for what, rates in (("threads", threads), ("asyncio tasks", tasks)):
        mine, floors = median(rates["ours"]), median(rates["raw"])
        yield Figure(f"{CLIENTS} {what}: queries of ours", n, mine, "/s")
        yield Figure(f"{CLIENTS} {what}: raw Chroma's queries over ours", n, floors / mine)
    for name, gaps in late.items():
        yield Figure(f"longest block of the event loop, {name}", n, median(gaps), "ms")
