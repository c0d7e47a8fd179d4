"""FiscalEmbeddings: any embedder of this package as LangChain Embeddings."""

from __future__ import annotations

from typing import cast

from langchain_core.embeddings import Embeddings

from fiscal_rag_plugin.embedding import (
    Embedder,
    as_embedder,
    embed_checked,
    embed_query_checked,
    model_id_of,
)


class FiscalEmbeddings(Embeddings):
    """Embeds through the wrapped embedder, so that LangChain and LlamaIndex share one model.

    The async methods are LangChain's own, which run these in an executor.
    """

    def __init__(self, embedder: object) -> None:
        self._embedder = as_embedder(embedder)

    @property
    def fiscal_embedder(self) -> Embedder:
        """The wrapped embedder."""
        return self._embedder

    @property
    def model_id(self) -> str | None:
        """The model the wrapped embedder declares."""
        return model_id_of(self._embedder)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", embed_checked(self._embedder, texts).tolist())

    def embed_query(self, text: str) -> list[float]:
        return cast("list[float]", embed_query_checked(self._embedder, text).tolist())
