"""FiscalRagRetriever and get_retriever: what they answer, what they accept, what stays fixed."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField, RunnableLambda

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    FiscalRagError,
    InvalidFilterError,
    InvalidQueryError,
    NotPicklableError,
    SettingsError,
    UnexpectedArgumentError,
    UnsupportedModeError,
)
from fiscal_rag_plugin.pipeline import RAGPipeline
from fiscal_rag_plugin.view import View
from langchain_fiscal_rag import FiscalRagRetriever, FiscalRagVectorStore, get_retriever
from tests.embedders import HashEmbedder
from tests.langchain_stores import WrittenVectors, ids, open_view


def chunk(text: str, doc_id: str = "ley", **metadata: Any) -> Chunk:
    fields: dict[str, Any] = {"doc_type": "law", "source_scope": "public", **metadata}
    return Chunk(text, text, ChunkMetadata(doc_id=doc_id, **fields), 0, len(text))


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = open_view(tmp_path, WrittenVectors())
    yield view
    view.close()


@pytest.fixture
def planted(view: View) -> View:
    """Cosines with "1 0": one 1, six 0.6, minus -1."""
    view.add_chunks(
        [chunk("1 0", "one", tax="IVA"), chunk("0.6 0.8", "six", tax="IRPF"), chunk("-1 0", "minus")]
    )
    return view


def sources(documents: list[Document]) -> list[str]:
    return [document.metadata["source"] for document in documents]


class TestDocuments:
    def test_they_carry_the_original_text_all_stored_metadata_and_the_computed_source(self, view: View):
        metadata = ChunkMetadata(
            doc_id="liva", doc_type="law", source_scope="private", session_id="A", tax="IVA",
            fiscal_year=2024, valid_from="2024-01-01", section_label="Artículo 90", section_path="Título VII > Capítulo I",
            page=5, page_end=7, source_url="https://boe.es/liva", retrieved_at="2024-06-01", chunk_index=3,
            extra={"nota": None, "tags": ["a"]},
        )  # fmt: skip
        text = "0.6 0.8 | Artículo 90.\n Uno. El impuesto se exigirá al tipo del 21 por ciento "
        prepared = "1 0 | passage: LIVA. " + text
        [id] = view.add_chunks([Chunk(text, prepared, metadata, 10, 90)])
        [document] = get_retriever(session_id="A", vectorstore=view).invoke("1 0")
        assert document.page_content == text
        assert document.id == id
        assert document.metadata == {**metadata.to_store_dict(), "source": "https://boe.es/liva"}

    def test_source_is_the_url_else_the_doc_id_and_the_callers_own_stays(self, view: View):
        store = FiscalRagVectorStore(view.for_session("A"))
        metadatas: list[dict[str, Any]] = [
            {"source_url": "u", "doc_id": "d"},
            {"source_url": "", "doc_id": "d"},
            {"source": "mine", "source_url": "u"},
            {"doc_id": 7},
        ]
        store.add_texts(["1 0"] * 4, metadatas, ids=["1", "2", "3", "4"])
        found = get_retriever(vectorstore=store).invoke("1 0")
        assert [d.metadata.get("source") for d in found] == ["u", "d", "mine", None]
        assert "source" not in found[3].metadata
        access_keys = {"source_scope": "private", "session_id": "A"}
        assert found[2].metadata == {"source": "mine", "source_url": "u", **access_keys}

    def test_the_similarity_is_shown_only_under_the_key_that_was_asked_for(self, planted: View):
        plain = FiscalRagRetriever(vectorstore=planted)
        assert not any("similarity" in d.metadata for d in plain.invoke("1 0"))
        shown = FiscalRagRetriever(vectorstore=planted, similarity_key="similarity").invoke("1 0")
        assert [d.metadata["similarity"] for d in shown] == pytest.approx([1, 0.6, -1], abs=1e-6)

    def test_changing_an_answer_changes_nothing_that_is_stored(self, planted: View):
        retriever = FiscalRagRetriever(vectorstore=planted)
        retriever.invoke("1 0")[0].metadata["doc_id"] = "changed"
        assert retriever.invoke("1 0")[0].metadata["doc_id"] == "one"


class TestParameters:
    @pytest.mark.parametrize(
        ("threshold", "expected"),
        [
            (None, ["one", "six", "minus"]), (0.5, ["one", "six"]), (0.7, ["one"]), (0.6, ["one", "six"]),
            (-1, ["one", "six", "minus"]), (1, ["one"]), (0, ["one", "six"]),
        ],
    )  # fmt: skip
    def test_the_threshold_keeps_similarities_that_reach_it(
        self, planted: View, threshold: Any, expected: list[str]
    ):
        retriever = get_retriever(score_threshold=threshold, vectorstore=planted)
        assert sources(retriever.invoke("1 0")) == expected

    def test_the_defaults_are_the_seeds_in_get_retriever_and_no_threshold_in_the_class(self, planted: View):
        retriever = get_retriever(vectorstore=planted)
        assert (retriever.top_k, retriever.score_threshold, retriever.mode) == (8, 0.82, "dense")
        assert FiscalRagRetriever(vectorstore=planted).score_threshold is None
        planted.add_chunks([chunk("0.82 0.5723635208501674", "exactly")])
        assert sources(retriever.invoke("1 0")) == ["one", "exactly"]

    def test_when_the_threshold_cuts_everything_the_log_says_so(
        self, planted: View, caplog: pytest.LogCaptureFixture
    ):
        with caplog.at_level(logging.WARNING):
            assert get_retriever(score_threshold=0.9, vectorstore=planted).invoke("0 1") == []
        assert "0.8" in caplog.text

    def test_filter_dict_takes_both_syntaxes_and_is_copied(self, planted: View):
        from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

        where = {"tax": "IRPF"}
        retriever = get_retriever(score_threshold=None, filter_dict=where, vectorstore=planted)
        where["tax"] = "IVA"
        assert sources(retriever.invoke("1 0")) == ["six"]
        filters = MetadataFilters(filters=[MetadataFilter(key="tax", value="IVA")])
        assert sources(get_retriever(filter_dict=filters, vectorstore=planted).invoke("1 0")) == ["one"]

    def test_as_of_and_tax_year_keep_the_law_in_force(self, view: View):
        view.add_chunks(
            [
                chunk("1 0", "old", valid_from="2010-01-01", valid_to="2023-12-31"),
                chunk("1 0", "new", valid_from="2024-01-01"),
                chunk("1 0", "manual", fiscal_year=2023),
                chunk("1 0", "always"),
            ]
        )

        def found(**options: Any) -> set[str]:
            return set(sources(get_retriever(vectorstore=view, **options).invoke("1 0")))

        assert found(as_of="2023-12-31") == {"old", "manual", "always"}
        assert found(as_of="2024-01-01") == {"new", "manual", "always"}
        assert found(tax_year=2023) == {"old", "manual", "always"}
        assert found(tax_year=2024) == {"new", "always"}
        assert found(tax_year=2023, filter_dict={"fiscal_year": 2023}) == {"manual"}

    def test_mmr_is_a_mode_of_its_own(self, view: View):
        view.add_chunks([chunk("1 0.1", "one"), chunk("1 0.11", "copy"), chunk("1 -0.9", "other")])
        dense = get_retriever(2, None, vectorstore=view).invoke("1 0.1")
        mmr = get_retriever(2, None, mode="mmr", vectorstore=view).invoke("1 0.1", mmr_threshold=0.2)
        assert (sources(dense), sources(mmr)) == (["one", "copy"], ["one", "other"])

    @pytest.mark.parametrize("mode", ["semantic_hybrid", "text_search", "svm", "", None, "DENSE"])
    def test_another_mode_is_refused_at_construction(self, view: View, mode: Any):
        with pytest.raises(UnsupportedModeError, match="mode"):
            get_retriever(mode=mode, vectorstore=view)

    @pytest.mark.parametrize(
        "options",
        [
            {"top_k": 0}, {"top_k": True}, {"top_k": 2.0}, {"top_k": "3"}, {"top_k": None},
            {"score_threshold": 1.01}, {"score_threshold": float("nan")}, {"score_threshold": True},
            {"score_threshold": "0.5"}, {"filter_dict": "tax"}, {"filter_dict": {"a": {"$x": 1}}},
            {"as_of": "2024"}, {"as_of": 2024}, {"tax_year": "2024"}, {"tax_year": True},
            {"session_id": ""}, {"session_id": 7}, {"session_id": " "}, {"session_id": "a" * 129},
            {"session_id": "a\x00"}, {"session_id": True}, {"session_id": ["A"]}, {"session_id": "\ud800"},
            {"access": "A"}, {"access": {"A"}},
        ],
    )  # fmt: skip
    def test_a_parameter_out_of_range_is_refused_at_construction(self, view: View, options: dict[str, Any]):
        with pytest.raises(FiscalRagError):
            get_retriever(vectorstore=view, **options)

    def test_an_unknown_parameter_is_refused_and_not_ignored(self, view: View):
        for name in ("filter", "where", "sesion_id", "search_kwargs", "user"):
            with pytest.raises(TypeError):
                FiscalRagRetriever(vectorstore=view, **{name: None})

    @pytest.mark.parametrize("wrong", [None, "chroma_db", object()])
    def test_what_is_no_store_is_refused(self, wrong: Any):
        with pytest.raises(SettingsError):
            get_retriever(vectorstore=wrong)

    def test_assigned_values_are_checked_like_constructed_ones(self, planted: View):
        retriever = get_retriever(score_threshold=None, vectorstore=planted)
        retriever.top_k = 1
        assert sources(retriever.invoke("1 0")) == ["one"]
        retriever.filter_dict = {"tax": "IRPF"}
        assert sources(retriever.invoke("1 0")) == ["six"]
        for name, value in (
            ("top_k", 0),
            ("mode", "svm"),
            ("hybrid_weight", 2),
            ("filter_dict", "x"),
            ("score_threshold", 2),
        ):
            with pytest.raises((InvalidQueryError, InvalidFilterError)):
                setattr(retriever, name, value)
        with pytest.raises(ValueError, match="no field"):
            retriever.filters = {}  # type: ignore[attr-defined]

    @pytest.mark.parametrize("question", ["", " \n", None, 7])
    def test_a_question_without_text_is_refused(self, planted: View, question: Any):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            get_retriever(vectorstore=planted).invoke(question)


class TestCalling:
    def test_every_way_to_call_it_gives_the_same_answer(self, planted: View):
        retriever = get_retriever(score_threshold=None, vectorstore=planted)
        expected = retriever.invoke("1 0")
        assert sources(expected) == ["one", "six", "minus"]
        assert retriever.batch(["1 0", "1 0"]) == [expected, expected]
        assert list(retriever.stream("1 0")) == [expected]
        assert asyncio.run(retriever.ainvoke("1 0")) == expected
        assert asyncio.run(retriever.abatch(["1 0"])) == [expected]
        assert (retriever | RunnableLambda(ids)).invoke("1 0") == ids(expected)
        assert retriever.with_config(run_name="x", configurable={"top_k": 1}).invoke("1 0") == expected

    def test_a_call_counts_with_k_or_top_k_sync_and_async(self, planted: View):
        retriever = get_retriever(score_threshold=None, vectorstore=planted)
        assert len(retriever.invoke("1 0", k=1)) == len(retriever.invoke("1 0", top_k=1)) == 1
        assert len(asyncio.run(retriever.ainvoke("1 0", k=2))) == 2
        assert [len(d) for d in retriever.batch(["1 0"], k=2)] == [2]
        assert [len(d) for d in asyncio.run(retriever.abatch(["1 0"], top_k=2))] == [2]
        assert len(next(iter(retriever.stream("1 0", k=2)))) == 2
        assert len(retriever.bind(k=2).invoke("1 0")) == 2
        with pytest.raises(InvalidQueryError):
            retriever.invoke("1 0", k=0)
        with pytest.raises(UnexpectedArgumentError):
            retriever.invoke("1 0", k=1, top_k=2)

    def test_a_call_narrows_with_its_filter_and_none_changes_nothing(self, planted: View):
        retriever = get_retriever(
            score_threshold=None, filter_dict={"tax": {"$ne": "IVA"}}, vectorstore=planted
        )
        assert sources(retriever.invoke("1 0", filter=None, k=None)) == ["six", "minus"]
        assert sources(retriever.invoke("1 0", filter={"tax": "IRPF"})) == ["six"]
        assert retriever.invoke("1 0", filter={"tax": "IVA"}) == []
        assert retriever.invoke("1 0", filter={"$or": [{"tax": "IVA"}]}) == []
        assert sources(retriever.invoke("1 0", filter={})) == ["six", "minus"]

    def test_a_call_may_raise_the_threshold_but_not_lower_it(self, planted: View):
        retriever = get_retriever(score_threshold=0.5, vectorstore=planted)
        assert sources(retriever.invoke("1 0", score_threshold=0.9)) == ["one"]
        assert sources(retriever.invoke("1 0", score_threshold=None)) == ["one", "six"]
        with pytest.raises(UnexpectedArgumentError, match="raised"):
            retriever.invoke("1 0", score_threshold=0.4)

    def test_what_the_framework_itself_passes_is_accepted(self, planted: View):
        import uuid

        retriever = get_retriever(vectorstore=planted)
        assert len(retriever.invoke("1 0", verbose=True, run_id=uuid.uuid4())) == 1
        assert len(asyncio.run(retriever.ainvoke("1 0", {"tags": ["x"]}, verbose=False))) == 1

    async def test_ainvoke_leaves_the_event_loop_free(self, tmp_path: Path):
        class Waiting(HashEmbedder):
            def __init__(self) -> None:
                super().__init__()
                self.go = threading.Event()

            def embed_query(self, text: str) -> list[float]:
                assert self.go.wait(10), "the loop was blocked"
                return super().embed_query(text)

        embedder = Waiting()
        view = open_view(tmp_path, embedder, default_scope="public")
        FiscalRagVectorStore(view).add_texts(["uno"])
        task = asyncio.create_task(FiscalRagRetriever(vectorstore=view).ainvoke("uno"))
        await asyncio.sleep(0.01)
        embedder.go.set()
        assert len(await task) == 1
        view.close()

    def test_the_end_event_carries_exactly_the_answer(self, planted: View):
        seen: list[Any] = []

        class Handler(BaseCallbackHandler):
            def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
                seen.append(documents)

        answer = get_retriever(vectorstore=planted).invoke("1 0", {"callbacks": [Handler()]})
        assert seen == [answer]


class TestBoundAccess:
    @pytest.fixture
    def retriever(self, planted: View) -> FiscalRagRetriever:
        for session in "AB":
            FiscalRagVectorStore(planted.for_session(session)).add_texts(["1 0"], ids=[session])
        return get_retriever(session_id="A", vectorstore=planted)

    def found(self, retriever: Any) -> set[str]:
        return {d.metadata.get("session_id", "public") for d in retriever.invoke("1 0")}

    def test_it_reads_public_and_its_session(self, retriever: FiscalRagRetriever, planted: View):
        assert self.found(retriever) == {"A", "public"}
        assert (retriever.session_id, retriever.access) == ("A", Access.session("A"))
        public = get_retriever(vectorstore=planted)
        assert self.found(public) == {"public"}
        assert (public.session_id, public.access) == (None, Access.public())

    def test_an_access_may_read_several_sessions(self, retriever: Any, planted: View):
        access = Access(read={"A", "B"}, write="A")
        assert self.found(get_retriever(access=access, vectorstore=planted)) == {"A", "B", "public"}
        both = planted.for_access(access)
        assert self.found(get_retriever(vectorstore=both)) == {"A", "B", "public"}
        assert self.found(get_retriever(access=access, vectorstore=both)) == {"A", "B", "public"}

    def test_a_bound_view_keeps_its_session_and_refuses_another(self, retriever: Any, planted: View):
        mine = FiscalRagVectorStore(planted.for_session("A"))
        assert self.found(get_retriever(vectorstore=mine)) == {"A", "public"}
        assert self.found(get_retriever(session_id="A", vectorstore=mine)) == {"A", "public"}
        for options in (
            {"session_id": "B"}, {"access": Access.session("B")}, {"access": Access.public()},
            {"access": Access(read={"A", "B"})}, {"session_id": "A", "access": Access.session("A")},
        ):  # fmt: skip
            with pytest.raises(AccessDeniedError):
                get_retriever(vectorstore=mine, **options)  # type: ignore[arg-type]

    def test_its_access_cannot_be_assigned(self, retriever: FiscalRagRetriever, planted: View):
        for name, value in (
            ("session_id", "B"), ("access", Access.session("B")), ("vectorstore", planted.for_session("B")),
        ):  # fmt: skip
            with pytest.raises(AccessDeniedError):
                setattr(retriever, name, value)
        assert self.found(retriever) == {"A", "public"}

    def test_copies_keep_it_and_cannot_be_given_another(self, retriever: FiscalRagRetriever, planted: View):
        copies = [
            copy.copy(retriever), copy.deepcopy(retriever), retriever.model_copy(),
            retriever.model_copy(deep=True), retriever.model_copy(update={"top_k": 9}), retriever.copy(),
        ]  # fmt: skip
        assert [self.found(c) for c in copies] == [{"A", "public"}] * 6
        assert copies[4].top_k == 9
        for name, value in (
            ("session_id", "B"), ("access", Access.session("B")), ("vectorstore", planted.for_session("B")),
        ):  # fmt: skip
            for way in (retriever.model_copy, retriever.copy):
                with pytest.raises(AccessDeniedError):
                    way(update={name: value})
        for wrong in ({"top_k": 0}, {"filter": {}}, {"mode": "svm"}):
            with pytest.raises((InvalidQueryError, UnexpectedArgumentError)):
                retriever.model_copy(update=wrong)

    def test_it_is_not_pickled(self, retriever: FiscalRagRetriever):
        with pytest.raises(NotPicklableError):
            pickle.dumps(retriever)

    def test_it_is_never_serialized_or_shown(self, retriever: FiscalRagRetriever, planted: View):
        secret = get_retriever(session_id="cliente-secreto", vectorstore=planted)
        shown = repr(secret) + str(secret) + secret.model_dump_json() + str(secret.to_json())
        assert "cliente-secreto" not in shown
        assert "vectorstore" not in secret.model_dump()

    def test_configurable_fields_keep_the_session(self, retriever: FiscalRagRetriever):
        configurable = retriever.configurable_fields(top_k=ConfigurableField(id="n"))
        one = configurable.with_config(configurable={"n": 1, "session_id": "B", "vectorstore": None})
        assert len(one.invoke("1 0")) == 1
        assert self.found(configurable.with_config(configurable={"n": 5})) == {"A", "public"}
        for name in ("vectorstore", "session_id", "access"):
            with pytest.raises(AccessDeniedError):
                retriever.configurable_fields(**{name: ConfigurableField(id="x")})

    def test_a_retriever_of_a_store_is_bound_in_the_same_way(self, retriever: Any, planted: View):
        mine = FiscalRagVectorStore(planted.for_session("A")).as_retriever(search_kwargs={"k": 9})
        other = FiscalRagVectorStore(planted.for_session("B"))
        assert "A" in ids(mine.invoke("1 0"))
        assert "B" not in ids(mine.invoke("1 0"))
        for change in (
            lambda: setattr(mine, "vectorstore", other),
            lambda: mine.model_copy(update={"vectorstore": other}),
            lambda: mine.configurable_fields(vectorstore=ConfigurableField(id="x")),
        ):
            with pytest.raises(AccessDeniedError):
                change()
        with pytest.raises(NotPicklableError):
            pickle.dumps(mine)
        assert ids(copy.deepcopy(mine).invoke("1 0")) == ids(mine.invoke("1 0"))
        assert mine.session_id == "A"


class TestInAPipeline:
    """RAGPipeline borrows ``similarity_key`` for its citations."""

    @pytest.mark.parametrize("kind", ["retriever", "as_retriever"])
    def test_citations_carry_the_similarity_and_documents_stay_as_invoked(self, planted: View, kind: str):
        store = FiscalRagVectorStore(planted)
        retriever: Any = (
            get_retriever(score_threshold=0.5, vectorstore=store)
            if kind == "retriever"
            else store.as_retriever(search_kwargs={"score_threshold": 0.5})
        )
        answer = RAGPipeline(retriever).answer_query("1 0")
        assert [c.similarity for c in answer.citations] == pytest.approx([1.0, 0.6], abs=1e-6)
        assert [c.source for c in answer.citations] == ["one", "six"]
        assert answer.source_documents == retriever.invoke("1 0")

    def test_a_similarity_key_that_is_no_metadata_key_is_refused(self, planted: View):
        for wrong in ("", 7, True):
            with pytest.raises(SettingsError):
                FiscalRagRetriever(vectorstore=planted, similarity_key=wrong)
