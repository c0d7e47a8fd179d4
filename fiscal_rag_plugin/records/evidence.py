"""ProcessedEvidenceStoreAdapter: the retriever behind the query interface of an evidence store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidFilterError
from ..ranking import check_top_k
from .canonical import block
from .drafts import COMPONENTS_KEY
from .errors import UnknownRecordTypeError
from .retriever import VECTOR_METADATA, LCProcessedRetriever, RetrieveResult, first_of
from .search import DEFAULT_HYBRID_WEIGHT

_TYPE_KEYS = ("doc_type", "doc_types")
_COMPONENT_KEYS = (COMPONENTS_KEY, "asset_id")


@dataclass
class ProcessedEvidenceStoreAdapter:
    """Answers with plain dicts.

    Types are those of the filter, else ``default_doc_types``, else all that exist. ``k_final``
    caps what any call may ask for, ``top_k_per_doc_type`` what one type contributes.
    """

    retriever: LCProcessedRetriever
    default_doc_types: Sequence[str] | None = None
    top_k_per_doc_type: int = 8
    k_final: int = 10
    fusion: str = "rrf"
    hybrid_weight: float = DEFAULT_HYBRID_WEIGHT
    snippet_preference: str = "raw_text"
    view_weights: Mapping[str, float] | None = None
    mode: str | None = None

    def query(
        self, query_text: str, *, top_k: int, filters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """At most ``min(top_k, k_final)`` pieces of evidence, best first.

        ``filters``: ``doc_type`` or ``doc_types`` choose the collections; ``component_ids`` and
        then ``asset_id`` name components, or have operators on them, and any of these will do;
        every other key is a filter on metadata, see ``record_where``. A record that cannot be
        hydrated has ``record`` and ``snippet`` None and ``missing`` True.

        Raises:
            UnknownRecordTypeError: a type was never created, or none exists.
        """
        if filters is not None and not isinstance(filters, Mapping):
            raise InvalidFilterError(f"filters is a dict, not {type(filters).__name__}")
        given = dict(filters or {})
        k = min(check_top_k(top_k), check_top_k(self.k_final))
        doc_types = [t for key in _TYPE_KEYS for t in _listed(given.pop(key, None))]
        asked = [given.pop(key, None) for key in _COMPONENT_KEYS]
        given = _with_components(given, asked)
        pack = self.retriever.query_doc_types(
            doc_types=doc_types or self._default_types(),
            query_text=query_text, top_k_per_doc_type=self.top_k_per_doc_type, k_final=k,
            filter_meta=given, fusion=self.fusion, view_weights=self.view_weights,
            hybrid_weight=self.hybrid_weight, snippet_preference=self.snippet_preference, mode=self.mode,
        )  # fmt: skip
        return [_evidence(result) for result in pack.results]

    def _default_types(self) -> Sequence[str]:
        types = self.default_doc_types or self.retriever.manager.doc_types()
        if not types:
            raise UnknownRecordTypeError(
                f"no record type exists in {self.retriever.manager.persist_directory}; upsert records first"
            )
        return types


def _with_components(given: dict[str, Any], asked: list[Any]) -> dict[str, Any]:
    """``given`` with what was asked of components as one condition."""
    operators = [{COMPONENTS_KEY: value} for value in asked if isinstance(value, Mapping) and value]
    components = [c for value in asked if not isinstance(value, Mapping) for c in _listed(value)]
    if wrong := [c for c in components if not isinstance(c, (str, int, float))]:
        raise InvalidFilterError(f"a component is a str or a number, not {type(wrong[0]).__name__}")
    named = {COMPONENTS_KEY: list(dict.fromkeys(components))} if components else {}
    if not operators:
        return {**given, **named}
    return {"$and": [given, {"$or": [named, *operators] if named else operators}]}


def _listed(value: Any) -> list[Any]:
    """One value or several as a list, without those that say nothing."""
    values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return [v for v in values if v is not None and not (isinstance(v, str) and not v.strip())]


def _evidence(result: RetrieveResult) -> dict[str, Any]:
    record, indexed = result.record or {}, result.metadata[VECTOR_METADATA]
    chunk_id = first_of("chunk_id", block(record, "provenance"), indexed)
    return {
        "record_id": result.record_id,
        "chunk_id": chunk_id if chunk_id is not None else result.record_id,
        "snippet": result.snippet,
        "score": result.score,
        "similarity": result.similarity,
        "metadata": result.metadata,
        "doc_id": first_of("doc_id", indexed, record),
        "doc_type": first_of("doc_type", indexed, record),
        "component_id": first_of("component_id", result.metadata, indexed),
        "record": result.record,
        "missing": result.missing,
    }
