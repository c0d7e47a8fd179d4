"""LlamaIndex nodes as drafts to write, and records as nodes again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from ..chunks import SCOPE_KEY, SESSION_KEY, Json, copy_json, copy_metadata, validate_id
from ..drafts import Draft
from ..engines.base import Hit, Record
from ..errors import InvalidChunkError
from ..view import View

logger = logging.getLogger(__name__)

ACCESS_KEYS = (SCOPE_KEY, SESSION_KEY)
# Bookkeeping that tells a language model nothing about the law.
TECHNICAL_KEYS = (*ACCESS_KEYS, "chunk_index", "retrieved_at")
# What of a chunk's metadata belongs into a vector made of the node; the rest is for filters.
EMBEDDED_KEYS = frozenset({"tax", "section_path", "section_label"})

_CLASSES: dict[str, type[BaseNode]] = {
    cls.__name__: cls for cls in (TextNode, ImageNode, IndexNode, Node, Document, ImageDocument)
}
_EXCLUDED = ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
# These are columns of the record, or must not come back: vectors, and `obj`, another node or object
# whose text every retriever hands out in place of the node, whatever its own access.
_NOT_IN_SHELL = ("id_", "text", "embedding", "text_embedding", "metadata", "obj")


def drafts_of(nodes: Sequence[BaseNode], view: View) -> list[Draft]:
    """Drafts of nodes for this view, all checked before any is written.

    Raises:
        InvalidChunkError: no node, a class whose fields would be lost, a reserved metadata key,
            a value JSON does not have, no scope on an unbound view.
        AccessDeniedError: metadata claims another scope or session than the view writes.
    """
    drafts = [_draft_of(node, view) for node in nodes]
    objects = [node.node_id for node in nodes if isinstance(node, IndexNode) and node.obj is not None]
    if objects:
        logger.warning(
            "the obj of %d IndexNodes is not stored (%.80s…); hand it to the index as objects=",
            len(objects), objects[0],
        )  # fmt: skip
    return drafts


def _draft_of(node: BaseNode, view: View) -> Draft:
    name = _stored_class(node)
    where = f"node {node.node_id!r:.80}"
    metadata = copy_metadata(node.metadata)
    scope, session_id = view.placed(metadata)
    for key in ACCESS_KEYS:
        metadata.pop(key, None)
    shell = {k: v for k, v in node.model_dump(mode="json").items() if k not in _NOT_IN_SHELL}
    shell["class_name"] = name
    for key in _EXCLUDED:
        # What reading added is no part of the node: written back unchanged, it is the same record.
        if tuple(shell[key][-len(ACCESS_KEYS) :]) == ACCESS_KEYS:
            shell[key] = shell[key][: -len(ACCESS_KEYS)]
    for resource in _RESOURCES:
        if shell.get(resource) is not None:
            shell[resource] = _resource_shell(getattr(node, resource), shell[resource])
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    record = Record(
        id=validate_id(node.node_id), scope=scope, session_id=session_id,
        ref=None if node.ref_doc_id is None else cast("str", copy_json(node.ref_doc_id, where)),
        text=cast("str", copy_json(text, f"text of {where}")), metadata=metadata, kind="node",
        shell=cast("dict[str, Json]", copy_json(shell, where)),
    )  # fmt: skip
    return Draft(record, _embedding_text(node), node.embedding)


def _stored_class(node: object) -> str:
    if not isinstance(node, BaseNode):
        raise InvalidChunkError(
            f"add() takes LlamaIndex nodes, not {type(node).__name__}; Chunks go through add_chunks()"
        )
    for cls in type(node).__mro__:
        if _CLASSES.get(cls.__name__) is cls:
            if extra := sorted(set(type(node).model_fields) - set(cls.model_fields)):
                raise InvalidChunkError(
                    f"{type(node).__name__} has the fields {extra}, which would not come back; "
                    "move them into metadata"
                )
            return cls.__name__
    raise InvalidChunkError(f"nodes of class {type(node).__name__} cannot be stored")


def _resource_shell(resource: Any, dumped: dict[str, Any]) -> dict[str, Any]:
    """A media resource without its text and vectors; pydantic leaves ``data`` out of its dump."""
    shell = {k: v for k, v in dumped.items() if k != "embeddings" and not (k == "text" and v is not None)}
    if resource.data is not None:
        shell["data"] = resource.data.decode("ascii")
    return shell


def _embedding_text(node: BaseNode) -> str:
    """The text LlamaIndex would embed, without the access keys, so that access moves no vector."""
    if not any(key in node.metadata for key in ACCESS_KEYS):
        return node.get_content(metadata_mode=MetadataMode.EMBED)
    excluded = [*node.excluded_embed_metadata_keys, *ACCESS_KEYS]
    plain = node.model_copy(update={"excluded_embed_metadata_keys": excluded})
    return plain.get_content(metadata_mode=MetadataMode.EMBED)


def nodes_of(records: Iterable[Record]) -> list[BaseNode]:
    """Nodes of records, in their order."""
    return [node_of(record) for record in records]


def node_of(record: Record) -> BaseNode:
    """The node that was put in, plus the access keys; a chunk or a document as a TextNode.

    Text, metadata, id and access come from the record; the shell can change none of them.
    """
    if record.kind == "node":
        try:
            return _original(record)
        except (ValueError, TypeError, KeyError, AttributeError):
            # Only a row edited in the database has a shell that does not fit its class.
            logger.warning("node %.80r has lost its form and is returned as plain text", record.id)
    return _text_node(record)


def scored_node(hit: Hit, *, include_scores: bool) -> NodeWithScore:
    """The node of a hit with its cosine; with ``include_scores`` its values are in the metadata as well,
    where neither embedding nor language model sees them."""
    node = node_of(hit.record)
    if include_scores:
        values = hit.scores()
        node.metadata.update(values)
        for name in _EXCLUDED:
            setattr(node, name, _with_keys(getattr(node, name), list(values)))
    return NodeWithScore(node=node, score=hit.score)


def _original(record: Record) -> BaseNode:
    shell: dict[str, Any] = {k: v for k, v in record.shell.items() if k not in _NOT_IN_SHELL}
    cls = _CLASSES[str(shell.pop("class_name"))]
    for key in _EXCLUDED:
        shell[key] = _with_keys(shell.get(key) or [], ACCESS_KEYS)
    if issubclass(cls, Node):
        resource = shell.get("text_resource")
        if resource is not None and "text" not in resource:
            shell["text_resource"] = {**resource, "text": record.text}
    else:
        shell["text"] = record.text
    return cls(id_=record.id, metadata=record.flat(), **shell)


def _text_node(record: Record) -> TextNode:
    metadata = record.flat()
    relationships: dict[NodeRelationship, Any] = {}
    if record.ref is not None:
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(
            node_id=record.ref, node_type=ObjectType.DOCUMENT
        )
    unseen: Sequence[str] = ACCESS_KEYS
    not_embedded: Sequence[str] = ACCESS_KEYS
    if record.kind == "chunk":
        # "page: 0" or an empty date would tell a model something that nobody knows.
        unknown = [k for k, v in metadata.items() if v == "" or (v == 0 and v is not False)]
        unseen = [*TECHNICAL_KEYS, *unknown]
        not_embedded = [k for k in metadata if k not in EMBEDDED_KEYS or k in unknown]
    return TextNode(
        id_=record.id, text=record.text, metadata=metadata, relationships=relationships,
        start_char_idx=_offset(record, "start"), end_char_idx=_offset(record, "end"),
        excluded_llm_metadata_keys=_with_keys([], unseen),
        excluded_embed_metadata_keys=_with_keys([], [*ACCESS_KEYS, *not_embedded]),
    )  # fmt: skip


def _offset(record: Record, name: str) -> int | None:
    value = record.shell.get(name)
    return value if type(value) is int else None


def _with_keys(keys: Sequence[str], more: Sequence[str]) -> list[str]:
    """``keys`` as they are, then those of ``more`` that are missing."""
    return [*keys, *(key for key in dict.fromkeys(more) if key not in keys)]
