"""The official LlamaIndex and LangChain integrations, with the filter an application must write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_chroma import Chroma
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.vector_stores.chroma import ChromaVectorStore

from ..data import Extra, Rows
from .base import TOP_K, Ask
from .raw import open_collection


class Official:
    """Both over one collection, which the LlamaIndex integration writes."""

    def __init__(self, path: Path) -> None:
        self._client, self.collection = open_collection(path)
        self._store = ChromaVectorStore.from_collection(self.collection)
        self._chroma = Chroma(
            client=self._client, collection_name=self.collection.name, embedding_function=None
        )

    def count(self) -> int:
        return int(self.collection.count())

    def write(self, rows: Rows) -> None:
        self._store.add(
            [
                TextNode(id_=id, text=text, embedding=v.tolist(), metadata=m)
                for id, text, v, m in zip(rows.ids, rows.texts, rows.vectors, rows.metadata, strict=True)
            ]
        )

    def finish(self) -> None:
        """Chroma's index is complete with each batch."""

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        filters, where = llama_filters(sessions, extra), chroma_where(sessions, extra)

        def llama(vector: np.ndarray) -> list[str]:
            query = VectorStoreQuery(
                query_embedding=vector.tolist(), similarity_top_k=TOP_K, filters=filters
            )
            return [node.metadata["section_label"] for node in self._store.query(query).nodes or []]

        def lang(vector: np.ndarray) -> list[str]:
            found = self._chroma.similarity_search_by_vector(vector.tolist(), k=TOP_K, filter=where)
            return [document.metadata["section_label"] for document in found]

        return {"official LlamaIndex": llama, "official LangChain": lang}

    def close(self) -> None:
        self._client.close()


def chroma_where(sessions: Sequence[str], extra: Extra | None) -> dict[str, Any]:
    """Public chunks or those of the sessions, and the functional filter."""
    mine = {"$and": [{"source_scope": "private"}, {"session_id": {"$in": list(sessions)}}]}
    access: dict[str, Any] = {"$or": [{"source_scope": "public"}, mine]}
    return {"$and": [access, extra]} if extra else access


def llama_filters(sessions: Sequence[str], extra: Extra | None) -> MetadataFilters:
    """The same in LlamaIndex's words."""
    mine = MetadataFilters(filters=[
        MetadataFilter(key="source_scope", value="private"),
        MetadataFilter(key="session_id", value=list(sessions), operator=FilterOperator.IN),
    ])  # fmt: skip
    public = MetadataFilter(key="source_scope", value="public")
    access = MetadataFilters(filters=[public, mine], condition=FilterCondition.OR)
    functional = [MetadataFilter(key=key, value=value) for key, value in (extra or {}).items()]
    return MetadataFilters(filters=[access, *functional])


open_peer = Official
