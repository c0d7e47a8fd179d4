"""The questions' cases: which filter, and as a reader of which sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .data import SESSIONS, Extra, nearest, questions
from .peers.base import RAW, TOP_K, Peer
from .results import Row
from .timing import measure

AUTHORIZED = "authorized, no filter"
QUARTER = "filter that 25 % match"
FEW = "filter that 20 chunks match"
COLD = "the session's own chunks, cold"
WARM = "the session's own chunks, warm"
ALL_SESSIONS = "20 sessions with 2,000 chunks"


@dataclass(frozen=True)
class Case:
    """``readers`` are used round, one for each question: the sessions that it may read."""

    name: str
    extra: Extra | None = None
    readers: tuple[tuple[str, ...], ...] = (SESSIONS[:1],)
    questions: int | None = None


CASES = (
    # First of all: nobody has asked for these sessions yet. The last one warms up the rest.
    Case(COLD, {"source_scope": "private"}, tuple((s,) for s in SESSIONS[:-1]), len(SESSIONS) - 1),
    Case(AUTHORIZED),
    Case(QUARTER, {"tax": "IVA"}),
    Case(FEW, {"section_path": "Ley 3"}),
    Case(WARM, {"source_scope": "private"}),
    Case(ALL_SESSIONS, None, (SESSIONS,)),
)


def run_case(case: Case, peers: Mapping[str, Peer], n: int, count: int, budget_seconds: float) -> list[Row]:
    """Every way to ask every peer, timed in turn and compared with brute force."""
    vectors = questions(n, case.questions or count)
    by_reader = [
        {name: ask for peer in peers.values() for name, ask in peer.ways(reader, case.extra).items()}
        for reader in case.readers
    ]
    asks = {name: [ways[name] for ways in by_reader] for name in by_reader[0]}
    other = SESSIONS[-1:] if len(case.readers) > 1 else case.readers[0]
    warm = {name: ask for peer in peers.values() for name, ask in peer.ways(other, case.extra).items()}
    timings = measure(asks, warm, vectors, budget_seconds)
    truths = {reader: nearest(n, vectors, case.extra, reader, TOP_K) for reader in set(case.readers)}
    truth = [truths[case.readers[i % len(case.readers)]][i] for i in range(len(vectors))]
    floor = timings[RAW].p50_ms
    return [
        Row(
            n=n, case=case.name, peer=name, questions=len(timing.seconds), p50_ms=timing.p50_ms,
            p95_ms=timing.p95_ms, times_raw=timing.p50_ms / floor,
            # Raw Chroma has no access: what it finds is not what is asked for.
            recall=None if name == RAW else timing.recall(truth),
        )
        for name, timing in timings.items()
    ]  # fmt: skip
