"""The store under LlamaIndex's own indexes, engines and retrievers, with a mock language model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import Settings, StorageContext, VectorStoreIndex
from llama_index.core.base.response.schema import Response
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.llms import CompletionResponse, MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    VectorIndexAutoRetriever,
)
from llama_index.core.schema import (
    Document,
    IndexNode,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools import QueryEngineTool
from pydantic import PrivateAttr

from fiscal_rag_plugin import (
    AuthorizationPostprocessor,
    CosineThresholdPostprocessor,
    FiscalVectorStore,
    get_retriever,
)

from .embedders import HashEmbedder
from .llama_nodes import chunk, ids, node, open_store
from .processes import run_python


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path, embed_model=HashEmbedder(64)) as opened:
        opened.add_chunks(
            [
                chunk("liva", "tipo general del iva", tax="IVA", page=3),
                chunk("lgt", "plazo de prescripción", tax="LGT"),
            ]
        )
        opened.for_session("A").add([node("a", text="tipo general del iva de la sociedad A", tax="IVA")])
        opened.for_session("B").add([node("b", text="tipo general del iva de la sociedad B", tax="IVA")])
        yield opened


def texts(nodes: Any) -> set[str]:
    return {n.node.get_content() for n in nodes}


PUBLIC = "tipo general del iva"
OF_A, OF_B = f"{PUBLIC} de la sociedad A", f"{PUBLIC} de la sociedad B"


# --- index --------------------------------------------------------------------------------------


def test_as_index_retrieves_within_access_with_cosines(store: FiscalVectorStore) -> None:
    hits = store.for_session("A").as_index().as_retriever(similarity_top_k=2).retrieve(PUBLIC)
    question, cosines = HashEmbedder(64)._vector(PUBLIC), {}
    for text, embedded in ((PUBLIC, f"title\n{PUBLIC}"), (OF_A, f"tax: IVA\n\n{OF_A}")):
        cosines[text] = pytest.approx(np.dot(question, HashEmbedder(64)._vector(embedded)), abs=1e-6)
    assert {n.node.get_content(): n.score for n in hits} == cosines
    assert texts(store.as_index().as_retriever(similarity_top_k=9).retrieve(PUBLIC)) == {
        PUBLIC, "plazo de prescripción"
    }  # fmt: skip


def test_the_index_and_our_retriever_give_the_same_hits(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    stock = mine.as_index().as_retriever(similarity_top_k=8).retrieve(PUBLIC)
    ours = get_retriever(vectorstore=mine, score_threshold=None).retrieve(PUBLIC)
    assert [(n.node_id, n.score) for n in ours] == [(n.node_id, n.score) for n in stock]


def test_mmr_reaches_the_store_through_the_index(store: FiscalVectorStore) -> None:
    retriever = (
        store.for_session("A")
        .as_index()
        .as_retriever(
            similarity_top_k=2, vector_store_query_mode="mmr", vector_store_kwargs={"mmr_threshold": 0.1}
        )
    )
    assert texts(retriever.retrieve(PUBLIC)) == {PUBLIC, "plazo de prescripción"}


def test_an_index_from_nodes_inserts_refreshes_and_deletes(store: FiscalVectorStore) -> None:
    mine = store.for_session("C")
    index = VectorStoreIndex(
        [TextNode(id_="n", text="primera nota")],
        storage_context=StorageContext.from_defaults(vector_store=mine),
        embed_model=mine.embed_model,
    )
    index.insert(Document(id_="d", text="factura de marzo"))
    assert index.refresh_ref_docs(
        [Document(id_="d", text="factura de abril"), Document(id_="e", text="nómina")]
    ) == [True, True]
    assert index.refresh_ref_docs([Document(id_="d", text="factura de abril")]) == [False]

    def own() -> list[str]:
        return sorted(n.get_content() for n in mine.get_nodes() if n.metadata["source_scope"] == "private")

    assert own() == ["factura de abril", "nómina", "primera nota"]
    index.delete_ref_doc("d", delete_from_docstore=True)
    index.delete_nodes(["n"])
    assert own() == ["nómina"]
    assert store.list_sessions() == [("A", 1), ("B", 1), ("C", 1)]


async def test_the_async_index_calls_do_the_same(store: FiscalVectorStore) -> None:
    mine = store.for_session("C")
    index = mine.as_index()
    await index.ainsert(Document(id_="d", text="factura de marzo"))
    assert texts(await index.as_retriever(similarity_top_k=1).aretrieve("factura de marzo")) == {
        "factura de marzo"
    }
    await index.adelete_ref_doc("d")
    assert ("C", 1) not in store.list_sessions()


def test_from_documents_writes_through_a_view(store: FiscalVectorStore) -> None:
    mine = store.for_session("C")
    VectorStoreIndex.from_documents(
        [Document(id_="d", text="factura", metadata={"año": 2024})],
        storage_context=StorageContext.from_defaults(vector_store=mine), embed_model=mine.embed_model,
    )  # fmt: skip
    [stored] = [n for n in mine.get_nodes() if n.metadata["source_scope"] == "private"]
    assert stored.metadata == {"año": 2024, "source_scope": "private", "session_id": "C"}
    assert stored.ref_doc_id == "d"


def test_a_stock_index_restricts_itself_to_its_index_nodes_and_our_retriever_does_not(
    store: FiscalVectorStore,
) -> None:
    mine = store.for_session("C")
    index = mine.as_index()
    index.insert_nodes(
        [TextNode(id_="t1", text="zeta uno"), IndexNode(id_="i1", text="zeta dos", index_id="x")]
    )
    assert ids(index.as_retriever(similarity_top_k=5).retrieve("zeta")) == ["i1"]
    assert set(ids(mine.as_index().as_retriever(similarity_top_k=2).retrieve("zeta"))) == {"t1", "i1"}
    ours = get_retriever(vectorstore=mine, top_k=2, score_threshold=None)
    assert set(ids(ours.retrieve("zeta"))) == {"t1", "i1"}


def test_a_storage_context_persists_beside_the_store(store: FiscalVectorStore, tmp_path: Path) -> None:
    context = store.for_session("A").as_index().storage_context
    context.persist(str(tmp_path / "context"))
    assert (tmp_path / "context" / "docstore.json").exists()


# --- engines ------------------------------------------------------------------------------------


def source_texts(response: Any) -> set[str]:
    return texts(response.source_nodes)


def test_a_query_engine_answers_from_what_the_session_may_see(store: FiscalVectorStore) -> None:
    engine = (
        store.for_session("A")
        .as_index()
        .as_query_engine(
            llm=MockLLM(),
            similarity_top_k=9,
            node_postprocessors=[CosineThresholdPostprocessor(score_threshold=0.5)],
        )
    )
    response = engine.query(PUBLIC)
    assert source_texts(response) == {PUBLIC, OF_A}
    assert OF_A in str(response)
    assert "sociedad B" not in str(response)
    assert "session_id" not in str(response), "the access keys were shown to the model"
    assert source_texts(asyncio.run(engine.aquery(PUBLIC))) == {PUBLIC, OF_A}


def test_a_retriever_query_engine_takes_our_retriever(store: FiscalVectorStore) -> None:
    retriever = get_retriever(vectorstore=store, session_id="B", score_threshold=0.5)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    assert source_texts(engine.query(PUBLIC)) == {PUBLIC, OF_B}


def test_a_chat_engine_keeps_to_its_session_over_several_turns(store: FiscalVectorStore) -> None:
    # The default memory keeps an aiosqlite connection that LlamaIndex never closes.
    memory = ChatMemoryBuffer.from_defaults(llm=MockLLM())
    engine = (
        store.for_session("A")
        .as_index()
        .as_chat_engine(chat_mode="context", llm=MockLLM(), similarity_top_k=9, memory=memory)
    )
    for _ in range(2):
        response = engine.chat(PUBLIC)
        assert {PUBLIC, OF_A} <= source_texts(response)
        assert OF_B not in source_texts(response)


class OneEach(BaseQuestionGenerator):
    """Asks every tool the question as it is."""

    def generate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return [SubQuestion(sub_question=query.query_str, tool_name=tool.name) for tool in tools]

    async def agenerate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return self.generate(tools, query)

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts: Any) -> None: ...


def test_sub_questions_to_two_sessions_engines_stay_apart(store: FiscalVectorStore) -> None:
    tools = [
        QueryEngineTool.from_defaults(
            RetrieverQueryEngine.from_args(
                get_retriever(vectorstore=store, session_id=session, score_threshold=0.5), llm=MockLLM()
            ),
            name=f"tool_{session}", description="d",
        )
        for session in ("A", "B")
    ]  # fmt: skip
    engine = SubQuestionQueryEngine.from_defaults(
        tools, llm=MockLLM(), question_gen=OneEach(), use_async=False, verbose=False
    )
    response = engine.query(PUBLIC)
    assert isinstance(response, Response)
    assert {OF_A, OF_B, PUBLIC} <= source_texts(response)
    only_a = SubQuestionQueryEngine.from_defaults(
        tools[:1], llm=MockLLM(), question_gen=OneEach(), use_async=False, verbose=False
    ).query(PUBLIC)
    assert "sociedad B" not in str([n.node.get_content() for n in only_a.source_nodes])


def test_fusion_of_two_retrievers_stays_within_access(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    fusion = QueryFusionRetriever(
        [get_retriever(vectorstore=mine, score_threshold=None, mode=mode) for mode in ("dense", "mmr")],
        llm=MockLLM(), num_queries=1, similarity_top_k=9, use_async=False,
    )  # fmt: skip
    assert texts(fusion.retrieve(PUBLIC)) == {PUBLIC, OF_A, "plazo de prescripción"}


def test_an_auto_merging_retriever_needs_the_authorization_postprocessor_for_its_parents(
    store: FiscalVectorStore,
) -> None:
    """Parents come from a docstore, which knows no access: one filled by another session leaks."""
    parent = TextNode(id_="parent", text=f"{OF_B}, entero")
    children = [
        TextNode(
            id_=f"c{i}",
            text=f"nota {i}",
            relationships={NodeRelationship.PARENT: RelatedNodeInfo(node_id="parent")},
        )
        for i in range(2)
    ]
    mine = store.for_session("A")
    mine.add(children)
    context = StorageContext.from_defaults()
    context.docstore.add_documents([
        parent.model_copy(update={"relationships": {NodeRelationship.CHILD: [
            RelatedNodeInfo(node_id=c.id_) for c in children
        ]}})
    ])  # fmt: skip
    retriever = get_retriever(vectorstore=mine, top_k=2, score_threshold=None)
    merged = AutoMergingRetriever(retriever, context, simple_ratio_thresh=0.1).retrieve("nota")
    assert f"{OF_B}, entero" in texts(merged)
    kept = AuthorizationPostprocessor(vectorstore=mine).postprocess_nodes(merged)
    assert f"{OF_B}, entero" not in texts(kept)


class Writes(MockLLM):
    """A language model that always writes the same."""

    _says: str = PrivateAttr(default="")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return CompletionResponse(text=self._says)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], {PUBLIC, OF_A, "plazo de prescripción"}),
        ([{"key": "tax", "operator": "==", "value": "IVA"}], {PUBLIC, OF_A}),
        ([{"key": "page", "operator": ">", "value": 2}], {PUBLIC}),
        ([{"key": "session_id", "operator": "==", "value": "B"}], set()),
    ],
)
def test_an_auto_retriever_filters_by_the_stores_own_description(
    store: FiscalVectorStore, filters: list[dict[str, Any]], expected: set[str]
) -> None:
    mine = store.for_session("A")
    llm = Writes()
    llm._says = json.dumps({"query": PUBLIC, "filters": filters})
    retriever = VectorIndexAutoRetriever(
        mine.as_index(), vector_store_info=mine.store_info(), similarity_top_k=9,
        llm=llm,
    )  # fmt: skip
    assert texts(retriever.retrieve(PUBLIC)) == expected


class Recorder(BaseEventHandler):
    _events: list[Any] = PrivateAttr(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self._events.append(event)


def test_events_of_a_whole_query_carry_only_what_the_session_may_see(store: FiscalVectorStore) -> None:
    recorder = Recorder()
    get_dispatcher().add_event_handler(recorder)
    try:
        engine = RetrieverQueryEngine.from_args(
            get_retriever(vectorstore=store, session_id="A", score_threshold=0.5), llm=MockLLM()
        )
        response = engine.query(PUBLIC)
    finally:
        get_dispatcher().event_handlers.remove(recorder)
    [end] = [e for e in recorder._events if isinstance(e, RetrievalEndEvent)]
    assert end.nodes == response.source_nodes
    assert {"QueryStartEvent", "QueryEndEvent", "SynthesizeStartEvent"} <= {
        type(e).__name__ for e in recorder._events
    }
    assert "sociedad B" not in str(recorder._events)


def test_retrieval_creates_no_language_model_and_no_default_embedding(
    store: FiscalVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(Settings), "llm", property(lambda self: pytest.fail("an LLM was asked for")))
    monkeypatch.setattr(
        type(Settings),
        "embed_model",
        property(lambda self: pytest.fail("a default embedding was asked for")),
    )
    mine = store.for_session("A")
    assert mine.as_index().as_retriever().retrieve(PUBLIC)
    assert get_retriever(vectorstore=mine, score_threshold=None).retrieve(PUBLIC)
    mine.as_index().insert_nodes([TextNode(text="x")])


def test_no_openai_package_key_or_network_is_needed(tmp_path: Path) -> None:
    done = run_python(
        f"""
        import os, socket, sys
        os.environ.pop("OPENAI_API_KEY", None)
        def blocked(*a, **k): raise OSError("network is blocked")
        socket.socket.connect = blocked; socket.create_connection = blocked
        sys.modules["openai"] = None
        from fiscal_rag_plugin import FiscalVectorStore, get_retriever
        from llama_index.core.schema import Document
        from tests.embedders import HashEmbedder
        with FiscalVectorStore.from_params({str(tmp_path)!r}, "fiscal", embed_model=HashEmbedder()) as store:
            mine = store.for_session("A")
            mine.as_index().insert(Document(text="tipo general"))
            assert len(mine.as_index().as_retriever().retrieve("tipo general")) == 1
            assert len(get_retriever(vectorstore=mine).retrieve("tipo general")) == 1
        """
    )
    assert done.returncode == 0, done.stderr
