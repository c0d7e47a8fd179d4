"""Files: which are read, in which encoding, with which metadata, and what is said of bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fiscal_rag_plugin.errors import IngestError
from fiscal_rag_plugin.ingest import SUPPORTED_SUFFIXES, ReadResult, iter_source_files, read_source_file


def read(tmp_path: Path, name: str, content: str | bytes) -> ReadResult:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_source_file(path, doc_id=f"dir/{name}")


def problem(tmp_path: Path, name: str, content: str | bytes) -> str:
    result = read(tmp_path, name, content)
    assert result.sources == ()
    [error] = result.problems
    assert str(error).startswith(f"dir/{name}")
    return str(error)


# --- encodings ---------------------------------------------------------------------------------


def test_latin_1_bytes_in_a_markdown_file_are_an_error_that_names_the_byte(tmp_path: Path) -> None:
    assert "not utf-8 at byte 5;" in problem(tmp_path, "a.md", "Año ".encode() + b"\xf1")
    assert "not utf-8 at byte 1;" in problem(tmp_path, "b.md", "Año".encode("latin-1"))
    assert "not utf-8 at byte 4;" in problem(tmp_path, "c.txt", b"\xef\xbb\xbfA\xf1o")


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.html"])
def test_utf_16_without_a_mark_and_binary_files_are_errors(tmp_path: Path, name: str) -> None:
    assert "NUL at byte 1" in problem(tmp_path, name, "hola".encode("utf-16-le"))


def test_utf_16_with_a_mark_is_read_in_html_only(tmp_path: Path) -> None:
    assert read(tmp_path, "a.html", "<p>Año</p>".encode("utf-16")).sources[0].text == "Año"
    assert "byte 0" in problem(tmp_path, "a.txt", "Año".encode("utf-16"))


@pytest.mark.parametrize(
    "head", ['<meta charset="iso-8859-1">', "<meta http-equiv=x content='text/html; charset=windows-1252'>"]
)
def test_html_is_read_in_the_encoding_it_declares(tmp_path: Path, head: str) -> None:
    page = f"<html><head>{head}</head><body><p>Año: 5 €</p></body></html>".encode("cp1252")
    assert read(tmp_path, "a.html", page).sources[0].text == "Año: 5 €"


def test_html_with_a_wrong_or_unknown_declaration_is_an_error(tmp_path: Path) -> None:
    wrong = "<meta charset=utf-8><p>Año</p>".encode("latin-1")
    assert f"not utf-8 at byte {wrong.index(0xF1)};" in problem(tmp_path, "a.html", wrong)
    assert "unknown encoding 'klingon'" in problem(tmp_path, "b.html", "<meta charset=klingon><p>x")
    assert "unknown encoding" in problem(tmp_path, "c.html", "<meta charset=rot13><p>x")
    assert "not utf-8" in problem(tmp_path, "d.html", "<p>Año</p>".encode("latin-1"))


def test_xml_is_read_in_the_encoding_it_declares(tmp_path: Path) -> None:
    xml = (
        '<?xml version="1.0" encoding="ISO-8859-15"?><r><bloque id="a1" titulo="Artículo 1">'
        '<version id_norma="N" fecha_vigencia="20000101"><p class="articulo">Artículo 1</p>'
        '<p class="parrafo">5 € al año</p></version></bloque></r>'
    )
    source = read(tmp_path, "a.xml", xml.encode("iso-8859-15")).sources[0]
    assert source.text.endswith("5 € al año")


@pytest.mark.parametrize("suffix", sorted(SUPPORTED_SUFFIXES))
@pytest.mark.parametrize("content", [b"", b" \r\n\t", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_an_error_in_every_format(tmp_path: Path, suffix: str, content: bytes) -> None:
    assert "empty" in problem(tmp_path, f"a{suffix}", content)


def test_a_file_of_front_matter_or_markup_alone_is_an_error(tmp_path: Path) -> None:
    assert "no text" in problem(tmp_path, "a.md", "---\ntitle: x\n---\n\n")
    assert "no text" in problem(tmp_path, "a.html", "<html><body><nav>x</nav></body></html>")
    assert "blank" in problem(tmp_path, "a.txt", "\u00a0\u2003")


def test_a_missing_file_and_an_unknown_format_are_problems(tmp_path: Path) -> None:
    [missing] = read_source_file(tmp_path / "no.md", doc_id="no.md").problems
    assert "no.md: cannot be read" in str(missing)
    assert ".docx is not a supported format" in problem(tmp_path, "a.docx", b"PK")


# --- JSONL -------------------------------------------------------------------------------------


def test_a_jsonl_line_is_a_source_of_its_own_with_its_metadata(tmp_path: Path) -> None:
    line = {
        "doc_id": "liva:a90", "tax": "IVA", "doc_type": "ley", "law": "LIVA", "title": "Ley 37/1992",
        "section_label": "Artículo 90", "section_title": "Tipo general",
        "section_path": ["TÍTULO VII", "C"],
        "text": "Uno. 21.", "valid_from": "2012-07-15", "published": None, "source_url": "https://boe.es#a90",
        "fiscal_year": 2012,
    }  # fmt: skip
    [source] = read(tmp_path, "a.jsonl", json.dumps(line)).sources
    assert (source.doc_id, source.text) == ("liva:a90", "Uno. 21.")
    [section] = source.sections
    assert (section.label, section.path, section.title) == (
        "Artículo 90",
        ("TÍTULO VII", "C"),
        "Tipo general",
    )
    assert source.fields == {
        "tax": "IVA", "doc_type": "ley", "valid_from": "2012-07-15", "source_url": "https://boe.es#a90",
        "fiscal_year": 2012,
    }  # fmt: skip
    assert source.extra == {
        "law": "LIVA",
        "title": "Ley 37/1992",
        "section_title": "Tipo general",
        "published": None,
    }


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (b'{"text": "x"', "column"),
        (b"[1]", "list"),
        (b'{"texto": "x"}', "'text'"),
        (b'{"text": "  "}', "'text'"),
        (b'{"text": "a\xf1o"}', "byte 12"),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b'{"text": "x", "n": NaN}', "not JSON"),
        (b'{"text": "x", "n": 1e999}', "infinite"),
        (b'{"text": "x", "page": "dos"}', "page"),
        (b'{"text": "x", "doc_id": 7}', "doc_id"),
        (b'{"text": "x", "doc_id": "d3"}', "line 3"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_line_7_is_named_and_the_other_lines_go_on(
    tmp_path: Path, broken: bytes, complaint: str
) -> None:
    lines = [json.dumps({"text": f"t{n}", "doc_id": f"d{n}"}).encode() for n in range(1, 10)]
    lines[6] = broken
    result = read(tmp_path, "a.jsonl", b"\n".join(lines) + b"\n\n")
    assert [s.doc_id for s in result.sources] == ["d1", "d2", "d3", "d4", "d5", "d6", "d8", "d9"]
    [error] = result.problems
    assert str(error).startswith("dir/a.jsonl: line 7")
    assert complaint in str(error)


def test_a_jsonl_line_without_doc_id_is_named_after_file_and_line(tmp_path: Path) -> None:
    result = read(tmp_path, "a.jsonl", '\n{"text": "x", "section_path": "A > B"}\r\n')
    assert result.sources[0].doc_id == "dir/a.jsonl:2"
    assert result.sources[0].sections[0].path == ("A", "B")


# --- sidecars ----------------------------------------------------------------------------------


def test_a_sidecar_gives_metadata_below_the_front_matter(tmp_path: Path) -> None:
    (tmp_path / "a.md.yaml").write_text("tax: IVA\ntitle: Del sidecar\nautor: yo\nvalid_from: 2024-01-01\n")
    [source] = read(tmp_path, "a.md", "---\ntitle: Propio\ntax: IRPF\n---\ntexto").sources
    assert source.fields == {"tax": "IRPF", "valid_from": "2024-01-01"}
    assert source.extra == {"title": "Propio", "autor": "yo"}


def test_a_sidecar_goes_above_what_was_only_derived_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.html.yaml").write_text("title: Bueno\n")
    [source] = read(tmp_path, "a.html", "<title>sin-titulo.doc</title><p>x").sources
    assert source.extra == {"title": "Bueno"}


@pytest.mark.parametrize(
    ("sidecar", "complaint"),
    [("a: [", "line"), ("- 1", "list"), ("fiscal_year: x", "fiscal_year"), ("doc_id: otro", "doc_id")],
)
def test_a_sidecar_that_cannot_be_used_is_an_error_that_names_it(
    tmp_path: Path, sidecar: str, complaint: str
) -> None:
    (tmp_path / "a.txt.yaml").write_text(sidecar)
    message = problem(tmp_path, "a.txt", "texto")
    assert message.startswith("dir/a.txt.yaml")
    assert complaint in message


def test_a_linked_sidecar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secreto").write_text("clave: 1")
    (tmp_path / "a.txt.yaml").symlink_to(tmp_path / "secreto")
    assert "symbolic link" in problem(tmp_path, "a.txt", "texto")


def test_a_file_and_its_sidecar_may_not_claim_different_sessions(tmp_path: Path) -> None:
    (tmp_path / "a.md.yaml").write_text("session_id: A\nsource_scope: private\n")
    assert "disagree on session_id" in problem(tmp_path, "a.md", "---\nsession_id: B\n---\ntexto")
    [source] = read(tmp_path, "a.md", "texto").sources
    assert source.fields == {"session_id": "A", "source_scope": "private"}


# --- the walk ----------------------------------------------------------------------------------


def test_the_walk_is_sorted_relative_and_leaves_out_hidden_foreign_and_unsupported_files(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    for name in (
        "b.md",
        "a/z.TXT",
        "a/.x.md",
        ".git/c.md",
        "a/guia.pdf",
        "a/guia.pdf.yaml",
        "n.docx",
        "a-b.md",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (tmp_path / "fuera.md").write_text("secreto")
    (tmp_path / "fuera").mkdir()
    (tmp_path / "fuera" / "d.md").write_text("secreto")
    (root / "enlace.md").symlink_to(tmp_path / "fuera.md")
    (root / "dentro.md").symlink_to(root / "b.md")
    (root / "carpeta").symlink_to(tmp_path / "fuera")
    (root / "roto.md").symlink_to(root / "no.md")
    found = list(iter_source_files(root))
    assert [doc_id for _, doc_id in found] == ["a-b.md", "a/guia.pdf", "a/z.TXT", "b.md", "dentro.md"]
    assert all(path.is_file() for path, _ in found)


def test_the_walk_of_a_file_is_that_file_and_of_nothing_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    assert list(iter_source_files(tmp_path / "a.md")) == [(tmp_path / "a.md", "a.md")]
    with pytest.raises(IngestError, match="no such"):
        list(iter_source_files(tmp_path / "nada"))
