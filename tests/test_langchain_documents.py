"""Conversions between LlamaIndex and LangChain, the bridges, and what importing this costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.base.base_retriever import BaseRetriever as LlamaBaseRetriever
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.schema import Document as LlamaDocument

from fiscal_rag_plugin.errors import InvalidChunkError
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View
from langchain_fiscal_rag import (
    FiscalRagRetriever,
    FiscalRagVectorStore,
    as_llama_retriever,
    as_runnable,
    to_documents,
    to_nodes,
)
from tests.langchain_stores import WrittenVectors, open_view

METADATA: dict[str, Any] = {
    "none": None,
    "list": [1, "a", []],
    "nested": {"x": {}},
    "ñ": "€",
    "doc_id": "ley",
}


def full_node() -> TextNode:
    """A node with something in every field."""
    return TextNode(
        id_="España/1", text="texto\n ", metadata=dict(METADATA), start_char_idx=3, end_char_idx=9,
        excluded_embed_metadata_keys=["ñ"], excluded_llm_metadata_keys=["list"], mimetype="text/markdown",
        text_template="{content}", metadata_template="{key}={value}", metadata_separator=";",
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="ley", metadata={"a": 1}),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
        },
    )  # fmt: skip


class TestConversion:
    def test_id_text_and_metadata_of_a_node_become_the_documents_own(self):
        [document] = to_documents([NodeWithScore(node=full_node(), score=0.5)])
        assert document == Document(id="España/1", page_content="texto\n ", metadata=METADATA)

    def test_documents_survive_the_way_through_nodes_and_back(self):
        documents = [
            Document(id="1", page_content="", metadata={}),
            Document(id="2", page_content="a\ud7ff", metadata=METADATA),
        ]
        assert to_documents(to_nodes(documents)) == documents
        scored = to_nodes(documents, score_key="s")
        assert [n.score for n in scored] == [None, None]
        assert to_documents(scored) == documents

    def test_a_node_survives_whole_when_its_other_fields_are_given_a_place(self):
        node = full_node()
        documents = to_documents([NodeWithScore(node=node, score=0.25)], score_key="score", node_key="node")
        restored = json.loads(json.dumps([d.model_dump() for d in documents]))
        again = to_nodes([Document(**d) for d in restored], score_key="score", node_key="node")
        assert again == [NodeWithScore(node=node, score=0.25)]
        assert type(again[0].node) is TextNode
        assert again[0].node.to_dict() == node.to_dict()

    @pytest.mark.parametrize(
        "node",
        [
            Node(
                id_="1", text_resource=MediaResource(text="texto", mimetype="text/plain"), metadata={"a": 1}
            ),
            LlamaDocument(id_="1", text="texto", metadata={"a": 1}),
            ImageNode(id_="1", text="texto", image_url="http://x/y.png"),
            IndexNode(id_="1", text="texto", index_id="i"),
        ],
        ids=lambda node: type(node).__name__,
    )
    def test_every_kind_of_node_survives(self, node: BaseNode):
        documents = to_documents([node], node_key="node")
        assert documents[0].page_content == "texto"
        [again] = to_nodes(documents, node_key="node")
        assert type(again) is type(node)
        assert again.to_dict() == node.to_dict()

    def test_vectors_and_the_objects_of_index_nodes_are_never_carried_over(self):
        hidden = TextNode(text="SECRET")
        node = IndexNode(id_="1", text="texto", index_id="i", obj=hidden, embedding=[0.123456, 0.5])
        [document] = to_documents([NodeWithScore(node=node, score=1.0)], score_key="s", node_key="n")
        assert "SECRET" not in document.model_dump_json()
        assert "0.123456" not in document.model_dump_json()

    def test_the_score_is_kept_only_when_asked_for(self):
        nodes = [NodeWithScore(node=TextNode(text="x"), score=s) for s in (0.5, None)]
        assert [d.metadata for d in to_documents(nodes)] == [{}, {}]
        assert [d.metadata for d in to_documents(nodes, score_key="s")] == [{"s": 0.5}, {"s": None}]
        assert [d.metadata for d in to_documents([TextNode(text="x")], score_key="s")] == [{}]

    def test_a_key_that_is_taken_is_an_error_and_not_an_overwrite(self):
        node = NodeWithScore(node=TextNode(text="x", metadata={"s": "mine"}), score=1.0)
        for options in ({"score_key": "s"}, {"node_key": "s"}):
            with pytest.raises(InvalidChunkError, match="already has"):
                to_documents([node], **options)

    @pytest.mark.parametrize("wrong", ["text", None, {"text": "x"}, Document(page_content="x")])
    def test_what_is_no_node_is_refused(self, wrong: Any):
        with pytest.raises(InvalidChunkError):
            to_documents([wrong])

    def test_nodes_know_their_source_and_hide_the_access_keys_from_models(self):
        metadata = {"doc_id": "ley", "source_scope": "private", "session_id": "A", "tax": "IVA"}
        [node] = to_nodes([Document(page_content="x", metadata=metadata)])
        assert node.ref_doc_id == "ley"
        assert node.metadata == metadata
        for mode in ("llm", "embed"):
            text = node.get_metadata_str(mode)  # type: ignore[arg-type]
            assert "IVA" in text
            assert "private" not in text
            assert "session_id" not in text

    def test_a_document_without_an_id_gets_a_new_one(self):
        first, second = to_nodes([Document(page_content="x"), Document(page_content="x")])
        assert first.node_id != second.node_id

    def test_neither_direction_shares_metadata_with_its_input(self):
        node = TextNode(text="x", metadata={"a": 1})
        document = to_documents([node])[0]
        document.metadata["b"] = 2
        to_nodes([document])[0].metadata["c"] = 3
        assert (node.metadata, document.metadata) == ({"a": 1}, {"a": 1, "b": 2})


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = open_view(tmp_path, WrittenVectors())
    store = FiscalRagVectorStore(view.for_session("A"))
    metadatas = [{"doc_id": "d1"}, {"source_url": "u2"}, {}]
    store.add_texts(["1 0", "0.6 0.8", "-1 0"], metadatas, ids=["1", "2", "3"])
    yield view
    view.close()


class LlamaRetriever(LlamaBaseRetriever):
    """The view's hits as LlamaIndex nodes."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._view.search(SearchQuery(text=query_bundle.query_str)).hits
        documents = to_documents(hits, score_key="s")
        for document, hit in zip(documents, hits, strict=True):
            document.metadata.update(hit.record.flat())
        return to_nodes(documents, score_key="s")


class TestBridges:
    def test_hits_become_documents_with_their_similarity(self, view: View):
        hits = view.for_session("A").search(SearchQuery(text="1 0")).hits
        assert [d.id for d in to_documents(hits)] == ["1", "2", "3"]
        assert to_documents([hits[0].record]) == [
            Document(id="1", page_content="1 0", metadata={"doc_id": "d1"})
        ]
        scores = [d.metadata["s"] for d in to_documents(hits, score_key="s")]
        assert scores == pytest.approx([1.0, 0.6, -1.0], abs=1e-6)

    async def test_a_llamaindex_retriever_answers_as_the_langchain_one(self, view: View):
        mine = view.for_session("A")
        expected = FiscalRagRetriever(vectorstore=mine).invoke("1 0")
        runnable = as_runnable(LlamaRetriever(mine))
        assert runnable.invoke("1 0") == expected
        assert await runnable.ainvoke("1 0") == expected
        assert runnable.batch(["1 0"]) == [expected]
        assert [d.metadata.get("source") for d in expected] == ["d1", "u2", None]
        shown = as_runnable(LlamaRetriever(mine), similarity_key="similarity").invoke("1 0")
        assert [d.metadata["similarity"] for d in shown] == pytest.approx([1.0, 0.6, -1.0], abs=1e-6)

    def test_a_runnable_takes_the_question_and_nothing_else(self, view: View):
        runnable = as_runnable(LlamaRetriever(view.for_session("A")))
        for kwargs in ({"session_id": "B"}, {"filter": None}, {"where": {}}):
            with pytest.raises(TypeError):
                runnable.invoke("1 0", **kwargs)

    async def test_a_langchain_retriever_answers_llamaindex_with_its_similarities(self, view: View):
        retriever = FiscalRagRetriever(vectorstore=view, session_id="A")
        bridge = as_llama_retriever(retriever)
        nodes = bridge.retrieve("1 0")
        assert [n.node_id for n in nodes] == ["1", "2", "3"]
        assert [n.score for n in nodes] == pytest.approx([1.0, 0.6, -1.0], abs=1e-6)
        assert nodes[0].node.metadata == retriever.invoke("1 0")[0].metadata
        assert await bridge.aretrieve("1 0") == nodes
        assert retriever.similarity_key is None

    def test_it_serves_a_llamaindex_query_engine(self, view: View):
        from llama_index.core.llms import MockLLM

        retriever = as_llama_retriever(FiscalRagRetriever(vectorstore=view, session_id="A", top_k=1))
        engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
        assert [n.node_id for n in engine.query("1 0").source_nodes] == ["1"]

    def test_another_langchain_retriever_gives_the_score_its_documents_have(self):
        class Other(BaseRetriever):
            def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
                return [Document(id="1", page_content=query, metadata={"points": 0.75})]

        [plain] = as_llama_retriever(Other()).retrieve("x")
        [scored] = as_llama_retriever(Other(), score_key="points").retrieve("x")
        assert (plain.score, plain.metadata) == (None, {"points": 0.75})
        assert (scored.score, scored.metadata) == (0.75, {})

    def test_a_round_trip_of_retrievers_keeps_the_answer(self, view: View):
        mine = FiscalRagRetriever(vectorstore=view, session_id="A")
        assert as_runnable(as_llama_retriever(mine)).invoke("1 0") == mine.invoke("1 0")


def in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestImport:
    def test_importing_and_using_the_adapter_does_not_import_llamaindex(self, tmp_path: Path):
        code = f"""
import sys
import langchain_fiscal_rag as adapter
from tests.embedders import HashEmbedder
store = adapter.FiscalRagVectorStore.from_texts(
    ["uno"], HashEmbedder(), persist_directory={str(tmp_path)!r}, session_id="A")
assert adapter.get_retriever(vectorstore=store).invoke("uno")
assert adapter.search_tool(store).invoke("uno")
assert adapter.to_documents(store.view.scan())
print(sorted(m for m in sys.modules if m.startswith("llama_index")))
adapter.as_runnable
print("llama_index.core.schema" in sys.modules)
"""
        assert in_a_new_process(code).splitlines() == ["[]", "True"]

    def test_every_exported_name_exists(self):
        import langchain_fiscal_rag as adapter

        assert all(getattr(adapter, name) is not None for name in adapter.__all__)
        with pytest.raises(AttributeError):
            adapter.nothing_of_the_kind  # noqa: B018
