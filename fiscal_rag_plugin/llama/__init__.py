"""LlamaIndex components, thin faces over a View."""

from .embedding import FiscalEmbedding
from .ingestion import FiscalIngestionPipeline
from .opening import add_documents_to_vectorstore, get_retriever, get_vectorstore
from .postprocessors import AuthorizationPostprocessor, CosineThresholdPostprocessor
from .retriever import FiscalRetriever
from .vector_store import FiscalVectorStore

__all__ = [
    "AuthorizationPostprocessor",
    "CosineThresholdPostprocessor",
    "FiscalEmbedding",
    "FiscalIngestionPipeline",
    "FiscalRetriever",
    "FiscalVectorStore",
    "add_documents_to_vectorstore",
    "get_retriever",
    "get_vectorstore",
]
