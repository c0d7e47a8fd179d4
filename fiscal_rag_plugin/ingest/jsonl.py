"""JSONL: one section of a document a line, each its own source."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fiscal_rag_plugin.errors import IngestError

from .metadata import split_metadata
from .source import ReadResult, Section, Source


def read_jsonl(data: bytes, doc_id: str) -> ReadResult:
    """The sources of a JSONL file, and a problem for each line that cannot be read.

    A line needs ``text``; ``doc_id`` (else ``<file>:<line>``), ``section_label``,
    ``section_title``, ``section_path`` (a list or text) and the fields of ChunkMetadata are used
    as such, every other key is kept with the chunk.
    """
    sources: list[Source] = []
    problems: list[IngestError] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{doc_id}: line {number}"
        try:
            source = _source(_object(line, where), where, f"{doc_id}:{number}")
            if first := seen.get(source.doc_id):
                raise IngestError(
                    f"{where}: doc_id {source.doc_id!r:.200} was given in line {first} already"
                )
        except IngestError as error:
            problems.append(error)
            continue
        seen[source.doc_id] = number
        sources.append(source)
    return ReadResult(tuple(sources), tuple(problems))


def _object(line: bytes, where: str) -> dict[str, object]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise IngestError(f"{where}: not UTF-8 at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise IngestError(f"{where}: not JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise IngestError(f"{where}: not JSON: a number out of range, or nested too deep") from None
    if not isinstance(value, dict):
        raise IngestError(f"{where}: a line is a JSON object, not {type(value).__name__}")
    return value


def _source(value: dict[str, object], where: str, default_doc_id: str) -> Source:
    text = value.pop("text", None)
    if not isinstance(text, str) or not text.strip():
        raise IngestError(f"{where}: 'text' is missing or blank")
    path = tuple(_path_of(value.pop("section_path", None)))
    fields, extra = split_metadata(value, where)
    doc_id = str(fields.pop("doc_id", "")) or default_doc_id
    label, title = str(fields.pop("section_label", "")), extra.get("section_title")
    section = Section(0, len(text), label, path, title=title if isinstance(title, str) else "")
    try:
        return Source(doc_id, text, (section,), fields=fields, extra=extra)
    except IngestError as error:
        raise IngestError(f"{where}: {error}") from None


def _path_of(value: object) -> Iterator[str]:
    parts = value if isinstance(value, list) else str(value or "").split(" > ")
    return (str(part) for part in parts if str(part).strip())


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
