"""A private upload while another process ingests public text: is anybody kept waiting?"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from . import probe
from .data import SESSION_CHUNKS, private_rows
from .filling import Said
from .peers.ours import Ours
from .results import Figure


def upload_figures(directory: Path, n: int, uploads: int, say: Said) -> Iterator[Figure]:
    """Uploads of 100 chunks with vectors into a copy of the index, which another process writes all along.

    The writer embeds nothing, so that it holds the index's locks as often as one can.
    """
    copy = directory / "written-meanwhile"
    shutil.copytree(directory / "ours", copy)
    try:
        seconds, written = _upload(copy, n, uploads)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    say(f"  the other process ingested {written:,} public chunks meanwhile")
    name = "upload of 100 chunks while another process ingests"
    yield Figure(f"{name}, p50", n, float(np.median(seconds)), "s", limit=0.2)
    yield Figure(f"{name}, slowest of {uploads}", n, max(seconds), "s", limit=0.2)


def _upload(copy: Path, n: int, uploads: int) -> tuple[list[float], int]:
    writer = subprocess.Popen(
        probe.command("write", copy, n), cwd=probe.ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdin is not None
    assert writer.stdout is not None
    try:
        if not writer.stdout.readline():
            raise RuntimeError("the process that ingests public text failed")
        ours = Ours(copy)
        upload = private_rows().part(0, SESSION_CHUNKS)
        seconds = []
        for number in range(uploads):
            rows = replace(upload, sessions=[f"U{number}"] * SESSION_CHUNKS)
            started = time.perf_counter()
            ours.write(rows)
            seconds.append(time.perf_counter() - started)
            time.sleep(0.1)  # spread over several of the writer's batches
        if writer.poll() is not None:
            raise RuntimeError("the process that ingests public text ended too early")
        stored = dict(ours.store.list_sessions())
        assert all(stored[f"U{number}"] == SESSION_CHUNKS for number in range(uploads))
        ours.close()
        said, _ = writer.communicate()
        lines = said.splitlines()
        return seconds, json.loads(lines[-1])["written"] if lines else 0
    finally:
        if writer.poll() is None:
            writer.terminate()
            writer.wait()
