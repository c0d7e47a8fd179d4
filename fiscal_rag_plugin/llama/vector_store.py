"""FiscalVectorStore: LlamaIndex's vector store protocol over a view."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreInfo,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from ..access import Access
from ..chunks import Chunk
from ..corpus import Corpus
from ..drafts import DocumentInfo, WriteReport
from ..embedding import as_embedder
from ..engines.base import ANYTHING, Condition
from ..errors import AccessDeniedError, InvalidQueryError, SettingsError
from ..filters import parse_filter
from ..ingest.run import IngestOptions
from ..ranking import check_mode
from ..view import View
from .embedding import FiscalEmbedding
from .events import searched
from .handle import Handle, checked
from .index import FiscalIndex
from .nodes import drafts_of, nodes_of
from .queries import ids_of, refuse_keywords, search_query
from .store_info import STORE_INFO
from .uploads import Uploads

_DICT_KEYS = ("persist_dir", "collection_name", "default_scope", "bound")


class FiscalVectorStore(Handle, Uploads, BasePydanticVectorStore):
    """A handle on a corpus with one access, bound when it is made and never changed.

    Without an access it is the operator's: it reads and deletes public chunks, writes any scope,
    and alone may bind others (:meth:`for_session`), erase or list sessions, and see the client.

    Under a stock ``VectorStoreIndex`` two habits of LlamaIndex remain: once the index has been
    given IndexNodes or ImageNodes, its retriever asks for these alone (``node_ids``), and a public
    chunk and one's own with the same id come back as one. ``FiscalRetriever`` has neither.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True, extra="forbid")

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    persist_dir: str
    collection_name: str
    default_scope: str | None = None
    bound: bool = False
    """Whether an access is bound; a bound store is not restored from its dict."""

    _view: View = PrivateAttr()
    _ingest_options: IngestOptions = PrivateAttr()

    def __init__(self, view: View, ingest_options: IngestOptions | None = None) -> None:
        view = checked(view)
        super().__init__(  # type: ignore[call-arg]
            persist_dir=view.directory, collection_name=view.collection,
            default_scope=view.default_scope, bound=view.access is not None,
        )  # fmt: skip
        self._view, self._ingest_options = view, ingest_options or IngestOptions()

    @classmethod
    def class_name(cls) -> str:
        return "FiscalVectorStore"

    @classmethod
    def from_params(
        cls, persist_dir: str, collection_name: str = "fiscal", *, embed_model: object = None,
        create: bool = True, default_scope: str | None = None, lock_timeout: float = 10.0,
        ingest_options: IngestOptions | None = None,
    ) -> FiscalVectorStore:  # fmt: skip
        """Open a collection. ``embed_model`` is anything that embeds; no model is loaded.
        ``ingest_options`` hold for :meth:`ingest` and :meth:`ingest_file` unless a call gives others.

        Raises:
            CollectionNotFoundError: it is absent and ``create`` is False; lists those that exist.
            CollectionMismatchError, StorageError: see each.
        """
        embedder = None if embed_model is None else as_embedder(embed_model)
        corpus = Corpus.open(
            str(persist_dir), collection_name, embedder=embedder, create=create, lock_timeout=lock_timeout
        )
        try:
            return cls(View(corpus, None, default_scope), ingest_options)
        except BaseException:
            corpus.close()
            raise

    # --- access ---------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What this store, its retrievers and the other framework's components read and write."""
        return self._view

    @property
    def access(self) -> Access | None:
        return self._view.access

    @property
    def client(self) -> Any:
        """Chroma's client; the operator's. Ask for it each time: it is reopened when others write."""
        return self._view.client

    def for_session(self, session_id: str) -> FiscalVectorStore:
        """A store that reads public chunks and this session's, and writes this session's."""
        return type(self)(self._view.for_session(session_id), self._ingest_options)

    def for_access(self, access: Access) -> FiscalVectorStore:
        return type(self)(self._view.for_access(access), self._ingest_options)

    @property
    def embed_model(self) -> FiscalEmbedding:
        """The store's embedder for LlamaIndex; without one, it raises when a text arrives."""
        return FiscalEmbedding(self._view.embedder)

    def as_index(self, **keywords: Any) -> VectorStoreIndex:
        """A VectorStoreIndex on this store that embeds as it does, never with a default model."""
        if keywords.get("embed_model") is None:
            keywords["embed_model"] = self.embed_model
        return FiscalIndex.from_vector_store(self, **keywords)

    def store_info(self) -> VectorStoreInfo:
        """What the chunks are and which metadata they have, for a VectorIndexAutoRetriever."""
        return STORE_INFO.model_copy(deep=True)

    # --- writing --------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Upsert nodes; returns their ids in order. Nodes without an embedding are embedded here.

        On a view they become its session's; on the operator's store their metadata says
        ``source_scope`` (and ``session_id``), or the store has ``default_scope="public"``.
        """
        refuse_keywords(add_kwargs, "add")
        return self._view.write(drafts_of(list(nodes), self._view)).ids

    def add_chunks(self, chunks: Sequence[Chunk], vectors: Any = None) -> list[str]:
        """Upsert chunks; returns their ids in order, repeats included. ``vectors``: (n, dim)."""
        return self._view.add_chunks(chunks, vectors=vectors)

    def replace_document(
        self, doc_id: str, chunks: Sequence[Chunk], *, vectors: Any = None, expires_at: float | None = None
    ) -> WriteReport:
        """Swap a source's old version for the new one; a failure leaves the old one answering."""
        return self._view.replace_document(doc_id, chunks, vectors=vectors, expires_at=expires_at)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete a source's chunks among those this store writes: its session's, or the public ones."""
        refuse_keywords(delete_kwargs, "delete")
        self._view.delete(Condition(doc_ids=ids_of([ref_doc_id], "ref_doc_id")))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **kwargs: Any
    ) -> None:
        """Delete by id and filter, both when both are given; ``[]`` deletes nothing.

        Raises:
            InvalidQueryError: neither is given, or the filter has no condition; see :meth:`clear`.
        """
        refuse_keywords(kwargs, "delete_nodes")
        condition = _condition(node_ids, filters)
        if condition.is_empty:
            raise InvalidQueryError("delete_nodes needs node_ids or a filter; clear() deletes everything")
        if condition.ids != frozenset():
            self._view.delete(condition)

    def clear(self) -> None:
        """Delete every chunk this store writes: its session's, or all public ones."""
        self._view.delete(ANYTHING)

    def persist(self, persist_path: str = "", fs: Any = None) -> None:
        """Nothing to do: every write is on disk when it returns."""

    def delete_session(self, session_id: str) -> int:
        """Erase a session to the byte; the operator's. Returns how many chunks it had."""
        return self._view.delete_session(session_id)

    # --- reading --------------------------------------------------------------------------------

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The best nodes within access; ``similarities`` are cosines, in MMR as well.

        Without a vector the text is embedded; without a text either, the nodes that the filter or
        the ids leave are returned by id, without similarities. Keywords: see ``queries``.

        Raises:
            UnsupportedModeError: any mode but DEFAULT, SPARSE, HYBRID and MMR.
            UnexpectedArgumentError: any other keyword, above all one about access.
        """
        asked = search_query(query, kwargs)
        check_mode(asked.mode)
        asks = asked.vector is not None or (asked.text or "").strip() or asked.needs_text
        if not asks and not asked.condition.is_empty:
            records = list(islice(self._view.scan(asked.condition), asked.top_k))
            return VectorStoreQueryResult(nodes=nodes_of(records), ids=[r.id for r in records])
        hits = searched(self._view, asked).hits
        return VectorStoreQueryResult(
            nodes=nodes_of(hit.record for hit in hits),
            similarities=[hit.score for hit in hits],  # type: ignore[misc]
            ids=[hit.record.id for hit in hits],
        )

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Nodes within access: in the order of ``node_ids``, else by id. ``[]`` gives ``[]``."""
        condition = _condition(node_ids, filters)
        if node_ids is None:
            return nodes_of(self._view.scan(condition))
        return nodes_of(record for record in self._view.get(node_ids) if condition.matches(record))

    def list_documents(self) -> list[DocumentInfo]:
        """The source documents within access."""
        return self._view.list_documents()

    def list_sessions(self) -> list[tuple[str, int]]:
        """(session_id, chunks) of every session; the operator's."""
        return self._view.list_sessions()

    def raw_query(self, vector: Any, *, top_k: int = 8, filter_dict: dict[str, Any] | None = None) -> Any:
        """Chroma's native result with distances, on public chunks: infrastructure, never exposed."""
        return self._view.raw_query(vector, top_k=top_k, filter_dict=filter_dict)

    # --- async: the same calls in a thread ------------------------------------------------------

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **kwargs: Any
    ) -> None:
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **kwargs)

    async def aclear(self) -> None:
        await asyncio.to_thread(self.clear)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        return await asyncio.to_thread(self.query, query, **kwargs)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    # --- opening again and closing ----------------------------------------------------------------

    def close(self) -> None:
        """Release files and locks; every store and retriever on this corpus is closed with it."""
        self._view.close()

    def __enter__(self) -> FiscalVectorStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002
        """Where the collection is, and nothing of access, embedder or client."""
        return {name: getattr(self, name) for name in _DICT_KEYS} | {"class_name": self.class_name()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> FiscalVectorStore:
        """Open the collection of :meth:`to_dict` again; keywords as in :meth:`from_params`.

        Raises:
            AccessDeniedError: the dict is of a bound store, which must not come back unbound.
        """
        if data.get("class_name", cls.class_name()) != cls.class_name():
            raise SettingsError(f"a dict of {data['class_name']!r:.60} is no {cls.class_name()}")
        if data.get("bound") is not False:
            raise AccessDeniedError(
                "this dict is of a store bound to an access; open the unbound store and bind it again"
            )
        known = {k: data[k] for k in ("persist_dir", "collection_name", "default_scope") if k in data}
        return cls.from_params(**{"create": False, **known, **kwargs})


def _condition(node_ids: list[str] | None, filters: MetadataFilters | None) -> Condition:
    return Condition(
        filter=parse_filter(filters), ids=None if node_ids is None else ids_of(node_ids, "node_ids")
    )
