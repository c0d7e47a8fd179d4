"""FiscalRagVectorStore: adding, finding, deleting, opening, and living under LangChain's own helpers."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, aindex, index

from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    CollectionMismatchError,
    EmbeddingError,
    FiscalRagError,
    InvalidChunkError,
    InvalidFilterError,
    InvalidQueryError,
    NoEmbedderError,
    NotPicklableError,
    SettingsError,
    StoreClosedError,
    UnexpectedArgumentError,
)
from fiscal_rag_plugin.view import View
from langchain_fiscal_rag import FiscalEmbeddings, FiscalRagVectorStore
from tests.embedders import HashEmbedder
from tests.langchain_stores import WrittenVectors, ids, open_view


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = open_view(tmp_path, HashEmbedder())
    yield view
    view.close()


@pytest.fixture
def store(view: View) -> FiscalRagVectorStore:
    return FiscalRagVectorStore(view.for_session("A"))


@pytest.fixture
def exact(tmp_path: Path) -> Iterator[FiscalRagVectorStore]:
    """A session's store in which a text says its own vector."""
    view = open_view(tmp_path / "exact", WrittenVectors())
    yield FiscalRagVectorStore(view.for_session("A"))
    view.close()


class TestAdding:
    def test_documents_come_back_exactly_as_they_were_added(self, store: FiscalRagVectorStore):
        metadata = {
            "none": None, "list": ["iva", "irpf"], "empty": [], "mixed": ["a", 1, None, True],
            "nested": {"a": {"b": [1.5, {}]}}, "bool": True, "int": 7, "text": "007", "ñ": "año 2024 €",
            "source": "mine",
        }  # fmt: skip
        added = Document(id="España/1", page_content="tipo general\n del IVA ", metadata=metadata)
        assert store.add_documents([added]) == ["España/1"]
        assert store.similarity_search("tipo general") == [added]
        [again] = store.get_by_ids(["España/1"])
        assert again == added
        assert [type(v) for v in again.metadata["mixed"]] == [str, int, type(None), bool]

    def test_metadata_shows_no_access_keys_unless_they_were_given(self, view: View):
        public = FiscalRagVectorStore(View(view._corpus, default_scope="public"))
        given = {"source_scope": "private", "session_id": "A"}
        mine = FiscalRagVectorStore(view.for_session("A"))
        mine.add_texts(["uno", "dos"], [{"n": 1}, given], ids=["1", "2"])
        public.add_texts(["tres"], ids=["3"])
        assert [d.metadata for d in mine.get_by_ids(["1", "2", "3"])] == [{"n": 1}, given, {}]

    def test_access_keys_that_are_none_claim_nothing_and_come_back(self, store: FiscalRagVectorStore):
        added = Document(id="1", page_content="uno", metadata={"source_scope": None, "session_id": None})
        store.add_documents([added])
        assert store.get_by_ids(["1"]) == [added]
        assert store.similarity_search("uno", filter={"session_id": "A"}) == [added]

    def test_ids_are_the_callers_then_the_documents_then_uuids(self, store: FiscalRagVectorStore):
        documents = [Document(id="d1", page_content="uno"), Document(page_content="dos")]
        first, second = store.add_documents(documents)
        assert first == "d1"
        assert len(second) == 36
        assert store.add_documents(documents, ids=["x", "y"]) == ["x", "y"]
        # LangChain's own add_documents forgets Document.id here.
        assert store.add_documents(documents[:1], ids=None) == ["d1"]
        assert documents[1].id is None

    def test_a_repeated_id_is_returned_twice_and_the_last_text_wins(self, store: FiscalRagVectorStore):
        documents = [Document(id="1", page_content="apple"), Document(id="1", page_content="pear")]
        assert store.add_documents(documents) == ["1", "1"]
        assert [d.page_content for d in store.similarity_search("apple", k=10)] == ["pear"]

    def test_an_existing_id_is_replaced_whole(self, exact: FiscalRagVectorStore):
        exact.add_texts(["1 0 | OLD"], [{"v": 1, "old": "key"}], ids=["x"])
        exact.add_texts(["0 1 | NEW"], [{"v": 2}], ids=["x"])
        [(document, similarity)] = exact.similarity_search_with_score("0 1", k=5)
        assert (document.page_content, document.metadata, similarity) == ("0 1 | NEW", {"v": 2}, 1.0)

    def test_nothing_added_deleted_or_asked_for_by_id_is_no_error(self, store: FiscalRagVectorStore):
        store.add_texts(["uno"], ids=["1"])
        assert store.add_documents([]) == []
        assert store.add_texts([]) == []
        assert store.get_by_ids([]) == []
        assert store.delete([]) is True
        assert len(store.similarity_search("uno")) == 1

    def test_six_thousand_texts_in_one_call_pass_the_batch_limit(self, tmp_path: Path):
        embedder = HashEmbedder(dim=8)
        store = FiscalRagVectorStore(open_view(tmp_path, embedder, default_scope="public"))
        names = [str(i) for i in range(6_000)]
        assert store.add_texts([f"texto {i}" for i in range(6_000)], ids=names) == names
        assert sum(1 for _ in store.view.scan()) == 6_000
        assert len(store.get_by_ids(names)) == 6_000
        store.close()

    def test_texts_may_come_from_a_generator(self, store: FiscalRagVectorStore):
        assert len(store.add_texts(f"texto {i}" for i in range(3))) == 3

    @pytest.mark.parametrize(
        "call",
        [
            lambda s: s.add_texts(["uno", "dos"], [{}]),
            lambda s: s.add_texts(["uno", "dos"], ids=["1"]),
            lambda s: s.add_texts(["uno", "dos"], ids=["1", ""]),
            lambda s: s.add_texts(["uno", "dos"], ids=["1", 2]),
            lambda s: s.add_texts(["uno", " \n"]),
            lambda s: s.add_texts(["uno", ""]),
            lambda s: s.add_texts(["uno", "lone \ud800"]),
            lambda s: s.add_texts(["uno", None]),
            lambda s: s.add_texts(["uno", "dos"], [{}, {"x": float("nan")}]),
            lambda s: s.add_texts(["uno", "dos"], [{}, {"x": object()}]),
            lambda s: s.add_texts(["uno", "dos"], [{}, {"chroma:document": "x"}]),
            lambda s: s.add_texts(["uno", "dos"], [{}, {"_node_content": "y"}]),
            lambda s: s.add_texts(["uno", "dos"], [{}, {1: "y"}]),
            lambda s: s.add_texts(["uno", "dos"], where={"a": 1}),
            lambda s: s.add_texts(["uno", "dos"], session_id="B"),
            lambda s: s.add_documents([Document(page_content="uno")], session_id="B"),
            lambda s: s.add_documents([Document(page_content="uno")], scope="public"),
        ],
    )
    def test_what_cannot_be_stored_is_refused_before_anything_is_written(
        self, store: FiscalRagVectorStore, call: Any
    ):
        with pytest.raises((InvalidChunkError, UnexpectedArgumentError)):
            call(store)
        assert list(store.view.scan()) == []

    def test_a_document_whose_key_resembles_ours_keeps_its_text_and_source(
        self, store: FiscalRagVectorStore
    ):
        added = Document(id="1", page_content="uno", metadata={"document_id": "mine", "doc_id": "d1"})
        store.add_documents([added])
        assert store.get_by_ids(["1"]) == [added]
        assert [d.doc_id for d in store.view.list_documents()] == ["d1"]

    def test_an_embedder_that_fails_leaves_the_old_version(self, tmp_path: Path):
        class Failing(HashEmbedder):
            broken = False

            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                if self.broken:
                    raise EmbeddingError("model gone")
                return super().embed_documents(texts)

        embedder = Failing()
        store = FiscalRagVectorStore(open_view(tmp_path, embedder).for_session("A"))
        store.add_texts(["viejo"], ids=["1"])
        embedder.broken = True
        with pytest.raises(EmbeddingError):
            store.add_texts(["nuevo", "otro"], ids=["1", "2"])
        assert [d.page_content for d in store.get_by_ids(["1", "2"])] == ["viejo"]
        store.close()

    def test_unchanged_documents_are_not_embedded_again(self, tmp_path: Path):
        embedder = HashEmbedder()
        store = FiscalRagVectorStore(open_view(tmp_path, embedder).for_session("A"))
        store.add_texts(["uno", "dos"], [{"n": 1}, {"n": 2}], ids=["1", "2"])
        store.add_texts(["uno", "dos"], [{"n": 1}, {"n": 3}], ids=["1", "2"])
        assert embedder.documents == ["uno", "dos"]
        assert store.get_by_ids(["2"])[0].metadata == {"n": 3}
        store.close()


class TestFinding:
    def test_scores_are_cosines_from_one_to_minus_one(self, exact: FiscalRagVectorStore):
        exact.add_texts(["0 1", "-1 0", "1 0", "0.6 0.8"], ids=["b", "c", "a", "d"])
        found = exact.similarity_search_with_score("1 0", k=10)
        assert [document.id for document, _ in found] == ["a", "d", "b", "c"]
        assert [score for _, score in found] == pytest.approx([1.0, 0.6, 0.0, -1.0], abs=1e-6)

    def test_relevance_scores_lie_in_zero_to_one_and_nothing_warns(self, exact: FiscalRagVectorStore):
        exact.add_texts(["-1 0", "1 0", "0.82 0.5723635208501674"], ids=["opposite", "same", "near"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = exact.similarity_search_with_relevance_scores("1 0", k=10)
            again = asyncio.run(exact.asimilarity_search_with_relevance_scores("1 0", k=10))
        assert [(d.id, round(score, 6)) for d, score in found] == [
            ("same", 1.0),
            ("near", 0.82),
            ("opposite", 0.0),
        ]
        assert found == again

    def test_an_exact_cosine_passes_its_own_threshold_sync_and_async(self, exact: FiscalRagVectorStore):
        exact.add_texts(["0.82 0.5723635208501674", "0.6 0.8"], ids=["near", "far"])
        kwargs = {"k": 10, "score_threshold": 0.82}
        assert [d.id for d, _ in exact.similarity_search_with_relevance_scores("1 0", **kwargs)] == ["near"]
        found = asyncio.run(exact.asimilarity_search_with_relevance_scores("1 0", **kwargs))
        assert [d.id for d, _ in found] == ["near"]

    def test_a_relevance_threshold_of_zero_cuts_nothing(self, exact: FiscalRagVectorStore):
        exact.add_texts(["-1 0", "1 0"])
        assert len(exact.similarity_search_with_relevance_scores("1 0", score_threshold=0.0)) == 2
        retriever = exact.as_retriever(
            search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.0}
        )
        assert len(retriever.invoke("1 0")) == 2

    def test_a_vector_finds_what_its_text_finds(self, exact: FiscalRagVectorStore):
        exact.add_texts(["1 0 | x", "0 1 | y"])
        for vector in ([0.0, 1.0], (0, 1)):
            assert exact.similarity_search_by_vector(vector) == exact.similarity_search("0 1")
        assert asyncio.run(exact.asimilarity_search_by_vector([0.0, 1.0], k=1)) == exact.similarity_search(
            "0 1", k=1
        )

    @pytest.mark.parametrize(
        "vector", [None, [], [float("nan"), 0], [float("inf"), 0], [1e39, 0], [0, 0], [1, 0, 0], "1 0"]
    )
    def test_a_vector_that_cannot_be_compared_is_refused(self, exact: FiscalRagVectorStore, vector: Any):
        exact.add_texts(["1 0"])
        for search in (exact.similarity_search_by_vector, exact.max_marginal_relevance_search_by_vector):
            with pytest.raises(ValueError, match="vector"):
                search(vector)

    @pytest.mark.parametrize("text", ["nan 0", "inf 0", "0 0"])
    def test_a_text_whose_vector_is_not_finite_or_zero_is_refused(
        self, exact: FiscalRagVectorStore, text: str
    ):
        with pytest.raises(ValueError, match="vector"):
            exact.add_texts(["1 0", text])
        assert list(exact.view.scan()) == []

    def test_never_more_than_k_and_all_there_are_for_a_larger_k(self, store: FiscalRagVectorStore):
        store.add_texts(["uno", "dos", "tres"])
        assert [len(store.similarity_search("uno", k=k)) for k in (1, 3, 10)] == [1, 3, 3]
        for k in (0, -1, True, "3", None, 2.0):
            with pytest.raises(InvalidQueryError):
                store.similarity_search("uno", k=k)  # type: ignore[arg-type]

    @pytest.mark.parametrize("question", ["", "  ", None])
    def test_a_blank_question_is_refused(self, store: FiscalRagVectorStore, question: Any):
        store.add_texts(["uno"])
        with pytest.raises(InvalidQueryError):
            store.similarity_search(question)

    def test_mmr_prefers_a_different_document_to_a_near_copy(self, exact: FiscalRagVectorStore):
        exact.add_texts(["1 0.1 | one", "1 0.11 | copy", "1 -0.9 | other"], ids=["one", "copy", "other"])
        plain = exact.max_marginal_relevance_search("1 0.1", k=2, lambda_mult=1.0)
        varied = exact.max_marginal_relevance_search("1 0.1", 2, 20, 0.2)
        assert (ids(plain), ids(varied)) == (["one", "copy"], ["one", "other"])
        by_vector = exact.max_marginal_relevance_search_by_vector([1, 0.1], 2, 20, 0.2)
        assert by_vector == varied
        assert asyncio.run(exact.amax_marginal_relevance_search("1 0.1", 2, 20, 0.2)) == varied
        assert ids(exact.max_marginal_relevance_search("1 0.1", 2, 2, 0.2)) == ["one", "copy"]
        for wrong in ({"lambda_mult": 1.5}, {"fetch_k": 0}, {"lambda_mult": "x"}):
            with pytest.raises(InvalidQueryError):
                exact.max_marginal_relevance_search("1 0.1", **wrong)

    def test_a_filter_may_be_given_by_position_as_to_langchain_chroma(self, store: FiscalRagVectorStore):
        store.add_texts(["uno", "uno dos"], [{"n": 1}, {"n": 2}], ids=["1", "2"])
        assert ids(store.similarity_search("uno", 5, {"n": 2})) == ["2"]
        assert [d.id for d, _ in store.similarity_search_with_score("uno", 5, {"n": 2})] == ["2"]
        assert ids(store.max_marginal_relevance_search("uno", 5, 20, 0.5, {"n": 2})) == ["2"]
        vector = HashEmbedder().embed_query("uno")
        assert ids(store.similarity_search_by_vector(vector, 5, {"n": 2})) == ["2"]

    @pytest.mark.parametrize(
        ("filter", "expected"),
        [
            (None, {"1", "2", "3"}),
            ({}, {"1", "2", "3"}),
            ({"$and": []}, {"1", "2", "3"}),
            ({"tax": "IVA", "year": 2024}, {"1"}),
            ({"subject": {"$in": ["10000032", "9"]}}, {"1", "3"}),
            ({"subject": {"$in": []}}, set()),
            ({"subject": {"$nin": []}}, {"1", "2", "3"}),
            ({"$or": [{"tax": {"$in": []}}, {"tax": "IRPF"}]}, {"3"}),
            ({"vigente": True}, {"1"}),
            ({"vigente": 1}, {"3"}),
            ({"fecha": {"$gte": "2024-01-01"}}, {"2"}),
            ({"year": {"$gt": 2023.5}}, {"1", "3"}),
            ({"year": "2024"}, set()),
            ({"nota": None}, {"1", "2", "3"}),
            ({"nota": {"$eq": ""}}, set()),
            ({"tags": {"$contains": "iva"}}, {"1"}),
            ({"tags": {"$any": ["x", "irpf"]}}, {"1"}),
            ({"tags": {"$all": ["iva", "x"]}}, set()),
            ({"tags": {"$is_empty": True}}, {"2", "3"}),
            ({"$not": {"tax": "IVA"}}, {"3"}),
        ],
    )
    def test_filters_take_chromas_where_syntax_with_one_meaning(
        self, store: FiscalRagVectorStore, filter: Any, expected: set[str]
    ):
        store.add_texts(
            ["uno", "dos", "tres"],
            [
                {"tax": "IVA", "year": 2024, "subject": "9", "vigente": True, "nota": None,
                 "tags": ["iva", "irpf"]},
                {"tax": "IVA", "year": 2023, "subject": "8", "vigente": False, "fecha": "2024-05-01",
                 "tags": []},
                {"tax": "IRPF", "year": 2024.0, "subject": "10000032", "vigente": 1, "fecha": "2023-12-31"},
            ],
            ids=["1", "2", "3"],
        )  # fmt: skip
        assert set(ids(store.similarity_search("uno", k=10, filter=filter))) == expected

    @pytest.mark.parametrize("filter", [{"a": {"$regex": "x"}}, {"$where": 1}, "tax", 3, {"a": object()}])
    def test_a_filter_that_cannot_be_understood_raises_instead_of_being_dropped(
        self, store: FiscalRagVectorStore, filter: Any
    ):
        store.add_texts(["uno"])
        with pytest.raises(InvalidFilterError):
            store.similarity_search("uno", filter=filter)

    def test_llamaindex_filters_are_understood_too(self, store: FiscalRagVectorStore):
        from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

        store.add_texts(["uno", "dos"], [{"n": 1}, {"n": 2}], ids=["1", "2"])
        filters = MetadataFilters(filters=[MetadataFilter(key="n", value=2)])
        assert ids(store.similarity_search("uno", filter=filters)) == ["2"]

    def test_ids_are_answered_in_the_order_asked_and_absent_ones_are_left_out(
        self, store: FiscalRagVectorStore
    ):
        store.add_texts(["uno", "dos", "tres"], ids=["a", "b", "c"])
        assert ids(store.get_by_ids(["c", "x", "a"])) == ["c", "a"]

    def test_a_chunk_added_elsewhere_shows_its_stored_metadata(self, view: View):
        metadata = ChunkMetadata(doc_id="ley", doc_type="law", source_scope="public", page=5)
        [id] = view.add_chunks([Chunk("tipo general", "IVA. tipo general", metadata, 0, 12)])
        [document] = FiscalRagVectorStore(view).similarity_search("tipo general")
        assert document == Document(id=id, page_content="tipo general", metadata=metadata.to_store_dict())


class TestDeleting:
    def test_delete_removes_these_ids_and_no_others(self, store: FiscalRagVectorStore):
        store.add_texts(["uno", "dos", "tres"], ids=["1", "2", "12"])
        assert store.delete(["1", "absent"]) is True
        assert ids(store.get_by_ids(["1", "2", "12"])) == ["2", "12"]

    def test_delete_without_ids_never_wipes(self, store: FiscalRagVectorStore):
        store.add_texts(["uno"], ids=["1"])
        for call in (store.delete, lambda: store.delete(None), lambda: asyncio.run(store.adelete(None))):
            with pytest.raises(ValueError, match="ids"):
                call()
        assert ids(store.get_by_ids(["1"])) == ["1"]

    def test_a_str_is_not_a_list_of_ids(self, store: FiscalRagVectorStore):
        store.add_texts(["uno", "dos"], ids=["1", "2"])
        for call in (store.delete, store.get_by_ids):
            with pytest.raises(InvalidQueryError):
                call("12")
            with pytest.raises(InvalidQueryError):
                call([1])  # type: ignore[list-item]
        assert len(store.get_by_ids(["1", "2"])) == 2

    def test_delete_takes_no_other_criterion(self, store: FiscalRagVectorStore):
        store.add_texts(["uno"], ids=["1"])
        for kwargs in ({"where": {}}, {"filter": {}}, {"session_id": "B"}, {"delete_all": True}):
            with pytest.raises(UnexpectedArgumentError):
                store.delete(["1"], **kwargs)
        assert len(store.get_by_ids(["1"])) == 1


class TestAsync:
    async def test_every_twin_answers_as_the_sync_method(self, store: FiscalRagVectorStore):
        assert await store.aadd_texts(["uno"], [{"n": 1}], ids=["1"]) == ["1"]
        assert await store.aadd_documents([Document(id="2", page_content="dos")]) == ["2"]
        assert await store.aget_by_ids(["2", "1"]) == store.get_by_ids(["2", "1"])
        assert await store.asimilarity_search("uno", k=1) == store.similarity_search("uno", k=1)
        assert await store.asimilarity_search("uno", filter={"n": 1}) == store.similarity_search(
            "uno", filter={"n": 1}
        )
        assert await store.asimilarity_search_with_score("uno") == store.similarity_search_with_score("uno")
        assert await store.asearch("uno", "mmr", k=1) == store.search("uno", "mmr", k=1)
        with pytest.raises(UnexpectedArgumentError):
            await store.asimilarity_search("uno", session_id="B")
        assert await store.adelete(["1"]) is True
        assert await store.aget_by_ids(["1"]) == []

    async def test_no_twin_blocks_the_event_loop(self, tmp_path: Path):
        class Waiting(HashEmbedder):
            """Its embedding ends when the event loop has run something else."""

            def __init__(self) -> None:
                super().__init__()
                self.go = threading.Event()

            def embed_query(self, text: str) -> list[float]:
                assert self.go.wait(10), "the loop was blocked"
                return super().embed_query(text)

        embedder = Waiting()
        store = FiscalRagVectorStore(open_view(tmp_path, embedder).for_session("A"))
        store.add_texts(["uno"])
        retriever = store.as_retriever()
        for search in (
            store.asimilarity_search,
            store.asimilarity_search_with_score,
            store.asimilarity_search_with_relevance_scores,
            store.amax_marginal_relevance_search,
            retriever.ainvoke,
        ):
            embedder.go.clear()
            task = asyncio.create_task(search("uno"))
            await asyncio.sleep(0.01)
            embedder.go.set()
            assert len(await task) == 1
        store.close()


class TestIndexApi:
    @pytest.fixture
    def manager(self) -> InMemoryRecordManager:
        manager = InMemoryRecordManager("fiscal")
        manager.create_schema()
        return manager

    @staticmethod
    def documents(*texts: str) -> list[Document]:
        return [Document(page_content=t, metadata={"source": t.split()[0]}) for t in texts]

    def index(self, store: Any, manager: Any, documents: Any, cleanup: Any) -> dict[str, int]:
        return dict(
            index(documents, manager, store, cleanup=cleanup, source_id_key="source", key_encoder="sha256")
        )

    def test_incremental_cleanup_replaces_a_sources_old_version(
        self, store: FiscalRagVectorStore, manager: InMemoryRecordManager
    ):
        self.index(store, manager, self.documents("a uno", "b uno"), "incremental")
        done = self.index(store, manager, self.documents("a dos"), "incremental")
        assert done == {"num_added": 1, "num_updated": 0, "num_skipped": 0, "num_deleted": 1}
        assert {d.page_content for d in store.similarity_search("uno", k=9)} == {"a dos", "b uno"}

    def test_full_cleanup_removes_what_is_no_longer_given(
        self, store: FiscalRagVectorStore, manager: InMemoryRecordManager
    ):
        self.index(store, manager, self.documents("a uno", "b uno"), "full")
        done = self.index(store, manager, self.documents("b uno"), "full")
        assert done == {"num_added": 0, "num_updated": 0, "num_skipped": 1, "num_deleted": 1}
        assert [d.page_content for d in store.similarity_search("uno", k=9)] == ["b uno"]
        assert self.index(store, manager, [], "full")["num_deleted"] == 1

    def test_one_sessions_cleanup_leaves_anothers_documents_with_the_same_ids(
        self, view: View, manager: InMemoryRecordManager
    ):
        mine, other = (FiscalRagVectorStore(view.for_session(s)) for s in "AB")
        self.index(mine, manager, self.documents("a uno"), "full")
        theirs = InMemoryRecordManager("B")
        self.index(other, theirs, self.documents("a uno"), "full")
        self.index(other, theirs, self.documents("c tres"), "full")
        assert [d.page_content for d in mine.similarity_search("uno", k=9)] == ["a uno"]

    async def test_the_async_api_does_the_same(
        self, store: FiscalRagVectorStore, manager: InMemoryRecordManager
    ):
        options: Any = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
        await aindex(self.documents("a uno", "b uno"), manager, store, **options)
        done = await aindex(self.documents("b uno"), manager, store, **options)
        assert done["num_deleted"] == 1
        assert [d.page_content for d in store.similarity_search("uno", k=9)] == ["b uno"]


class TestRetrieverOfAStore:
    def test_a_score_threshold_keeps_the_most_similar_not_the_least(self, exact: FiscalRagVectorStore):
        exact.add_texts(["0.95 0.31225 | close", "0.10 0.99499 | far"], ids=["close", "far"])
        retriever = exact.as_retriever(
            search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.5}
        )
        assert ids(retriever.invoke("1 0")) == ["close"]
        assert ids(asyncio.run(retriever.ainvoke("1 0"))) == ["close"]

    def test_every_search_type_answers_as_the_stores_own_method(self, store: FiscalRagVectorStore):
        store.add_texts(["uno dos", "uno tres", "uno cuatro", "cinco"])
        assert store.as_retriever(search_kwargs={"k": 2}).invoke("uno") == store.similarity_search(
            "uno", k=2
        )
        mmr = store.as_retriever(
            search_type="mmr", search_kwargs={"k": 2, "fetch_k": 4, "lambda_mult": 0.3}
        )
        assert mmr.invoke("uno") == store.max_marginal_relevance_search("uno", 2, 4, 0.3)
        assert len(store.as_retriever().invoke("uno")) == 4

    def test_a_call_counts_with_its_own_k_and_none_changes_nothing(self, store: FiscalRagVectorStore):
        store.add_texts(["uno", "dos", "tres"], [{"n": 1}, {"n": 2}, {"n": 3}], ids=["1", "2", "3"])
        retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"n": {"$gte": 2}}})
        assert len(retriever.invoke("dos", k=3)) == 2
        assert ids(retriever.invoke("dos", k=None, filter=None)) == ["2"]
        assert retriever.invoke("dos", filter={"n": 1}) == []
        assert ids(retriever.invoke("dos", filter={"n": 3})) == ["3"]

    @pytest.mark.parametrize(
        "options",
        [
            {"search_type": "hybrid"},
            {"search_type": "similarity_score_threshold"},
            {"search_kwargs": {"k": 0}},
            {"search_kwargs": {"filter": "x"}},
            {"search_kwargs": {"session_id": "B"}},
            {"search_kwargs": {"where": {}}},
            {"filter": {"tax": "IVA"}},
            {"session_id": "B"},
            {"k": 3},
        ],
    )
    def test_a_wrong_option_is_refused_when_the_retriever_is_made(
        self, store: FiscalRagVectorStore, options: dict[str, Any]
    ):
        with pytest.raises((ValueError, TypeError)):
            store.as_retriever(**options)

    def test_it_adds_documents_where_its_store_writes(self, store: FiscalRagVectorStore):
        store.as_retriever().add_documents([Document(id="1", page_content="uno")])
        assert [r.session_id for r in store.view.scan()] == ["A"]

    def test_tags_name_the_store_and_its_embeddings(self, store: FiscalRagVectorStore):
        assert store.as_retriever().tags == ["FiscalRagVectorStore", "FiscalEmbeddings"]


class TestOpening:
    def test_from_texts_opens_a_directory_that_answers_after_a_restart(self, tmp_path: Path):
        options: Any = {"persist_directory": str(tmp_path), "collection_name": "fiscal"}
        first = FiscalRagVectorStore.from_texts(
            ["uno"], HashEmbedder(), [{"n": 1}], ids=["1"], session_id="A", **options
        )
        before = first.similarity_search_with_score("uno")
        first.close()
        with FiscalRagVectorStore.from_texts([], HashEmbedder(), session_id="A", **options) as again:
            assert again.similarity_search_with_score("uno") == before
        with FiscalRagVectorStore.from_texts([], HashEmbedder(), session_id="B", **options) as other:
            assert other.similarity_search("uno") == []

    def test_scope_public_writes_public_documents(self, tmp_path: Path):
        documents = [Document(id="1", page_content="uno"), Document(page_content="dos")]
        with FiscalRagVectorStore.from_documents(
            documents, DeterministicFakeEmbedding(size=8), persist_directory=str(tmp_path), scope="public"
        ) as store:
            assert [r.scope for r in store.view.scan()] == ["public", "public"]
            assert ids(store.get_by_ids(["1"])) == ["1"]
            assert store.add_texts(["tres"], ids=["3"]) == ["3"]

    async def test_the_async_constructor_does_the_same(self, tmp_path: Path):
        store = await FiscalRagVectorStore.afrom_documents(
            [Document(id="1", page_content="uno")],
            HashEmbedder(),  # type: ignore[arg-type]
            persist_directory=str(tmp_path),
            session_id="A",
        )
        assert [(r.id, r.session_id) for r in store.view.scan()] == [("1", "A")]
        store.close()

    def test_without_scope_or_session_every_document_must_say_its_own(self, tmp_path: Path):
        options: Any = {"persist_directory": str(tmp_path)}
        with pytest.raises(InvalidChunkError, match="source_scope"):
            FiscalRagVectorStore.from_texts(["uno"], HashEmbedder(), **options)
        mixed = [{"source_scope": "public"}, {"source_scope": "private", "session_id": "A"}]
        with FiscalRagVectorStore.from_texts(["uno", "dos"], HashEmbedder(), mixed, **options) as store:
            assert [d.page_content for d in store.similarity_search("uno", k=9)] == ["uno"]
            assert store.view.list_sessions() == [("A", 1)]

    def test_a_failed_opening_releases_the_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        opened: list[Corpus] = []
        real = Corpus.open

        def recorded(*args: Any, **kwargs: Any) -> Corpus:
            opened.append(real(*args, **kwargs))
            return opened[-1]

        monkeypatch.setattr(Corpus, "open", recorded)
        options: Any = {"persist_directory": str(tmp_path), "scope": "public"}
        with pytest.raises(InvalidChunkError):
            FiscalRagVectorStore.from_texts(["uno", ""], HashEmbedder(), **options)
        with pytest.raises(StoreClosedError):
            opened[0].check_usable()
        with FiscalRagVectorStore.from_texts(["uno"], HashEmbedder(), **options) as store:
            assert len(store.similarity_search("uno")) == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"scope": "private"},
            {"scope": "everything"},
            {"scope": "public", "session_id": "A"},
            {"session_id": ""},
            {"session_id": 7},
            {"client": object()},
            {"collection_name": "x/../y"},
        ],
    )
    def test_wrong_options_are_refused(self, tmp_path: Path, options: dict[str, Any]):
        with pytest.raises(FiscalRagError):
            FiscalRagVectorStore.from_texts(
                ["uno"], HashEmbedder(), persist_directory=str(tmp_path), **options
            )

    def test_another_model_than_the_one_that_made_the_index_is_refused(self, tmp_path: Path):
        options: Any = {"persist_directory": str(tmp_path), "scope": "public"}
        FiscalRagVectorStore.from_texts(["uno"], HashEmbedder(64), **options).close()
        with pytest.raises(CollectionMismatchError):
            FiscalRagVectorStore.from_texts(["dos"], HashEmbedder(32), **options)

    def test_a_store_without_an_embedder_says_so_and_answers_vectors(self, tmp_path: Path):
        view = open_view(tmp_path, WrittenVectors())
        FiscalRagVectorStore(view.for_session("A")).add_texts(["1 0"], ids=["1"])
        view.close()
        store = FiscalRagVectorStore(open_view(tmp_path, None).for_session("A"))
        assert store.embeddings is None
        assert ids(store.similarity_search_by_vector([1, 0])) == ["1"]
        with pytest.raises(NoEmbedderError):
            store.similarity_search("1 0")
        store.close()

    def test_embeddings_are_langchains_own_or_a_face_of_ours(
        self, tmp_path: Path, store: FiscalRagVectorStore
    ):
        assert isinstance(store.embeddings, FiscalEmbeddings)
        theirs = DeterministicFakeEmbedding(size=8)
        other = FiscalRagVectorStore(open_view(tmp_path / "other", theirs))
        assert other.embeddings is theirs
        other.close()

    @pytest.mark.parametrize("wrong", [None, "chroma_db", object(), View])
    def test_what_is_no_store_is_refused(self, wrong: Any):
        with pytest.raises(SettingsError):
            FiscalRagVectorStore(wrong)


class TestAHandle:
    def test_copies_are_the_same_handle_and_pickling_is_refused(self, store: FiscalRagVectorStore):
        assert copy.copy(store) is store
        assert copy.deepcopy({"s": store})["s"] is store
        with pytest.raises(NotPicklableError):
            pickle.dumps(store)

    def test_its_view_cannot_be_replaced(self, view: View, store: FiscalRagVectorStore):
        with pytest.raises(AttributeError):
            store.view = view.for_session("B")  # type: ignore[misc]

    def test_its_repr_names_no_session(self, view: View):
        store = FiscalRagVectorStore(view.for_session("cliente-secreto"))
        assert "cliente-secreto" not in repr(store) + repr(store.as_retriever()) + str(vars(store))

    def test_a_view_that_writes_nothing_refuses_to_write_and_delete(self, view: View):
        from fiscal_rag_plugin.access import Access

        store = FiscalRagVectorStore(view.for_access(Access(read={"A"})))
        with pytest.raises(AccessDeniedError):
            store.add_texts(["uno"])
        with pytest.raises(AccessDeniedError):
            store.delete(["1"])
