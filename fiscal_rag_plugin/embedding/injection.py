"""as_embedder: whatever a user has that embeds, seen as an Embedder."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, cast

from fiscal_rag_plugin.errors import InvalidEmbedderError, NoEmbedderError

from .port import Embedder, model_id_of

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding


class NoEmbedder:
    """Stands where no embedder was given: reading by vector works, embedding a text says why not."""

    model_id: str | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise _no_embedder(f"{len(texts)} texts have")

    def embed_query(self, text: str) -> list[float]:  # noqa: ARG002
        raise _no_embedder("a question has")


class LlamaIndexEmbedder:
    """A LlamaIndex ``BaseEmbedding`` as an Embedder; its callbacks and events keep working."""

    def __init__(self, embed_model: BaseEmbedding) -> None:
        self._embed_model = embed_model
        # "unknown" is BaseEmbedding's default: the model did not say.
        name = embed_model.model_name
        self.model_id = model_id_of(embed_model) or (None if name in ("", "unknown") else name)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._embed_model.get_text_embedding_batch(texts)

    def embed_query(self, text: str) -> list[float]:
        return self._embed_model.get_query_embedding(text)


def as_embedder(candidate: object) -> Embedder:
    """An Embedder for anything that embeds.

    Accepted: an object with ``embed_documents(list[str])`` and ``embed_query(str)`` (an
    EmbeddingService, a LangChain ``Embeddings``, one's own), which is returned as it is; a
    LlamaIndex ``BaseEmbedding``; this package's faces, which are unwrapped; None, whose embedder
    raises NoEmbedderError when a text has to be embedded.

    Raises:
        InvalidEmbedderError: anything else, a class instead of an object, async methods.
    """
    if candidate is None:
        return NoEmbedder()
    inner = None if isinstance(candidate, type) else getattr(candidate, "fiscal_embedder", None)
    if inner is not None and _embeds(inner):
        return cast("Embedder", inner)
    # An instance exists only if the module is imported: nothing is imported to recognise one.
    llama = sys.modules.get("llama_index.core.base.embeddings.base")
    if llama is not None and isinstance(candidate, llama.BaseEmbedding):
        return LlamaIndexEmbedder(candidate)
    if not isinstance(candidate, type) and _embeds(candidate):
        return cast("Embedder", candidate)
    what = f"the class {candidate.__name__}" if isinstance(candidate, type) else type(candidate).__name__
    raise InvalidEmbedderError(
        f"{what} is not an embedder; accepted are an EmbeddingService, a LlamaIndex BaseEmbedding, a"
        " LangChain Embeddings, or any object with embed_documents(list[str]) and embed_query(str)"
    )


def _embeds(candidate: object) -> bool:
    methods = [getattr(candidate, name, None) for name in ("embed_documents", "embed_query")]
    return all(callable(m) and not inspect.iscoroutinefunction(m) for m in methods)


def _no_embedder(what: str) -> NoEmbedderError:
    return NoEmbedderError(
        f"{what} to be embedded, and this store was opened without an embedder; open it with one,"
        " such as embedding_service=EmbeddingService(settings)"
    )
