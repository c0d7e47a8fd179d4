"""Put a file or a folder into a view: unchanged files are recognised, each file is written whole."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from fiscal_rag_plugin.chunks import PUBLIC, Chunk, validate_text
from fiscal_rag_plugin.drafts import FileMark
from fiscal_rag_plugin.embedding.port import model_id_of
from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.errors import (
    IngestError,
    InvalidChunkError,
    SettingsError,
    TextTooLongError,
)
from fiscal_rag_plugin.view import View

from .chunking import MIN_BUDGET_TOKENS, chunk_source
from .embedding_text import CountTokens, embedding_recipe
from .files import SIDECAR_SUFFIX, iter_source_files
from .read import read_source_file

_CHARS_PER_TOKEN = 3
"""For embedders that cannot count: Spanish prose has about 4 characters a token."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file; ``path`` is relative to the ingested root."""

    path: str
    status: str
    """"ingested", "unchanged" (not even read) or "failed" (nothing of it was written)"""
    doc_ids: tuple[str, ...] = ()
    chunks: int = 0
    embedded: int = 0
    kept: int = 0
    updated: int = 0
    removed: int = 0
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """parts of an ingested file that could not be read, each naming file and place"""
    ids: tuple[str, ...] = field(default=(), repr=False)
    """the chunks stored, by id; filled by :func:`ingest_file`"""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The files in order."""

    files: tuple[FileReport, ...]

    def total(self, name: str) -> int:
        """The sum of ``chunks``, ``embedded``, ``kept``, ``updated`` or ``removed``."""
        return sum(int(getattr(file, name)) for file in self.files)

    def count(self, status: str) -> int:
        return sum(file.status == status for file in self.files)

    @property
    def problems(self) -> list[str]:
        return [problem for file in self.files for problem in file.problems]

    @property
    def warnings(self) -> list[str]:
        return [warning for file in self.files for warning in file.warnings]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an ingest is: bytes of files done of all, and chunks embedded so far."""

    path: str
    done_bytes: int
    total_bytes: int
    embedded: int


OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How files become chunks; part of what makes a file unchanged."""

    tax: str | None = None
    doc_type: str | None = None
    fiscal_year: int | None = None
    chunk_tokens: int = 256
    chunk_overlap: int = 32
    headings: bool = True
    expires_at: dt.datetime | None = None

    def __post_init__(self) -> None:
        tokens, overlap = self.chunk_tokens, self.chunk_overlap
        if type(tokens) is not int or tokens < MIN_BUDGET_TOKENS:
            raise SettingsError(f"chunk_tokens must be an int of at least {MIN_BUDGET_TOKENS}")
        if type(overlap) is not int or not 0 <= overlap < tokens:
            raise SettingsError("chunk_overlap must be an int from 0 to less than chunk_tokens")
        self.expiry()

    def defaults(self) -> dict[str, str | int]:
        given = {"tax": self.tax, "doc_type": self.doc_type, "fiscal_year": self.fiscal_year}
        return {name: value for name, value in given.items() if value is not None}

    def expiry(self) -> float | None:
        """POSIX seconds; a time without a zone could be off by hours, and is refused."""
        if self.expires_at is None:
            return None
        if not isinstance(self.expires_at, dt.datetime) or self.expires_at.tzinfo is None:
            raise SettingsError("expires_at must be a datetime with a time zone")
        return self.expires_at.timestamp()


def ingest_path(
    view: View,
    path: str | Path,
    options: IngestOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> IngestReport:
    """Ingest a file, or every supported file under a folder, in the scope of the view.

    A bound view writes its session, the unbound one public chunks. A file that cannot be read, or
    cut to what the model reads, is reported and nothing of it is written; the others go on. What is
    no file's fault (the model or the disk fails) is raised: the files done are stored whole, the
    rest keep their old version, and the next run goes on from there.

    Raises:
        IngestError: ``path`` does not exist.
        SettingsError: ``expires_at`` without a session that it could end for.
    """
    options = _checked(view, options)
    files = [(file, name, file.stat().st_size) for file, name in iter_source_files(path)]
    total, done, embedded = sum(size for *_, size in files), 0, 0
    reports: list[FileReport] = []
    owners: dict[str, str] = {}
    for file, name, size in files:
        tell = _teller(on_progress, name, done, size, total, embedded)
        if on_progress is not None:
            on_progress(Progress(name, done, total, embedded))
        reports.append(_ingest_file(view, file, name, options, tell, owners))
        owners.update(dict.fromkeys(reports[-1].doc_ids, name))
        done += size
        embedded += reports[-1].embedded
        if on_progress is not None:
            on_progress(Progress(name, done, total, embedded))
    return IngestReport(tuple(reports))


def ingest_file(
    view: View, path: str | Path, options: IngestOptions | None = None, *,
    name: str | None = None, on_progress: OnProgress | None = None,
) -> FileReport:  # fmt: skip
    """Ingest one file and return what was stored: an upload, synchronous, beside other processes.

    ``name`` becomes its ``doc_id`` instead of the file's own name, for uploads in temporary files.

    Raises:
        IngestError: the file cannot be read or cut; nothing of it was written.
        EmbeddingError: the model failed; nothing of it was written.
        SettingsError: ``expires_at`` without a session that it could end for.
    """
    path = Path(path)
    if not path.is_file():
        raise IngestError(f"{path.name}: no such file")
    report = _ingest_file(
        view,
        path,
        name or path.name,
        _checked(view, options),
        _teller(on_progress, name or path.name, 0, path.stat().st_size, path.stat().st_size, 0),
    )
    if report.problems:
        raise IngestError("; ".join(report.problems))
    stored = view.owned(Condition(doc_ids=frozenset(report.doc_ids)))
    return replace(report, ids=tuple(record.id for record in stored))


def _checked(view: View, options: IngestOptions | None) -> IngestOptions:
    options = options or IngestOptions()
    if options.expires_at is not None and view.access is None:
        raise SettingsError("expires_at is for private uploads; ingest through for_session()")
    return options


def _teller(
    on_progress: OnProgress | None, name: str, done: int, size: int, total: int, embedded: int
) -> Callable[[int, int], None] | None:
    if on_progress is None:
        return None
    return lambda made, of: on_progress(
        Progress(name, done + size * made // max(of, 1), total, embedded + made)
    )


def _ingest_file(
    view: View, file: Path, name: str, options: IngestOptions,
    tell: Callable[[int, int], None] | None, owners: Mapping[str, str] = MappingProxyType({}),
) -> FileReport:  # fmt: skip
    """``owners``: which file of this run gave a doc_id already; two would replace each other forever."""
    try:
        validate_text(name, "the file's name")
        if view.access is not None:
            view.placed({})
        mark = FileMark(name, _digest(view, file, options))
        before = view.ingested(name)
        if before is not None and before[0] == mark.digest:
            return FileReport(
                name, "unchanged", tuple(before[1]), sum(before[1].values()), kept=sum(before[1].values())
            )
        result = read_source_file(file, doc_id=name)
        if result.problems:
            return FileReport(name, "failed", problems=tuple(str(problem) for problem in result.problems))
        documents = sorted({source.doc_id for source in result.sources})
        for doc_id in documents:
            if doc_id in owners:
                raise IngestError(f"{name}: doc_id {doc_id!r:.200} was given by {owners[doc_id]} already")
        chunks = list(_chunks(view, result.sources, options))
        report = view.replace_documents(
            sorted({*documents, *(before[1] if before else ())}),
            chunks, expires_at=options.expiry(), file=mark, on_progress=tell,
        )  # fmt: skip
    except (IngestError, InvalidChunkError, TextTooLongError) as error:
        message = str(error)
        return FileReport(name, "failed", problems=(message if name in message else f"{name}: {message}",))
    return FileReport(
        name, "ingested", tuple(documents), len(chunks),
        report.embedded, report.kept, report.updated, report.removed,
        warnings=tuple(warning for source in result.sources for warning in source.warnings),
    )  # fmt: skip


def _chunks(view: View, sources: Any, options: IngestOptions) -> Iterator[Chunk]:
    scope, session = view.placed({}) if view.access is not None else (PUBLIC, None)
    now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    defaults = {"retrieved_at": now, **options.defaults()}
    count = token_counter(view)
    for source in sources:
        yield from chunk_source(
            source, count_tokens=count, scope=scope, session_id=session, defaults=defaults,
            budget_tokens=options.chunk_tokens, overlap_tokens=options.chunk_overlap,
            headings=options.headings,
        )  # fmt: skip


def token_counter(view: View) -> CountTokens:
    """The model's own tokenizer, or an estimate on the safe side for an embedder without one."""
    counter = getattr(view.embedder, "count_tokens", None)
    if callable(counter):
        return counter  # type: ignore[no-any-return]
    return lambda text: math.ceil(len(text) / _CHARS_PER_TOKEN)


def _digest(view: View, file: Path, options: IngestOptions) -> str:
    """SHA-256 of the bytes of file and sidecar, and of everything else that its chunks depend on."""
    settings: Mapping[str, Any] = {
        "defaults": options.defaults(), "tokens": options.chunk_tokens, "overlap": options.chunk_overlap,
        "recipe": embedding_recipe(headings=options.headings), "expires": options.expiry(),
        "model": model_id_of(view.embedder),
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in (file, file.with_name(file.name + SIDECAR_SUFFIX)):
        try:
            # A sidecar may be a pipe or a link to a device; the reader refuses or ignores it.
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        except OSError as error:
            raise IngestError(f"{path.name}: cannot be read: {error.strerror}") from None
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
