"""The wheel holds both packages, and nothing that belongs to somebody else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out), str(ROOT)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def test_both_import_names_are_in_it_and_no_module_called_adapters(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {
        "fiscal_rag_plugin",
        "langchain_fiscal_rag",
    }
    assert "fiscal_rag_plugin/py.typed" in names
    assert "langchain_fiscal_rag/py.typed" in names
    assert not any(name.startswith(("tests/", "examples/")) for name in names)


def test_installed_into_an_empty_folder_both_names_import_from_there(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    code = (
        "import fiscal_rag_plugin, langchain_fiscal_rag, importlib.util as u\n"
        "from fiscal_rag_plugin import FiscalVectorStore, get_retriever\n"
        "print(fiscal_rag_plugin.__file__, langchain_fiscal_rag.__file__, u.find_spec('adapters'))"
    )
    # -S is too much (no dependencies), so the folder goes first and the checkout stays out.
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = [{str(tmp_path / 'site')!r}] + [p for p in sys.path if {str(ROOT)!r} not in p or 'site-packages' in p]\n" + code],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plugin, adapter, adapters = done.stdout.split()
    assert plugin.startswith(str(tmp_path))
    assert adapter.startswith(str(tmp_path))
    assert adapters == "None"
