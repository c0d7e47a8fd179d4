"""Vectors that cluster as real embeddings do, and the metadata that filters look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIMENSION = 384
SEED = 20261130
TAXES = ("IVA", "IRPF", "IS", "LGT")
SESSION_CHUNKS = 100
SESSIONS = 20
TEXT = "Texto de prueba sobre un tributo, con su artículo y su apartado. " * 12


@dataclass(frozen=True)
class Data:
    """``public (n, 384)`` and ``queries (q, 384)``, unit float32; private rows by session."""

    public: np.ndarray
    queries: np.ndarray
    private: dict[str, np.ndarray]


def make(n: int, queries: int) -> Data:
    generator = np.random.default_rng(SEED)
    centres = generator.normal(size=(max(50, n // 200), DIMENSION)).astype(np.float32)

    def near(count: int) -> np.ndarray:
        rows = centres[generator.integers(len(centres), size=count)]
        rows = rows + 0.6 * generator.normal(size=rows.shape).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    private = {f"S{i}": near(SESSION_CHUNKS) for i in range(SESSIONS)}
    return Data(near(n), near(queries), private)


def label(i: int, session: str | None) -> str:
    """What tells a hit apart in every peer."""
    return f"Artículo {i}" if session is None else f"Artículo {i} de {session}"


def metadata(i: int, session: str | None) -> dict[str, object]:
    """A quarter of the rows is of each tax; 20 rows share a law."""
    flat: dict[str, object] = {
        "doc_id": f"doc{i // 20}", "doc_type": "law", "tax": TAXES[i % 4], "fiscal_year": 2024,
        "section_label": label(i, session), "section_path": f"Ley {i // 20}", "source_url": f"https://example.org/{i}", "chunk_index": i % 20,
        "source_scope": "public" if session is None else "private",
    }  # fmt: skip
    return flat if session is None else {**flat, "session_id": session}
