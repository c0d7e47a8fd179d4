"""LangChain components over the same store as the LlamaIndex ones."""

from typing import TYPE_CHECKING, Any

from .documents import retrieved_document, stored_document
from .embeddings import FiscalEmbeddings
from .nodes import to_documents, to_nodes
from .retriever import FiscalRagRetriever, get_retriever
from .store_retriever import FiscalRagStoreRetriever
from .tools import search_tool
from .vectorstore import FiscalRagVectorStore

if TYPE_CHECKING:
    from .bridges import as_llama_retriever, as_runnable

__all__ = [
    "FiscalEmbeddings",
    "FiscalRagRetriever",
    "FiscalRagStoreRetriever",
    "FiscalRagVectorStore",
    "as_llama_retriever",
    "as_runnable",
    "get_retriever",
    "retrieved_document",
    "search_tool",
    "stored_document",
    "to_documents",
    "to_nodes",
]


def __getattr__(name: str) -> Any:
    # The bridges import LlamaIndex, which costs seconds that a LangChain user need not pay.
    if name in ("as_llama_retriever", "as_runnable"):
        from . import bridges

        return getattr(bridges, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
