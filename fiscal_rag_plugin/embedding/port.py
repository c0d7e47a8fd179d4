"""The two ports: Embedder, what the store asks of anything that embeds, and Backend, a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = "Sequence[float] | npt.NDArray[Any]"
Matrix: TypeAlias = "npt.NDArray[np.float32]"


class Embedder(Protocol):
    """Anything that turns texts into vectors of one dimension.

    It may also declare ``model_id: str`` (then an index remembers it and refuses another
    model), ``dimension: int``, ``max_tokens: int | None`` and ``count_tokens(text) -> int``.
    """

    def embed_documents(self, texts: list[str], /) -> Sequence[Floats] | npt.NDArray[Any]:
        """One vector a text, in the order of the texts."""

    def embed_query(self, text: str, /) -> Floats:
        """The vector of a question."""


class Model(Protocol):
    """A loaded model. It may be called from several threads at once."""

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int | None:
        """Tokens the model reads, prefix and special tokens included; None: no limit is known."""

    def count_tokens(self, texts: list[str], *, query: bool) -> list[int]:
        """Tokens of each text as the model reads it: with prefix and specials, not truncated."""

    def embed(self, texts: list[str], *, query: bool) -> Matrix:
        """Unit vectors, float32 ``(n, dimension)``, of texts that fit ``max_tokens``."""


class Backend(Protocol):
    """A way to load a model."""

    @property
    def model_id(self) -> str:
        """Names the model and its convention; known without loading anything."""

    def load(self) -> Model: ...


def model_id_of(embedder: object) -> str | None:
    """The model an embedder declares, or None when it does not say."""
    declared = getattr(embedder, "model_id", None)
    return declared if isinstance(declared, str) and declared.strip() else None
