"""Python in a process of its own, for what must not happen in the tests' own."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run_python(code: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
