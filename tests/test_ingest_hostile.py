"""A hostile file is that file's problem: a typed message, and the others go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.errors import AccessDeniedError
from fiscal_rag_plugin.ingest.run import ingest_file, ingest_path
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder

BOE = (
    '<documento><bloque id="a"><version fecha_vigencia="20200101"><p>%s</p></version></bloque></documento>'
)
HOSTILE = {
    "bool.md": "---\na: !!bool maybe\n---\nx",
    "time.md": "---\na: !!timestamp x\n---\nx",
    "int.md": "---\na: !!int ''\n---\nx",
    "float.md": "---\na: !!float ''\n---\nx",
    "huge.md": "---\na: 0x" + "f" * 5000 + "\n---\nx",
    "charset.html": '<meta charset="undefined"><p>x',
    "utf7.xml": '<?xml version="1.0" encoding="utf-7"?>' + BOE % "+2AA-",
    "escape.xml": '<?xml version="1.0" encoding="unicode_escape"?>' + BOE % "\\ud800",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[View]:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=HashEmbedder(16)))
    yield view
    view.close()


def test_files_made_to_break_a_parser_are_reported_and_the_others_are_ingested(
    store: View, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in HOSTILE.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "z-bueno.md").write_text("# Nota\n\nTexto.", encoding="utf-8")
    report = ingest_path(store, folder)
    assert {file.path for file in report.files if file.status == "ingested"} == {"z-bueno.md"}
    for file in report.files:
        if file.status == "failed":
            assert file.path in file.problems[0]


def test_a_sidecar_that_is_a_pipe_or_a_link_to_a_device_is_not_read(store: View, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("hola", encoding="utf-8")
    (folder / "b.txt").write_text("hola", encoding="utf-8")
    os.mkfifo(folder / "a.txt.yaml")
    (folder / "b.txt.yaml").symlink_to("/dev/zero")
    reports = []
    worker = threading.Thread(target=lambda: reports.append(ingest_path(store, folder)), daemon=True)
    worker.start()
    worker.join(30)
    assert reports, "the ingest hangs"
    assert {f.path: f.status for f in reports[0].files} == {"a.txt": "ingested", "b.txt": "ingested"}


def test_a_view_that_writes_no_session_is_refused_before_anything_is_looked_up(
    store: View, tmp_path: Path
) -> None:
    note = tmp_path / "nota.txt"
    note.write_text("hola", encoding="utf-8")
    ingest_file(store, note)
    with pytest.raises(AccessDeniedError):
        ingest_file(store.for_access(Access({"A"})), note)


def test_a_page_that_is_an_image_is_named_and_no_chunk_spans_it(store: View, tmp_path: Path) -> None:
    import pypdfium2 as pdfium
    from pypdfium2 import PdfDocument
    from pypdfium2.raw import FPDFBitmap_BGR

    from tests.ingest_inputs import write_pdf

    text = write_pdf(tmp_path / "text.pdf", [["Primera página con texto."], ["Tercera página con texto."]])
    document = PdfDocument(text)
    page = document.new_page(300, 300, 1)
    bitmap = pdfium.PdfBitmap.new_native(20, 20, FPDFBitmap_BGR)
    bitmap.fill_rect((0, 0, 0, 255), 0, 0, 20, 20)
    image = pdfium.PdfImage.new(document)
    image.set_bitmap(bitmap)
    image.set_matrix(pdfium.PdfMatrix().scale(200, 200))
    page.insert_obj(image)
    page.gen_content()
    document.save(tmp_path / "mixto.pdf")
    document.close()
    report = ingest_file(store, tmp_path / "mixto.pdf")
    assert report.status == "ingested"
    assert report.warnings == (
        "mixto.pdf: page 2 of 3 is an image without text and was left out; run OCR on it",
    )
    pages = sorted((r.metadata["page"], r.metadata["page_end"]) for r in store.scan())
    assert pages == [(1, 1), (3, 3)]
