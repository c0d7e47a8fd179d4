"""What may be injected as an embedder, how its vectors are checked, and the two framework faces."""

from __future__ import annotations

import pickle
import sys
import threading

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from llama_index.core import MockEmbedding

from fiscal_rag_plugin.embedding import (
    EmbeddingService,
    as_embedder,
    embed_checked,
    embed_query_checked,
    model_id_of,
)
from fiscal_rag_plugin.errors import (
    EmbeddingError,
    InvalidEmbedderError,
    InvalidVectorError,
    NoEmbedderError,
    NotPicklableError,
    TextTooLongError,
)
from fiscal_rag_plugin.llama.embedding import FiscalEmbedding
from fiscal_rag_plugin.settings import FiscalSettings
from langchain_fiscal_rag.embeddings import FiscalEmbeddings
from tests.embedders import CountingBackend, HashEmbedder, Returns


class TestInjection:
    def test_none_becomes_an_embedder_that_says_there_is_none(self):
        embedder = as_embedder(None)
        assert model_id_of(embedder) is None
        with pytest.raises(NoEmbedderError):
            embedder.embed_query("hola")
        with pytest.raises(NoEmbedderError):
            embed_checked(embedder, ["hola"])

    @pytest.mark.parametrize(
        "candidate",
        [HashEmbedder(), DeterministicFakeEmbedding(size=8), EmbeddingService(backend=CountingBackend())],
    )
    def test_what_has_both_methods_is_taken_as_it_is(self, candidate):
        assert as_embedder(candidate) is candidate

    def test_a_llama_index_model_embeds_through_its_public_methods(self):
        embedder = as_embedder(MockEmbedding(embed_dim=3))
        assert embed_checked(embedder, ["uno", "dos"]).shape == (2, 3)
        assert embed_query_checked(embedder, "uno").shape == (3,)

    def test_a_llama_index_model_declares_itself_by_its_name(self):
        assert model_id_of(as_embedder(MockEmbedding(embed_dim=3))) is None
        assert model_id_of(as_embedder(MockEmbedding(embed_dim=3, model_name="mock-3"))) == "mock-3"

    def test_a_langchain_model_declares_itself_only_by_model_id(self):
        class Declared(DeterministicFakeEmbedding):
            model_id: str = "fake-8"
            model_name: str = "ignored"

        assert model_id_of(as_embedder(DeterministicFakeEmbedding(size=8))) is None
        assert model_id_of(as_embedder(Declared(size=8))) == "fake-8"

    def test_no_framework_is_imported_to_recognise_an_embedder(self, monkeypatch):
        module = "llama_index.core.base.embeddings.base"
        monkeypatch.delitem(sys.modules, module)
        as_embedder(HashEmbedder())
        assert module not in sys.modules

    @pytest.mark.parametrize("face", [FiscalEmbedding, FiscalEmbeddings])
    def test_a_face_of_ours_is_unwrapped(self, face):
        inner = HashEmbedder()
        assert as_embedder(face(inner)) is inner

    def test_anything_else_is_refused_with_what_is_accepted(self):
        class Async:
            async def embed_documents(self, texts): ...

            async def embed_query(self, text): ...

        for candidate in ("local", 3, HashEmbedder, MockEmbedding, Async(), lambda text: [1.0], object()):
            with pytest.raises(InvalidEmbedderError, match="BaseEmbedding"):
                as_embedder(candidate)
        assert issubclass(InvalidEmbedderError, TypeError)


class TestChecking:
    def test_vectors_become_float32_rows(self):
        assert embed_checked(Returns([[1, 2], [3, 4]]), ["a", "b"]).dtype == np.float32
        assert embed_checked(Returns(np.eye(2)), ["a", "b"]).tolist() == [[1, 0], [0, 1]]
        assert embed_query_checked(Returns(np.ones(2)), "a").dtype == np.float32

    def test_no_texts_do_not_reach_the_embedder(self):
        assert embed_checked(Returns("never asked"), []).shape == (0, 0)

    @pytest.mark.parametrize(
        "answer",
        [
            [[1.0, 2.0]],
            [[1.0], [2.0], [3.0]],
            [[1.0, 2.0], [3.0]],
            [1.0, 2.0],
            [[], []],
            [[1.0, float("nan")], [1.0, 2.0]],
            [[1.0, float("inf")], [1.0, 2.0]],
            [[1.0, 1e39], [1.0, 2.0]],
            [[0.0, 0.0], [1.0, 2.0]],
            [[1e-50, 0.0], [1.0, 2.0]],
            [["0.5", "1"], ["1", "2"]],
            [[True, False], [True, True]],
            [[None, 1.0], [1.0, 2.0]],
            None,
            (x for x in ([1.0], [2.0])),
        ],
    )
    def test_anything_but_one_usable_vector_a_text_is_refused(self, answer):
        with pytest.raises(InvalidVectorError):
            embed_checked(Returns(answer), ["a", "b"])

    @pytest.mark.parametrize(
        "answer", [[[1.0, 2.0]], [], 1.0, None, [float("nan")], [0.0, 0.0], [1e39], ["0.5"]]
    )
    def test_a_question_needs_one_flat_usable_vector(self, answer):
        with pytest.raises(InvalidVectorError):
            embed_query_checked(Returns(answer), "a")

    def test_the_chunk_with_the_bad_vector_is_named(self):
        with pytest.raises(InvalidVectorError, match="chunk-b"):
            embed_checked(Returns([[1.0], [float("nan")]]), ["a", "b"], labels=["chunk-a", "chunk-b"])

    def test_labels_reach_the_service(self):
        service = EmbeddingService(backend=CountingBackend())
        with pytest.raises(TextTooLongError, match="chunk-a"):
            embed_checked(service, ["a " * 7], labels=["chunk-a"])

    def test_what_the_users_embedder_raises_passes_unchanged(self):
        class Down(HashEmbedder):
            def embed_documents(self, texts):
                raise ConnectionError("service away")

        with pytest.raises(ConnectionError, match="service away"):
            embed_checked(Down(), ["a"])


class TestLlamaIndexFace:
    async def test_sync_and_async_give_the_embedders_vectors(self):
        inner = HashEmbedder()
        face = FiscalEmbedding(inner)
        documents, query = inner.embed_documents(["uno", "dos"]), inner.embed_query("tres")
        assert face.get_text_embedding_batch(["uno", "dos"]) == documents
        assert await face.aget_text_embedding_batch(["uno", "dos"]) == documents
        assert face.get_text_embedding("dos") == await face.aget_text_embedding("dos") == documents[1]
        assert face.get_query_embedding("tres") == await face.aget_query_embedding("tres") == query

    async def test_async_does_not_hold_the_event_loop(self):
        class Thread(HashEmbedder):
            def embed_query(self, text):
                self.thread = threading.current_thread()
                return super().embed_query(text)

        inner = Thread()
        await FiscalEmbedding(inner).aget_query_embedding("tres")
        assert inner.thread is not threading.main_thread()

    def test_it_is_named_after_the_model_and_batches_like_the_service(self):
        service = EmbeddingService(FiscalSettings(embedding_batch_size=7), backend=CountingBackend())
        face = FiscalEmbedding(service)
        assert (face.model_name, face.embed_batch_size) == ("words-64", 7)
        assert FiscalEmbedding(Returns([[1.0]])).model_name == "unknown"
        assert not service.loaded

    def test_its_dict_holds_plain_fields_and_restores_with_an_embedder(self):
        face = FiscalEmbedding(HashEmbedder())
        data = face.to_dict()
        assert set(data) == {
            "class_name", "model_name", "embed_batch_size", "num_workers", "embeddings_cache",
        }  # fmt: skip
        assert FiscalEmbedding.from_dict(data, embedder=HashEmbedder()).model_name == "hash-64"
        with pytest.raises(EmbeddingError, match="hash-8"):
            FiscalEmbedding.from_dict(data, embedder=HashEmbedder(8))

    def test_it_pickles_with_its_embedder_or_says_why_not(self):
        face = pickle.loads(pickle.dumps(FiscalEmbedding(HashEmbedder())))
        assert face.get_query_embedding("a") == HashEmbedder().embed_query("a")
        inner = HashEmbedder()
        inner.lock = threading.Lock()
        with pytest.raises(NotPicklableError, match="HashEmbedder"):
            pickle.dumps(FiscalEmbedding(inner))

    def test_a_bad_vector_does_not_reach_llama_index(self):
        with pytest.raises(InvalidVectorError):
            FiscalEmbedding(Returns([float("nan")])).get_query_embedding("a")


class TestLangChainFace:
    async def test_sync_and_async_give_the_embedders_vectors(self):
        inner = HashEmbedder()
        face = FiscalEmbeddings(inner)
        assert isinstance(face, Embeddings)
        assert face.model_id == "hash-64"
        documents = inner.embed_documents(["uno", "dos"])
        assert (
            face.embed_documents(["uno", "dos"]) == await face.aembed_documents(["uno", "dos"]) == documents
        )
        assert face.embed_query("tres") == await face.aembed_query("tres") == inner.embed_query("tres")
        assert face.embed_documents([]) == []


class TestHashEmbedder:
    def test_texts_that_share_words_are_closer_and_every_process_agrees(self):
        embedder = HashEmbedder()
        a, b, c = np.array(embedder.embed_documents(["el IVA general", "iva GENERAL", "cuota del RETA"]))
        assert a @ b > 0.5 > abs(a @ c)
        assert np.float32(embedder.embed_query("iva")[0]) == pytest.approx(embedder.embed_query("IVA")[0])
        assert (embedder.calls, embedder.queries) == (3, ["iva", "IVA"])
