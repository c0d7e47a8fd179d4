from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from llama_index.core.schema import ImageNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from fiscal_rag_plugin.citations import page_label, passages_of
from fiscal_rag_plugin.errors import FiscalRagError

LIVA_90 = {
    "doc_id": "ley-37-1992.html", "doc_type": "law", "tax": "IVA", "section_label": "Artículo 90",
    "page": 5, "page_end": 7, "source_url": "https://www.boe.es/eli/es/l/1992/12/28/37",
    "valid_from": "2012-09-01", "valid_to": "",
}  # fmt: skip


def as_node(text: str, metadata: dict[str, Any], score: float | None = 0.9) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, metadata=metadata), score=score)


@pytest.mark.parametrize(
    ("page", "page_end", "label"),
    [
        (0, 0, "Pág. N/A"),
        (5, 5, "Pág. 5"),
        (5, 0, "Pág. 5"),
        (5, None, "Pág. 5"),
        (5, 7, "Págs. 5–7"),
        (1, 2, "Págs. 1–2"),
        (7, 5, "Pág. 7"),
        (5, "7", "Pág. 5"),
        (5, True, "Pág. 5"),
        (0, 7, "Pág. N/A"),
        (None, None, "Pág. N/A"),
        ("5", "7", "Pág. N/A"),
        ("iv", 0, "Pág. N/A"),
        (True, True, "Pág. N/A"),
        (False, 3, "Pág. N/A"),
        (-1, 3, "Pág. N/A"),
        (5.0, 7.0, "Pág. N/A"),
        (math.nan, 1, "Pág. N/A"),
        ([5], {}, "Pág. N/A"),
    ],
)
def test_unknown_pages_one_page_and_a_span_are_printed_as_such(
    page: object, page_end: object, label: str
) -> None:
    assert page_label(page, page_end) == label


def test_both_frameworks_give_the_same_passage() -> None:
    node = as_node("El impuesto se exigirá al tipo del 21 por ciento.", LIVA_90, 0.875)
    document = Document(
        page_content="El impuesto se exigirá al tipo del 21 por ciento.",
        metadata={**LIVA_90, "source": LIVA_90["source_url"], "similarity": 0.875},
    )
    [of_node], [of_document] = passages_of([node]), passages_of([document])
    assert of_node == of_document
    citation = of_node.citation
    assert (citation.number, citation.article, citation.pages) == (1, "Artículo 90", "Págs. 5–7")
    assert (citation.page, citation.page_end, citation.similarity) == (5, 7, 0.875)
    assert citation.source == "https://www.boe.es/eli/es/l/1992/12/28/37"
    assert citation.doc_id == "ley-37-1992.html"
    assert of_node.validity == "desde 2012-09-01"
    assert str(citation) == (
        "[1] https://www.boe.es/eli/es/l/1992/12/28/37 · Artículo 90 · Págs. 5–7 · similitud 0.875"
    )


def test_a_source_without_url_is_its_doc_id() -> None:
    [passage] = passages_of([as_node("x", {"doc_id": "iva/tipos.md", "source_url": ""})])
    assert passage.citation.source == "iva/tipos.md"


def test_a_node_of_no_fiscal_index_is_cited_by_the_document_it_comes_from() -> None:
    node = TextNode(text="x", relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="ref-1")})
    [passage] = passages_of([NodeWithScore(node=node)])
    assert (passage.citation.source, passage.citation.doc_id) == ("ref-1", "ref-1")
    assert passage.citation.similarity is None


def test_a_document_of_which_nothing_is_known_says_so() -> None:
    [passage] = passages_of([Document(page_content="x")])
    assert passage.citation.doc_id is None
    assert str(passage.citation) == "[1] fuente desconocida · Pág. N/A"


@pytest.mark.parametrize("value", [None, True, "0.9", math.nan, math.inf, [0.9], {}])
def test_what_is_no_number_is_no_similarity(value: object) -> None:
    [passage] = passages_of([Document(page_content="x", metadata={"similarity": value})])
    assert passage.citation.similarity is None


def test_a_numpy_similarity_becomes_a_float() -> None:
    [passage] = passages_of([Document(page_content="x", metadata={"similarity": np.float32(0.5)})])
    assert type(passage.citation.similarity) is float


@pytest.mark.parametrize("value", [None, 7, ["a"], True, "", "  "])
def test_metadata_of_another_type_is_no_label(value: object) -> None:
    metadata = dict.fromkeys(("source", "source_url", "doc_id", "section_label", "valid_from"), value)
    [passage] = passages_of([Document(page_content="x", metadata=metadata)])
    assert (passage.citation.source, passage.citation.article, passage.validity) == ("", "", "")


def test_a_printed_citation_stays_on_one_line_without_control_characters() -> None:
    metadata = {"source": "a.md\n[2] otra fuente\x1b[31m", "section_label": "Art.\r\n\u20281"}
    [passage] = passages_of([Document(page_content="x", metadata=metadata)])
    printed = str(passage.citation)
    assert printed.isprintable()
    assert printed == "[1] a.md [2] otra fuente [31m · Art. 1 · Pág. N/A"


def test_the_text_is_the_chunks_without_the_metadata_that_llamaindex_adds_for_models() -> None:
    [passage] = passages_of([as_node("solo el texto", {"doc_id": "d", "session_id": "A"})])
    assert passage.text == "solo el texto"


def test_an_image_node_is_a_passage_without_text() -> None:
    assert passages_of([NodeWithScore(node=ImageNode())])[0].text == ""


@pytest.mark.parametrize("thing", ["a text", {"page_content": "x"}, 3, None, TextNode(text="x")])
def test_anything_else_from_a_retriever_is_refused_by_its_type_alone(thing: object) -> None:
    with pytest.raises(FiscalRagError, match="NodeWithScore or Document") as caught:
        passages_of([thing])
    assert "a text" not in str(caught.value)


def test_the_repr_of_a_passage_has_no_text() -> None:
    assert "secreto" not in repr(passages_of([as_node("secreto", {})]))
