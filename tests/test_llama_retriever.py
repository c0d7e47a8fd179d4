from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery, VectorStoreQueryMode
from pydantic import PrivateAttr

import fiscal_rag_plugin
from fiscal_rag_plugin import (
    Access,
    AuthorizationPostprocessor,
    CosineThresholdPostprocessor,
    EmbeddingService,
    FiscalRetriever,
    FiscalSettings,
    FiscalVectorStore,
    add_documents_to_vectorstore,
    get_retriever,
    get_vectorstore,
)
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    InvalidFilterError,
    InvalidQueryError,
    InvalidVectorError,
    NoEmbedderError,
    NotAChunkError,
    NotPicklableError,
    SettingsError,
    UnexpectedArgumentError,
    UnsupportedModeError,
)
from fiscal_rag_plugin.llama.events import FiscalSearchEvent

from .embedders import HashEmbedder
from .llama_nodes import chunk, ids, node, open_store, where
from .processes import run_python

EAST = QueryBundle("east", embedding=[1.0, 0.0])


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path) as opened:
        yield opened


def found(retriever: FiscalRetriever, question: Any = EAST) -> list[str]:
    return ids(retriever.retrieve(question))


# --- threshold and top k ------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "count"), [(None, 3), (0.5, 2), (0.7, 1), (-1, 3), (1, 1)])
def test_the_threshold_is_on_the_cosine(
    store: FiscalVectorStore, threshold: float | None, count: int
) -> None:
    store.add([node("a", [1, 0]), node("b", [0.6, 0.8]), node("c", [-1, 0])])
    hits = get_retriever(vectorstore=store, score_threshold=threshold).retrieve(EAST)
    assert [(n.node_id, n.score) for n in hits] == [
        ("a", pytest.approx(1.0)), ("b", pytest.approx(0.6)), ("c", pytest.approx(-1.0))
    ][:count]  # fmt: skip


def test_an_exact_cosine_of_082_passes_the_default_and_081_does_not(store: FiscalVectorStore) -> None:
    exact = [0.82, (1 - 0.82**2) ** 0.5]
    below = [0.8199, (1 - 0.8199**2) ** 0.5]
    store.add([node("exact", exact), node("below", below)])
    retriever = get_retriever(vectorstore=store)
    assert (retriever.top_k, retriever.score_threshold, retriever.mode) == (8, 0.82, "dense")
    assert found(retriever) == ["exact"]


def test_top_k_is_cut_before_the_threshold_and_a_cut_to_nothing_is_said_without_text(
    store: FiscalVectorStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([node("a", [0.8, 0.6], text="secreto"), node("b", [0.79, 0.61])])
    with caplog.at_level(logging.WARNING):
        assert found(get_retriever(vectorstore=store, top_k=1, score_threshold=0.9)) == []
    assert "cut all 1 hits; the best similarity was 0.8000" in caplog.text
    assert "secreto" not in caplog.text


@pytest.mark.parametrize("bad", [1.01, -1.01, float("nan"), float("inf"), True, "0.5"])
def test_a_threshold_out_of_range_is_refused_when_it_is_given(store: FiscalVectorStore, bad: Any) -> None:
    with pytest.raises(InvalidQueryError, match="score_threshold"):
        get_retriever(vectorstore=store, score_threshold=bad)
    with pytest.raises(InvalidQueryError, match="score_threshold"):
        CosineThresholdPostprocessor(score_threshold=bad)


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, None])
def test_top_k_is_checked_when_it_is_given(store: FiscalVectorStore, bad: Any) -> None:
    with pytest.raises(InvalidQueryError, match="top_k"):
        get_retriever(vectorstore=store, top_k=bad)


# --- access -------------------------------------------------------------------------------------


@pytest.fixture
def shared(store: FiscalVectorStore) -> FiscalVectorStore:
    """One public node, and one of A and of B under the same id as it."""
    store.add([node("1", [1, 0], text="public")])
    for session in ("A", "B"):
        store.for_session(session).add([node("1", [0.99, 0.1], text=f"of {session}")])
    return store


def texts(retriever: FiscalRetriever) -> list[str]:
    return sorted(n.get_content() for n in retriever.retrieve(EAST))


def test_each_caller_gets_its_own_and_the_public_node_of_one_id(shared: FiscalVectorStore) -> None:
    assert texts(get_retriever(vectorstore=shared)) == ["public"]
    assert texts(get_retriever(vectorstore=shared, session_id="A")) == ["of A", "public"]
    assert texts(get_retriever(vectorstore=shared, access=Access({"A", "B"}))) == ["of A", "of B", "public"]
    assert texts(get_retriever(vectorstore=shared.for_session("B"))) == ["of B", "public"]
    assert texts(get_retriever(vectorstore=shared, session_id="a")) == ["public"]


async def test_the_async_call_gives_the_same_twins(shared: FiscalVectorStore) -> None:
    hits = await get_retriever(vectorstore=shared, session_id="A").aretrieve(EAST)
    assert sorted(n.get_content() for n in hits) == ["of A", "public"]


def test_a_view_keeps_its_session_and_refuses_another(shared: FiscalVectorStore) -> None:
    mine = shared.for_session("A")
    assert texts(get_retriever(vectorstore=mine, session_id="A")) == ["of A", "public"]
    assert texts(get_retriever(vectorstore=mine, access=Access.session("A"))) == ["of A", "public"]
    for other in ({"session_id": "B"}, {"access": Access.public()}, {"access": Access({"A", "B"}, "A")},
                  {"session_id": "A", "access": Access.session("A")}):  # fmt: skip
        with pytest.raises(AccessDeniedError):
            get_retriever(vectorstore=mine, **other)


def test_the_nearest_chunk_of_another_does_not_take_a_place(store: FiscalVectorStore) -> None:
    store.for_session("B").add([node("b", [1, 0])])
    store.for_session("A").add([node("a", [0.9, 0.1])])
    assert found(get_retriever(vectorstore=store, session_id="A", top_k=1)) == ["a"]


@pytest.mark.parametrize(
    "name", ["access", "session_id", "view", "top_k", "score_threshold", "mode", "query", "filter"]
)
def test_what_was_decided_cannot_be_reassigned(shared: FiscalVectorStore, name: str) -> None:
    retriever = get_retriever(vectorstore=shared, session_id="A")
    try:
        setattr(retriever, name, "B")
    except AttributeError:
        pass
    else:
        assert not hasattr(FiscalRetriever, name), f"{name} can be set and is used"
    assert (retriever.session_id, retriever.access) == ("A", Access.session("A"))
    assert texts(retriever) == ["of A", "public"]


def test_copies_keep_the_access_and_pickling_is_refused(shared: FiscalVectorStore) -> None:
    retriever = get_retriever(vectorstore=shared, session_id="A")
    for same in (copy.copy(retriever), copy.deepcopy(retriever)):
        assert same.access == Access.session("A")
        assert texts(same) == ["of A", "public"]
    with pytest.raises(NotPicklableError):
        pickle.dumps(retriever)


def test_a_filter_changed_after_construction_changes_nothing(shared: FiscalVectorStore) -> None:
    filter_dict = {"source_scope": "private"}
    retriever = get_retriever(vectorstore=shared, session_id="A", filter_dict=filter_dict)
    filter_dict.clear()
    assert texts(retriever) == ["of A"]


def test_retrieve_takes_no_keyword_at_all(shared: FiscalVectorStore) -> None:
    retriever = get_retriever(vectorstore=shared, session_id="A")
    for keywords in ({"session_id": "B"}, {"filter": None}, {"where": {}}):
        with pytest.raises(TypeError):
            retriever.retrieve(EAST, **keywords)
        with pytest.raises(TypeError):
            FiscalRetriever(shared, sesion="A", **keywords)


async def test_interleaved_sessions_never_mix(shared: FiscalVectorStore) -> None:
    both = [get_retriever(vectorstore=shared, session_id=s) for s in ("A", "B")]
    answers = await asyncio.gather(*[both[i % 2].aretrieve(EAST) for i in range(60)])
    for i, answer in enumerate(answers):
        assert sorted(n.get_content() for n in answer) == [f"of {'AB'[i % 2]}", "public"]


# --- narrowing ----------------------------------------------------------------------------------


def test_filters_in_both_syntaxes_narrow(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], tax="IVA", n=1), node("b", [1, 0], tax="IRPF", n=2)])
    assert found(get_retriever(vectorstore=store, filter_dict={"tax": "IVA"})) == ["a"]
    assert found(get_retriever(vectorstore=store, filter_dict=where(("n", ">", 1)))) == ["b"]
    for empty in ({}, None, MetadataFilters(filters=[])):
        assert found(get_retriever(vectorstore=store, filter_dict=empty)) == ["a", "b"]
    with pytest.raises(InvalidFilterError):
        get_retriever(vectorstore=store, filter_dict={"$where": "1"})


def test_as_of_and_tax_year_keep_what_was_in_force(store: FiscalVectorStore) -> None:
    dated = [("old", "2010-01-01", "2012-08-31", 0), ("new", "2012-09-01", "", 0), ("year", "", "", 2011)]
    chunks = [
        chunk(d, d, valid_from=f, valid_to=t, fiscal_year=y) for d, f, t, y in dated
    ] + [chunk("undated", "undated")]  # fmt: skip
    store.add_chunks(chunks, vectors=[[1, 0]] * 4)

    def docs(**options: Any) -> set[str | None]:
        hits = get_retriever(vectorstore=store, **options).retrieve(EAST)
        return {n.node.ref_doc_id for n in hits}

    assert docs(as_of="2012-08-31") == {"old", "year", "undated"}
    assert docs(as_of="2012-09-01") == {"new", "year", "undated"}
    assert docs(tax_year=2011) == {"old", "year", "undated"}
    assert docs(tax_year=2012) == {"new", "undated"}
    for bad in ({"as_of": "2012"}, {"as_of": "ayer"}, {"tax_year": "2012"}, {"tax_year": True}):
        with pytest.raises(InvalidFilterError):
            get_retriever(vectorstore=store, **bad)


# --- the question -------------------------------------------------------------------------------


def test_a_text_is_embedded_once_by_the_store(tmp_path: Path) -> None:
    embedder = HashEmbedder(32)
    with open_store(tmp_path, embed_model=embedder) as store:
        store.add([node("a", text="tipo general del iva"), node("b", text="plazo de prescripción")])
        retriever = get_retriever(vectorstore=store, top_k=1, score_threshold=None)
        assert found(retriever, "tipo general") == ["a"]
        assert embedder.queries == ["tipo general"]
        assert found(retriever, QueryBundle("x", embedding=embedder._vector("prescripción"))) == ["b"]
        assert embedder.queries == ["tipo general"]


def test_custom_embedding_strings_replace_the_question(tmp_path: Path) -> None:
    with open_store(tmp_path, embed_model=HashEmbedder(32)) as store:
        store.add([node("a", text="tipo general del iva"), node("b", text="plazo de prescripción")])
        retriever = get_retriever(vectorstore=store, top_k=1, score_threshold=None)
        hyde = QueryBundle("tipo general del iva", custom_embedding_strs=["plazo", "prescripción"])
        assert found(retriever, hyde) == ["b"]
        with pytest.raises(InvalidQueryError, match="custom_embedding_strs"):
            retriever.retrieve(QueryBundle("x", custom_embedding_strs=["plazo", " "]))


def test_questions_that_cannot_be_asked_say_why(store: FiscalVectorStore, tmp_path: Path) -> None:
    store.add([node("a", [1, 0])])
    retriever = get_retriever(vectorstore=store)
    with pytest.raises(NoEmbedderError):
        retriever.retrieve("tipo general")
    for blank in ("", "  "):
        with pytest.raises(InvalidQueryError, match="non-blank"):
            retriever.retrieve(blank)
    for bad in ([], [0.0, 0.0], [float("nan"), 0.0], [1.0]):
        with pytest.raises(InvalidVectorError):
            retriever.retrieve(QueryBundle("x", embedding=bad))


def test_modes_have_either_frameworks_name_and_no_other_mode_is_taken(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0, 0]), node("a2", [0.999, 0.04, 0]), node("b", [0.7, 0, 0.7])])
    east = QueryBundle("east", embedding=[1.0, 0.0, 0.0])

    def first_two(mode: Any) -> list[str]:
        retriever = FiscalRetriever(store, top_k=2, score_threshold=None, mode=mode, mmr_threshold=0.3)
        return found(retriever, east)

    assert first_two("dense") == first_two(VectorStoreQueryMode.DEFAULT) == ["a", "a2"]
    assert first_two("mmr") == first_two(VectorStoreQueryMode.MMR) == ["a", "b"]
    for mode in ("semantic_hybrid", "svm", VectorStoreQueryMode.SEMANTIC_HYBRID, None, "DENSE"):
        with pytest.raises(UnsupportedModeError):
            first_two(mode)
    with pytest.raises(InvalidQueryError, match="mmr_threshold"):
        FiscalRetriever(store, mode="mmr", mmr_threshold=2)


def test_an_index_nodes_object_is_not_entered(store: FiscalVectorStore) -> None:
    store.add([IndexNode(id_="i", text="ver tabla", index_id="t", embedding=[1, 0])])
    retriever = get_retriever(vectorstore=store)
    retriever.object_map = {"t": TextNode(id_="other", text="texto de otra sesión")}
    assert found(retriever) == ["i"]


class Recorder(BaseEventHandler):
    _events: list[Any] = PrivateAttr(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self._events.append(event)


async def test_events_carry_exactly_the_answer_and_no_vector(shared: FiscalVectorStore) -> None:
    recorder = Recorder()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(recorder)
    try:
        retriever = get_retriever(vectorstore=shared, session_id="A")
        answers = [retriever.retrieve(EAST), await retriever.aretrieve(EAST)]
    finally:
        dispatcher.event_handlers.remove(recorder)
    order = [RetrievalStartEvent, FiscalSearchEvent, RetrievalEndEvent]
    assert [type(e) for e in recorder._events] == order * 2
    ends = recorder._events[2::3]
    assert [e.nodes for e in ends] == answers
    assert all(n.node.embedding is None for e in ends for n in e.nodes)
    assert "of B" not in str([e.model_dump() for e in ends])


# --- postprocessors -----------------------------------------------------------------------------


def scored(score: float | None, **metadata: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_=str(score), text="t", metadata=metadata), score=score)


def test_the_threshold_postprocessor_is_inclusive_and_drops_what_has_no_score() -> None:
    nodes = [
        scored(0.82),
        scored(0.8199995),
        scored(0.8198),
        scored(None),
        scored(float("nan")),
        scored(-1.0),
    ]
    assert CosineThresholdPostprocessor().postprocess_nodes(nodes) == nodes[:2]
    assert CosineThresholdPostprocessor(score_threshold=-1).postprocess_nodes(nodes) == [
        *nodes[:3],
        nodes[5],
    ]
    assert CosineThresholdPostprocessor(score_threshold=None).postprocess_nodes(nodes) == nodes


def test_the_threshold_is_checked_on_assignment_and_survives_a_dict() -> None:
    postprocessor = CosineThresholdPostprocessor(score_threshold=0.5)
    again = CosineThresholdPostprocessor.from_dict(postprocessor.to_dict())
    assert again.score_threshold == 0.5
    with pytest.raises(ValueError, match="score_threshold"):
        postprocessor.score_threshold = 7.0
    assert postprocessor.score_threshold == 0.5


def test_the_authorization_postprocessor_keeps_what_its_access_permits() -> None:
    nodes = [
        scored(1, source_scope="public"), scored(2, source_scope="private", session_id="A"),
        scored(3, source_scope="private", session_id="B"), scored(4), scored(5, source_scope="private"),
        scored(6, source_scope="public", session_id="A"), scored(7, source_scope=["public"]),
    ]  # fmt: skip
    kept = AuthorizationPostprocessor(access=Access.session("A")).postprocess_nodes(nodes)
    assert [n.score for n in kept] == [1, 2]
    assert [n.score for n in AuthorizationPostprocessor(access=Access()).postprocess_nodes(nodes)] == [1]


async def test_the_authorization_postprocessor_takes_a_stores_access(shared: FiscalVectorStore) -> None:
    everything = get_retriever(vectorstore=shared, access=Access({"A", "B"})).retrieve(EAST)
    assert len(everything) == 3
    for store, expected in ((shared, ["public"]), (shared.for_session("A"), ["of A", "public"])):
        postprocessor = AuthorizationPostprocessor(vectorstore=store)
        kept = await postprocessor.apostprocess_nodes(everything)
        assert sorted(n.get_content() for n in kept) == expected


def test_an_index_node_loses_an_object_outside_the_access() -> None:
    mine, other = ({"source_scope": "private", "session_id": s} for s in ("A", "B"))
    nodes = [
        NodeWithScore(
            node=IndexNode(text="ver", index_id="x", metadata=mine, obj=TextNode(text="t", metadata=of))
        )
        for of in (mine, other)
    ]
    kept = AuthorizationPostprocessor(access=Access.session("A")).postprocess_nodes(nodes)
    assert [getattr(n.node, "obj", None) is not None for n in kept] == [True, False]
    assert nodes[1].node.obj is not None  # type: ignore[attr-defined]


def test_the_access_of_a_postprocessor_is_read_only_and_kept_by_copies() -> None:
    postprocessor = AuthorizationPostprocessor(access=Access.session("A"))
    with pytest.raises((AttributeError, ValueError)):
        postprocessor.access = Access.session("B")  # type: ignore[misc]
    for update in ({"_access": Access.session("B")}, {"access": Access.session("B")}):
        with pytest.raises(UnexpectedArgumentError):
            postprocessor.model_copy(update=update)
    copies = (copy.copy(postprocessor), copy.deepcopy(postprocessor), postprocessor.model_copy(),
              pickle.loads(pickle.dumps(postprocessor)))  # fmt: skip
    assert [c.access for c in copies] == [Access.session("A")] * 4
    assert "'A'" not in repr(postprocessor)
    assert "'A'" not in str(postprocessor.to_dict())
    with pytest.raises(AccessDeniedError):
        AuthorizationPostprocessor.from_dict(postprocessor.to_dict())


@pytest.mark.parametrize("arguments", [{}, {"access": "A"}, {"access": {"read": ["A"]}}])
def test_a_postprocessor_without_an_access_is_refused(arguments: Any) -> None:
    with pytest.raises(SettingsError, match="access"):
        AuthorizationPostprocessor(**arguments)


# --- the seed's functions and the public names --------------------------------------------------


def test_the_seeds_functions_open_add_and_retrieve(tmp_path: Path) -> None:
    settings = FiscalSettings(chroma_dir=str(tmp_path), chroma_collection="fiscal", _env_file=None)
    with get_vectorstore(settings, embedding_service=HashEmbedder(32)) as store:
        given = [chunk("liva", "tipo general del iva", tax="IVA"), chunk("lgt", "plazo de prescripción")]
        assert add_documents_to_vectorstore(given, vectorstore=store) == store.add_chunks(given)
        assert add_documents_to_vectorstore([], vectorstore=store) == []
        retriever = get_retriever(
            top_k=8, score_threshold=0.3, filter_dict={"tax": "IVA"}, vectorstore=store
        )
        assert [n.node.ref_doc_id for n in retriever.retrieve("tipo general")] == ["liva"]


@pytest.mark.parametrize(
    "wrong", [TextNode(text="t"), LangChainDocument(page_content="t"), {"text": "t"}, "t"], ids=type
)
def test_add_documents_takes_chunks_only_and_says_where_others_go(
    store: FiscalVectorStore, wrong: Any
) -> None:
    with pytest.raises(NotAChunkError, match=r"add\(\).*add_documents\(\)") as error:
        add_documents_to_vectorstore([wrong], vectorstore=store)
    assert isinstance(error.value, TypeError)


def test_opening_with_the_default_service_loads_no_model(tmp_path: Path) -> None:
    settings = FiscalSettings(chroma_dir=str(tmp_path), _env_file=None)
    with get_vectorstore(settings) as store:
        embedder = store.view.embedder
        assert isinstance(embedder, EmbeddingService)
        assert not embedder.loaded
    with pytest.raises(SettingsError, match="not both"):
        get_vectorstore(settings, embedding_service=HashEmbedder(), embed_model=HashEmbedder())


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in fiscal_rag_plugin.__all__:
        assert getattr(fiscal_rag_plugin, name).__name__ == name
        assert name in dir(fiscal_rag_plugin)
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = fiscal_rag_plugin.nothing_such


def test_importing_the_package_imports_no_framework() -> None:
    done = run_python(
        """
        import sys
        import fiscal_rag_plugin
        fiscal_rag_plugin.Access, fiscal_rag_plugin.Chunk
        heavy = {"llama_index", "langchain_core", "chromadb", "numpy", "torch"} & set(sys.modules)
        assert not heavy, heavy
        from fiscal_rag_plugin import FiscalVectorStore
        assert not {"langchain_core", "torch", "openai"} & set(sys.modules)
        """
    )
    assert done.returncode == 0, done.stderr


def test_each_search_sends_an_event_with_its_plan_and_nothing_of_anybody(tmp_path: Path) -> None:
    recorder = Recorder()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(recorder)
    try:
        store = FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=HashEmbedder())
        mine = store.for_session("secreta")
        mine.add([TextNode(text="palabra reservada", metadata={"tax": "IVA"})])
        FiscalRetriever(mine, score_threshold=None, filter={"tax": "IVA"}).retrieve("palabra")
        mine.query(VectorStoreQuery(query_str="palabra", similarity_top_k=3))
        store.close()
    finally:
        dispatcher.event_handlers.remove(recorder)
    seen = [event for event in recorder._events if isinstance(event, FiscalSearchEvent)]
    assert [(event.top_k, event.hits, event.cut) for event in seen] == [(8, 1, 0), (3, 1, 0)]
    assert seen[0].plan == "public: narrow; private: exact+filter"
    written = "".join(event.model_dump_json() for event in seen)
    assert not any(word in written for word in ("reservada", "secreta", "IVA"))
