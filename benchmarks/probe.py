"""One measurement in a process of its own; the last line of its output is JSON.

python -m benchmarks.probe measure PEER DIR N
python -m benchmarks.probe write DIR START
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
QUERIES = 50
WRITTEN_AT_ONCE = 500
STARTUP = ("import", "open", "first query")


def peak_megabytes() -> float:
    """The most memory this process has had. ``ru_maxrss`` would begin with its parent's."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return int(cast("re.Match[str]", re.search(r"VmHWM:\s+(\d+)", status))[1]) / 1024


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.probe", *map(str, arguments)]


def run(*arguments: object) -> dict[str, Any]:
    """Run a probe to its end; raises CalledProcessError with what it said."""
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))


def principal(name: str, peer: Any) -> Callable[[Any], list[str]]:
    """The principal way to ask as the first session; of ours without importing LangChain."""
    from benchmarks.data import SESSIONS

    if name == "ours":
        return cast("Callable[[Any], list[str]]", peer.engine(SESSIONS[:1], None))
    return cast("Callable[[Any], list[str]]", next(iter(peer.ways(SESSIONS[:1], None).values())))


def measure(name: str, directory: Path, n: int) -> dict[str, float]:
    """Start-up in seconds and then, after 50 queries, the peak of memory in MB.

    The questions come from another module, and NumPy with them; no peer is charged for those seconds.
    """
    from benchmarks.data import questions
    from benchmarks.peers.base import import_peer

    vectors = questions(n, QUERIES)
    times = [time.perf_counter()]
    module = import_peer(name)
    times.append(time.perf_counter())
    peer = module.open_peer(directory / name)
    times.append(time.perf_counter())
    ask = principal(name, peer)
    ask(vectors[0])
    times.append(time.perf_counter())
    for vector in vectors[1:]:
        ask(vector)
    peak = peak_megabytes()
    peer.close()
    seconds = (after - before for before, after in pairwise(times))
    return dict(zip(STARTUP, seconds, strict=True)) | {"megabytes": peak}


def write(directory: Path, start: int) -> None:
    """Add public chunks until the other end of stdin closes, saying how many after each batch."""
    import threading

    from benchmarks.data import BATCH, public_rows
    from benchmarks.peers.ours import Ours

    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    peer = Ours(directory)
    written = 0
    first = (start // BATCH + 1) * BATCH
    for rows in public_rows(first + 1_000 * BATCH, start=first):
        for part in range(0, len(rows), WRITTEN_AT_ONCE):
            peer.write(rows.part(part, part + WRITTEN_AT_ONCE))
            written += WRITTEN_AT_ONCE
            print(json.dumps({"written": written}), flush=True)
            if stop.is_set():
                peer.close()
                return


def main() -> None:
    what, *given = sys.argv[1:]
    if what == "write":
        write(Path(given[0]), int(given[1]))
    else:
        print(json.dumps(measure(given[0], Path(given[1]), int(given[2]))))


if __name__ == "__main__":
    main()
