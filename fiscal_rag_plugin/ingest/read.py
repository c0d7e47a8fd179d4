"""One file to its sources, whatever its format; what is wrong with it comes back beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fiscal_rag_plugin.errors import IngestError

from .files import SIDECAR_SUFFIX, SUPPORTED_SUFFIXES, decode_markup, decode_text
from .jsonl import read_jsonl
from .markdown import read_markdown
from .metadata import Declared, parse_yaml, split_metadata
from .source import ReadResult, Source
from .text import read_text

# In these, metadata was written by hand and goes above a sidecar; a PDF's or a page's title is a guess.
_EXPLICIT = frozenset({".md", ".markdown", ".jsonl"})


def read_source_file(path: str | Path, *, doc_id: str) -> ReadResult:
    """The sources in a file, with the metadata of ``<file>.yaml`` beside it, if any.

    Nothing wrong with the file or its sidecar raises: it comes back among the problems, each
    naming the file as ``doc_id`` and the place in it. Only JSONL can give both sources and problems.
    """
    path = Path(path)
    try:
        sidecar = _sidecar(path, doc_id)
        result = _read(path, doc_id)
        sources = tuple(_merge(s, sidecar, path.suffix.lower() in _EXPLICIT) for s in result.sources)
    except IngestError as error:
        return ReadResult(problems=(error,))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A hostile file finds the corner of a parser that fails in its own way; it is that file's fault.
        return ReadResult(problems=(IngestError(f"{doc_id}: cannot be read ({type(error).__name__})"),))
    return ReadResult(sources, result.problems)


def _read(path: Path, doc_id: str) -> ReadResult:
    suffix = path.suffix.lower()
    if suffix not in SUPPORTED_SUFFIXES:
        known = ", ".join(sorted(SUPPORTED_SUFFIXES))
        raise IngestError(f"{doc_id}: {suffix or 'no suffix'} is not a supported format; there are {known}")
    data = _bytes(path, doc_id)
    if not data.strip(b"\xef\xbb\xbf \t\r\n"):
        raise IngestError(f"{doc_id}: the file is empty")
    if suffix == ".jsonl":
        return read_jsonl(data, doc_id)
    if suffix == ".pdf":
        from .pdf import read_pdf  # here, and markup below: libraries of 7 MB that most files need not

        return ReadResult((read_pdf(data, doc_id),))
    if suffix in (".md", ".markdown", ".txt"):
        text = decode_text(data, doc_id)
        if not text.strip():
            raise IngestError(f"{doc_id}: the file is blank")
        return ReadResult((read_text(text, doc_id) if suffix == ".txt" else read_markdown(text, doc_id),))
    from .markup import read_markup

    return ReadResult((read_markup(decode_markup(data, doc_id), doc_id, suffix),))


def _bytes(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IngestError(f"{where}: cannot be read: {error.strerror}") from None


def _sidecar(path: Path, doc_id: str) -> Declared:
    sidecar = path.with_name(path.name + SIDECAR_SUFFIX)
    where = doc_id + SIDECAR_SUFFIX
    if not sidecar.is_file():
        return {}, {}
    if sidecar.is_symlink():
        # A link may lead out of the folder, and its target's lines would end up in the index.
        raise IngestError(f"{where}: a sidecar must not be a symbolic link; copy the file")
    value = parse_yaml(decode_text(_bytes(sidecar, where), where), where)
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        raise IngestError(f"{where}: a sidecar is a mapping of keys to values, not {type(value).__name__}")
    fields, extra = split_metadata(value, where)
    if "doc_id" in fields:
        raise IngestError(f"{where}: a file's doc_id is its path; remove the key")
    return fields, extra


def _merge(source: Source, sidecar: Declared, explicit: bool) -> Source:
    """The sidecar's metadata below what a document says of itself, above what was derived from it.

    An access claim is checked wherever it stands, so the document's cannot hide the sidecar's.
    """
    fields, extra = sidecar
    for key in ("source_scope", "session_id"):
        if key in fields and source.fields.get(key, fields[key]) != fields[key]:
            raise IngestError(f"{source.doc_id}: the file and its sidecar disagree on {key}")
    if explicit:
        return replace(source, fields={**fields, **source.fields}, extra={**extra, **source.extra})
    return replace(source, fields={**source.fields, **fields}, extra={**source.extra, **extra})
