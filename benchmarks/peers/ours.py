"""This package: the engine call, and both frameworks' retrievers above it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from fiscal_rag_plugin import Access, Chunk, ChunkMetadata, FiscalVectorStore, get_retriever

from ..data import Extra, Rows
from .base import ENGINE, LANG, LLAMA, TOP_K, Ask

COLLECTION = "bench"
# A retriever that is asked with a vector of no known model says so each time.


class Fixed:
    """Returns the vector of the question under test: embedding is no part of what is compared."""

    def __init__(self) -> None:
        self.vector: list[float] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.vector


class Ours:
    def __init__(self, path: Path) -> None:
        self._embedder = Fixed()
        self.store = FiscalVectorStore.from_params(str(path), COLLECTION, embed_model=self._embedder)

    def count(self) -> int:
        stats = self.store.view.stats()
        return stats.public_chunks + stats.private_chunks

    def write(self, rows: Rows) -> None:
        self.store.add_chunks(chunks(rows), vectors=rows.vectors)

    def finish(self) -> None:
        """Every write is whole and on disk when it returns."""

    def engine(self, sessions: Sequence[str], extra: Extra | None) -> Ask:
        view = self.store.for_access(Access(sessions))

        def ask(vector: np.ndarray) -> list[str]:
            return [node.metadata["section_label"] for node in view.query(query(vector, extra)).nodes or []]

        return ask

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        # Here, so that a start-up with LlamaIndex alone is measured without LangChain.
        import langchain_fiscal_rag as langchain

        asked: dict[str, Any] = {
            "vectorstore": self.store.for_access(Access(sessions)), "top_k": TOP_K,
            "score_threshold": None, "filter_dict": extra,
        }  # fmt: skip
        llama_retriever, lang_retriever = get_retriever(**asked), langchain.get_retriever(**asked)

        def llama(vector: np.ndarray) -> list[str]:
            self._embedder.vector = vector.tolist()
            return [hit.node.metadata["section_label"] for hit in llama_retriever.retrieve("pregunta")]

        def lang(vector: np.ndarray) -> list[str]:
            self._embedder.vector = vector.tolist()
            return [document.metadata["section_label"] for document in lang_retriever.invoke("pregunta")]

        return {ENGINE: self.engine(sessions, extra), LLAMA: llama, LANG: lang}

    def close(self) -> None:
        self.store.close()


def chunks(rows: Rows) -> list[Chunk]:
    return [
        Chunk(text, text, ChunkMetadata(**row), 0, len(text))
        for text, row in zip(rows.texts, rows.metadata, strict=True)
    ]


def query(vector: np.ndarray, extra: Extra | None) -> VectorStoreQuery:
    filters = [MetadataFilter(key=key, value=value) for key, value in (extra or {}).items()]
    return VectorStoreQuery(
        query_embedding=vector.tolist(), similarity_top_k=TOP_K,
        filters=MetadataFilters(filters=filters) if filters else None,
    )  # fmt: skip


open_peer = Ours
