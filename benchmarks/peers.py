"""The peers of one run: raw Chroma, the official integrations, and ours, over the same vectors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings
from data import TEXT, Data, metadata
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.vector_stores.chroma import ChromaVectorStore

import langchain_fiscal_rag as langchain
from fiscal_rag_plugin import Access, Chunk, ChunkMetadata, FiscalVectorStore, get_retriever

TOP_K = 8
SESSION = "S0"
BATCH = 2_000
Query = Callable[[np.ndarray], list[str]]
"""A vector to the section labels of its hits, in order."""
logging.getLogger("fiscal_rag_plugin").setLevel(logging.ERROR)


def rows_of(data: Data) -> list[tuple[str | None, int, np.ndarray]]:
    rows: list[tuple[str | None, int, np.ndarray]] = [(None, i, v) for i, v in enumerate(data.public)]
    for session, vectors in data.private.items():
        rows += [(session, 10_000_000 + i, v) for i, v in enumerate(vectors)]
    return rows


class Fixed(Embeddings):
    """Returns the vector of the question under test: embedding is no part of what is compared."""

    def __init__(self) -> None:
        self.vector: list[float] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.vector


def official(path: Path, data: Data, name: str) -> tuple[Any, Any, float]:
    """(a Chroma client, its collection with every row, seconds that its integration took to write)."""
    client = chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection(
        name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    if collection.count():
        return client, collection, float("nan")
    store = ChromaVectorStore.from_collection(collection)
    started = time.perf_counter()
    rows = rows_of(data)
    for start in range(0, len(rows), BATCH):
        store.add(
            [
                TextNode(
                    id_=f"{session}:{i}",
                    text=f"{TEXT}{i}",
                    embedding=vector.tolist(),
                    metadata=metadata(i, session),
                )
                for session, i, vector in rows[start : start + BATCH]
            ]
        )
    return client, collection, time.perf_counter() - started


def ours(path: Path, data: Data) -> tuple[FiscalVectorStore, Fixed, float]:
    embedder = Fixed()
    store = FiscalVectorStore.from_params(str(path), "bench", embed_model=embedder)
    if store.view.stats().public_chunks:
        return store, embedder, float("nan")
    started = time.perf_counter()
    rows = rows_of(data)
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        chunks = [
            Chunk(f"{TEXT}{i}", f"{i}", ChunkMetadata(**metadata(i, session)), 0, len(TEXT))
            for session, i, _ in part
        ]
        store.add_chunks(chunks, vectors=np.stack([vector for *_, vector in part]))
    return store, embedder, time.perf_counter() - started


def official_queries(client: Any, collection: Any, extra: dict[str, Any] | None) -> dict[str, Query]:
    """Both official integrations with the mandatory filter, and a functional one."""
    mine: dict[str, Any] = {"$or": [
        {"source_scope": "public"}, {"$and": [{"source_scope": "private"}, {"session_id": SESSION}]}
    ]}  # fmt: skip
    where = mine if extra is None else {"$and": [mine, extra]}
    scope = [MetadataFilter(key="source_scope", value="public"), MetadataFilters(filters=[
        MetadataFilter(key="source_scope", value="private"), MetadataFilter(key="session_id", value=SESSION),
    ])]  # fmt: skip
    groups: list[Any] = [MetadataFilters(filters=scope, condition=FilterCondition.OR)]
    groups += [MetadataFilter(key=key, value=value) for key, value in (extra or {}).items()]
    filters = MetadataFilters(filters=groups)
    store = ChromaVectorStore.from_collection(collection)
    chroma = Chroma(client=client, collection_name=collection.name, embedding_function=None)

    def llama(vector: np.ndarray) -> list[str]:
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=TOP_K, filters=filters)
        return [node.metadata["section_label"] for node in store.query(query).nodes or []]

    def lang(vector: np.ndarray) -> list[str]:
        found = chroma.similarity_search_by_vector(vector.tolist(), k=TOP_K, filter=where)
        return [document.metadata["section_label"] for document in found]

    return {"official LlamaIndex": llama, "official LangChain": lang}


def raw_query(collection: Any) -> Query:
    def query(vector: np.ndarray) -> list[str]:
        found = collection.query(
            query_embeddings=[vector.tolist()],
            n_results=TOP_K,
            include=["documents", "metadatas", "distances"],
        )
        return [row["section_label"] for row in found["metadatas"][0]]

    return query


def our_queries(
    store: FiscalVectorStore, embedder: Fixed, extra: dict[str, Any] | None, access: Access
) -> dict[str, Query]:
    view = store.for_access(access)
    conditions = [MetadataFilter(key=key, value=value) for key, value in (extra or {}).items()]
    filters = MetadataFilters(filters=conditions) if conditions else None
    arguments: dict[str, Any] = {
        "vectorstore": view,
        "top_k": TOP_K,
        "score_threshold": None,
        "filter_dict": extra,
    }
    llama_retriever, lang_retriever = get_retriever(**arguments), langchain.get_retriever(**arguments)

    def engine(vector: np.ndarray) -> list[str]:
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=TOP_K, filters=filters)
        return [node.metadata["section_label"] for node in view.query(query).nodes or []]

    def llama(vector: np.ndarray) -> list[str]:
        embedder.vector = vector.tolist()
        return [hit.node.metadata["section_label"] for hit in llama_retriever.retrieve("pregunta")]

    def lang(vector: np.ndarray) -> list[str]:
        embedder.vector = vector.tolist()
        return [document.metadata["section_label"] for document in lang_retriever.invoke("pregunta")]

    return {"FiscalVectorStore.query": engine, "FiscalRetriever": llama, "FiscalRagRetriever": lang}
