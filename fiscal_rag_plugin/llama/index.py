"""FiscalIndex: a VectorStoreIndex that keeps the access keys out of what is embedded."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode

from ..chunks import SCOPE_KEY, SESSION_KEY


class FiscalIndex(VectorStoreIndex):
    """What ``store.as_index()`` returns; everything but the embedding of new nodes is LlamaIndex's.

    A node whose metadata says its scope and session would otherwise be embedded with them: the
    vector would depend on who owns it, and the session id would go to the model.
    """

    def _get_node_with_embedding(
        self, nodes: Sequence[BaseNode], show_progress: bool = False
    ) -> list[BaseNode]:
        return super()._get_node_with_embedding([hidden(node) for node in nodes], show_progress)

    async def _aget_node_with_embedding(
        self, nodes: Sequence[BaseNode], show_progress: bool = False
    ) -> list[BaseNode]:
        return await super()._aget_node_with_embedding([hidden(node) for node in nodes], show_progress)


def hidden(node: BaseNode) -> BaseNode:
    """The node, or a copy whose access keys are excluded from its texts."""
    missing = [
        key for key in (SCOPE_KEY, SESSION_KEY)
        if key in node.metadata and key not in node.excluded_embed_metadata_keys
    ]  # fmt: skip
    if not missing:
        return node
    return node.model_copy(
        update={
            "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, *missing],
            "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, *missing],
        }
    )
