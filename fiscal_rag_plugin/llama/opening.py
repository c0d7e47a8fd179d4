"""The seed's three functions: open the store, add chunks, build a retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilters

from ..access import Access
from ..chunks import Chunk
from ..embedding import EmbeddingService
from ..errors import SettingsError
from ..ingest.run import IngestOptions
from ..settings import DEFAULT_SCORE_THRESHOLD, DEFAULT_TOP_K, FiscalSettings
from .retriever import FiscalRetriever
from .vector_store import FiscalVectorStore


def get_vectorstore(
    settings: FiscalSettings | None = None, *, embedding_service: object = None, embed_model: object = None,
    create: bool = True, default_scope: str | None = None,
) -> FiscalVectorStore:  # fmt: skip
    """The operator's store of the settings' directory and collection; opening never loads a model.

    ``embedding_service`` and ``embed_model`` are two names for anything that embeds; without
    either, an EmbeddingService of the settings embeds when the first text arrives.
    """
    if embedding_service is not None and embed_model is not None:
        raise SettingsError("give embedding_service or embed_model, not both")
    settings = settings if settings is not None else FiscalSettings()
    if not isinstance(settings, FiscalSettings):
        raise SettingsError(
            "settings must be FiscalSettings(chroma_dir=...), or use FiscalVectorStore.from_params"
        )
    given = embedding_service if embedding_service is not None else embed_model
    return FiscalVectorStore.from_params(
        settings.chroma_dir, settings.chroma_collection,
        embed_model=given if given is not None else EmbeddingService(settings),
        create=create, default_scope=default_scope, lock_timeout=settings.lock_timeout,
        ingest_options=IngestOptions(
            chunk_tokens=settings.chunk_tokens, chunk_overlap=settings.chunk_overlap
        ),
    )  # fmt: skip


def add_documents_to_vectorstore(chunks: Sequence[Chunk], *, vectorstore: FiscalVectorStore) -> list[str]:
    """``vectorstore.add_chunks(chunks)``: upsert chunks and return their ids in order.

    Raises:
        NotAChunkError: nodes and documents have one text only; a Chunk keeps what is cited apart
            from what is embedded.
    """
    return vectorstore.add_chunks(chunks)


def get_retriever(
    *, vectorstore: FiscalVectorStore, top_k: int = DEFAULT_TOP_K,
    score_threshold: float | None = DEFAULT_SCORE_THRESHOLD,
    filter_dict: dict[str, Any] | MetadataFilters | None = None,
    session_id: str | None = None, access: Access | None = None, mode: str = "dense",
    as_of: str | None = None, tax_year: int | None = None, hybrid_weight: float = 0.5,
    on_lexical_failure: str = "raise", include_scores: bool = False,
) -> FiscalRetriever:  # fmt: skip
    """A LlamaIndex retriever; ``langchain_fiscal_rag.get_retriever`` gives the same hits in its order.

    ``session_id=None`` on the operator's store reads public chunks only; on a view it is the
    view's own, and another one raises AccessDeniedError. See :class:`FiscalRetriever`.
    """
    return FiscalRetriever(
        vectorstore, top_k=top_k, score_threshold=score_threshold, filter=filter_dict,
        session_id=session_id, access=access, mode=mode, as_of=as_of, tax_year=tax_year,
        hybrid_weight=hybrid_weight, on_lexical_failure=on_lexical_failure, include_scores=include_scores,
    )  # fmt: skip
