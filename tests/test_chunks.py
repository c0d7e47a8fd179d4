from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata, chunk_id, validate_id, validate_session_id
from fiscal_rag_plugin.errors import FiscalRagError, InvalidChunkError


def metadata(**changes: Any) -> ChunkMetadata:
    values: dict[str, Any] = {"doc_id": "iva.md", "doc_type": "guide", "source_scope": "public"}
    return ChunkMetadata(**{**values, **changes})


def chunk(text: str = "El tipo general es del 21 por ciento.", **changes: Any) -> Chunk:
    return Chunk(text, f"IVA\n{text}", metadata(**changes), 0, len(text))


@pytest.mark.parametrize(
    "changes",
    [
        {"source_scope": "PUBLIC"},
        {"source_scope": ["public"]},
        {"source_scope": None},
        {"source_scope": "private"},
        {"source_scope": "public", "session_id": "A"},
        {"source_scope": "public", "session_id": ""},
        {"page": 5, "page_end": 4},
        {"page": -1},
        {"page": True},
        {"valid_from": "2024-02-01", "valid_to": "2024-01-31"},
        {"valid_from": "2024-13-01"},
        {"valid_from": "20240101"},
        {"fiscal_year": 2024.0},
        {"tax": " "},
        {"doc_id": ""},
        {"extra": {"tax": "IRPF"}},
        {"extra": {"x": float("nan")}},
        {"extra": {"x": [1, float("inf")]}},
        {"extra": {"x": {1: 2}}},
        {"extra": {"x": {"deep": {1, 2}}}},
        {"extra": {"": 1}},
        {"extra": {"$or": 1}},
        {"extra": {"#document": 1}},
        {"extra": {"chroma:document": 1}},
        {"extra": {"_node_content": "{}"}},
        {"extra": {"fiscal:blob": "{}"}},
        {"extra": {"a\x00b": 1}},
        {"extra": {"a": "\ud800"}},
    ],
)
def test_metadata_that_breaks_a_rule_is_refused_at_construction(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidChunkError):
        metadata(**changes)


@pytest.mark.parametrize(
    "value",
    [
        1,
        True,
        None,
        ["A"],
        "",
        " ",
        "\t",
        "\u00a0",
        "A\x00",
        "A\n",
        "\x7f",
        "\u0085",
        "\ud800",
        "x" * 129,
        b"A",
    ],
)
def test_a_session_id_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(InvalidChunkError):
        validate_session_id(value)


def test_a_session_id_of_a_str_subclass_is_refused() -> None:
    class Sly(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    with pytest.raises(InvalidChunkError):
        validate_session_id(Sly("A"))


@pytest.mark.parametrize(
    "value", ["A", "a", " A ", "007", "x" * 128, "ñ", "n\u0303", "x' OR '1'='1", '") or true or ("']
)
def test_a_session_id_is_taken_as_it_is(value: str) -> None:
    assert validate_session_id(value) == value


@pytest.mark.parametrize("value", ["", None, 7, "a\x00", "x" * 1025, "\ud800"])
def test_an_unusable_chunk_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidChunkError):
        validate_id(value)


@pytest.mark.parametrize(
    ("text", "embedding_text", "start", "end"),
    [
        ("", "x", 0, 1),
        ("x", " ", 0, 1),
        ("x", "x", -1, 1),
        ("x", "x", 2, 1),
        ("x", "x", True, 1),
        ("\ud800", "x", 0, 1),
    ],
)
def test_a_chunk_that_breaks_a_rule_is_refused(
    text: str, embedding_text: str, start: int, end: int
) -> None:
    with pytest.raises(InvalidChunkError):
        Chunk(text, embedding_text, metadata(), start, end)


def test_errors_are_of_one_root_and_of_the_builtin_they_refine() -> None:
    with pytest.raises(ValueError, match="session") as caught:
        metadata(source_scope="private")
    assert isinstance(caught.value, FiscalRagError)


def test_to_store_dict_is_flat_drops_none_and_reads_back() -> None:
    extra = {
        "nulo": None,
        "lista": [],
        "mixta": ["a", 1, None],
        "anidado": {"a": {"b": []}},
        "vigente": True,
    }
    full = metadata(tax="IVA", page=5, page_end=7, extra=extra)
    flat = full.to_store_dict()
    assert "session_id" not in flat
    assert flat["nulo"] is None
    assert flat["page_end"] == 7
    assert ChunkMetadata.from_store_dict(flat) == full


def test_metadata_does_not_change_with_the_dict_it_was_made_from() -> None:
    extra: dict[str, Any] = {"tags": ["iva"]}
    made = metadata(extra=extra)
    extra["tags"].append("x")
    made.to_store_dict()["tags"].append("y")  # type: ignore[union-attr, arg-type]
    assert made.extra == {"tags": ["iva"]}


def test_a_chunk_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        chunk().text = "otro"  # type: ignore[misc]


def test_the_same_chunk_has_the_same_id_and_every_part_of_its_identity_changes_it() -> None:
    base = chunk()
    assert chunk_id(base) == chunk_id(chunk())
    assert len(chunk_id(base)) == 64
    others = [
        chunk(doc_id="otro.md"),
        chunk(chunk_index=1),
        chunk(source_scope="private", session_id="A"),
        chunk(source_scope="private", session_id="a"),
        chunk("otro texto"),
        dataclasses.replace(base, embedding_text="sin título"),
        dataclasses.replace(base, start=1),
        dataclasses.replace(base, end=99),
    ]
    assert len({chunk_id(c) for c in [base, *others]}) == len(others) + 1


def test_a_later_ingest_date_is_the_same_chunk() -> None:
    assert chunk_id(chunk(retrieved_at="2024-01-01")) == chunk_id(chunk(retrieved_at="2026-11-30"))


def test_parts_of_an_identity_cannot_run_into_each_other() -> None:
    a = Chunk("ab", "c", metadata(), 0, 2)
    b = Chunk("a", "bc", metadata(), 0, 2)
    assert chunk_id(a) != chunk_id(b)
