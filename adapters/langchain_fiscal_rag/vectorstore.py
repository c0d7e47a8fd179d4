"""FiscalRagVectorStore: a view of the corpus as a LangChain vector store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from typing_extensions import Self

from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.embedding import as_embedder
from fiscal_rag_plugin.engines.base import Condition, Hit
from fiscal_rag_plugin.errors import (
    InvalidChunkError,
    InvalidQueryError,
    NotPicklableError,
    SettingsError,
    UnexpectedArgumentError,
)
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.settings import FiscalSettings
from fiscal_rag_plugin.view import View

from .asking import narrowed, view_of
from .documents import draft_of, stored_document
from .embeddings import FiscalEmbeddings
from .store_retriever import FiscalRagStoreRetriever, relevance_kwargs

DEFAULT_K = 4
"""LangChain's own; the retriever of this package has 8."""


class FiscalRagVectorStore(VectorStore):
    """LangChain's store interface over one access; documents come back exactly as they were added.

    Over a session's view it reads public documents and the session's, and writes and deletes the
    session's. Over an unbound store it reads and deletes public ones; documents must then say
    their ``source_scope``, unless the store was opened with ``default_scope="public"``.

    Scores are similarities: the cosine in [-1, 1], higher is better. ``filter`` takes Chroma's
    ``where`` syntax or LlamaIndex ``MetadataFilters``. A search accepts the keywords of
    ``asking.narrowed`` and refuses every other. The async twins run the same code in a thread.
    """

    def __init__(self, vectorstore: Any) -> None:
        """``vectorstore``: a store of either framework, or a view."""
        self._view = view_of(vectorstore)

    @property
    def view(self) -> View:
        """What is read and written; fixed."""
        return self._view

    @property
    def embeddings(self) -> Embeddings | None:
        """What embeds, as LangChain sees it; None for a store that was opened without."""
        embedder = self._view.embedder
        if embedder is None or isinstance(embedder, Embeddings):
            return embedder
        return FiscalEmbeddings(embedder)

    # --- writing --------------------------------------------------------------------------------

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None, **kwargs: Any,
    ) -> list[str]:  # fmt: skip
        """Upsert texts and return their ids in input order, repeats included; the last of a repeat wins.

        A None among ``ids`` gets a uuid4. ``batch_size``, which LangChain's ``index()`` passes,
        changes nothing: batches follow the engine's limit.

        Raises:
            InvalidChunkError: counts that differ, a blank text, an unusable id or metadata, a
                scope that is not said; AccessDeniedError: metadata that claims another session.
                Nothing is written then.
        """
        _refuse(kwargs, allowed=("batch_size",))
        given = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values is not None and len(values) != len(given):
                raise InvalidChunkError(f"got {len(values)} {name} for {len(given)} texts")
        rows = zip(
            given,
            metadatas if metadatas is not None else [None] * len(given),
            ids if ids is not None else [None] * len(given),
            strict=True,
        )
        drafts = [draft_of(self._view, text, meta, id, i) for i, (text, meta, id) in enumerate(rows)]
        return self._view.write(drafts).ids

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """:meth:`add_texts` of documents; their own ids hold where ``ids`` is not given."""
        ids = kwargs.pop("ids", None)
        return self.add_texts(
            [document.page_content for document in documents],
            [document.metadata for document in documents],
            # VectorStore's version forgets the documents' ids when it is handed ids=None.
            ids if ids is not None else [document.id for document in documents],  # type: ignore[misc]
            **kwargs,
        )

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Delete these ids among what this store writes; others are as if absent.

        Raises:
            InvalidQueryError: ``ids`` is None. LangChain reads that as "all"; here nothing wipes a store.
        """
        _refuse(kwargs)
        if ids is None:
            raise InvalidQueryError("delete needs a list of ids; None would mean everything")
        if wanted := _ids(ids):
            self._view.delete(Condition(ids=frozenset(wanted)))
        return True

    # --- reading --------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents in the order of ``ids``; what is absent or out of access is left out.

        An id that is public and also in one's session gives both.
        """
        return [stored_document(record) for record in self._view.get(_ids(ids))]

    def similarity_search(
        self, query: str, k: int = DEFAULT_K, filter: Any = None, **kwargs: Any
    ) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = DEFAULT_K, filter: Any = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """(document, similarity), best first; the similarity is the cosine in [-1, 1]."""
        hits = self._search(SearchQuery(text=query, top_k=k), filter, kwargs)
        return [(stored_document(hit.record), hit.similarity) for hit in hits]

    def similarity_search_by_vector(
        self, embedding: Any, k: int = DEFAULT_K, filter: Any = None, **kwargs: Any
    ) -> list[Document]:
        hits = self._search(SearchQuery(vector=_vector(embedding), top_k=k), filter, kwargs)
        return [stored_document(hit.record) for hit in hits]

    def similarity_search_with_relevance_scores(
        self, query: str, k: int = DEFAULT_K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """(document, relevance), best first; relevance = max(0, cosine), so it is in [0, 1].

        ``score_threshold`` keeps relevances that reach it, within 1e-6.
        """
        kwargs = relevance_kwargs("similarity_score_threshold", kwargs)
        found = self.similarity_search_with_score(query, k, **kwargs)
        return [(document, max(0.0, similarity)) for document, similarity in found]

    async def asimilarity_search_with_relevance_scores(
        self, query: str, k: int = DEFAULT_K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        # VectorStore's version applies the threshold itself, without the tolerance.
        return await run_in_executor(None, self.similarity_search_with_relevance_scores, query, k, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda similarity: max(0.0, similarity)

    def max_marginal_relevance_search(
        self, query: str, k: int = DEFAULT_K, fetch_k: int = 20, lambda_mult: float = 0.5,
        filter: Any = None, **kwargs: Any,
    ) -> list[Document]:  # fmt: skip
        """``k`` documents that are relevant and differ, in the order of their choice.

        They are chosen among the ``max(k, fetch_k)`` nearest; ``lambda_mult`` 1 is plain
        similarity, 0 only diversity.
        """
        return self._mmr(SearchQuery(text=query), k, fetch_k, lambda_mult, filter, kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: Any, k: int = DEFAULT_K, fetch_k: int = 20, lambda_mult: float = 0.5,
        filter: Any = None, **kwargs: Any,
    ) -> list[Document]:  # fmt: skip
        query = SearchQuery(vector=_vector(embedding))
        return self._mmr(query, k, fetch_k, lambda_mult, filter, kwargs)

    def _mmr(
        self,
        query: SearchQuery,
        k: int,
        fetch_k: int,
        lambda_mult: float,
        filter: Any,
        kwargs: dict[str, Any],
    ) -> list[Document]:
        query = replace(query, mode="mmr", top_k=k, mmr_prefetch_k=fetch_k, mmr_threshold=lambda_mult)
        return [stored_document(hit.record) for hit in self._search(query, filter, kwargs)]

    def _search(self, query: SearchQuery, filter: Any, kwargs: dict[str, Any]) -> list[Hit]:
        return self._view.search(narrowed(query, {**kwargs, "filter": filter})).hits

    def as_retriever(self, **kwargs: Any) -> FiscalRagStoreRetriever:
        """LangChain's retriever over this store, in all three search types; its filter cannot be lifted."""
        tags = kwargs.pop("tags", None) or self._get_retriever_tags()
        return FiscalRagStoreRetriever(vectorstore=self, tags=tags, **kwargs)

    # --- opening --------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Any, metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None, collection_name: str | None = None,
        persist_directory: str | None = None, *, scope: str | None = None,
        session_id: str | None = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Open or create a collection, add texts, and return a store bound as they were written.

        ``scope="public"`` writes public documents, ``session_id`` private ones of that session;
        without either every metadata must say its scope. Directory and collection default to the
        settings'. ``close()`` releases the files.
        """
        _refuse(kwargs)
        if session_id is not None and scope not in (None, "private"):
            raise SettingsError("a session's documents are private; give session_id alone")
        if session_id is None and scope not in (None, "public"):
            raise SettingsError("scope is 'public'; for private documents give their session_id")
        settings = FiscalSettings()
        corpus = Corpus.open(
            persist_directory if persist_directory is not None else settings.chroma_dir,
            collection_name if collection_name is not None else settings.chroma_collection,
            embedder=as_embedder(embedding),
            lock_timeout=settings.lock_timeout,
        )
        try:
            view = View(corpus, default_scope=scope if session_id is None else None)
            store = cls(view if session_id is None else view.for_session(session_id))
            store.add_texts(texts, metadatas, ids)
        except BaseException:
            corpus.close()
            raise
        return store

    def close(self) -> None:
        """Release files and locks of the collection, for every store and view of it."""
        self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- a store is a handle --------------------------------------------------------------------

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPicklableError("a store is not pickled; open it again in the other process")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._view!r})"


def _refuse(kwargs: dict[str, Any], allowed: tuple[str, ...] = ()) -> None:
    if unknown := sorted(set(kwargs) - set(allowed)):
        raise UnexpectedArgumentError(f"unexpected keywords {', '.join(unknown)[:200]}")


def _ids(ids: Sequence[str]) -> list[str]:
    # A str is a sequence of str: "12" would name the documents "1" and "2".
    if isinstance(ids, (str, bytes)) or not all(isinstance(id, str) for id in ids):
        raise InvalidQueryError("ids must be a list of str")
    return list(ids)


def _vector(embedding: Any) -> Any:
    if embedding is None:
        raise InvalidQueryError("a search by vector needs a vector, not None")
    return embedding
