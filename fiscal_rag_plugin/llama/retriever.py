"""FiscalRetriever: what VectorIndexRetriever cannot do, a session, a threshold and a date inside."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters

from ..access import Access
from ..engines.base import Condition, Hit
from ..errors import InvalidQueryError
from ..filters import all_of, in_force, parse_filter
from ..ranking import Mode, SearchQuery, check_parameters, check_threshold, check_top_k
from ..settings import DEFAULT_SCORE_THRESHOLD, DEFAULT_TOP_K
from ..view import View
from .events import searched
from .handle import checked
from .nodes import scored_node
from .queries import mode_of
from .vector_store import FiscalVectorStore


class FiscalRetriever(BaseRetriever):
    """The best nodes within one access; ``NodeWithScore.score`` is the cosine in every mode.

    Everything is decided at construction and cannot be reassigned. On the operator's store,
    neither ``session_id`` nor ``access`` means public chunks only; on a view, its own access.
    """

    def __init__(
        self, vectorstore: FiscalVectorStore, *, top_k: int = DEFAULT_TOP_K,
        score_threshold: float | None = DEFAULT_SCORE_THRESHOLD,
        filter: dict[str, Any] | MetadataFilters | None = None,
        session_id: str | None = None, access: Access | None = None,
        mode: str = "dense", as_of: str | None = None, tax_year: int | None = None,
        mmr_threshold: float = 0.5, hybrid_weight: float = 0.5, on_lexical_failure: str = "raise",
        include_scores: bool = False, callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        """
        Args:
            score_threshold: cosine in [-1, 1] that a node must reach, within 1e-6; None: no threshold.
            filter: Chroma's ``where`` syntax or MetadataFilters; it only narrows.
            mode: "dense", "sparse" (words, by BM25), "hybrid" (both, fused by rank) or "mmr";
                ``mmr_threshold`` 1.0 is plain similarity, 0.0 only diversity.
            hybrid_weight: of the dense ranks in [0, 1]; BM25 has the rest.
            on_lexical_failure: "dense" answers from vectors alone when words cannot be searched.
            include_scores: also write ``similarity``, ``bm25`` and ``rrf`` into the nodes' metadata.
            as_of: an ISO day; keeps what was in force then.
            tax_year: keeps that fiscal year or an unknown one, in force on its 31 December.

        Raises:
            AccessDeniedError: a view is asked for another access than its own.
            InvalidQueryError, InvalidFilterError: a parameter is out of its range.
        """
        view = checked(getattr(vectorstore, "view", vectorstore))
        self._view = view.narrowed(session_id=session_id, access=access)
        self._query = SearchQuery(
            top_k=check_top_k(top_k), score_threshold=check_threshold(score_threshold), mode=mode_of(mode),
            condition=Condition(filter=all_of(parse_filter(filter), in_force(as_of, tax_year))),
            mmr_threshold=mmr_threshold, hybrid_weight=hybrid_weight,
            on_lexical_failure=on_lexical_failure,
        )  # fmt: skip
        self._include_scores = include_scores
        check_parameters(self._query)
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    @property
    def view(self) -> View:
        return self._view

    @property
    def access(self) -> Access | None:
        return self._view.access

    @property
    def session_id(self) -> str | None:
        """The session written through the same access; None when only public chunks are read."""
        return self._view.access.write if self._view.access is not None else None

    @property
    def top_k(self) -> int:
        return self._query.top_k

    @property
    def score_threshold(self) -> float | None:
        return self._query.score_threshold

    @property
    def mode(self) -> Mode:
        return mode_of(self._query.mode)

    def search_query(self, question: QueryBundle) -> SearchQuery:
        """The query for a bundle: its embedding, else the mean of its embedding strings (HyDE)."""
        if question.embedding is not None:
            return replace(self._query, vector=question.embedding, text=question.query_str)
        texts = question.custom_embedding_strs
        if not texts:
            return replace(self._query, text=question.query_str)
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidQueryError("custom_embedding_strs must be non-blank texts")
        mean = np.mean([self._view.embed_query(t) for t in texts], axis=0)
        return replace(self._query, vector=mean, text=question.query_str)

    def hits(self, question: str | QueryBundle) -> list[Hit]:
        """What :meth:`retrieve` turns into nodes: each with its cosine, BM25, ranks and fused value."""
        bundle = QueryBundle(question) if isinstance(question, str) else question
        return searched(self._view, self.search_query(bundle)).hits

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [scored_node(h, include_scores=self._include_scores) for h in self.hits(query_bundle)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    # The base class would enter the objects of IndexNodes, whose text no access was checked for,
    # and drop a session's own chunk when a public one has the same id.
    def _handle_recursive_retrieval(
        self,
        query_bundle: QueryBundle,  # noqa: ARG002
        nodes: list[NodeWithScore],
    ) -> list[NodeWithScore]:
        return nodes

    async def _ahandle_recursive_retrieval(
        self,
        query_bundle: QueryBundle,  # noqa: ARG002
        nodes: list[NodeWithScore],
    ) -> list[NodeWithScore]:
        return nodes
