"""The legs of a search: vectors, words, or both fused by their ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from .access import Access
from .engines.base import Found, Hit
from .engines.embedded import EmbeddedEngine
from .errors import StorageError
from .fusion import fuse
from .lexical import LexicalSearch, question_tokens
from .ranking import SearchQuery
from .vectors import Vector

logger = logging.getLogger(__name__)


def retrieve(
    engine: EmbeddedEngine,
    lexical: LexicalSearch,
    query: SearchQuery,
    vector: Vector | None,
    access: Access,
) -> Found:
    """Candidates in the order of the query's mode; ``vector`` may be missing in mode "sparse" only."""
    if not query.needs_text:
        return _dense(engine, query, vector, access)
    tokens = question_tokens(query.text or "")
    try:
        if query.mode == "sparse":
            hits = lexical.search(tokens, vector, query.top_k, access, query.condition)
            return Found(_lexically_ranked(hits), "words")
        return _hybrid(engine, lexical, query, tokens, vector, access)
    except StorageError as error:
        if query.on_lexical_failure != "dense" or vector is None:
            raise
        logger.warning("words could not be searched, so only vectors were: %s", error)
        return replace(_dense(engine, query, vector, access), degraded=str(error))


def _dense(engine: EmbeddedEngine, query: SearchQuery, vector: Vector | None, access: Access) -> Found:
    assert vector is not None
    return engine.search(vector, query.candidates, access, query.condition)


def _hybrid(
    engine: EmbeddedEngine, lexical: LexicalSearch, query: SearchQuery, tokens: Sequence[str],
    vector: Vector | None, access: Access,
) -> Found:  # fmt: skip
    """Weighted reciprocal rank fusion, by key: two chunks with one text stay two."""
    dense, plan = [], "none"
    if query.hybrid_weight > 0:
        found = _dense(engine, query, vector, access)
        dense, plan = found.hits, found.plan
    words: list[Hit] = []
    if query.hybrid_weight < 1:
        words = lexical.search(tokens, vector, query.lexical_k or query.candidates, access, query.condition)
    hits = {hit.record.key: hit for hit in [*dense, *words]}
    fused = fuse(
        [hit.record.key for hit in dense],
        [hit.record.key for hit in words],
        query.hybrid_weight,
        tie=lambda key: (key[2], key),
    )[: query.top_k]
    best = [
        replace(
            hits[f.key], dense_rank=f.dense_rank, lexical_rank=f.lexical_rank, rrf=f.value,
        )
        for f in fused
    ]  # fmt: skip
    return Found(lexical.scored(tokens, best), f"{plan}; words")


def _lexically_ranked(hits: Sequence[Hit]) -> list[Hit]:
    return [replace(hit, lexical_rank=rank) for rank, hit in enumerate(hits, 1)]
