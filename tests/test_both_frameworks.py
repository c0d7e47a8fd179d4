"""One index, two frameworks: the same hits in the same order, whichever retriever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.errors import AccessDeniedError, FiscalRagError
from fiscal_rag_plugin.llama import opening
from fiscal_rag_plugin.llama.vector_store import FiscalVectorStore
from langchain_fiscal_rag import FiscalRagVectorStore, as_runnable, get_retriever, search_tool
from tests.embedders import HashEmbedder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    store = FiscalVectorStore.from_params(str(tmp_path), "fiscal", embed_model=HashEmbedder())
    for session in (None, "A", "B"):
        scope = "public" if session is None else "private"
        chunks = []
        for i in range(12):
            metadata: dict[str, Any] = {
                "doc_id": f"{session or 'ley'}-{i % 3}", "doc_type": "law", "source_scope": scope,
                "session_id": session, "tax": ("IVA", "IRPF")[i % 2], "chunk_index": i,
                "valid_from": ("", "2024-01-01")[i % 2], "source_url": ("", "https://boe.es")[i % 2],
            }  # fmt: skip
            text = f"tipo general del impuesto {'iva ' * (i % 4)}{i}"
            chunks.append(Chunk(text, text, ChunkMetadata(**metadata), 0, len(text)))
        (store if session is None else store.for_session(session)).add_chunks(chunks)
    yield store
    store.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"session_id": "A"},
        {"access": Access(read={"A", "B"}, write="A")},
        {"session_id": "B", "filter_dict": {"tax": "IVA"}},
        {"session_id": "A", "filter_dict": {"$or": [{"session_id": "B"}, {"source_scope": "private"}]}},
        {"top_k": 3, "score_threshold": None},
        {"session_id": "A", "score_threshold": 0.7},
        {"session_id": "A", "mode": "mmr", "top_k": 5, "score_threshold": None},
        {"as_of": "2023-06-01", "score_threshold": None},
        {"tax_year": 2024, "score_threshold": None, "top_k": 20},
    ],
)
def test_both_retrievers_give_the_same_hits_in_the_same_order(store: Any, options: dict[str, Any]):
    ours = get_retriever(vectorstore=store, **options).model_copy(update={"similarity_key": "s"})
    theirs = opening.get_retriever(vectorstore=store, **options)
    for question in ("tipo general del iva", "impuesto iva iva", "general"):
        documents, nodes = ours.invoke(question), theirs.retrieve(question)
        assert [d.id for d in documents] == [n.node_id for n in nodes]
        assert [d.metadata["s"] for d in documents] == [n.score for n in nodes]
        assert [d.page_content for d in documents] == [n.get_content() for n in nodes]
    assert "s" not in get_retriever(vectorstore=store, **options).model_dump()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "svm"},
        {"hybrid_weight": 2},
        {"on_lexical_failure": "ignore"},
        {"top_k": 0},
        {"score_threshold": 2},
        {"session_id": ""},
        {"as_of": "x"},
        {"tax_year": 1},
    ],
)
def test_both_refuse_the_same_parameters_with_the_same_error(store: Any, options: dict[str, Any]):
    raised = []
    for build in (get_retriever, opening.get_retriever):
        with pytest.raises(FiscalRagError) as error:
            build(vectorstore=store, **options)
        raised.append(type(error.value))
    assert raised[0] is raised[1]


def test_a_view_of_the_llamaindex_store_serves_every_langchain_component(store: Any):
    mine = store.for_session("A")
    vs = FiscalRagVectorStore(vectorstore=mine)
    assert vs.add_texts(["mi consulta sobre el iva"], ids=["x"]) == ["x"]
    assert [n.node_id for n in mine.get_nodes(["x"])] == ["x"]
    assert "mi consulta" in search_tool(store, access=Access.session("A")).invoke(
        "mi consulta sobre el iva"
    )
    assert store.for_session("B").get_nodes(["x"]) == []
    with pytest.raises(AccessDeniedError):
        get_retriever(vectorstore=mine, session_id="B")


def test_a_llamaindex_retriever_as_a_runnable_gives_the_documents_of_its_twin(store: Any):
    options: dict[str, Any] = {"vectorstore": store.for_session("A"), "score_threshold": None}
    runnable = as_runnable(opening.get_retriever(**options))
    assert runnable.invoke("tipo general") == get_retriever(**options).invoke("tipo general")


def test_a_node_added_through_llamaindex_is_a_langchain_document(store: Any):
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

    node = TextNode(id_="n1", text="nodo sobre el iva", metadata={"a": [1, None]})
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="fichero.pdf")
    node.embedding = HashEmbedder().embed_query(node.text)
    mine = store.for_session("A")
    mine.add([node])
    [document] = FiscalRagVectorStore(mine).get_by_ids(["n1"])
    assert document.page_content == "nodo sobre el iva"
    assert document.metadata == {"a": [1, None], "source_scope": "private", "session_id": "A"}
    [found] = get_retriever(1, None, vectorstore=mine).invoke("nodo sobre el iva")
    assert found.metadata["source"] == "fichero.pdf"
