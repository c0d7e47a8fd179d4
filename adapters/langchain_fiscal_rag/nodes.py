"""LlamaIndex nodes to LangChain documents and back. LlamaIndex is imported when nodes are made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from langchain_core.documents import Document

from fiscal_rag_plugin.chunks import SCOPE_KEY, SESSION_KEY
from fiscal_rag_plugin.engines.base import Hit, Record
from fiscal_rag_plugin.errors import InvalidChunkError

from .documents import stored_document

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode, NodeWithScore

    Convertible: TypeAlias = "BaseNode | NodeWithScore | Hit | Record"

# What a document has a place of its own for; vectors; and other nodes, whose text this node's
# reader may not be allowed to see.
_LEFT_OUT = ("id_", "text", "metadata", "embedding", "text_embedding", "obj")


def to_documents(
    items: Iterable[Convertible], *, score_key: str | None = None, node_key: str | None = None
) -> list[Document]:
    """Documents of LlamaIndex nodes, with or without score, or of this package's hits, in order.

    Id, text and metadata are carried over as they are. The rest has no place in a document, so it
    is kept only under the metadata keys that you name, and :func:`to_nodes` with the same names
    restores it: ``score_key`` for the score, ``node_key`` for the node's other fields (offsets,
    relationships, templates, excluded keys). Vectors and an IndexNode's object never are.

    Raises:
        InvalidChunkError: metadata already has such a key, or an item is none of these.
    """
    return [_document(item, score_key, node_key) for item in items]


def _document(item: Any, score_key: str | None, node_key: str | None) -> Document:
    kept: dict[str, Any] = {}
    if isinstance(item, (Hit, Record)):
        document = stored_document(item.record if isinstance(item, Hit) else item)
        if isinstance(item, Hit) and score_key is not None:
            kept[score_key] = item.similarity
    else:
        # Both are recognised by shape: a caller who has nodes has imported LlamaIndex, we have not.
        node = item.node if hasattr(item, "node") and hasattr(item, "score") else item
        if not all(hasattr(node, name) for name in ("node_id", "metadata", "get_content", "to_dict")):
            raise InvalidChunkError(f"expected nodes or hits, not {type(item).__name__}")
        document = Document(id=node.node_id, page_content=node.get_content(), metadata=dict(node.metadata))
        if node_key is not None:
            kept[node_key] = _shell(node)
        if score_key is not None and node is not item:
            kept[score_key] = item.score
    for key in kept:
        if key in document.metadata:
            raise InvalidChunkError(
                f"metadata of {document.id!r:.80} already has {key!r}; choose another key"
            )
    document.metadata.update(kept)
    return document


def _shell(node: Any) -> dict[str, Any]:
    """The other fields of a node as JSON."""
    shell = {name: value for name, value in node.to_dict().items() if name not in _LEFT_OUT}
    if shell.get("text_resource"):
        shell["text_resource"] = {**shell["text_resource"], "text": None, "embeddings": None}
    return dict(json.loads(json.dumps(shell)))


@overload
def to_nodes(
    documents: Sequence[Document], *, score_key: None = None, node_key: str | None = None
) -> list[BaseNode]: ...
@overload
def to_nodes(
    documents: Sequence[Document], *, score_key: str, node_key: str | None = None
) -> list[NodeWithScore]: ...
def to_nodes(
    documents: Sequence[Document], *, score_key: str | None = None, node_key: str | None = None
) -> list[BaseNode] | list[NodeWithScore]:
    """LlamaIndex nodes of documents, in order; with ``score_key``, NodeWithScore.

    A document without an id gets a new one. A ``doc_id`` in the metadata becomes the node's
    source document, and the access keys are kept out of the text that is embedded or shown to a
    model. ``score_key`` and ``node_key`` are taken out of the metadata: see :func:`to_documents`.
    """
    from llama_index.core.schema import NodeWithScore

    nodes: list[BaseNode] = []
    scores: list[float | None] = []
    for document in documents:
        metadata = dict(document.metadata)
        scores.append(metadata.pop(score_key, None) if score_key is not None else None)
        shell = metadata.pop(node_key, None) if node_key is not None else None
        nodes.append(_node(document, metadata, shell))
    if score_key is None:
        return nodes
    return [NodeWithScore(node=node, score=score) for node, score in zip(nodes, scores, strict=True)]


def _node(document: Document, metadata: dict[str, Any], shell: dict[str, Any] | None) -> BaseNode:
    from llama_index.core import schema

    identity: dict[str, Any] = {} if document.id is None else {"id_": document.id}
    if shell is not None:
        kinds = {
            kind.class_name(): kind
            for kind in (schema.TextNode, schema.IndexNode, schema.ImageNode, schema.Node, schema.Document)
        }
        kind = kinds.get(shell.get("class_name", ""), schema.TextNode)
        text: dict[str, Any] = {"text": document.page_content}
        if shell.get("text_resource"):
            text = {"text_resource": {**shell["text_resource"], **text}}
        return kind.from_dict({**shell, **identity, **text, "metadata": metadata})
    node = schema.TextNode(text=document.page_content, metadata=metadata, **identity)
    hidden = [key for key in (SCOPE_KEY, SESSION_KEY) if key in metadata]
    node.excluded_embed_metadata_keys = hidden
    node.excluded_llm_metadata_keys = list(hidden)
    doc_id = metadata.get("doc_id")
    if isinstance(doc_id, str) and doc_id:
        node.relationships[schema.NodeRelationship.SOURCE] = schema.RelatedNodeInfo(node_id=doc_id)
    return node
