"""Files into a store: what a web application does with an upload, and an operator with a folder."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..chunks import Chunk
from ..ingest.run import FileReport, IngestOptions, IngestReport, OnProgress, ingest_file, ingest_path
from ..streaming import WINDOW, StreamReport
from ..view import View


class Uploads:
    """Mixed into the store: a bound one uploads privately, the unbound one publishes."""

    _ingest_options: IngestOptions
    """how files are cut where a call says nothing else; from the settings"""

    @property
    def view(self) -> View:
        raise AttributeError("view")

    def ingest_file(
        self, path: str | Path, *, name: str | None = None, tax: str | None = None,
        doc_type: str | None = None, expires_at: dt.datetime | None = None,
        on_progress: OnProgress | None = None,
    ) -> FileReport:  # fmt: skip
        """Store one file and return what was stored; it can be asked about when this returns.

        ``name`` is its ``doc_id`` (the file's own name otherwise); ``expires_at`` (with a time zone,
        private uploads only) is when it is no longer returned. Ingesting it again replaces it.

        Raises:
            IngestError: the file cannot be read or cut; nothing of it was written.
            EmbeddingError: the model failed; nothing of it was written.
        """
        options = _given(self._ingest_options, tax=tax, doc_type=doc_type, expires_at=expires_at)
        return ingest_file(self.view, path, options, name=name, on_progress=on_progress)

    def add_chunk_stream(
        self, chunks: Iterable[Chunk], *, vectors: Iterable[Any] | None = None, window: int = WINDOW,
        on_progress: Callable[[StreamReport], None] | None = None,
    ) -> StreamReport:  # fmt: skip
        """Upsert chunks as they come, however many: memory holds two windows of them.

        One window is written while the next is embedded; each is stored whole or not at all, and
        the same stream again embeds nothing of what is stored. ``vectors``: one for each chunk.
        """
        return self.view.add_chunk_stream(chunks, vectors=vectors, window=window, on_progress=on_progress)

    async def aingest_file(
        self, path: str | Path, *, name: str | None = None, tax: str | None = None,
        doc_type: str | None = None, expires_at: dt.datetime | None = None,
        on_progress: OnProgress | None = None,
    ) -> FileReport:  # fmt: skip
        """:meth:`ingest_file` in a thread."""
        return await asyncio.to_thread(
            self.ingest_file, path, name=name, tax=tax, doc_type=doc_type,
            expires_at=expires_at, on_progress=on_progress,
        )  # fmt: skip

    def ingest(
        self, path: str | Path, options: IngestOptions | None = None, *, tax: str | None = None,
        doc_type: str | None = None, fiscal_year: int | None = None,
        expires_at: dt.datetime | None = None, on_progress: OnProgress | None = None,
    ) -> IngestReport:  # fmt: skip
        """Store every supported file under a folder; a file that cannot be read is reported, not raised.

        ``tax``, ``doc_type`` and ``fiscal_year`` are for files that do not say theirs.
        """
        options = _given(
            options or self._ingest_options,
            tax=tax, doc_type=doc_type, fiscal_year=fiscal_year, expires_at=expires_at,
        )  # fmt: skip
        return ingest_path(self.view, path, options, on_progress=on_progress)


def _given(options: IngestOptions, **changes: Any) -> IngestOptions:
    return replace(options, **{name: value for name, value in changes.items() if value is not None})
