"""Chunks from LangChain's documents: identity, pages, metadata and access claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from langchain_core.documents import Document

from fiscal_rag_plugin.errors import InvalidChunkError
from fiscal_rag_plugin.ingest import chunks_from_documents
from tests.ingest_inputs import count_words


@dataclass
class Loaded:
    """Any object of the right shape is a document."""

    page_content: str
    metadata: Mapping[str, object] = field(default_factory=dict)


def test_pages_that_count_from_0_become_pages_that_count_from_1() -> None:
    pages = [
        Document(page_content=f"Página {n}.", metadata={"source": "g.pdf", "page": n}) for n in (0, 1, 5)
    ]
    chunks = chunks_from_documents(pages)
    assert [(c.metadata.page, c.metadata.page_end) for c in chunks] == [(1, 0), (2, 0), (6, 0)]
    assert [c.metadata.chunk_index for c in chunks] == [0, 1, 2]
    assert {c.metadata.doc_id for c in chunks} == {"g.pdf"}
    assert [c.metadata.page for c in chunks_from_documents(pages[1:], page_base=1)] == [1, 5]


def test_offsets_are_into_the_joined_contents_of_one_source() -> None:
    documents = [
        Loaded(" Uno. ", {"source": "a"}),
        Loaded("Dos.", {"source": "b"}),
        Loaded("Tres.", {"source": "a"}),
    ]
    chunks = chunks_from_documents(documents)
    joined = {"a": " Uno. \n\nTres.", "b": "Dos."}
    assert [joined[c.metadata.doc_id][c.start : c.end] for c in chunks] == ["Uno.", "Dos.", "Tres."]
    assert [c.metadata.chunk_index for c in chunks] == [0, 0, 1]


def test_with_a_counter_documents_are_cut_and_without_one_they_stay_whole() -> None:
    document = Loaded("El impuesto grava el consumo. " * 40, {"source": "a", "page": 3})
    [whole] = chunks_from_documents([document])
    assert (whole.text, whole.token_count) == (document.page_content.strip(), 0)
    cut = chunks_from_documents(
        [document, document], count_tokens=count_words, budget_tokens=64, overlap_tokens=8
    )
    assert len(cut) > 4
    assert all(count_words(c.embedding_text) == c.token_count <= 64 for c in cut)
    assert {c.metadata.page for c in cut} == {4}
    assert [c.metadata.chunk_index for c in cut] == list(range(len(cut)))
    both = f"{document.page_content}\n\n{document.page_content}"
    assert all(both[c.start : c.end] == c.text for c in cut)


def test_metadata_becomes_fields_and_own_keys_and_parameters_fill_the_rest() -> None:
    metadata = {
        "source": "https://ejemplo.es/guia", "title": "Guía", "tax": "IRPF", "fiscal_year": "2024",
        "section_label": "Artículo 17", "section_path": ["T", "C"], "chunk_index": 9, "total_pages": 3,
        "extra": {"autor": "yo", "tax": "IVA"}, "page": None,
    }  # fmt: skip
    [chunk] = chunks_from_documents([Loaded("x", metadata)], tax="IVA", doc_type="guia")
    m = chunk.metadata
    assert (m.doc_id, m.source_url) == ("https://ejemplo.es/guia", "https://ejemplo.es/guia")
    assert (m.tax, m.doc_type, m.fiscal_year, m.page, m.chunk_index) == ("IRPF", "guia", 2024, 0, 0)
    assert (m.section_label, m.section_path) == ("Artículo 17", "T > C")
    assert m.extra == {"title": "Guía", "total_pages": 3, "autor": "yo"}
    assert chunk.embedding_text == "Guía. T > C > Artículo 17\nx"


def test_doc_id_goes_above_source_which_then_stays_a_key_of_its_own() -> None:
    [chunk] = chunks_from_documents([Loaded("x", {"doc_id": "d", "source": "a.pdf"})])
    assert (chunk.metadata.doc_id, chunk.metadata.extra) == ("d", {"source": "a.pdf"})


def test_a_document_without_a_name_needs_the_parameter() -> None:
    with pytest.raises(InvalidChunkError, match="document 1"):
        chunks_from_documents([Loaded("x", {"source": "a"}), Loaded("y")])
    assert chunks_from_documents([Loaded("y")], doc_id="d")[0].metadata.doc_id == "d"


def test_a_session_makes_chunks_private_and_none_makes_them_public() -> None:
    [private] = chunks_from_documents([Loaded("x", {"source": "a"})], session_id="A")
    assert (private.metadata.source_scope, private.metadata.session_id) == ("private", "A")
    [public] = chunks_from_documents([Loaded("x", {"source": "a"})])
    assert (public.metadata.source_scope, public.metadata.session_id) == ("public", None)


@pytest.mark.parametrize(
    ("claim", "session"),
    [
        ({"session_id": "B"}, "A"),
        ({"session_id": "B"}, None),
        ({"source_scope": "public"}, "A"),
        ({"source_scope": "private"}, None),
        ({"session_id": ["A"]}, "A"),
        ({"extra": {"session_id": "B"}}, "A"),
    ],
)
def test_a_document_that_claims_another_access_is_refused(
    claim: dict[str, object], session: str | None
) -> None:
    with pytest.raises(InvalidChunkError):
        chunks_from_documents([Loaded("x", {"source": "a", **claim})], session_id=session)


def test_a_document_that_claims_what_was_asked_for_is_taken() -> None:
    claim = {"source": "a", "source_scope": "private", "session_id": "A"}
    [chunk] = chunks_from_documents([Loaded("x", claim)], session_id="A")
    assert chunk.metadata.extra == {}


@pytest.mark.parametrize(
    "bad",
    [
        {"page": -1},
        {"page": "dos"},
        {"page": True},
        {"page": 1.0},
        {"tax": 3},
        {"_node_content": "x"},
        {"n": float("nan")},
    ],
)
def test_values_that_cannot_be_stored_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidChunkError):
        chunks_from_documents([Loaded("x", {"source": "a", **bad})])


def test_scope_without_session_or_with_one_too_many_is_refused() -> None:
    with pytest.raises(InvalidChunkError):
        chunks_from_documents([Loaded("x", {"source": "a"})], scope="private")
    with pytest.raises(InvalidChunkError):
        chunks_from_documents([Loaded("x", {"source": "a"})], scope="public", session_id="A")


def test_blank_documents_are_skipped_and_keep_the_offsets() -> None:
    chunks = chunks_from_documents([Loaded(" \n", {"source": "a"}), Loaded("x", {"source": "a"})])
    assert [(c.text, c.start, c.metadata.chunk_index) for c in chunks] == [("x", 4, 0)]
    assert chunks_from_documents([]) == []


def test_the_documents_are_left_as_they_were() -> None:
    document = Document(page_content="x", metadata={"source": "a", "page": 0, "extra": {"k": 1}})
    before = document.model_copy(deep=True)
    chunks_from_documents([document])
    assert document == before
