"""Memory and start-up, each peer in a process of its own, in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from . import probe
from .peers.base import TITLES
from .results import Figure

ALSO_IN_PROCESS = ("official", "qdrant", "lancedb")
"""Other peers whose index lies in the asking process; PostgreSQL's memory does not."""


def process_figures(directory: Path, n: int, names: Sequence[str], processes: int) -> Iterator[Figure]:
    """Medians of ours and raw in turn; of the others, memory alone, and only when there is time for more."""
    seen: dict[str, list[dict[str, float]]] = {"raw": [], "ours": []}
    for turn in range(processes):
        for name in list(seen)[:: 1 if turn % 2 else -1]:
            seen[name].append(probe.run("measure", name, directory, n))
    others = [name for name in ALSO_IN_PROCESS if name in names and processes > 1]
    everybody = seen | {name: [probe.run("measure", name, directory, n)] for name in others}
    peaks = {name: median(found["megabytes"] for found in runs) for name, runs in everybody.items()}
    for name, peak in peaks.items():
        yield Figure(f"peak memory, {TITLES[name]}", n, peak, "MB")
    ratio = peaks["ours"] / peaks["raw"]
    yield Figure("peak memory of ours over raw Chroma's", n, ratio, limit=1.2, enforced=True)
    for part in probe.STARTUP:
        for name, runs in seen.items():
            seconds = median(found[part] for found in runs)
            yield Figure(f"start-up, {part}: {TITLES[name]}", n, seconds, "s")
