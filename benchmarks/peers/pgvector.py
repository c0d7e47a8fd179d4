"""PostgreSQL with pgvector: one table, the access and the filter as a predicate of the query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psycopg

from ..data import DIMENSION, Extra, Rows
from .base import TOP_K, Ask
from .postgres import Server

COLUMNS = (
    "doc_id", "doc_type", "tax", "fiscal_year", "section_label", "section_path", "source_url",
    "chunk_index", "source_scope", "session_id",
)  # fmt: skip
TABLE = f"""
    CREATE EXTENSION IF NOT EXISTS vector;
    CREATE TABLE IF NOT EXISTS chunks (
        text text, doc_id text, doc_type text, tax text, fiscal_year int, section_label text,
        section_path text, source_url text, chunk_index int, source_scope text, session_id text,
        embedding vector({DIMENSION}))
"""
INDEXES = """
    CREATE INDEX IF NOT EXISTS chunks_near ON chunks USING hnsw (embedding vector_cosine_ops);
    CREATE INDEX IF NOT EXISTS chunks_session ON chunks (session_id);
    CREATE INDEX IF NOT EXISTS chunks_law ON chunks (section_path);
    CREATE INDEX IF NOT EXISTS chunks_tax ON chunks (tax);
    ANALYZE chunks
"""
# As pgvector's README says of filters: go on until enough rows pass, then sort once more, for the strict
# order would drop rows that come late. 100 is Chroma's ef_search.
SESSION = "SET hnsw.iterative_scan = relaxed_order; SET hnsw.ef_search = 100"


class PgVector:
    def __init__(self, path: Path) -> None:
        self._server = Server(path)
        try:
            self._connection = psycopg.connect(
                host=str(self._server.socket), user="bench", dbname="postgres", autocommit=True
            )
            self._connection.execute(TABLE)
            self._connection.execute(SESSION)
        except BaseException:
            self._server.stop()
            raise

    def count(self) -> int:
        row = self._connection.execute("SELECT count(*) FROM chunks").fetchone()
        return int(row[0]) if row else 0

    def write(self, rows: Rows) -> None:
        columns = ", ".join(("text", *COLUMNS, "embedding"))
        with self._connection.cursor().copy(f"COPY chunks ({columns}) FROM STDIN") as copy:
            for text, vector, row in zip(rows.texts, rows.vectors, rows.metadata, strict=True):
                copy.write_row((text, *(row.get(name) for name in COLUMNS), literal(vector)))

    def finish(self) -> None:
        for statement in INDEXES.split(";"):
            self._connection.execute(statement)

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        conditions = ["(source_scope = 'public' OR session_id = ANY(%s))"]
        conditions += [f"{key} = %s" for key in extra or {}]
        statement = (
            f"WITH near AS MATERIALIZED (SELECT text, {', '.join(COLUMNS)}, embedding <=> %s::vector AS "
            f"distance FROM chunks WHERE {' AND '.join(conditions)} ORDER BY distance LIMIT {TOP_K}) "
            "SELECT * FROM near ORDER BY distance + 0"
        )
        place = 1 + COLUMNS.index("section_label")

        def ask(vector: np.ndarray) -> list[str]:
            values = (literal(vector), list(sessions), *(extra or {}).values())
            # psycopg would prepare a repeated statement, and PostgreSQL plan it for any value.
            found = self._connection.execute(statement, values, prepare=False)
            return [row[place] for row in found]

        return {"pgvector": ask}

    def close(self) -> None:
        self._connection.close()
        self._server.stop()


def literal(vector: np.ndarray) -> str:
    return "[" + ",".join(map(str, vector.tolist())) + "]"


open_peer = PgVector
