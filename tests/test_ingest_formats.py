"""Reading each format: sections, paths, dates, pages and metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiscal_rag_plugin.errors import IngestError
from fiscal_rag_plugin.ingest import Section, Source, read_source_file
from fiscal_rag_plugin.ingest.headings import split_label, statute_level
from fiscal_rag_plugin.ingest.markdown import read_markdown
from fiscal_rag_plugin.ingest.page_furniture import drop_furniture
from fiscal_rag_plugin.ingest.text import read_text
from tests.ingest_inputs import write_pdf


def read_one(tmp_path: Path, name: str, content: str | bytes) -> Source:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = read_source_file(path, doc_id=name)
    assert result.problems == ()
    [source] = result.sources
    return source


def outline(source: Source) -> list[tuple[str, str, str]]:
    return [(" > ".join(s.path), s.label, source.text[s.start : s.end]) for s in source.sections]


# --- headings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "label", "title"),
    [
        ("Artículo 90. Tipo impositivo general.", "Artículo 90", "Tipo impositivo general"),
        ("Artículo 4.º Bienes y derechos exentos.", "Artículo 4", "Bienes y derechos exentos"),
        ("Articulo 97. Comunicaciones", "Artículo 97", "Comunicaciones"),
        ("Artículo 8 bis. Concepto", "Artículo 8 bis", "Concepto"),
        ("Artículo 140 cuarter. Exención", "Artículo 140 cuarter", "Exención"),
        ("Artículo 163 quinvicies. Ámbito", "Artículo 163 quinvicies", "Ámbito"),
        ("Artículo único. Aprobación del Reglamento", "Artículo único", "Aprobación del Reglamento"),
        ("Artículo 45", "Artículo 45", ""),
        ("Artículos 163 bis a 163 quáter.", "Artículos 163 bis a 163 quáter", ""),
        (
            "Disposición adicional vigésima quinta. Obligaciones",
            "Disposición adicional vigésima quinta",
            "Obligaciones",
        ),
        ("Disposición final. Entrada en vigor.", "Disposición final", "Entrada en vigor"),
        ("ANEXO II. Tablas", "ANEXO II", "Tablas"),
        ("Tipos impositivos: el general", "Tipos impositivos: el general", ""),
        ("Artículo de prensa", "Artículo de prensa", ""),
    ],
)
def test_an_article_is_labelled_as_it_is_cited(heading: str, label: str, title: str) -> None:
    assert split_label(heading) == (label, title)


@pytest.mark.parametrize(
    "prose",
    [
        "Artículo 90 de la Ley 37/1992, que fija el tipo.",
        "Artículo 90.Uno.1.º de la ley, según el cual",
        "Capítulo aparte merece la prorrata.",
        "Anexo a la factura se remite el albarán.",
        "Disposición adicional que se cita en el texto",
    ],
)
def test_prose_that_begins_with_a_reference_is_no_heading(prose: str) -> None:
    assert statute_level(prose) is None


# --- Markdown and text -------------------------------------------------------------------------


def test_markdown_headings_are_sections_with_the_titles_above_them() -> None:
    source = read_markdown(
        "Intro\n\n# IVA\nGeneral.\n## Tipos ##\n\n21 %\n### **Reducido**\n10 %\n# IRPF\nOtro.", "d"
    )
    assert outline(source) == [
        ("", "", "Intro"),
        ("", "IVA", "General."),
        ("IVA", "Tipos", "21 %"),
        ("IVA > Tipos", "Reducido", "10 %"),
        ("", "IRPF", "Otro."),
    ]


def test_a_markdown_heading_with_nothing_below_it_is_not_lost() -> None:
    source = read_markdown("# Ley\n\n## Artículo 45. (Derogado)\n\n## Artículo 46. Objeto\nTexto.", "d")
    assert outline(source) == [
        ("Ley", "Artículo 45", "## Artículo 45. (Derogado)"),
        ("Ley", "Artículo 46", "Texto."),
    ]


def test_hashes_in_fenced_code_are_no_headings() -> None:
    text = "# Uno\n```sh\n# comentario\n~~~\n# otro\n````\n## Dos\n~~~\n# dentro"
    assert [s.label for s in read_markdown(text, "d").sections] == ["Uno", "Dos"]


def test_setext_headings_count_and_rulers_tables_and_lists_do_not() -> None:
    text = "Título\n======\n\nUno\n---\ntexto\n\n---\n\n- punto\n---\n\n"
    text += "a | b\n-|-\n1 | 2\n\nlínea\nlínea\n---\n#no\n"
    assert [s.label for s in read_markdown(text, "d").sections] == ["Uno"]
    assert read_markdown(text, "d").sections[0].path == ("Título",)


def test_front_matter_gives_fields_and_own_keys_and_is_in_no_section() -> None:
    text = (
        "---\ntitle: Guía\ntax: IVA\nfiscal_year: '2025'\nvalid_from: 2025-01-01\nautor: {n: 1}\n"
        "revisado: 2025-02-03\nsource_url:\n---\nCuerpo"
    )
    source = read_markdown(text, "d")
    assert source.fields == {"tax": "IVA", "fiscal_year": 2025, "valid_from": "2025-01-01"}
    assert source.extra == {"title": "Guía", "autor": {"n": 1}, "revisado": "2025-02-03"}
    assert source.text == text
    assert outline(source) == [("", "", "Cuerpo")]


def test_prose_between_two_rulers_is_no_front_matter() -> None:
    source = read_markdown("---\nsolo una frase\n---\ntexto", "d")
    assert (source.fields, source.extra) == ({}, {})
    assert source.sections[0].start == 0


@pytest.mark.parametrize(
    ("front", "complaint"),
    [
        ("a: [1", "line"),
        ("a: &x [1]\nb: *x", "line 3: .*aliases"),
        ("fiscal_year: pronto", "fiscal_year"),
        ("valid_from: 2025-13-01", "valid_from"),
        ("chunk_index: 3", "chunk_index"),
        ("_node_content: x", "reserved"),
        ("x: .nan", "NaN"),
        ("a: !!python/object:os.system x", "line"),
        ("a: " + "[" * 5000, "YAML"),
    ],
)
def test_front_matter_that_cannot_be_used_is_an_error_that_names_the_place(
    front: str, complaint: str
) -> None:
    with pytest.raises(IngestError, match=rf"^d: front matter.*{complaint}"):
        read_markdown(f"---\n{front}\n---\ntexto", "d")


def test_text_offsets_are_those_of_the_file_with_its_line_ends(tmp_path: Path) -> None:
    source = read_one(tmp_path, "a.txt", "\ufeffUna línea.\r\n\r\nOtra.\r\n")
    assert source.text == "Una línea.\r\n\r\nOtra.\r\n"
    assert outline(source) == [("", "", "Una línea.\r\n\r\nOtra.")]


def test_a_statute_saved_as_text_has_its_articles_as_sections() -> None:
    text = (
        "LEY DEL IVA\n\nTÍTULO VII\n\nArtículo 90. Tipo impositivo general.\n\nUno. El 21 por ciento.\n"
        "Artículo 7 de otra ley que sigue en la misma frase.\n\nArtículo 91 de la ley citada en prosa.\n\n"
        "Artículo 91. Tipos reducidos.\nUno. El 10.\n\nDisposición final. Entrada en vigor.\n\nMañana."
    )
    assert [(s.path, s.label, s.title) for s in read_text(text, "d").sections] == [
        ((), "", ""),
        (("TÍTULO VII",), "Artículo 90", "Tipo impositivo general"),
        (("TÍTULO VII",), "Artículo 91", "Tipos reducidos"),
        ((), "Disposición final", "Entrada en vigor"),
    ]


# --- HTML --------------------------------------------------------------------------------------


def test_html_gives_the_text_of_its_headings_lists_and_tables(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title>Guía  IVA</title><style>x{}</style></head><body>
    <nav>Menú</nav><header>Logo</header><h1 id=iva>IVA</h1><p>Primer <b>párrafo</b>,<br>segunda línea.</p>
    <script>alert(1)</script><h2>Tipos</h2><ul><li>general<li>reducido</ul>
    <ol start=3><li>tres<ul><li>dentro</ul><li>cuatro</ol>
    <table><tr><th>Tipo<th>%</tr><tr><td>General<td>21</tr></table><pre>a  b\n  c</pre><p hidden>no</p>
    <footer>Pie</footer></body></html>"""
    source = read_one(tmp_path, "a.html", page)
    assert source.extra == {"title": "Guía IVA"}
    assert outline(source) == [
        ("", "IVA", "Primer párrafo,\nsegunda línea."),
        (
            "IVA",
            "Tipos",
            "- general\n- reducido\n3. tres\n- dentro\n4. cuatro\n\nTipo | %\nGeneral | 21\n\na  b\n  c",
        ),
    ]
    assert source.sections[0].anchor == "iva"


def test_html_main_content_is_preferred_and_a_form_around_everything_is_read(tmp_path: Path) -> None:
    page = "<body><p>Anuncio</p><main><form><h1>Uno</h1><p>texto</p><button>Ir</button></form></main>"
    assert outline(read_one(tmp_path, "a.htm", page)) == [("", "Uno", "texto")]


def test_html_nested_too_deep_is_an_error_and_not_half_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>inicio</p>" + "<div>" * 3000 + "hondo" + "</div>" * 3000 + "<p>fin</p>")
    [problem] = read_source_file(path, doc_id="a.html").problems
    assert "a.html" in str(problem)
    assert "deep" in str(problem)


# --- BOE ---------------------------------------------------------------------------------------

BOE_PAGE = """<html><head><title>BOE-A-2001-1 Ley 1/2001, de ejemplo.</title>
<link rel="canonical" href="https://www.boe.es/buscar/act.php?id=BOE-A-2001-1"/></head><body>
<dl class="conso"><dt>Entrada en vigor:</dt><dd>01/02/2001</dd></dl><div id="textoxslt"><h3>Texto</h3>
<ul id="lista-marcadores"><li><a href="#pr">[Preámbulo]</a></li></ul>
<div class="bloque" id="pr"><p class="bloque">[Bloque 1: #pr]</p><p class="parrafo">Sepan.</p>
<h5 class="articulo">A) Motivos</h5><p class="parrafo">Varios.</p></div><p class="linkSubir">Subir</p>
<div class="bloque" id="ti"><h4 class="titulo_num">TÍTULO I</h4>
<h4 class="titulo_tit">Disposiciones generales</h4></div>
<div class="bloque" id="ci"><h4 class="capitulo">CAPÍTULO I. Objeto</h4></div>
<div class="bloque" id="a1"><h5 class="articulo">Artículo 1. Objeto.</h5><p class="parrafo">Uno.  Este.</p>
<table><tr><td><p class="cuerpo_tabla_izq">Base</p></td><td><p>21</p></td></tr></table>
<blockquote><p class="nota_pie">Se modifica.</p></blockquote>
<form class="lista formBOE"><p><input type="radio" checked>
<label>Última actualización, publicada el 14/07/2012, en vigor a partir del 15/07/2012.</label></p>
<p><input type="radio"><label>Modificación, en vigor a partir del 01/01/2010.</label></p></form></div>
<div class="bloque" id="a2"><h5 class="articulo">Artículo 2. Otro.</h5><p class="parrafo">Dos.</p></div>
<div class="bloque" id="da"><h5 class="articulo">Disposición adicional única. Más.</h5>
<p class="parrafo">Tres.</p>
<p class="pie_unico">Texto añadido, publicado el 28/04/2021, en vigor a partir del 01/07/2021.</p></div>
<div class="bloque" id="info"><blockquote class="docrel"><p class="inforel">Nota</p></blockquote></div>
</div></body></html>"""


def test_a_boe_page_has_articles_paths_dates_and_addresses_and_no_notes(tmp_path: Path) -> None:
    source = read_one(tmp_path, "ley.html", BOE_PAGE)
    path = ("TÍTULO I. Disposiciones generales", "CAPÍTULO I. Objeto")
    found = [(s.label, s.path, s.title, s.anchor, s.valid_from) for s in source.sections]
    assert found == [
        ("Preámbulo", (), "", "pr", "2001-02-01"),
        ("Artículo 1", path, "Objeto", "a1", "2012-07-15"),
        ("Artículo 2", path, "Otro", "a2", "2001-02-01"),
        ("Disposición adicional única", (), "Más", "da", "2021-07-01"),
    ]
    texts = [source.text[s.start : s.end] for s in source.sections]
    assert texts == ["Sepan.\nA) Motivos\nVarios.", "Uno. Este.\nBase | 21", "Dos.", "Tres."]
    assert source.fields == {"source_url": "https://www.boe.es/buscar/act.php?id=BOE-A-2001-1"}
    assert source.extra == {"boe_id": "BOE-A-2001-1", "title": "Ley 1/2001, de ejemplo"}


def boe_xml(versions: str, block: str = "") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><response><data>'
        '<bloque id="ti" tipo="encabezado" titulo="TITULO I"><version id_norma="N">'
        '<p class="titulo_num">TÍTULO I</p><p class="titulo_tit">Normas</p></version></bloque>'
        f'<bloque id="a1" tipo="precepto" titulo="Artículo 1" {block}>{versions}</bloque></data></response>'
    )


def version(first: str, words: str, published: str = "20000101") -> str:
    return (
        f'<version id_norma="N" fecha_publicacion="{published}" fecha_vigencia="{first}">'
        f'<p class="articulo">Artículo 1.º Objeto.</p><p class="parrafo">{words}</p>'
        '<p class="nota_pie">nota</p></version>'
    )


def test_each_version_of_a_boe_article_is_in_force_until_the_day_before_the_next(tmp_path: Path) -> None:
    xml = boe_xml(version("20200301", "Tres.") + version("19900101", "Uno.") + version("20000301", "Dos."))
    source = read_one(tmp_path, "a1.html", xml)
    assert [(s.label, s.path, s.title, s.valid_from, s.valid_to) for s in source.sections] == [
        ("Artículo 1", ("TÍTULO I. Normas",), "Objeto", "1990-01-01", "2000-02-29"),
        ("Artículo 1", ("TÍTULO I. Normas",), "Objeto", "2000-03-01", "2020-02-29"),
        ("Artículo 1", ("TÍTULO I. Normas",), "Objeto", "2020-03-01", ""),
    ]
    assert [source.text[s.start : s.end] for s in source.sections] == ["Uno.", "Dos.", "Tres."]


def test_a_boe_version_replaced_before_its_day_is_left_out_and_an_expired_block_ends(
    tmp_path: Path,
) -> None:
    versions = version("20100101", "Nunca.", "20091001") + version("20100101", "Sí.", "20091231")
    source = read_one(tmp_path, "a1.xml", boe_xml(versions, 'fecha_caducidad="20151231"'))
    assert [(source.text[s.start : s.end], s.valid_to) for s in source.sections] == [("Sí.", "2015-12-31")]


def test_a_boe_version_without_a_day_counts_from_its_publication(tmp_path: Path) -> None:
    source = read_one(tmp_path, "a1.xml", boe_xml(version("99999999", "Uno.", "20010203")))
    assert source.sections[0].valid_from == "2001-02-03"


def test_other_xml_and_broken_or_hostile_xml_are_errors(tmp_path: Path) -> None:
    entities = "<!DOCTYPE r [<!ENTITY a SYSTEM 'file:///etc/hostname'>]>"
    hostile = boe_xml(version("20100101", "&a;")).replace("<response>", entities + "<response>")
    cases = {
        "otro.xml": ("<a/>", "BOE"),
        "roto.xml": (boe_xml(version("20100101", "Uno.")).replace("</data>", ""), "line 1"),
        "vacio.xml": ('<r><bloque id="a"><version id_norma="x"/></bloque></r>', "no version"),
    }
    for name, (content, complaint) in cases.items():
        (tmp_path / name).write_text(content)
        [problem] = read_source_file(tmp_path / name, doc_id=name).problems
        assert str(problem).startswith(f"{name}:")
        assert complaint in str(problem)
    (tmp_path / "x.xml").write_text(hostile)
    result = read_source_file(tmp_path / "x.xml", doc_id="x.xml")
    host = Path("/etc/hostname").read_text().strip() if Path("/etc/hostname").exists() else "?"
    assert all(host not in source.text.split() for source in result.sources)


# --- PDF ---------------------------------------------------------------------------------------


def test_a_pdf_has_page_numbers_bookmarked_sections_and_its_title(tmp_path: Path) -> None:
    pages = [
        ["Introducción", "Qué es el IVA."],
        ["Sigue aquí.", "Tipos", "El general es el 21 %."],
        ["Reducido", "10 %"],
    ]
    marks = [(0, "Introducción", 0), (0, "Tipos", 1), (1, "Reducido", 2)]
    path = write_pdf(tmp_path / "g.pdf", pages, marks, title="Guía del IVA")
    [source] = read_source_file(path, doc_id="g.pdf").sources
    assert outline(source) == [
        ("", "Introducción", "Qué es el IVA.\nSigue aquí."),
        ("", "Tipos", "El general es el 21 %."),
        ("Tipos", "Reducido", "10 %"),
    ]
    assert [source.page_span(s.start, s.end) for s in source.sections] == [(1, 2), (2, 2), (3, 3)]
    assert source.extra == {"title": "Guía del IVA"}


def test_a_pdf_without_outline_is_one_section_and_blank_pages_keep_their_numbers(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "g.pdf", [["Uno."], [], ["Tres."]])
    [source] = read_source_file(path, doc_id="g.pdf").sources
    [section] = source.sections
    assert source.page_span(section.start, section.end) == (1, 3)
    at = source.text.index("Tres.")
    assert source.page_span(at, at + 5) == (3, 3)


@pytest.mark.parametrize(
    ("pages", "encrypted", "complaint"),
    [([[], []], False, "2 pages and no text layer"), ([["x"]], True, "encrypted")],
)
def test_a_scanned_or_encrypted_pdf_is_a_clear_error(
    tmp_path: Path, pages: list[list[str]], encrypted: bool, complaint: str
) -> None:
    path = write_pdf(tmp_path / "g.pdf", pages, encrypted=encrypted)
    result = read_source_file(path, doc_id="dir/g.pdf")
    assert result.sources == ()
    assert [str(p).startswith("dir/g.pdf:") and complaint in str(p) for p in result.problems] == [True]


def test_a_file_that_is_no_pdf_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "g.pdf").write_bytes(b"hola, no soy un PDF")
    [problem] = read_source_file(tmp_path / "g.pdf", doc_id="g.pdf").problems
    assert "not a PDF" in str(problem)


def test_running_headers_and_page_numbers_are_dropped_after_their_first_page() -> None:
    pages = [f"ACME, S.L.\nTexto {n} propio.\nGuía 2025. Página {n + 7}" for n in range(5)]
    assert drop_furniture(pages) == [pages[0], *(f"Texto {n} propio." for n in range(1, 5))]


def test_running_chapter_titles_are_dropped_where_no_chapter_begins() -> None:
    titles = [(0, "Uno"), (3, "Dos")]
    pages = ["Uno\na\nUno", "b\nUno", "c\nUno", "d\nDos", "e\nDos", "f\nDos"]
    assert drop_furniture(pages, titles) == ["Uno\na", "b", "c", "d\nDos", "e", "f"]


def test_totals_and_prose_at_the_foot_of_pages_stay() -> None:
    pages = [f"Factura {n}\nTotal: {121 * n} euros" for n in (3, 1, 2, 9)]
    assert drop_furniture(pages) == pages
    assert drop_furniture(["a\nfin", "b\nfin"]) == ["a\nfin", "b\nfin"]
    assert drop_furniture(["", ""]) == ["", ""]


def test_a_section_knows_nothing_of_dates_unless_told() -> None:
    assert Section(0, 1) == Section(0, 1, "", (), "", "")
