"""Files to ingest: which ones, in which order, and their bytes as text."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fiscal_rag_plugin.errors import IngestError

SUPPORTED_SUFFIXES = frozenset(
    {".md", ".markdown", ".txt", ".html", ".htm", ".xhtml", ".xml", ".pdf", ".jsonl"}
)
SIDECAR_SUFFIX = ".yaml"
_DECLARED = re.compile(
    rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([\w.:-]+)|<meta[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)
_HEAD_BYTES = 4096
# Browsers read these labels as Windows-1252 (WHATWG Encoding Standard), and so do their pages.
_WINDOWS = frozenset({"iso8859-1", "ascii"})


def iter_source_files(root: str | Path) -> Iterator[tuple[Path, str]]:
    """(path, doc_id) of every supported file under ``root``, by doc_id: its POSIX path below root.

    Hidden files and folders, linked folders, and links that lead outside ``root`` are left out.
    A ``root`` that is a file gives that file under its name.

    Raises:
        IngestError: there is no such folder, or one in it cannot be listed.
    """
    root = Path(root)
    if root.is_file():
        yield root, root.name
        return
    if not root.is_dir():
        raise IngestError(f"{root}: no such file or folder")
    inside = root.resolve()
    found: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if name.startswith(".") or path.suffix.lower() not in SUPPORTED_SUFFIXES:
                continue
            if path.is_file() and path.resolve().is_relative_to(inside):
                found.append((path.relative_to(root).as_posix(), path))
    for doc_id, path in sorted(found):
        yield path, doc_id


def _refuse(error: OSError) -> None:
    raise IngestError(f"{error.filename}: the folder cannot be listed: {error.strerror}") from None


def decode_text(data: bytes, where: str) -> str:
    """UTF-8 text, with or without a byte order mark.

    Raises:
        IngestError: naming the offset of the first byte that is not UTF-8, or is NUL.
    """
    return _decode(data, "utf-8", where, "save the file as UTF-8")


def decode_markup(data: bytes, where: str) -> str:
    """HTML or XML text in the encoding it declares, or UTF-8 when it declares none.

    Raises:
        IngestError: an unknown encoding, or the offset of the first byte that is not in it.
    """
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(mark):
            return _decode(data, name, where, "save the file as UTF-8")
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    label = "utf-8"
    if declared and not data.startswith(codecs.BOM_UTF8):
        label = (declared[1] or declared[2]).decode("ascii")
    try:
        name = codecs.lookup(label).name
        "".encode(name)  # Refuses codecs that are no text encodings, such as rot13.
    except LookupError:
        raise IngestError(f"{where}: unknown encoding {label!r:.40}; save the file as UTF-8") from None
    if name.startswith("utf-16"):
        # A declaration that can be read as ASCII does not stand in UTF-16.
        name = "utf-8"
    return _decode(data, "cp1252" if name in _WINDOWS else name, where, "correct the encoding it declares")


def _decode(data: bytes, encoding: str, where: str, remedy: str) -> str:
    skipped = 0
    if encoding == "utf-8" and data.startswith(codecs.BOM_UTF8):
        skipped = len(codecs.BOM_UTF8)
    try:
        text = data[skipped:].decode(encoding)
    except UnicodeDecodeError as error:
        raise IngestError(f"{where}: not {encoding} at byte {error.start + skipped}; {remedy}") from None
    except UnicodeError:
        raise IngestError(f"{where}: not {encoding}; {remedy}") from None
    if "\x00" in text:
        at = len(text[: text.index("\x00")].encode(encoding)) + skipped
        raise IngestError(f"{where}: NUL at byte {at}: not a text file, or UTF-16; {remedy}")
    return text
