"""Nodes, chunks and stores for the LlamaIndex tests; vectors are two-dimensional unless a text is embedded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from fiscal_rag_plugin import Chunk, ChunkMetadata, FiscalVectorStore


def open_store(path: Path, **options: Any) -> FiscalVectorStore:
    return FiscalVectorStore.from_params(str(path), "fiscal", **{"default_scope": "public", **options})


def node(
    id: str, vector: list[float] | None = None, *, ref: str | None = None, **metadata: Any
) -> TextNode:
    relationships: dict[Any, Any] = {}
    if ref is not None:
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=ref)
    text = metadata.pop("text", f"text of {id}")
    return TextNode(id_=id, text=text, embedding=vector, metadata=metadata, relationships=relationships)


def chunk(doc_id: str, text: str, *, session_id: str | None = None, **fields: Any) -> Chunk:
    scope: Any = "public" if session_id is None else "private"
    metadata = ChunkMetadata(
        doc_id=doc_id, doc_type="law", source_scope=scope, session_id=session_id, **fields
    )
    return Chunk(text, f"title\n{text}", metadata, start=10, end=10 + len(text))


def where(*conditions: tuple[str, str, Any], condition: str = "and") -> MetadataFilters:
    """MetadataFilters of (key, operator, value) triples."""
    return MetadataFilters(
        filters=[MetadataFilter(key=k, operator=FilterOperator(o), value=v) for k, o, v in conditions],
        condition=condition,  # type: ignore[arg-type]
    )


def ask(store: FiscalVectorStore, vector: list[float], k: int = 10, /, **fields: Any) -> list[str]:
    """Ids of a query by vector; ``keywords`` are the query's own."""
    keywords = fields.pop("keywords", {})
    query = VectorStoreQuery(query_embedding=vector, similarity_top_k=k, **fields)
    return list(store.query(query, **keywords).ids or [])


def ids(nodes: Any) -> list[str]:
    return [n.node_id for n in nodes]
