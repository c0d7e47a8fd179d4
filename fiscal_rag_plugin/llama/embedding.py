"""FiscalEmbedding: any embedder of this package as a LlamaIndex embed model."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import BaseModel, PrivateAttr

from fiscal_rag_plugin.embedding import (
    Embedder,
    EmbeddingService,
    as_embedder,
    embed_checked,
    embed_query_checked,
    model_id_of,
)
from fiscal_rag_plugin.errors import EmbeddingError, NotPicklableError

MAX_BATCH = 2048  # the limit of BaseEmbedding.embed_batch_size


class FiscalEmbedding(BaseEmbedding):
    """Embeds through the wrapped embedder, so that LlamaIndex and LangChain share one model.

    ``to_dict`` carries the model's name only; ``from_dict(data, embedder=...)`` restores it.
    Async calls run the same code in a thread.
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: object, **fields: Any) -> None:
        """Raises EmbeddingError when ``model_name`` (from a dict) is not the embedder's model."""
        inner = as_embedder(embedder)
        model_name = model_id_of(inner) or "unknown"
        if fields.setdefault("model_name", model_name) != model_name:
            raise EmbeddingError(
                f"expected the model {fields['model_name']!r}, the embedder has {model_name!r}"
            )
        if isinstance(inner, EmbeddingService):
            fields.setdefault("embed_batch_size", min(inner.batch_size, MAX_BATCH))
        super().__init__(**fields)
        self._embedder = inner

    @classmethod
    def class_name(cls) -> str:
        return "FiscalEmbedding"

    @property
    def fiscal_embedder(self) -> Embedder:
        """The wrapped embedder."""
        return self._embedder

    def _get_query_embedding(self, query: str) -> list[float]:
        return cast("list[float]", embed_query_checked(self._embedder, query).tolist())

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", embed_checked(self._embedder, texts).tolist())

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    def __getstate__(self) -> dict[str, Any]:
        # BaseComponent drops what does not pickle with a log line; the copy would fail much later.
        try:
            pickle.dumps(self._embedder)
        except Exception as error:
            raise NotPicklableError(
                f"the embedder {type(self._embedder).__name__} cannot be pickled ({error})"
            ) from error
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # BaseComponent would call __init__ with the fields alone, without the embedder.
        BaseModel.__setstate__(self, state)
