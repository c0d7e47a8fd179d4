"""A retriever of one framework inside the other. This module imports LlamaIndex."""

from __future__ import annotations

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from fiscal_rag_plugin.frameworks import BORROWED_KEY

from .bound import BoundRetriever
from .documents import with_source
from .nodes import to_documents, to_nodes


def as_runnable(
    llama_retriever: BaseRetriever, *, similarity_key: str | None = None
) -> Runnable[str, list[Document]]:
    """A LlamaIndex retriever as a LangChain Runnable that answers as FiscalRagRetriever does.

    Documents carry the computed ``source``, and under ``similarity_key`` the node's score.
    Everything about access stays as that retriever has it; a call takes the question alone, and
    any keyword raises TypeError.
    """

    def documents(nodes: list[NodeWithScore]) -> list[Document]:
        found = to_documents(nodes, score_key=similarity_key)
        for document, item in zip(found, nodes, strict=True):
            document.metadata = with_source(document.metadata, item.node.ref_doc_id)
        return found

    def retrieve(question: str) -> list[Document]:
        return documents(llama_retriever.retrieve(question))

    async def aretrieve(question: str) -> list[Document]:
        return documents(await llama_retriever.aretrieve(question))

    return RunnableLambda(retrieve, aretrieve, name=type(llama_retriever).__name__)


def as_llama_retriever(
    langchain_retriever: Runnable[str, list[Document]], *, score_key: str | None = None
) -> BaseRetriever:
    """A LangChain retriever as a LlamaIndex retriever.

    Nodes of this package's retrievers carry their similarity; of another one, the number that its
    documents have under ``score_key``, or no score.
    """
    return _FromLangChain(langchain_retriever, score_key)


class _FromLangChain(BaseRetriever):
    def __init__(self, retriever: Runnable[str, list[Document]], score_key: str | None) -> None:
        super().__init__()
        if score_key is None:
            if isinstance(retriever, BoundRetriever) and retriever.similarity_key is None:
                retriever = retriever.model_copy(update={"similarity_key": BORROWED_KEY})
            score_key = getattr(retriever, "similarity_key", None) or BORROWED_KEY
        self._retriever = retriever
        self._score_key = score_key

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return to_nodes(self._retriever.invoke(query_bundle.query_str), score_key=self._score_key)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return to_nodes(await self._retriever.ainvoke(query_bundle.query_str), score_key=self._score_key)
