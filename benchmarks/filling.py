"""The first ingest of explicit vectors: every peer gets the same batches in turn, so load hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from .data import BATCH, SESSION_CHUNKS, SESSIONS, Rows, private_rows, public_rows
from .peers.base import Peer

PRIVATE = len(SESSIONS) * SESSION_CHUNKS
Said = Callable[[str], None]


def batches(n: int, *, done: int = 0) -> Iterator[Rows]:
    """The private chunks and then ``n`` public ones, without the first ``done``."""
    if not done:
        yield private_rows()
    yield from public_rows(n, start=max(0, done - PRIVATE))


def check_count(name: str, count: int, n: int) -> None:
    """Raise SystemExit unless ``count`` rows are a beginning of this corpus that can be gone on from."""
    rest = (count - PRIVATE) % BATCH if count else 0
    if count > PRIVATE + n or (rest and count != PRIVATE + n):
        raise SystemExit(f"the index of {name} holds {count} rows, not those of n = {n}: remove it")


def fill(peers: Mapping[str, Peer], n: int, say: Said) -> dict[str, float]:
    """Write what each peer lacks and return the seconds of those that were empty.

    Raises:
        SystemExit: a directory holds something else than the beginning of this corpus.
    """
    counts = {name: peer.count() for name, peer in peers.items()}
    total = PRIVATE + n
    for name, count in counts.items():
        check_count(name, count, n)
    seconds = dict.fromkeys(peers, 0.0)
    names = list(peers)
    started = said = time.perf_counter()
    written = min(counts.values())
    for turn, rows in enumerate(batches(n, done=written)):
        written += len(rows)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if written <= counts[name]:
                continue
            begun = time.perf_counter()
            peers[name].write(rows)
            seconds[name] += time.perf_counter() - begun
        if time.perf_counter() - said > 10:
            said = time.perf_counter()
            say(f"  {written:,} of {total:,} rows, {said - started:.0f} s")
    for name, peer in peers.items():
        if counts[name] < total:
            begun = time.perf_counter()
            peer.finish()
            seconds[name] += time.perf_counter() - begun
    return {name: taken for name, taken in seconds.items() if not counts[name]}
