"""Qdrant Edge, Qdrant's engine in this process: payload indexes and a filter in the search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    MatchAny,
    MatchValue,
    PayloadSchemaType,
    Point,
    Query,
    QueryRequest,
    SearchParams,
    UpdateOperation,
)

from ..data import DIMENSION, Extra, Rows
from .base import TOP_K, Ask

INDEXED = ("source_scope", "session_id", "tax", "section_path")
EF_SEARCH = 100  # Chroma's


class QdrantEdge:
    def __init__(self, path: Path) -> None:
        shard = path / "shard"
        if shard.exists():
            self._shard = EdgeShard.load(str(shard))
            return
        shard.mkdir()
        vectors = EdgeVectorParams(size=DIMENSION, distance=Distance.Cosine)
        self._shard = EdgeShard.create(str(shard), EdgeConfig(vectors=vectors))
        for field in INDEXED:
            self._shard.update(UpdateOperation.create_field_index(field, PayloadSchemaType.Keyword))

    def count(self) -> int:
        return int(self._shard.info().points_count)

    def write(self, rows: Rows) -> None:
        points = [
            Point(i, vector.tolist(), {**row, "text": text})
            for i, text, vector, row in zip(
                rows.numbers, rows.texts, rows.vectors, rows.metadata, strict=True
            )
        ]
        self._shard.update(UpdateOperation.upsert_points(points))

    def finish(self) -> None:
        self._shard.optimize()
        self._shard.flush()

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        public = FieldCondition("source_scope", match=MatchValue("public"))
        mine = FieldCondition("session_id", match=MatchAny(list(sessions)))
        functional = [FieldCondition(key, match=MatchValue(value)) for key, value in (extra or {}).items()]
        wanted = Filter(must=[Filter(should=[public, mine]), *functional])

        def ask(vector: np.ndarray) -> list[str]:
            request = QueryRequest(
                limit=TOP_K, query=Query.Nearest(vector.tolist()), filter=wanted, with_payload=True,
                params=SearchParams(hnsw_ef=EF_SEARCH),
            )  # fmt: skip
            return [(point.payload or {})["section_label"] for point in self._shard.query(request)]

        return {"Qdrant Edge": ask}

    def close(self) -> None:
        self._shard.close()


open_peer = QdrantEdge
