"""The legs of a search: vectors, words, or both fused by their ranks."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from .access import Access
from .engines.base import Found, Key
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
    try:
        return _with_words(engine, lexical, query, vector, access)
    except StorageError as error:
        if query.on_lexical_failure != "dense" or vector is None:
            raise
        logger.warning("words could not be searched, so only vectors were: %s", error)
        return replace(_dense(engine, query, vector, access), degraded=str(error))


def _dense(engine: EmbeddedEngine, query: SearchQuery, vector: Vector | None, access: Access) -> Found:
    assert vector is not None
    return engine.search(vector, query.candidates, access, query.condition)


def _with_words(
    engine: EmbeddedEngine, lexical: LexicalSearch, query: SearchQuery, vector: Vector | None,
    access: Access,
) -> Found:  # fmt: skip
    """Ranks first; only what is answered is read whole, and what must not be shown is ranked out."""
    tokens = question_tokens(query.text or "")
    hybrid = query.mode == "hybrid"
    weight = query.hybrid_weight if hybrid else 0.0
    refused: set[Key] = set()
    side_by_side = engine.public.side_by_side

    def dense_leg() -> tuple[list[Key], str]:
        if not weight or vector is None:
            return [], "none"
        return engine.rank(vector, query.candidates, access, query.condition, refused)

    def lexical_leg() -> dict[Key, float]:
        if weight == 1:
            return {}
        return lexical.rank(tokens, query.lexical_k or query.candidates, access, query.condition, refused)

    while True:
        (dense, plan), words = side_by_side.run(dense_leg, lexical_leg)
        # By key: two chunks with one text stay two.
        fused = fuse(dense, list(words), weight, tie=lambda key: (key[2], key))[: query.top_k]
        chosen = [f.key for f in fused]
        hits, others = side_by_side.run(
            partial(engine.hits, chosen, vector, access, query.condition),
            partial(lexical.values, tokens, [key for key in chosen if key not in words]),
        )
        if len(hits) == len(fused):
            break
        # Edited, or gone since: as if it had not been there. Where there is one there may be more.
        ranked = {*dense, *words}
        refused |= ranked - engine.hits(sorted(ranked), None, access, query.condition).keys()
        refused |= {key for key in chosen if key not in hits}
    values = {**others, **words}
    best = [
        replace(
            hits[f.key], bm25=values[f.key], dense_rank=f.dense_rank, lexical_rank=f.lexical_rank,
            rrf=f.value if hybrid else None,
        )
        for f in fused
    ]  # fmt: skip
    return Found(best, f"{plan}; words" if hybrid else "words")
