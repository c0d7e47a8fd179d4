"""What is aimed at, as ratios of one run, and what a check fails on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from .cases import ALL_SESSIONS, AUTHORIZED, COLD, FEW, QUARTER, WARM
from .peers.base import ENGINE, LANG, LLAMA, RAW
from .results import Figure, Results

AIMED_AT_N = 100_000
MIN_RECALL = 0.99
OFFICIAL = ("official LlamaIndex", "official LangChain")
TIMES_FASTER = {AUTHORIZED: 100.0, QUARTER: 20.0, FEW: 20.0, COLD: 20.0, WARM: 20.0}


def scaled(times: float, n: int) -> float:
    """How many times faster than the official integrations at ``n``.

    Their filtered query costs in proportion to the corpus, ours hardly: what is asked at 100,000 is
    a tenth of it at 10,000. It is no more at 1,000,000, and a tie at least where the corpus is tiny.
    """
    return max(1.0, times * min(1.0, n / AIMED_AT_N))


def query_figures(results: Results, n: int) -> Iterator[Figure]:
    """The figures that follow from the rows of one ``n``."""

    def p50(case: str, peer: str) -> float | None:
        row = results.row(n, case, peer)
        return row.p50_ms if row else None

    ours, raw = p50(AUTHORIZED, ENGINE), p50(AUTHORIZED, RAW)
    if ours and raw:
        yield Figure("authorized query over raw Chroma", n, ours / raw, limit=1.5, enforced=True)
    for case, times in TIMES_FASTER.items():
        own = p50(case, ENGINE)
        # The faster one of the two is what we are compared with.
        official = min((t for peer in OFFICIAL if (t := p50(case, peer))), default=None)
        if own and official:
            limit = scaled(times, n)
            yield Figure(
                f"official integrations over ours: {case}", n, official / own,
                limit=limit, floor=True, enforced=True,
            )  # fmt: skip
    for peer in (LLAMA, LANG):
        own, above = p50(AUTHORIZED, ENGINE), p50(AUTHORIZED, peer)
        if own and above:
            yield Figure(f"{peer} over the engine call", n, above / own, limit=1.3, enforced=True)
    everybody = p50(ALL_SESSIONS, ENGINE)
    if everybody:
        yield Figure(ALL_SESSIONS, n, everybody, "ms", limit=10.0)


def growth_figures(results: Results, sizes: list[int]) -> Iterator[Figure]:
    """How the authorized query grows from one size to the next, and what raw Chroma grows by itself."""
    for small, large in pairwise(sizes):
        for peer, limit in ((ENGINE, 2.0), (RAW, None)):
            before, after = (results.row(n, AUTHORIZED, peer) for n in (small, large))
            if before and after:
                yield Figure(
                    f"growth of {peer} from {small:,}", large, after.p50_ms / before.p50_ms,
                    limit=limit, enforced=limit is not None,
                )  # fmt: skip


def failures(results: Results) -> list[str]:
    """What a check fails on: recall, plans that disagree with the oracle, ratios worse than half."""
    wrong = [
        f"{row.case}, n = {row.n:,}: {row.peer} has recall {row.recall:.4f}, below {MIN_RECALL}"
        for row in results.rows
        if row.peer in (ENGINE, LLAMA, LANG) and row.recall is not None and not row.recall >= MIN_RECALL
    ]
    wrong += [f"disagrees with the oracle: {line}" for line in results.disagreements]
    wrong += [
        f"{figure.name}, n = {figure.n:,}: {figure.value:.2f}, and {figure.limit:.4g} is aimed at"
        for figure in results.figures
        if figure.worse_than_half
    ]
    return wrong
