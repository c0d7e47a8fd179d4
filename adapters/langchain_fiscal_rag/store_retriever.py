"""FiscalRagStoreRetriever: what ``as_retriever`` returns, with filters that only ever narrow.

LangChain's VectorStoreRetriever merges ``search_kwargs | kwargs``, so ``invoke(q, filter=None)``
removes a configured filter there (langchain-ai/langchain#15590).
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import Field

from fiscal_rag_plugin.errors import InvalidQueryError
from fiscal_rag_plugin.ranking import SearchQuery, check_query, check_threshold

from .asking import narrowed, view_of
from .bound import BoundRetriever
from .documents import stored_document, with_similarity

if TYPE_CHECKING:
    from .vectorstore import FiscalRagVectorStore


class FiscalRagStoreRetriever(BoundRetriever, VectorStoreRetriever):
    """A VectorStoreRetriever over a FiscalRagVectorStore; documents come back as they were added.

    ``search_kwargs`` and the keywords of a call are those of ``asking.narrowed``. A call counts
    with its own ``k`` and narrows with its own ``filter``; None changes nothing.
    """

    vectorstore: VectorStore = Field(exclude=True, repr=False)

    def __init__(self, *, vectorstore: FiscalRagVectorStore, **fields: Any) -> None:
        checked = {name: self._checked(name, value) for name, value in fields.items()}
        super().__init__(vectorstore=vectorstore, **checked)
        check_query(self._query("?"))

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        if name == "search_type" and value not in cls.allowed_search_types:
            raise InvalidQueryError(
                f"search_type {value!r:.40} is not one of {', '.join(cls.allowed_search_types)}"
            )
        # A copy, so that a dict shared by two sessions' retrievers couples nothing.
        return deepcopy(value) if name == "search_kwargs" else value

    def _query(self, question: str) -> SearchQuery:
        query = SearchQuery(text=question, top_k=4)
        if self.search_type == "mmr":
            query = SearchQuery(text=question, top_k=4, mode="mmr", mmr_prefetch_k=20)
        return narrowed(query, relevance_kwargs(self.search_type, self.search_kwargs))

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> list[Document]:
        hits = view_of(self.vectorstore).search(narrowed(self._query(query), kwargs)).hits
        key = self.similarity_key
        return [with_similarity(stored_document(hit.record), hit, key) for hit in hits]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> list[Document]:
        return await run_in_executor(None, self._get_relevant_documents, query, **kwargs)


def relevance_kwargs(search_type: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Search keywords in which a threshold on relevance = max(0, cosine) is one on the cosine.

    Every relevance reaches 0, also that of an opposite document, so 0 and less cut nothing.
    """
    threshold = check_threshold(kwargs.get("score_threshold"))
    if search_type == "similarity_score_threshold" and threshold is not None and threshold <= 0:
        return {**kwargs, "score_threshold": None}
    return kwargs
