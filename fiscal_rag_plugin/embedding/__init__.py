"""Embeddings: what embeds (port), the model this package loads itself (service), and its backends."""

from .checked import embed_checked, embed_query_checked
from .injection import as_embedder
from .port import Backend, Embedder, Model, model_id_of
from .service import EmbeddingService

__all__ = [
    "Backend",
    "Embedder",
    "EmbeddingService",
    "Model",
    "as_embedder",
    "embed_checked",
    "embed_query_checked",
    "model_id_of",
]
