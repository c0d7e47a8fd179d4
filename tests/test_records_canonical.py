"""What a record is: its shape, its text, its type, its collection's name, its filter, its snippet."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.engines.base import Condition, Hit, Record
from fiscal_rag_plugin.engines.collections import validate_collection_name
from fiscal_rag_plugin.errors import FiscalRagError, IngestError, InvalidFilterError, InvalidQueryError
from fiscal_rag_plugin.filters import matches, parse_filter
from fiscal_rag_plugin.records.canonical import REQUIRED, canonical, record_type
from fiscal_rag_plugin.records.drafts import canonical_text, draft_of, hydrated, index_metadata
from fiscal_rag_plugin.records.errors import InvalidRecordError
from fiscal_rag_plugin.records.filters import record_where
from fiscal_rag_plugin.records.fusion import fuse
from fiscal_rag_plugin.records.lines import BadRecord, Problems, of_file
from fiscal_rag_plugin.records.naming import collection_name_for_doc_type, is_default_name
from fiscal_rag_plugin.records.snippets import select_processed_snippet
from tests.records import records, simple

# --- shape ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", REQUIRED)
def test_a_record_without_a_required_key_is_refused_and_the_key_is_named(key: str) -> None:
    value = simple()
    del value[key]
    with pytest.raises(InvalidRecordError, match=key):
        canonical(value)


@pytest.mark.parametrize(
    "changes",
    [
        {"record_id": ""}, {"record_id": "  "}, {"record_id": 7}, {"record_id": "a\x00b"}, {"doc_id": " "},
        {"doc_type": ""}, {"doc_type": 7}, {"doc_type": "C\x07R"}, {"doc_type": "x" * 129},
        {"chunk_index": "0"}, {"chunk_index": True}, {"chunk_index": -1}, {"embedding_text": " "},
        {"embedding_text": None}, {"metadata": []}, {"metadata": {"fiscal:blob": 1}}, {"metadata": {"$and": 1}},
        {"provenance": None}, {"enrichment": "text"}, {"eca": []}, {"metadata": {"x": float("nan")}},
        {"embedding_text": "lone \ud800"},
    ],
)  # fmt: skip
def test_a_record_of_another_shape_is_refused_with_a_typed_error(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        canonical(simple(**changes))
    assert isinstance(caught.value, FiscalRagError)
    assert isinstance(caught.value, ValueError)


def test_a_bare_and_a_wrapped_record_are_the_same() -> None:
    assert canonical({"processed_text_record": simple(), "stage": 6}) == canonical(simple()) == simple()


def test_an_error_never_quotes_the_text_of_a_record() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        canonical(simple(text="SECRET", chunk_index="SECRET"))
    assert "SECRET" not in str(caught.value)


def test_what_is_given_is_not_changed_and_later_changes_of_it_do_not_matter() -> None:
    value = records(20)[5]
    before = copy.deepcopy(value)
    made = canonical(value)
    draft_of(made, "CR", "public", None)
    assert value == made == before
    value["metadata"]["plant"] = "other"
    assert made == before


# --- text and round trip ------------------------------------------------------------------------------


def test_the_text_is_the_raw_text_and_without_one_the_embedding_text() -> None:
    assert canonical_text(simple(text="e", enrichment={"raw_text": "raw"})) == "raw"
    assert canonical_text(simple(text="e", enrichment={"raw_text": "  "})) == "e"
    assert canonical_text(simple(text="e", enrichment=None)) == "e"


def test_a_draft_hydrates_to_the_same_json_with_its_keys_in_the_same_order() -> None:
    for value in records(300):
        made = draft_of(canonical(value), record_type(value["doc_type"]), "public", None)
        assert json.dumps(hydrated(made.record)) == json.dumps(value)
        assert made.record.id == value["record_id"]
        assert made.embedding_text == value["embedding_text"]


def test_the_text_is_not_stored_twice() -> None:
    value = simple(text="embedded", enrichment={"raw_text": "UNIQUE RAW TEXT"})
    assert "UNIQUE" not in json.dumps(draft_of(canonical(value), "CR", "public", None).record.shell)


def test_a_row_that_is_no_record_hydrates_to_none() -> None:
    row = Record("x", "public", None, None, "text", {})
    assert hydrated(row) is None


def test_the_index_sees_flat_metadata_with_identity_and_provenance_and_lists_stay_lists() -> None:
    value = simple(
        doc_type="cr", chunk_id="outer",
        metadata={"component_ids": ["P-1", "P-2"], "doc_id": "another", "nested": {"a": [1]}, "page_end": 9},
        provenance={"chunk_id": "c1", "section_path": ["A", "B"], "page_start": 3, "page_end": 4, "x": 1},
    )  # fmt: skip
    assert index_metadata(value, "CR") == {
        "component_ids": ["P-1", "P-2"], "doc_id": "d1", "nested": {"a": [1]}, "page_end": 9,
        "section_path": ["A", "B"], "page_start": 3, "chunk_id": "c1",
        "record_id": "r1", "chunk_index": 0, "doc_type": "CR",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"component_ids": ["P-1"], "primary_component_id": "P-9"}, ["P-1", "P-9"]),
        ({"component_id": "P-3"}, ["P-3"]),
        ({"component_ids": "P-4"}, ["P-4"]),
        ({"component_ids": ["P-1", "P-1"], "component_id": "P-1"}, ["P-1"]),
        ({"component_ids": None}, None),
        ({}, None),
    ],
)
def test_every_component_is_in_the_list_whichever_key_named_it(metadata: Any, expected: Any) -> None:
    assert index_metadata(simple(metadata=metadata), "CR").get("component_ids") == expected


# --- types and names --------------------------------------------------------------------------------


def test_a_type_is_the_same_in_any_case_and_spacing() -> None:
    assert {record_type(t) for t in ("cr", "CR", " Cr ")} == {"CR"}
    assert record_type("work  order") == "WORK ORDER"


def test_collection_names_are_valid_stable_and_one_a_type() -> None:
    types = [
        "CR",
        "A_B",
        "A/B",
        "A B",
        "A-B",
        "A.B",
        "Ñ",
        "ÑU",
        "X",
        "_",
        "/",
        "A" * 128,
        "A" * 127,
        "A__B",
        "Órden",
    ]
    names = [collection_name_for_doc_type(record_type(t)) for t in types]
    assert len(set(names)) == len(types)
    for name in names:
        validate_collection_name(name)
    assert names[:2] == ["processed_CR", "processed_A_B"]
    assert collection_name_for_doc_type("A/B") == "processed_A_B.998d3ed8983a"
    assert all(is_default_name(name) for name in names)


@pytest.mark.parametrize(
    "name", ["mine", "processed", "processed_", "processed_cr", "processed_A__B", "other_CR"]
)
def test_a_name_that_no_type_has_of_itself_is_free(name: str) -> None:
    assert not is_default_name(name)


# --- filters ----------------------------------------------------------------------------------------

META = index_metadata(
    simple(doc_type="wo", metadata={"component_ids": ["P-1", "P-2"], "severity": 3}, provenance={"page_start": 4}), "WO"
)  # fmt: skip


@pytest.mark.parametrize(
    ("filter_meta", "expected"),
    [
        ({"doc_ids": ["d1", "d2"]}, True), ({"doc_ids": ["d2"]}, False), ({"doc_ids": "d1"}, True),
        ({"doc_id": "d1"}, True), ({"doc_ids": ["d1"], "doc_id": "d2"}, False), ({"doc_ids": ("d1",)}, True),
        ({"doc_ids": {"d1"}}, True),
        ({"doc_types": ["cr", "Wo"]}, True), ({"doc_type": "wo"}, True), ({"doc_types": ["cr"]}, False),
        ({"doc_type": {"$in": ["wo"]}}, True), ({"doc_type": {"$ne": "wo"}}, False),
        ({"component_ids": ["P-2", "P-7"]}, True), ({"component_ids": ["P-7"]}, False), ({"component_ids": "P-1"}, True),
        ({"component_ids": {"$contains": "P-1"}}, True), ({"component_ids": {"$all": ["P-1", "P-7"]}}, False),
        ({"severity": 3}, True), ({"severity": [1, 3]}, True), ({"severity": "3"}, False), ({"severity": {"$gte": 4}}, False),
        ({"$or": [{"doc_types": ["cr"]}, {"component_ids": ["P-1"]}]}, True), ({"$not": {"doc_types": ["wo"]}}, False),
        ({"unknown": "x"}, False),
    ],
)  # fmt: skip
def test_a_filter_keeps_what_it_names(filter_meta: dict[str, Any], expected: bool) -> None:
    assert matches(parse_filter(record_where(filter_meta)), META) is expected


@pytest.mark.parametrize("empty", [None, [], (), set(), {}, [None]])
@pytest.mark.parametrize("key", ["doc_ids", "doc_types", "component_ids", "severity"])
def test_none_and_empty_containers_add_no_condition(key: str, empty: Any) -> None:
    assert record_where({key: empty}) == {}
    assert matches(parse_filter(record_where({key: empty, "doc_ids": ["d2"]})), META) is False


@pytest.mark.parametrize(
    "bad", ["doc_ids", ["doc_ids"], {7: "x"}, {"$or": "x"}, {"$foo": 1}, {"a": {"$foo": 1}}]
)
def test_what_is_no_filter_is_a_typed_error(bad: Any) -> None:
    with pytest.raises(InvalidFilterError):
        parse_filter(record_where(bad))


# --- snippets ---------------------------------------------------------------------------------------

STAGE5 = {
    "extracted_causal_statements": [
        {"cause_text": "wear", "connector": "led to", "effect_text": "leak", "sentence_text": "Wear led to a leak.", "confidence": 0.8}
    ],
    "condition_state": {"as_found": "leaking", "as_left": "tight"},
}  # fmt: skip
SUMMARY = {"scope": "seal leak"}
NO_SENTENCE = {
    "extracted_causal_statements": [{"cause_text": "wear", "connector": "led to", "effect_text": "leak"}]
}


@pytest.mark.parametrize(
    ("enrichment", "raw_text", "stage5", "summary"),
    [
        ({"raw_text": " raw ", "stage5_causal_condition": STAGE5, "retrieval_summary_json": SUMMARY}, "raw", "Wear led to a leak.", "seal leak"),
        ({"stage5_causal_condition": NO_SENTENCE}, "wear led to leak", "wear led to leak", "embedded"),
        ({"stage5_causal_condition": {"condition_state": {"as_found": " ", "as_left": "tight"}}}, "tight", "tight", "embedded"),
        ({"retrieval_summary_json": SUMMARY}, "seal leak", "seal leak", "seal leak"),
        ({"raw_text": "raw"}, "raw", "embedded", "embedded"),
        ({"raw_text": 7, "stage5_causal_condition": "x", "retrieval_summary_json": [1]}, "embedded", "embedded", "embedded"),
        ({"stage5_causal_condition": {"extracted_causal_statements": [None, {}]}}, "embedded", "embedded", "embedded"),
        (None, "embedded", "embedded", "embedded"),
    ],
)  # fmt: skip
def test_a_snippet_is_the_preferred_text_or_the_next_one(
    enrichment: Any, raw_text: str, stage5: str, summary: str
) -> None:
    value = simple(text=" embedded ", enrichment=enrichment)
    found = [select_processed_snippet(value, p) for p in ("raw_text", "stage5", "summary")]
    assert found == [raw_text, stage5, summary]


def test_an_unknown_snippet_preference_is_an_error_that_lists_them() -> None:
    with pytest.raises(InvalidQueryError, match="raw_text, stage5, summary"):
        select_processed_snippet(simple(), "headline")


# --- fusion -----------------------------------------------------------------------------------------


def hit(id: str, session: str | None = None, text: str = "same") -> Hit:
    return Hit(Record(id, "public" if session is None else "private", session, None, text, {}), 0.5)


def ids(found: dict[str, list[Hit]], k: int = 10, **weights: float) -> list[str]:
    return [entry.hit.record.id for entry in fuse(found, weights, k)]


def test_the_fused_value_is_the_sum_of_weight_over_60_plus_rank() -> None:
    both = fuse({"CR": [hit("a")], "WO": [hit("a")]}, {"CR": 0.5, "WO": 0.5}, 10)
    assert round(both[0].score, 7) == 0.0163934
    assert round(fuse({"CR": [hit("a")]}, {"CR": 0.5}, 10)[0].score, 7) == 0.0081967
    assert ids({"CR": [hit("a"), hit("x")], "WO": [hit("x"), hit("b")]}) == ["x", "a", "b"]


def test_weights_flip_the_order_and_a_weight_of_zero_adds_no_hit() -> None:
    found = {"CR": [hit("a")], "WO": [hit("b")]}
    assert ids(found, CR=0.9, WO=0.1) == ["a", "b"]
    assert ids(found, CR=0.1, WO=0.9) == ["b", "a"]
    assert ids(found, CR=1.0, WO=0.0) == ["a"]


def test_ties_go_by_record_id_and_equal_texts_stay_two_hits() -> None:
    assert ids({"CR": [hit("b")], "WO": [hit("a")]}) == ["a", "b"]
    assert len(fuse({"CR": [hit("a", "S"), hit("a")]}, {}, 10)) == 2, (
        "a public and an own twin are two records"
    )


# --- lines ------------------------------------------------------------------------------------------


def test_bad_lines_are_skipped_with_their_number_and_the_good_ones_go_on(tmp_path: Path) -> None:
    good = json.dumps(simple("r1")).encode()
    lines = [
        b"\xef\xbb\xbf" + good, b"", b"{", b"[1]", b"\xff\xfe", json.dumps({"record_id": "x"}).encode(),
        good.replace(b'"chunk_index": 0', b'"chunk_index": NaN'), b"[" * 5_000, b'{"processed_text_record": 7}', b"   ",
        good.replace(b"r1", b"r2"), b"9" * 6_000,
    ]  # fmt: skip
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\r\n".join(lines))
    seen: list[BadRecord] = []
    problems = Problems("r.jsonl, line", seen.append)
    assert [(n, r["record_id"]) for n, r in of_file(path, problems)] == [(1, "r1"), (11, "r2")]
    assert [bad.number for bad in problems.bad] == [3, 4, 5, 6, 7, 8, 9, 12]
    assert seen == problems.bad
    assert all(bad.reason for bad in seen)


def test_a_flood_of_bad_lines_is_not_a_flood_of_log_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("{\n" * 500)
    problems = Problems("r.jsonl, line")
    assert list(of_file(path, problems)) == []
    problems.log_total()
    assert len(caplog.records) == 21
    assert "500 were skipped" in caplog.text


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match=r"absent\.jsonl"):
        list(of_file(tmp_path / "absent.jsonl", Problems("")))


def test_a_condition_on_records_is_the_condition_of_every_other_chunk() -> None:
    condition = Condition(parse_filter(record_where({"component_ids": ["P-1"]})))
    assert condition.matches(Record("x", "public", None, None, "t", {"component_ids": ["P-1"]}))
