"""Real statutes and a real manual, whole; skipped where the shared data is absent."""

from __future__ import annotations

import datetime as dt
import json
from functools import lru_cache
from itertools import pairwise

import pytest

from fiscal_rag_plugin.chunks import Chunk
from fiscal_rag_plugin.filters import in_force, matches
from fiscal_rag_plugin.ingest import Source, chunk_source, read_source_file
from tests.ingest_inputs import count_words, shared

ARTICLE_90 = "Uno. El Impuesto se exigirá al tipo del 21 por ciento"


@lru_cache(maxsize=4)
def read_all(name: str) -> tuple[Source, ...]:
    result = read_source_file(shared(name), doc_id=name)
    assert result.problems == ()
    return result.sources


@lru_cache(maxsize=8)
def chunks_of(name: str) -> list[Chunk]:
    return [
        chunk
        for source in read_all(name)
        for chunk in chunk_source(source, count_tokens=count_words, scope="public", defaults={"tax": "IVA"})
    ]


def assert_sound(source: Source, chunks: list[Chunk]) -> None:
    covered: set[int] = set()
    for chunk in chunks:
        assert chunk.text == source.text[chunk.start : chunk.end]
        assert chunk.token_count <= 256
        assert any(s.start <= chunk.start and chunk.end <= s.end for s in source.sections)
        covered |= set(range(chunk.start, chunk.end))
    for section in source.sections:
        assert all(i in covered or source.text[i].isspace() for i in range(section.start, section.end))


def test_the_consolidated_law_is_ingested_whole() -> None:
    [source] = read_all("sources/ley-37-1992.html")
    chunks = chunks_of("sources/ley-37-1992.html")
    assert_sound(source, chunks)
    assert len(source.sections) > 230
    assert source.extra["boe_id"] == "BOE-A-1992-28740"
    for noise in (
        "[Bloque",
        "Subir",
        "Se modifica el apartado",
        "Ref. BOE-A",
        "Seleccionar redacción",
        "Jurisprudencia",
    ):
        assert noise not in source.text


@pytest.mark.parametrize("name", ["sources/ley-37-1992.html", "leyes/liva.jsonl"])
def test_article_90_is_found_under_its_label_with_the_general_rate(name: str) -> None:
    [first, *_] = [c for c in chunks_of(name) if c.metadata.section_label == "Artículo 90"]
    assert first.text.startswith(ARTICLE_90)
    assert first.metadata.section_path == "TÍTULO VII. El tipo impositivo"
    assert first.metadata.valid_from == "2012-07-15"
    assert first.metadata.source_url == "https://www.boe.es/buscar/act.php?id=BOE-A-1992-28740#a90"
    assert first.metadata.extra["section_title"] == "Tipo impositivo general"
    header = first.embedding_text.split("\n")[0]
    assert header.endswith("TÍTULO VII. El tipo impositivo > Artículo 90. Tipo impositivo general")


def test_every_article_of_the_page_has_the_text_title_path_and_date_of_the_edited_sections() -> None:
    [source] = read_all("sources/ley-37-1992.html")
    sections = {s.label: s for s in source.sections}
    edited = [json.loads(line) for line in shared("leyes/liva.jsonl").read_text().splitlines()]
    compared = 0
    for line in edited:
        section = sections[line["section_label"].rstrip(".")]
        if section.label == "ANEXO":
            # The edited sections lose the cells of its tables, and keep the last title as its path.
            continue
        assert source.text[section.start : section.end].split() == line["text"].split()
        assert section.title == line["section_title"]
        assert section.valid_from == line["valid_from"]
        assert [p.rstrip(".") for p in section.path] == [p.rstrip(".") for p in line["section_path"]]
        compared += 1
    assert compared == len(edited) - 1


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("boe-a-1990-30940-a10-redacciones.html", 2),
        ("boe-a-1991-14392-a30-redacciones.html", 10),
        ("boe-a-1991-14392-a4-redacciones.html", 12),
    ],
)
def test_the_versions_of_a_boe_article_follow_each_other_without_a_gap(name: str, versions: int) -> None:
    [source] = read_all(f"sources/{name}")
    assert_sound(source, chunks_of(f"sources/{name}"))
    assert len(source.sections) == versions
    assert len({s.label for s in source.sections}) == 1
    for earlier, later in pairwise(source.sections):
        after = dt.date.fromisoformat(earlier.valid_to) + dt.timedelta(days=1)
        assert after.isoformat() == later.valid_from
    assert source.sections[-1].valid_to == ""
    assert "Redactado" not in source.text


def test_each_day_has_exactly_one_version_of_an_article() -> None:
    chunks = chunks_of("sources/boe-a-1991-14392-a30-redacciones.html")
    for day, first in (
        ("1995-06-01", "1995-01-20"),
        ("2001-05-22", "2000-01-19"),
        ("2025-01-01", "2021-01-01"),
    ):
        found = [c for c in chunks if matches(in_force(as_of=day), c.metadata.to_store_dict())]
        assert {c.metadata.valid_from for c in found} == {first}
    assert not [c for c in chunks if matches(in_force(as_of="1991-12-31"), c.metadata.to_store_dict())]


def test_the_manual_is_ingested_whole_with_its_outline_as_sections() -> None:
    [source] = read_all("sources/aeat-manual-iva-2025.pdf")
    chunks = chunks_of("sources/aeat-manual-iva-2025.pdf")
    assert_sound(source, chunks)
    assert len(source.pages) == 350
    assert len(source.sections) > 250
    # The first page that has the footer keeps it.
    assert source.text.count("Manual práctico IVA 2025. Página") == 1
    pages = [c.metadata.page for c in chunks]
    assert pages == sorted(pages)
    assert all(1 <= c.metadata.page <= c.metadata.page_end <= 350 for c in chunks)


@pytest.mark.parametrize(
    ("words", "label", "page"),
    [
        ("El tipo general del impuesto vigente es el 21 por ciento", "El tipo impositivo", 119),
        ("Una empresa domiciliada en Córdoba", "Navarra", 21),
        ("El devengo es el momento en que se entiende realizada", None, 102),
    ],
)
def test_known_sentences_of_the_manual_have_their_page(words: str, label: str | None, page: int) -> None:
    found = [
        c
        for c in chunks_of("sources/aeat-manual-iva-2025.pdf")
        if words in " ".join(c.text.split()) and c.metadata.page <= page <= c.metadata.page_end
    ]
    assert found
    assert label is None or found[0].metadata.section_label == label


def test_every_line_of_the_edited_laws_is_a_source() -> None:
    index = json.loads(shared("leyes/index.json").read_text())
    for law in index:
        sources = read_all(f"leyes/{law['file']}")
        assert len(sources) == law["records"]
        assert len({s.doc_id for s in sources}) == len(sources)
        assert all(s.sections[0].label for s in sources)
