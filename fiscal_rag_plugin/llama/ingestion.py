"""FiscalIngestionPipeline: LlamaIndex's pipeline, in which a failed run loses nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import llama_index.core.instrumentation as instrument
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document
from llama_index.core.storage.docstore import BaseDocumentStore

from ..chunks import PUBLIC, SCOPE_KEY, Scope, check_scope
from ..drafts import Draft
from ..engines.base import Condition, Record
from ..view import View
from .nodes import drafts_of
from .vector_store import FiscalVectorStore

dispatcher = instrument.get_dispatcher(__name__)  # type: ignore[attr-defined]

Place: TypeAlias = "tuple[Scope, str | None]"
"""(scope, session) that a document is written to."""

_IDS_A_SCAN = 500


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run will do, decided by reading only."""

    strategy: DocstoreStrategy
    to_run: list[BaseNode]
    changed: dict[str, Place] = field(default_factory=dict)
    """where the documents are whose old version must go"""
    missing: list[str] = field(default_factory=list)
    """doc ids that this run no longer has, and that the view itself holds"""


class FiscalIngestionPipeline(IngestionPipeline):
    """The stock pipeline over a :class:`FiscalVectorStore`, with the same three docstore strategies.

    Different from stock, which deletes before it embeds and notes a hash before it stores:

    - everything is transformed and embedded first; then the changed documents are swapped, new
      versions in, old ones out; the docstore is told last. A run that fails can be repeated.
    - UPSERTS_AND_DELETE deletes only documents that the store's own view holds, and a document
      counts as unchanged only if that view has it: each session needs its own docstore.
    - a document that the docstore does not know but the view holds is swapped, not doubled.
    - nodes without an embedding are embedded by the store instead of being left out.

    Without a vector store, or with another kind, it is the stock pipeline.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """As IngestionPipeline; by default a SentenceSplitter alone, and the store embeds."""
        store = keywords.get("vector_store")
        if not args and keywords.get("transformations") is None and isinstance(store, FiscalVectorStore):
            keywords["transformations"] = [SentenceSplitter()]
        super().__init__(*args, **keywords)

    @dispatcher.span
    def run(
        self, show_progress: bool = False, documents: list[Document] | None = None,
        nodes: Sequence[BaseNode] | None = None, cache_collection: str | None = None,
        in_place: bool = True, store_doc_text: bool = True, num_workers: int | None = None, **kwargs: Any,
    ) -> Sequence[BaseNode]:  # fmt: skip
        """Transform, embed, store; returns the nodes of new and changed documents."""
        forwarded: dict[str, Any] = dict(
            show_progress=show_progress, cache_collection=cache_collection or self._cache_of_session(),
            in_place=in_place, num_workers=num_workers, **kwargs,
        )  # fmt: skip
        store = self.vector_store
        if not isinstance(store, FiscalVectorStore):
            return super().run(documents=documents, nodes=nodes, store_doc_text=store_doc_text, **forwarded)
        plan = self._plan(self._prepare_inputs(documents, nodes), store.view)
        made = self._transforming().run(nodes=plan.to_run, **forwarded)
        self._finish(plan, made, store, store_doc_text)
        return made

    @dispatcher.span
    async def arun(
        self, show_progress: bool = False, documents: list[Document] | None = None,
        nodes: Sequence[BaseNode] | None = None, cache_collection: str | None = None,
        in_place: bool = True, store_doc_text: bool = True, num_workers: int | None = None, **kwargs: Any,
    ) -> Sequence[BaseNode]:  # fmt: skip
        """As :meth:`run`: transformations natively async, reading and storing in a thread."""
        forwarded: dict[str, Any] = dict(
            show_progress=show_progress, cache_collection=cache_collection or self._cache_of_session(),
            in_place=in_place, num_workers=num_workers, **kwargs,
        )  # fmt: skip
        store = self.vector_store
        if not isinstance(store, FiscalVectorStore):
            return await super().arun(
                documents=documents, nodes=nodes, store_doc_text=store_doc_text, **forwarded
            )
        inputs = self._prepare_inputs(documents, nodes)
        plan = await asyncio.to_thread(self._plan, inputs, store.view)
        made = await self._transforming().arun(nodes=plan.to_run, **forwarded)
        await asyncio.to_thread(self._finish, plan, made, store, store_doc_text)
        return made

    def _cache_of_session(self) -> str | None:
        """The cache knows a node by its text: sharing one would hand a session another's node ids."""
        access = self.vector_store.access if isinstance(self.vector_store, FiscalVectorStore) else None
        if access is None or access.write is None:
            return None
        return f"{self.cache.collection}/{hashlib.sha256(access.write.encode()).hexdigest()[:32]}"

    def _transforming(self) -> IngestionPipeline:
        """The stock pipeline with these transformations and cache, that stores nothing."""
        return IngestionPipeline(
            name=self.name, project_name=self.project_name, transformations=self.transformations,
            cache=self.cache, disable_cache=self.disable_cache,
        )  # fmt: skip

    # --- before: read ---------------------------------------------------------------------------

    def _plan(self, inputs: Sequence[BaseNode], view: View) -> _Plan:
        strategy = self.docstore_strategy
        if self.docstore is None:
            documents = [(_place(view, node), node.node_id) for node in inputs if node.ref_doc_id is None]
            return _Plan(strategy, list(inputs), {id: place for place, id in _held(view, documents)})
        if strategy == DocstoreStrategy.DUPLICATES_ONLY:
            return _Plan(strategy, _without_duplicates(inputs, self.docstore, view))
        return self._plan_upserts(inputs, self.docstore, view)

    def _plan_upserts(self, inputs: Sequence[BaseNode], docstore: BaseDocumentStore, view: View) -> _Plan:
        plan = _Plan(self.docstore_strategy, [])
        places = [_place(view, node) for node in inputs]
        hashes = {id: docstore.get_document_hash(id) for id in map(_doc_id, inputs)}
        held = _held(view, [(p, _doc_id(n)) for p, n in zip(places, inputs, strict=True)])
        for place, node in zip(places, inputs, strict=True):
            id = _doc_id(node)
            if hashes[id] == node.hash and (place, id) in held:
                continue
            # A node that is new does not replace the other nodes of its document.
            if hashes[id] or (node.ref_doc_id is None and (place, id) in held):
                plan.changed[id] = place
            plan.to_run.append(node)
        if plan.strategy == DocstoreStrategy.UPSERTS_AND_DELETE:
            before = set(docstore.get_all_document_hashes().values())
            own = view.placed({SCOPE_KEY: PUBLIC} if view.access is None else {})
            gone = _held(view, [(own, id) for id in sorted(before - set(hashes))])
            plan.missing.extend(sorted(id for _, id in gone))
        return plan

    # --- after: write ---------------------------------------------------------------------------

    def _finish(
        self, plan: _Plan, made: Sequence[BaseNode], store: FiscalVectorStore, store_doc_text: bool
    ) -> None:
        _store(plan, drafts_of(made, store.view), store.view)
        for doc_id in plan.missing:
            _remove(doc_id, store.view)
        if self.docstore is not None:
            for doc_id in plan.changed:
                self.docstore.delete_ref_doc(doc_id, raise_error=False)
            for doc_id in plan.missing:
                self.docstore.delete_document(doc_id, raise_error=False)
            self._update_docstore(
                plan.to_run, effective_strategy=plan.strategy, store_doc_text=store_doc_text
            )


def _doc_id(node: BaseNode) -> str:
    return node.ref_doc_id or node.node_id


def _without_duplicates(
    inputs: Sequence[BaseNode], docstore: BaseDocumentStore, view: View
) -> list[BaseNode]:
    existing = docstore.get_all_document_hashes()
    places = [_place(view, node) for node in inputs]
    held = _held(view, [(p, existing.get(n.hash, "")) for p, n in zip(places, inputs, strict=True)])
    fresh: dict[tuple[Place, str], BaseNode] = {}
    for place, node in zip(places, inputs, strict=True):
        if (place, existing.get(node.hash, "")) not in held:
            fresh.setdefault((place, node.hash), node)
    return list(fresh.values())


def _place(view: View, node: BaseNode) -> Place:
    scope, session_id = view.placed(node.metadata)
    check_scope(scope, session_id)
    return scope, session_id


def _home(view: View, place: Place) -> View:
    """The view that reads and deletes what ``view`` writes to a place."""
    session_id = place[1]
    return view if view.access is not None or session_id is None else view.for_session(session_id)


def _held(view: View, documents: Iterable[tuple[Place, str]]) -> set[tuple[Place, str]]:
    """Those of ``documents`` that are stored in their place, as chunks or as one node."""
    wanted: dict[Place, dict[str, None]] = {}
    for place, doc_id in documents:
        wanted.setdefault(place, {})[doc_id] = None
    held: set[tuple[Place, str]] = set()
    for place, ids in wanted.items():
        ordered = list(ids)
        for start in range(0, len(ordered), _IDS_A_SCAN):
            for record in _records(_home(view, place), ordered[start : start + _IDS_A_SCAN]):
                held.add((place, record.id if record.ref is None else record.ref))
    return held


def _records(view: View, doc_ids: Sequence[str]) -> list[Record]:
    ids = frozenset(doc_ids)
    whole = [record for record in view.owned(Condition(ids=ids)) if record.ref is None]
    return [*view.owned(Condition(doc_ids=ids)), *whole]


def _remove(doc_id: str, view: View, but: Collection[str] = ()) -> None:
    """Delete what the view holds of a document, ``but`` these ids."""
    if gone := frozenset(r.id for r in _records(view, [doc_id]) if r.id not in but):
        view.delete(Condition(ids=gone))


def _store(plan: _Plan, drafts: Sequence[Draft], view: View) -> None:
    """New documents in one write, then the changed ones swapped, all of a place at once."""
    view.write([draft for draft in drafts if draft.record.ref not in plan.changed])
    written = {draft.record.id for draft in drafts}
    places: dict[Place, list[str]] = {}
    for doc_id, place in plan.changed.items():
        places.setdefault(place, []).append(doc_id)
    for place, doc_ids in places.items():
        home = _home(view, place)
        versions = [draft for draft in drafts if draft.record.ref in doc_ids]
        home.replace(doc_ids, versions, scope=place[0], session_id=place[1])
        for doc_id in doc_ids:
            # A document that was stored as one node has no chunks to swap.
            _remove(doc_id, home, but=written)
