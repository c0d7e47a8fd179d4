"""Raw Chroma: the floor. Its query has no filter, so what it finds is not what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings

from ..data import Extra, Rows
from .base import RAW, TOP_K, Ask

COLLECTION = "bench"


def open_collection(path: Path) -> tuple[Any, Any]:
    client = chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
    configuration: Any = {"hnsw": {"space": "cosine"}}
    return client, client.get_or_create_collection(
        COLLECTION, embedding_function=None, configuration=configuration
    )


class Raw:
    def __init__(self, path: Path) -> None:
        self._client, self.collection = open_collection(path)

    def count(self) -> int:
        return int(self.collection.count())

    def write(self, rows: Rows) -> None:
        self.collection.add(
            ids=rows.ids,
            embeddings=rows.vectors,
            documents=list(rows.texts),
            metadatas=rows.metadata,
        )

    def finish(self) -> None:
        """Chroma's index is complete with each batch."""

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        def ask(vector: np.ndarray) -> list[str]:
            found = self.collection.query(
                query_embeddings=[vector.tolist()],
                n_results=TOP_K,
                include=["documents", "metadatas", "distances"],
            )
            return [row["section_label"] for row in found["metadatas"][0]]

        return {RAW: ask}

    def close(self) -> None:
        self._client.close()


open_peer = Raw
