"""Embedders for tests about plumbing. They say nothing about the quality of retrieval."""

from __future__ import annotations

import hashlib
import re
import time
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=65536)
def _direction(word: str, dim: int) -> np.ndarray:
    raw = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(dim)
    return np.frombuffer(raw, dtype=np.uint8).astype(np.float32) - 127.5


class HashEmbedder:
    """A text is the sum of its words' directions, so texts that share words are similar.

    Deterministic in every process. ``calls`` counts calls, ``documents`` and ``queries`` keep
    the texts that were embedded, in order.
    """

    def __init__(self, dim: int = 64) -> None:
        self.dimension = dim
        self.model_id = f"hash-{dim}"
        self.calls = 0
        self.documents: list[str] = []
        self.queries: list[str] = []

    def _vector(self, text: str) -> list[float]:
        words = re.findall(r"\w+", text.lower()) or [text]
        total = np.sum([_direction(word, self.dimension) for word in words], axis=0)
        return (total / np.linalg.norm(total)).astype(np.float32).tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += 1
        self.documents.extend(texts)
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls += 1
        self.queries.append(text)
        return self._vector(text)

    def count_tokens(self, text: str) -> int:
        return len(text.split())


class WordModel:
    """Counts a token a word, plus two specials, and embeds with HashEmbedder."""

    dimension = 64

    def __init__(self, max_tokens: int | None = 8) -> None:
        self.max_tokens = max_tokens
        self.embedder = HashEmbedder(64)

    def count_tokens(self, texts: list[str], *, query: bool) -> list[int]:
        return [len(text.split()) + 2 for text in texts]

    def embed(self, texts: list[str], *, query: bool) -> np.ndarray:
        return np.asarray(self.embedder.embed_documents(texts), dtype=np.float32)


class CountingBackend:
    """Loads a WordModel, slowly if asked, and counts how often."""

    model_id = "words-64"

    def __init__(self, max_tokens: int | None = 8, seconds: float = 0.0) -> None:
        self.loads = 0
        self.max_tokens = max_tokens
        self.seconds = seconds

    def load(self) -> WordModel:
        self.loads += 1
        time.sleep(self.seconds)
        return WordModel(self.max_tokens)


class Returns:
    """Answers with whatever it was built with."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> object:
        return self.answer

    def embed_query(self, text: str) -> object:
        return self.answer
