"""Inputs of the ingest tests: small valid PDFs, a counter of words, and the shared real files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared" / "data"
_TOKEN = re.compile(r"\w+|[^\w\s]")


def count_words(text: str) -> int:
    """Words and punctuation marks, and two marks as a tokenizer adds them to any text."""
    return len(_TOKEN.findall(text)) + 2


def shared(name: str) -> Path:
    """A real file beside the project, or a skip that says which one is missing."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"real data is absent: {name}")
    return path


def write_pdf(
    path: Path,
    pages: Sequence[Sequence[str]],
    outline: Sequence[tuple[int, str, int]] = (),
    title: str = "",
    encrypted: bool = False,
) -> Path:
    """A PDF of text lines; ``outline`` holds (level from 0, title, page index), in order."""
    objects: dict[int, bytes] = {}
    font, root, tree, info = 1, 2, 3, 4
    first_page, first_mark = 10, 10 + 2 * len(pages)
    objects[font] = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    kids = " ".join(f"{first_page + 2 * i} 0 R" for i in range(len(pages)))
    objects[tree] = f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode()
    objects[info] = b"<< /Title " + _string(title) + b" >>"
    for i, lines in enumerate(pages):
        drawn = b"".join(_string(line) + b" Tj T* " for line in lines)
        stream = b"BT /F1 10 Tf 14 TL 50 800 Td " + drawn + b"ET" if lines else b""
        number = first_page + 2 * i
        objects[number] = (
            f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 595 842] /Contents {number + 1} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>"
        ).encode()
        objects[number + 1] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)
    objects[root] = f"<< /Type /Catalog /Pages {tree} 0 R".encode()
    if outline:
        objects[root] += b" /Outlines 5 0 R"
        objects |= _outline(outline, first_mark, first_page)
    objects[root] += b" >>"
    trailer = f"/Root {root} 0 R /Info {info} 0 R".encode()
    if encrypted:
        key = b"<" + b"5a" * 32 + b">"
        trailer += b" /ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O %s /U %s >>" % (
            key,
            key,
        )
    path.write_bytes(_file(objects, trailer))
    return path


def _string(text: str) -> bytes:
    raw = text.encode("cp1252")
    return b"(" + raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)") + b")"


def _outline(marks: Sequence[tuple[int, str, int]], first: int, first_page: int) -> dict[int, bytes]:
    """Bookmarks as a tree: each level's items are linked with each other and with their parent."""
    parents: list[int] = []
    children: dict[int, list[int]] = {}
    for i, (level, _, _) in enumerate(marks):
        parent = 5 if level == 0 else next(first + j for j in range(i - 1, -1, -1) if marks[j][0] < level)
        parents.append(parent)
        children.setdefault(parent, []).append(first + i)
    objects: dict[int, bytes] = {}
    for i, (_, title, page) in enumerate(marks):
        number, siblings = first + i, children[parents[i]]
        at = siblings.index(number)
        links = f"/Parent {parents[i]} 0 R /Dest [{first_page + 2 * page} 0 R /XYZ 0 800 0]"
        if at:
            links += f" /Prev {siblings[at - 1]} 0 R"
        if at + 1 < len(siblings):
            links += f" /Next {siblings[at + 1]} 0 R"
        if own := children.get(number):
            links += f" /First {own[0]} 0 R /Last {own[-1]} 0 R /Count {len(own)}"
        name = b"\xfe\xff" + title.encode("utf-16-be")
        objects[number] = f"<< /Title <{name.hex()}> {links} >>".encode()
    top = children[5]
    objects[5] = (
        f"<< /Type /Outlines /First {top[0]} 0 R /Last {top[-1]} 0 R /Count {len(marks)} >>".encode()
    )
    return objects


def _file(objects: dict[int, bytes], trailer: bytes) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    offsets: dict[int, int] = {}
    for number, body in sorted(objects.items()):
        offsets[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n"
    for number, offset in sorted(offsets.items()):
        out += b"%d 1\n%010d 00000 n \n" % (number, offset)
    out += b"trailer << /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n" % (max(offsets) + 1, trailer, start)
    return bytes(out)
