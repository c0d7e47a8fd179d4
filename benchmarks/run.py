"""Speed as ratios within one run, recall against brute force, plans against the oracle.

python -m benchmarks.run --n 10000,100000 [--quick] [--check] [--dir KEEP]
                         [--json FILE] [--markdown FILE]

Every peer answers the same questions in alternating order; tables give medians and p95. A peer that
is not installed is skipped with the reason. With --dir the indexes are kept, so that a second run
measures queries only. --check exits with 1 on recall below 0.99, on a plan that disagrees with the
oracle, and on a ratio worse than half of what is aimed at.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rich.console import Console

from .again import again_figures
from .aims import failures, growth_figures, query_figures
from .cases import CASES, run_case
from .concurrency import concurrency_figures
from .filling import PRIVATE, fill
from .hybrid import hybrid_figures
from .oracle import check_plans
from .peers.base import MODULES, TITLES, Peer, Unavailable, open_peer
from .peers.ours import Ours
from .processes import process_figures
from .report import markdown, show_case, show_figures
from .results import Figure, Results, environment
from .uploading import upload_figures


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    questions: int
    budget_seconds: float
    concurrent: int
    rounds: int
    """of concurrent clients"""
    processes: int
    """in which memory and start-up are measured, of ours and of raw each"""
    uploads: int
    again_chunks: int
    oracle_questions: int


FULL = Effort(questions=50, budget_seconds=20, concurrent=400, rounds=3, processes=5, uploads=30, again_chunks=500,
              oracle_questions=3)  # fmt: skip
QUICK = Effort(questions=20, budget_seconds=1.0, concurrent=96, rounds=1, processes=1, uploads=10, again_chunks=8,
               oracle_questions=1)  # fmt: skip


class Run:
    """One run over several sizes; every part tells what it does and, after it, for how long."""

    def __init__(self, effort: Effort, directory: Path, console: Console, peers: list[str]) -> None:
        self._effort = effort
        self._directory = directory
        self._console = console
        self._names = peers
        self._started = time.perf_counter()
        self.results = Results(environment=environment())

    def say(self, line: str) -> None:
        self._console.print(f"[dim]{time.perf_counter() - self._started:6.0f} s[/]  {line}")

    def size(self, n: int) -> None:
        """Everything that is measured at ``n``."""
        directory = self._directory / f"n-{n}"
        directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(self._directory.stat().st_mode | 0o011)  # see open_peer
        with ExitStack() as closing:
            peers: dict[str, Peer] = {}
            for name in self._names:
                try:
                    peers[name] = open_peer(name, directory)
                except Unavailable as reason:
                    self.results.skipped[name] = str(reason)
                else:
                    closing.callback(peers[name].close)
            self.say(f"n = {n:,}: writing what is missing to {', '.join(peers)}")
            seconds = fill(peers, n, self.say)
        self._ingest(n, seconds)
        # Opened again, so that the cold case meets an index that has just been opened.
        with ExitStack() as closing:
            opened = {name: open_peer(name, directory) for name in peers}
            for peer in opened.values():
                closing.callback(peer.close)
            for case in CASES:
                self.say(f"n = {n:,}: {case.name}")
                rows = run_case(case, opened, n, self._effort.questions, self._effort.budget_seconds)
                self.results.rows += rows
                show_case(self._console, rows)
            self.results.figures += query_figures(self.results, n)
            self.say(f"n = {n:,}: words and vectors")
            self.results.figures += hybrid_figures(cast("Ours", opened["ours"]), n, self._effort.questions)
            self.say(f"n = {n:,}: 16 clients at once")
            ours, raw = cast("Ours", opened["ours"]), opened["raw"]
            count, rounds = self._effort.concurrent, self._effort.rounds
            self.results.figures += concurrency_figures(ours, raw, n, count, rounds)
        self.say(f"n = {n:,}: memory and start-up, in processes of their own")
        self.results.figures += process_figures(directory, n, list(peers), self._effort.processes)
        self.say(f"n = {n:,}: private uploads while another process ingests")
        self.results.figures += upload_figures(directory, n, self._effort.uploads, self.say)

    def _ingest(self, n: int, seconds: dict[str, float]) -> None:
        rows = n + PRIVATE
        for name, taken in seconds.items():
            self.results.figures.append(Figure(f"first ingest, {TITLES[name]}", n, rows / taken, "rows/s"))
        if {"ours", "official"} <= seconds.keys():
            ratio = seconds["ours"] / seconds["official"]
            name = "first ingest: our seconds over official LlamaIndex's"
            self.results.figures.append(Figure(name, n, ratio, limit=1.0, enforced=True))

    def once(self) -> None:
        """What does not depend on ``n``; in a directory that is not kept."""
        with tempfile.TemporaryDirectory() as temporary:
            self.say("every plan against the oracle, on 300 chunks")
            found = check_plans(Path(temporary), self._effort.oracle_questions)
            self.results.disagreements += found.disagreements
            self.results.plans.update(found.plans)
            self.say(f"  {found.plans.total():,} answers, {len(found.disagreements)} differ")
            self.say("files ingested with a real model, and again unchanged")
            try:
                self.results.figures += again_figures(Path(temporary), self._effort.again_chunks, self.say)
            except Unavailable as reason:
                self.results.skipped["ingest again"] = str(reason)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", default="100000", help="public chunks; several with commas, ascending")
    parser.add_argument("--peers", default=",".join(MODULES), help=f"of {', '.join(MODULES)}")
    parser.add_argument("--quick", action="store_true", help="fewer questions and smaller parts")
    parser.add_argument("--dir", type=Path, help="keep the indexes here")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--markdown", type=Path, help="write them here as tables")
    parser.add_argument("--check", action="store_true", help="exit 1 on bad recall, plans or ratios")
    given = parser.parse_args()
    logging.getLogger("fiscal_rag_plugin").setLevel(logging.ERROR)
    sizes = sorted(int(n) for n in given.n.split(","))
    peers = given.peers.split(",")
    if unknown := set(peers) - set(MODULES):
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    if not {"raw", "ours"} <= set(peers):
        parser.error("raw and ours are in every run")
    # Into a file as into a terminal of 100 columns, for which the tables are made.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(QUICK if given.quick else FULL, given.dir or Path(temporary), console, peers)
        run.once()
        for n in sizes:
            run.size(n)
    results = run.results
    results.figures += growth_figures(results, sizes)
    show_figures(console, results)
    if given.json:
        results.save(given.json)
    if given.markdown:
        given.markdown.write_text("\n".join(markdown(results)) + "\n", encoding="utf-8")
    wrong = failures(results) if given.check else []
    for line in wrong:
        console.print(f"[red]{line}[/]")
    run.say("done")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
