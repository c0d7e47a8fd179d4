"""LanceDB with a prefilter: the predicate is evaluated first, the vector index asked within it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa

from ..data import DIMENSION, Extra, Rows
from .base import TOP_K, Ask

TABLE = "chunks"
INDEXED: dict[str, Any] = {
    "source_scope": "BITMAP",
    "tax": "BITMAP",
    "session_id": "BTREE",
    "section_path": "BTREE",
}
INDEX_FROM = 5_000
"""Below, LanceDB's documentation advises a flat scan."""
PROBES = 20
REFINE = 4
SCHEMA = pa.schema(
    [("vector", pa.list_(pa.float32(), DIMENSION))]
    + [(name, pa.int64()) for name in ("fiscal_year", "chunk_index")]
    + [
        (name, pa.string())
        for name in (
            "text", "doc_id", "doc_type", "tax", "section_label", "section_path", "source_url",
            "source_scope", "session_id",
        )
    ]
)  # fmt: skip


class Lance:
    def __init__(self, path: Path) -> None:
        self._table = lancedb.connect(str(path)).create_table(TABLE, schema=SCHEMA, exist_ok=True)

    def count(self) -> int:
        return int(self._table.count_rows())

    def write(self, rows: Rows) -> None:
        flat = [{"session_id": None, **row} for row in rows.metadata]
        columns: dict[str, Any] = {
            field.name: [row[field.name] for row in flat]
            for field in SCHEMA
            if field.name not in ("vector", "text")
        }
        columns["text"] = list(rows.texts)
        columns["vector"] = pa.FixedSizeListArray.from_arrays(
            pa.array(rows.vectors.reshape(-1), type=pa.float32()), DIMENSION
        )
        self._table.add(pa.table(columns, schema=SCHEMA))

    def finish(self) -> None:
        for column, kind in INDEXED.items():
            self._table.create_scalar_index(column, index_type=kind)
        if self.count() >= INDEX_FROM:
            self._table.create_index(metric="cosine", index_type="IVF_HNSW_SQ", vector_column_name="vector")
        self._table.optimize()

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        named = ", ".join(f"'{session}'" for session in sessions)
        conditions = [f"(source_scope = 'public' OR session_id IN ({named}))"]
        conditions += [f"{key} = '{value}'" for key, value in (extra or {}).items()]
        predicate = " AND ".join(conditions)

        def ask(vector: np.ndarray) -> list[str]:
            search: Any = self._table.search(vector, vector_column_name="vector")
            search = search.distance_type("cosine").nprobes(PROBES).refine_factor(REFINE).ef(100)
            found = search.where(predicate, prefilter=True).limit(TOP_K).to_list()
            return [row["section_label"] for row in found]

        return {"LanceDB": ask}

    def close(self) -> None:
        """A table holds no server and no lock."""


open_peer = Lance
