"""LCProcessedRetriever: one question to several record types, fused and hydrated."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..chunks import Json
from ..engines.base import Hit
from ..errors import InvalidQueryError
from ..ranking import check_top_k
from .canonical import RecordJson, block, record_type
from .drafts import hydrated
from .fusion import Fused, check_weight, fuse
from .hydration import ProcessedRecordStore
from .search import DEFAULT_HYBRID_WEIGHT, asked_types, document_of, score_of
from .snippets import check_preference, select_processed_snippet
from .store import ChromaRecordStore

logger = logging.getLogger(__name__)

VECTOR_METADATA = "_vector_metadata"


@dataclass(frozen=True, slots=True)
class RetrieveResult:
    """One fused hit. A record that cannot be hydrated is None, and so is its snippet: it is never blank.

    ``score`` is the fused value and makes the order, ``similarity`` the cosine, None where words
    were searched without a model. ``per_view`` has rank (from 1), score and similarity in each
    type. ``metadata`` is the canonical record's, the index's own under ``_vector_metadata``.
    """

    record_id: str
    snippet: str | None
    metadata: dict[str, Any]
    per_view: dict[str, dict[str, float | None]]
    score: float
    similarity: float | None
    record: RecordJson | None

    @property
    def missing(self) -> bool:
        return self.record is None


@dataclass(frozen=True, slots=True)
class ContextPack:
    """The question, its results in order, and the ids of those that could not be hydrated."""

    query_texts: dict[str, str]
    results: list[RetrieveResult]

    @property
    def missing(self) -> list[str]:
        return [result.record_id for result in self.results if result.missing]


class LCProcessedRetriever:
    """Asks a :class:`ChromaRecordStore`, with its access, and hydrates what it finds.

    Without ``doc_store`` a record comes from the row that was found. With one it comes from there,
    and only in the version that is indexed: another one, or none, is missing, which is said.
    """

    def __init__(self, manager: ChromaRecordStore, doc_store: ProcessedRecordStore | None = None) -> None:
        self.manager = manager
        self.store = doc_store
        self._warned_of_fusion = False

    def query_doc_types(
        self, *, doc_types: Sequence[str], query_text: str, top_k_per_doc_type: int = 8, k_final: int = 10,
        filter_meta: Mapping[str, Any] | None = None, fusion: str = "rrf",
        view_weights: Mapping[str, float] | None = None, hybrid_weight: float = DEFAULT_HYBRID_WEIGHT,
        snippet_preference: str = "raw_text", mode: str | None = None,
    ) -> ContextPack:  # fmt: skip
        """The best of all types: the sum of weight/(60 + rank) in each type, ties by record id.

        ``view_weights`` are by type, 1.0 where none is given; 0 leaves the type's hits out.

        Raises:
            UnknownRecordTypeError: a type was never created; lists the types that exist.
            InvalidQueryError: a parameter is out of its range, or a weight names no type asked for.
        """
        check_top_k(k_final)
        check_preference(snippet_preference)
        wanted = asked_types(doc_types)
        weights = _weights({} if view_weights is None else view_weights, wanted)
        self._say_rrf(fusion)
        found = self.manager.search(
            wanted, query_text, top_k=top_k_per_doc_type, filter_meta=filter_meta,
            hybrid_weight=hybrid_weight, mode=mode,
        )  # fmt: skip
        fused = fuse(found, weights, k_final)
        records = self._hydrated([entry.hit for entry in fused])
        results = [
            _result(entry, record, snippet_preference) for entry, record in zip(fused, records, strict=True)
        ]
        pack = ContextPack({"query": query_text}, results)
        if pack.missing:
            logger.warning(
                "%d of %d records found are not in the record store in the version that is indexed, the "
                "first is %.80r",
                len(pack.missing), len(results), pack.missing[0],
            )  # fmt: skip
        return pack

    def _say_rrf(self, fusion: str) -> None:
        if fusion != "rrf" and not self._warned_of_fusion:
            self._warned_of_fusion = True
            logger.warning("fusion=%.40r is not used across record types; it is 'rrf'", fusion)

    def _hydrated(self, hits: Sequence[Hit]) -> list[RecordJson | None]:
        """The canonical record of each hit, None where the record store has not the indexed version."""
        indexed = [hydrated(hit.record) for hit in hits]
        if self.store is None:
            return indexed
        # An id says too little: a session's record and a public one may share it, and a record
        # store in memory has no access of its own.
        stored = self.store.versions([hit.record.id for hit in hits])
        return [
            record if record in stored.get(hit.record.id, []) else None
            for hit, record in zip(hits, indexed, strict=True)
        ]


def _result(entry: Fused, record: RecordJson | None, preference: str) -> RetrieveResult:
    hit = entry.hit
    canonical = {} if record is None else block(record, "metadata")
    return RetrieveResult(
        record_id=hit.record.id,
        snippet=None if record is None else select_processed_snippet(record, preference),
        metadata={**canonical, VECTOR_METADATA: document_of(hit).metadata},
        per_view={
            doc_type: {"rank": rank, "score_raw": score_of(h), "similarity": h.score}
            for doc_type, (rank, h) in entry.views.items()
        },
        score=entry.score, similarity=hit.score, record=record,
    )  # fmt: skip


def _weights(view_weights: Mapping[str, float], types: Iterable[str]) -> dict[str, float]:
    if not isinstance(view_weights, Mapping):
        raise InvalidQueryError(
            f"view_weights is a dict of weights by type, not {type(view_weights).__name__}"
        )
    weights = {
        record_type(t): check_weight(weight, f"the weight of {t!r:.40}")
        for t, weight in view_weights.items()
    }
    if unknown := sorted(weights.keys() - set(types)):
        raise InvalidQueryError(f"view_weights names types that are not asked: {', '.join(unknown)}")
    return weights


def first_of(key: str, *places: Mapping[str, Json]) -> Json:
    """The first value of a key that is no blank text."""
    values = (place.get(key) for place in places)
    return next((v for v in values if v is not None and not (isinstance(v, str) and not v.strip())), None)
