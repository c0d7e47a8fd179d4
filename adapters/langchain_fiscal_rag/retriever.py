"""FiscalRagRetriever: the store as a LangChain retriever, with access, threshold and validity inside."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor
from pydantic import Field, SkipValidation

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.engines.base import Condition, Hit
from fiscal_rag_plugin.filters import all_of, in_force, parse_filter
from fiscal_rag_plugin.fusion import check_weight
from fiscal_rag_plugin.ranking import (
    SearchQuery,
    check_lexical_failure,
    check_mode,
    check_threshold,
    check_top_k,
)
from fiscal_rag_plugin.settings import DEFAULT_SCORE_THRESHOLD, DEFAULT_TOP_K
from fiscal_rag_plugin.view import View

from .asking import narrowed, view_of
from .bound import BoundRetriever
from .documents import retrieved_document


class FiscalRagRetriever(BoundRetriever):
    """Questions in, permitted documents out: a ``Runnable[str, list[Document]]``.

    Documents carry the original text, the stored metadata and ``source``, best first. ``invoke``
    and its relatives take ``top_k``/``k``, ``filter`` (added with AND) and a higher
    ``score_threshold``; every other keyword raises UnexpectedArgumentError, and
    ``config["configurable"]`` changes nothing.
    """

    vectorstore: Annotated[View, SkipValidation] = Field(exclude=True, repr=False)
    """The view that is asked, bound to the access."""
    top_k: int = DEFAULT_TOP_K
    score_threshold: float | None = None
    """Smallest cosine kept, in [-1, 1], applied after the cut to ``top_k``."""
    filter_dict: Any = None
    """Chroma's ``where`` syntax, or LlamaIndex ``MetadataFilters``."""
    mode: str = "dense"
    as_of: str | None = None
    """What was in force on this ISO day."""
    tax_year: int | None = None
    """What governs this year's accrual: see ``filters.in_force``."""
    hybrid_weight: float = 0.5
    """Of the dense ranks in mode "hybrid", in [0, 1]; BM25 has the rest."""
    on_lexical_failure: str = "raise"
    """"dense" answers from vectors alone when words cannot be searched."""
    include_scores: bool = False
    """Also write ``similarity``, ``bm25`` and ``rrf`` into the documents' metadata."""

    def __init__(
        self, *, vectorstore: Any, session_id: str | None = None, access: Access | None = None,
        top_k: int = DEFAULT_TOP_K, score_threshold: float | None = None, filter_dict: Any = None,
        mode: str = "dense", as_of: str | None = None, tax_year: int | None = None,
        hybrid_weight: float = 0.5, on_lexical_failure: str = "raise", include_scores: bool = False,
        **fields: Any,
    ) -> None:  # fmt: skip
        """``vectorstore``: a store of either framework, or a view; a bound one keeps its access.

        Raises:
            AccessDeniedError: a bound view is asked for another access than its own.
            UnsupportedModeError, InvalidQueryError, InvalidFilterError: see each parameter.
        """
        fields.update(
            top_k=top_k, score_threshold=score_threshold, filter_dict=filter_dict,
            mode=mode, as_of=as_of, tax_year=tax_year, hybrid_weight=hybrid_weight,
            on_lexical_failure=on_lexical_failure, include_scores=include_scores,
        )  # fmt: skip
        checked = {name: self._checked(name, value) for name, value in fields.items()}
        view = view_of(vectorstore).narrowed(session_id=session_id, access=access)
        super().__init__(vectorstore=view, **checked)

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        check = _CHECKS.get(name)
        return check(value) if check is not None else value

    def _query(self, question: str) -> SearchQuery:
        condition = Condition(
            filter=all_of(parse_filter(self.filter_dict), in_force(self.as_of, self.tax_year))
        )
        return SearchQuery(
            text=question, top_k=self.top_k, score_threshold=self.score_threshold,
            mode=self.mode, condition=condition, hybrid_weight=self.hybrid_weight,
            on_lexical_failure=self.on_lexical_failure,
        )  # fmt: skip

    def hits(self, question: str, **kwargs: Any) -> list[Hit]:
        """What ``invoke`` turns into documents: each with its cosine, BM25, ranks and fused value."""
        return self.vectorstore.search(narrowed(self._query(question), kwargs)).hits

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> list[Document]:
        return [
            retrieved_document(hit, self.similarity_key, include_scores=self.include_scores)
            for hit in self.hits(query, **kwargs)
        ]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> list[Document]:
        # BaseRetriever's own version runs in a thread too, but drops the keywords.
        return await run_in_executor(None, self._get_relevant_documents, query, **kwargs)


def _checked_filter(value: Any) -> Any:
    """A copy, so that a dict changed later by its owner changes nothing here."""
    parse_filter(value)
    return deepcopy(value)


def _checked_day(value: Any) -> str | None:
    in_force(as_of=value)
    return cast("str | None", value)


def _checked_year(value: Any) -> int | None:
    in_force(tax_year=value)
    return cast("int | None", value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "top_k": check_top_k,
    "score_threshold": check_threshold,
    "filter_dict": _checked_filter,
    "mode": check_mode,
    "hybrid_weight": check_weight,
    "on_lexical_failure": check_lexical_failure,
    "as_of": _checked_day,
    "tax_year": _checked_year,
}


def get_retriever(
    top_k: int = DEFAULT_TOP_K,
    score_threshold: float | None = DEFAULT_SCORE_THRESHOLD,
    filter_dict: Any = None,
    session_id: str | None = None,
    access: Access | None = None,
    mode: str = "dense",
    as_of: str | None = None,
    tax_year: int | None = None,
    *,
    hybrid_weight: float = 0.5,
    on_lexical_failure: str = "raise",
    include_scores: bool = False,
    vectorstore: Any,
) -> FiscalRagRetriever:
    """The LangChain retriever of a store: the hits of its LlamaIndex twin, in the same order.

    Without ``session_id`` or ``access`` it reads public chunks, or what a bound view reads. The
    application authenticates its user before it names a session here.
    """
    return FiscalRagRetriever(
        vectorstore=vectorstore, session_id=session_id, access=access, top_k=top_k,
        score_threshold=score_threshold, filter_dict=filter_dict, mode=mode, as_of=as_of,
        tax_year=tax_year, hybrid_weight=hybrid_weight, on_lexical_failure=on_lexical_failure,
        include_scores=include_scores,
    )  # fmt: skip
