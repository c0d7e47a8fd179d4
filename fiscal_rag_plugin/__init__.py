"""fiscal_rag_plugin: Spanish tax retrieval that never shows anybody what they may not see."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import Access
    from .chunks import Chunk, ChunkMetadata
    from .embedding import EmbeddingService
    from .llama.opening import add_documents_to_vectorstore, get_retriever, get_vectorstore
    from .llama.postprocessors import AuthorizationPostprocessor, CosineThresholdPostprocessor
    from .llama.retriever import FiscalRetriever
    from .llama.vector_store import FiscalVectorStore
    from .pipeline import RAGPipeline
    from .settings import FiscalSettings

__all__ = [
    "Access",
    "AuthorizationPostprocessor",
    "Chunk",
    "ChunkMetadata",
    "CosineThresholdPostprocessor",
    "EmbeddingService",
    "FiscalRetriever",
    "FiscalSettings",
    "FiscalVectorStore",
    "RAGPipeline",
    "add_documents_to_vectorstore",
    "get_retriever",
    "get_vectorstore",
]

_MODULES = {
    "Access": "access",
    "AuthorizationPostprocessor": "llama.postprocessors",
    "Chunk": "chunks",
    "ChunkMetadata": "chunks",
    "CosineThresholdPostprocessor": "llama.postprocessors",
    "EmbeddingService": "embedding",
    "FiscalRetriever": "llama.retriever",
    "FiscalSettings": "settings",
    "FiscalVectorStore": "llama.vector_store",
    "RAGPipeline": "pipeline",
    "add_documents_to_vectorstore": "llama.opening",
    "get_retriever": "llama.opening",
    "get_vectorstore": "llama.opening",
}


def __getattr__(name: str) -> Any:
    # LlamaIndex takes 2 s to import: each name is loaded when it is first asked for (PEP 562).
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
