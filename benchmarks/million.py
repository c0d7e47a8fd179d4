"""Ours and raw Chroma at 1,000,000: streamed in, and compared with 100,000 of the same corpus.

python -m benchmarks.million [--n 100000,1000000] [--questions 50] [--dir KEEP] [--json FILE]

Each index is filled by a process of its own, which tells how much memory it has; Chroma keeps its
HNSW graph in memory, so that of raw grows too, and ours is to be read beside it. At each size both
are opened here and asked in turn. With --dir an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from . import probe
from .aims import growth_figures, query_figures
from .cases import AUTHORIZED, CASES, run_case
from .filling import PRIVATE, batches, check_count
from .peers.base import ENGINE, LANG, LLAMA, TITLES, open_peer
from .processes import process_figures
from .report import show_case, show_figures
from .results import Figure, Results, environment

PEERS = ("raw", "ours")
SAY_EVERY_SECONDS = 15.0


def fill_one(name: str, directory: Path, n: int) -> None:
    """Write what is missing batch by batch; the last line of the output is JSON."""
    peer = open_peer(name, directory)
    done = peer.count()
    check_count(name, done, n)
    written, started = done, time.perf_counter()
    said = started
    for rows in batches(n, done=done):
        peer.write(rows)
        written += len(rows)
        now = time.perf_counter()
        if now - said > SAY_EVERY_SECONDS or written == PRIVATE + n:
            said = now
            rate = (written - done) / (now - started)
            left = (PRIVATE + n - written) / rate / 60
            print(
                f"  {TITLES[name]:18} {written:>9,} of {PRIVATE + n:,} rows, {rate:,.0f} rows/s, "
                f"{left:.0f} min left, peak memory {probe.peak_megabytes():,.0f} MB", flush=True,
            )  # fmt: skip
    peer.finish()
    seconds = time.perf_counter() - started
    print(json.dumps({"rows": written - done, "seconds": seconds, "megabytes": probe.peak_megabytes()}))
    peer.close()


def fill_in_process(name: str, directory: Path, n: int, console: Console) -> dict[str, float]:
    """As :func:`fill_one`, its lines shown as they come; raises CalledProcessError when it fails."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.million",
        "--fill",
        name,
        "--n",
        str(n),
        "--dir",
        str(directory),
    ]
    last = ""
    with subprocess.Popen(command, cwd=probe.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line
            if not line.startswith("{"):
                console.print(line.rstrip())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return dict(json.loads(last))


def run(sizes: list[int], questions: int, directory: Path, console: Console) -> Results:
    results = Results(environment=environment())
    for n in sizes:
        for name in PEERS:
            filled = fill_in_process(name, directory, n, console)
            if filled["rows"]:
                rate = filled["rows"] / filled["seconds"]
                results.figures += [
                    Figure(f"ingest to here, {TITLES[name]}", n, rate, "rows/s"),
                    Figure(f"peak memory while ingesting, {TITLES[name]}", n, filled["megabytes"], "MB"),
                ]
        peers = {name: open_peer(name, directory) for name in PEERS}
        for case in CASES:
            rows = run_case(case, peers, n, questions, budget_seconds=60)
            results.rows += [row for row in rows if row.peer not in (LLAMA, LANG)]
            show_case(console, rows)
        for peer in peers.values():
            peer.close()
        results.figures += query_figures(results, n)
        results.figures += process_figures(directory, n, PEERS, processes=3)
    results.figures += growth_figures(results, sizes)
    row = results.row(sizes[-1], AUTHORIZED, ENGINE)
    if row is not None and row.recall is not None:
        results.figures.append(Figure("recall@8", sizes[-1], row.recall, "", limit=0.99, floor=True))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", default="100000,1000000", help="sizes, ascending; the smaller come first")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--dir", type=Path, help="keep the indexes here (about 10 GB)")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--fill", choices=PEERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = sorted(int(n) for n in given.n.split(","))
    if given.fill:
        fill_one(given.fill, given.dir, sizes[-1])
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    with tempfile.TemporaryDirectory() as temporary:
        results = run(sizes, given.questions, given.dir or Path(temporary), console)
    show_figures(console, results)
    if given.json:
        results.save(given.json)


if __name__ == "__main__":
    main()
