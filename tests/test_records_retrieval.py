"""Hydration, the retriever across types and the evidence adapter, on real directories."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.errors import IngestError, InvalidFilterError, InvalidQueryError
from fiscal_rag_plugin.records import (
    ChromaRecordStore,
    LCProcessedRetriever,
    ProcessedEvidenceStoreAdapter,
    ProcessedRecordStore,
    UnknownRecordTypeError,
)
from tests.embedders import HashEmbedder
from tests.processes import run_python
from tests.records import TYPES, records, simple, write_jsonl


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChromaRecordStore]:
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32)) as made:
        yield made


@pytest.fixture(scope="module")
def many(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ChromaRecordStore, Path, list[dict[str, Any]]]]:
    directory = tmp_path_factory.mktemp("many")
    given = records()
    path = write_jsonl(directory / "records.jsonl", given)
    with ChromaRecordStore(directory / "db", embed_model=HashEmbedder(32)) as made:
        made.upsert_jsonl(path)
        yield made, path, given


@pytest.fixture(params=["in memory", "on the index"])
def shelf(request: pytest.FixtureRequest, store: ChromaRecordStore) -> ProcessedRecordStore:
    return ProcessedRecordStore(index=store if request.param == "on the index" else None)


# --- ProcessedRecordStore: the same in memory and on the index -----------------------------------------


def test_records_are_found_by_record_id_and_by_chunk_id(shelf: ProcessedRecordStore) -> None:
    a, b = simple("r1", provenance={"chunk_id": "c1"}), simple("r2", doc_type="wo", chunk_id="c2")
    assert shelf.add_record(a)
    assert shelf.add_record({"processed_text_record": b})
    assert (shelf.get("r1"), shelf.get("r2")) == (a, b)
    assert (shelf.get_by_chunk_id("c1"), shelf.get_by_chunk_id("c2")) == (a, b)
    assert (shelf.get("c1"), shelf.get_by_chunk_id("r1"), shelf.get("none")) == (None, None, None)
    assert len(shelf) == 2
    assert sorted(shelf.all_record_ids()) == ["r1", "r2"]


def test_get_many_keeps_the_order_of_the_ids_and_says_what_is_missing(
    shelf: ProcessedRecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(4):
        shelf.add_record(simple(f"r{i}", doc_type="CR" if i % 2 else "WO"))
    found = shelf.get_many(["r3", "r0", "gone", "r2", "r3"])
    assert [record["record_id"] for record in found] == ["r3", "r0", "r2", "r3"]
    assert "'gone'" in caplog.text
    assert shelf.get_many([]) == []


def test_no_id_is_no_record(shelf: ProcessedRecordStore) -> None:
    shelf.add_record(simple("no chunk id"))
    shelf.add_record(simple("blank", metadata={"chunk_id": " "}))
    for nothing in (None, "", " "):
        given: Any = nothing
        assert shelf.get_by_chunk_id(given) is None
        assert shelf.get(given) is None
        assert shelf.get_many([given, "blank"]) == [shelf.get("blank")]
        assert shelf.versions([given]) == {}


@pytest.mark.parametrize("id", [{"$ne": "x"}, ["r1"], 7, True, b"r1", "\ud800"])
def test_an_id_that_is_no_text_is_an_error_and_never_an_operator(
    shelf: ProcessedRecordStore, id: Any
) -> None:
    shelf.add_record(simple("r1"))
    attempts: list[Callable[[], Any]] = [
        lambda: shelf.get(id), lambda: shelf.get_by_chunk_id(id),
        lambda: shelf.get_many(["r1", id]), lambda: shelf.versions([id]),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(InvalidQueryError, match=r"id (is a str|contains a lone surrogate)"):
            attempt()


@pytest.mark.parametrize("ids", ["ca", None, 7])
def test_ids_are_a_list_and_a_text_is_not_taken_for_its_letters(
    shelf: ProcessedRecordStore, ids: Any
) -> None:
    shelf.add_record(simple("c"))
    for ask in (shelf.get_many, shelf.versions):
        with pytest.raises(InvalidQueryError, match="a list of ids"):
            ask(ids)


def test_a_malformed_record_is_not_added(
    shelf: ProcessedRecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert not shelf.add_record({"record_id": "x"})
    assert not shelf.add_record("text")
    assert len(shelf) == 0
    assert "is skipped" in caplog.text


def test_a_file_is_added_without_its_bad_lines(shelf: ProcessedRecordStore, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", [simple("r1"), simple("r2", doc_type="WO")])
    path.write_text("{\n" + path.read_text())
    bad: list[int] = []
    assert shelf.add_jsonl(path, on_problem=lambda problem: bad.append(problem.number)) == 2
    assert bad == [1]
    with pytest.raises(IngestError):
        shelf.add_jsonl(tmp_path / "absent.jsonl")


def test_a_record_added_again_replaces_the_old_one_and_its_chunk_id(shelf: ProcessedRecordStore) -> None:
    shelf.add_record(simple("r1", provenance={"chunk_id": "old"}))
    shelf.add_record(simple("r1", provenance={"chunk_id": "new"}))
    assert (shelf.get_by_chunk_id("old"), len(shelf)) == (None, 1)
    assert shelf.get_by_chunk_id("new") is not None


def test_what_a_caller_does_with_an_answer_does_not_change_the_store(shelf: ProcessedRecordStore) -> None:
    shelf.add_record(simple("r1", provenance={"chunk_id": "c"}))
    for found in (shelf.get("r1"), shelf.get_many(["r1"])[0], shelf.get_by_chunk_id("c")):
        assert found is not None
        found["metadata"]["changed"] = True  # type: ignore[index, call-overload]
    assert shelf.get("r1") == simple("r1", provenance={"chunk_id": "c"})


def test_two_thousand_records_go_through_the_store_in_memory(many: Any) -> None:
    _, path, given = many
    shelf = ProcessedRecordStore([path])
    assert len(shelf) == 2_000
    assert shelf.get_many([v["record_id"] for v in given]) == given
    assert all(shelf.get_by_chunk_id(v["provenance"]["chunk_id"]) == v for v in given)
    assert shelf.all_record_ids() == [v["record_id"] for v in given]


# --- LCProcessedRetriever -----------------------------------------------------------------------------


def retrieve(store: ChromaRecordStore, **asked: Any) -> Any:
    doc_store = asked.pop("doc_store", None)
    asked = {"doc_types": ["CR", "WO"], "query_text": "pump seal leak", **asked}
    return LCProcessedRetriever(store, doc_store).query_doc_types(**asked)


def ids(pack: Any) -> list[str]:
    return [result.record_id for result in pack.results]


@pytest.fixture
def two(store: ChromaRecordStore) -> ChromaRecordStore:
    """In each type one record like the question, then one less like it."""
    store.upsert_records([simple("c1", "pump seal leak"), simple("c2", "pump noise")])
    store.upsert_records(
        [simple("w1", "pump seal leak", doc_type="WO"), simple("w2", "pump repair", doc_type="WO")]
    )
    return store


def test_types_are_fused_by_rank_with_ties_by_record_id(two: ChromaRecordStore) -> None:
    pack = retrieve(two)
    assert ids(pack) == ["c1", "w1", "c2", "w2"]
    first = pack.results[0]
    assert first.score == pytest.approx(1 / 61)
    assert first.similarity == pytest.approx(1.0, abs=1e-6)
    assert first.per_view["CR"]["rank"] == 1
    assert first.record == simple("c1", "pump seal leak")
    assert first.metadata["_vector_metadata"]["doc_type"] == "CR"
    assert pack.query_texts == {"query": "pump seal leak"}
    assert ids(retrieve(two, k_final=2)) == ["c1", "w1"]
    assert ids(retrieve(two, top_k_per_doc_type=1)) == ["c1", "w1"]


def test_view_weights_decide_and_a_weight_of_zero_leaves_a_type_out(two: ChromaRecordStore) -> None:
    assert ids(retrieve(two, view_weights={"wo": 2.0})) == ["w1", "w2", "c1", "c2"]
    assert ids(retrieve(two, view_weights={"CR": 0.0})) == ["w1", "w2"]


@pytest.mark.parametrize(
    "weights",
    [{"SOP": 1.0}, {"CR": -1}, {"CR": True}, {"CR": float("inf")}, {"CR": "1"}, {"CR": 10**400},
     {"CR": -(10**5_000)}, {"CR": float("nan")}, {"CR": None}, [("CR", 1)], [], "CR", 1.0],
)  # fmt: skip
def test_a_weight_that_means_nothing_is_an_error(two: ChromaRecordStore, weights: Any) -> None:
    with pytest.raises(InvalidQueryError):
        retrieve(two, view_weights=weights)


def test_any_other_fusion_is_rrf_and_is_warned_of_once(
    two: ChromaRecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = LCProcessedRetriever(two)
    asked: dict[str, Any] = {"doc_types": ["CR", "WO"], "query_text": "pump seal leak"}
    expected = retriever.query_doc_types(**asked)
    assert caplog.records == []
    for fusion in ("weighted_distance_inversion", "weighted_distance_inversion", "other"):
        assert retriever.query_doc_types(**asked, fusion=fusion) == expected
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "weighted_distance_inversion" in caplog.text


def test_a_type_is_asked_once_in_whichever_cases_it_is_named(two: ChromaRecordStore) -> None:
    assert ids(retrieve(two, doc_types=["cr", "CR", "Cr"])) == ["c1", "c2"]
    assert ids(retrieve(two, doc_types="cr")) == ["c1", "c2"]
    assert retrieve(two, doc_types=["cr"]).results[0].score == pytest.approx(1 / 61)
    assert list(two.search("cr", "pump")) == ["CR"]


def test_a_type_that_was_never_created_is_an_error_and_not_a_shorter_answer(two: ChromaRecordStore) -> None:
    with pytest.raises(UnknownRecordTypeError, match="there are: CR, WO"):
        retrieve(two, doc_types=["CR", "SOP"])


@pytest.mark.parametrize("doc_types", [None, [], (), 7])
def test_no_type_to_ask_is_an_error(two: ChromaRecordStore, doc_types: Any) -> None:
    for ask in (lambda: retrieve(two, doc_types=doc_types), lambda: two.search(doc_types, "pump")):
        with pytest.raises(InvalidQueryError, match="doc_types"):
            ask()


def test_one_record_in_two_types_is_one_hit_with_both_ranks(two: ChromaRecordStore, tmp_path: Path) -> None:
    two.upsert_jsonl(
        write_jsonl(tmp_path / "r.jsonl", [simple("c1", "pump seal leak")]), doc_type_override="WO"
    )
    pack = retrieve(two)
    assert ids(pack)[0] == "c1"
    assert {t: v["rank"] for t, v in pack.results[0].per_view.items()} == {"CR": 1, "WO": 1}
    assert pack.results[0].score == pytest.approx(2 / 61)


def test_records_with_the_same_text_are_all_found(store: ChromaRecordStore) -> None:
    store.upsert_records([simple(id, doc_id=f"d-{id}") for id in ("a", "b", "c")])
    assert ids(retrieve(store, doc_types=["CR"])) == ["a", "b", "c"]


def test_the_snippet_is_the_preferred_text(store: ChromaRecordStore) -> None:
    enrichment = {
        "raw_text": "raw", "retrieval_summary_json": {"scope": "summary"},
        "stage5_causal_condition": {"condition_state": {"as_found": "found"}},
    }  # fmt: skip
    store.upsert_records([simple("r1", enrichment=enrichment)])
    for preference, snippet in (("raw_text", "raw"), ("stage5", "found"), ("summary", "summary")):
        [result] = retrieve(store, doc_types=["CR"], snippet_preference=preference).results
        assert result.snippet == snippet
    with pytest.raises(InvalidQueryError, match="stage5"):
        retrieve(store, doc_types=["CR"], snippet_preference="headline")


def test_a_missing_record_is_said_and_is_no_blank_snippet(
    two: ChromaRecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = ProcessedRecordStore()
    shelf.add_record(simple("c1", "pump seal leak"))
    pack = retrieve(two, doc_store=shelf)
    assert ids(pack) == ["c1", "w1", "c2", "w2"]
    assert pack.missing == ["w1", "c2", "w2"]
    assert [(r.snippet, r.record, r.missing) for r in pack.results[1:2]] == [(None, None, True)]
    assert "3 of 4 records found are not in the record store" in caplog.text


def test_another_version_than_the_indexed_one_is_missing_too(two: ChromaRecordStore) -> None:
    shelf = ProcessedRecordStore()
    shelf.add_record(simple("c1", "pump seal leak", metadata={"version": 2}))
    assert retrieve(two, doc_types=["CR"], doc_store=shelf).missing == ["c1", "c2"]


def test_the_index_hydrates_what_it_finds_with_or_without_a_record_store(two: ChromaRecordStore) -> None:
    on_index = ProcessedRecordStore(index=two)
    assert retrieve(two, doc_store=on_index) == retrieve(two)
    assert retrieve(two).missing == []


def test_no_hit_is_an_empty_answer(two: ChromaRecordStore) -> None:
    assert retrieve(two, filter_meta={"doc_ids": ["none"]}).results == []


def test_two_thousand_records_are_retrieved_with_their_records(many: Any) -> None:
    store, _, given = many
    by_id = {v["record_id"]: v for v in given}
    pack = retrieve(
        store, doc_types=list(TYPES), query_text="the seal leaked", k_final=50, filter_meta={"open": True}
    )
    assert len(pack.results) == 50
    assert all(result.record == by_id[result.record_id] for result in pack.results)
    assert all(result.record["metadata"]["open"] for result in pack.results)
    scores = [result.score for result in pack.results]
    assert scores == sorted(scores, reverse=True)


def test_a_new_process_finds_an_exact_term_offline_and_makes_no_language_model(tmp_path: Path) -> None:
    """Cases B61 and B62."""
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32)) as store:
        store.upsert_records(
            [simple(f"r{i}", f"note {i} about motor") for i in range(30)] + [simple("x", "casilla 0505")]
        )
    other = run_python(f"""
        import os, sys
        os.environ.pop("OPENAI_API_KEY", None)
        os.environ |= {{"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}}
        from fiscal_rag_plugin.records import ChromaRecordStore, LCProcessedRetriever
        from tests.embedders import HashEmbedder
        with ChromaRecordStore({str(tmp_path / "db")!r}, embed_model=HashEmbedder(32), create=False) as store:
            pack = LCProcessedRetriever(store).query_doc_types(doc_types=["CR"], query_text="casilla 0505")
            print(pack.results[0].record_id, pack.results[0].snippet, "openai" in sys.modules)
    """)
    assert (other.returncode, other.stdout.strip()) == (0, "x casilla 0505 False"), other.stderr


# --- ProcessedEvidenceStoreAdapter -----------------------------------------------------------------------


def adapter(store: ChromaRecordStore, **settings: Any) -> ProcessedEvidenceStoreAdapter:
    return ProcessedEvidenceStoreAdapter(LCProcessedRetriever(store), **settings)


def test_evidence_is_at_most_top_k_and_at_most_k_final(two: ChromaRecordStore) -> None:
    assert [len(adapter(two).query("pump", top_k=k)) for k in (1, 3, 10)] == [1, 3, 4]
    assert len(adapter(two, k_final=2).query("pump", top_k=10)) == 2
    assert len(adapter(two, top_k_per_doc_type=1).query("pump", top_k=10)) == 2
    for top_k in (0, True, 2.0):
        with pytest.raises(InvalidQueryError):
            adapter(two).query("pump", top_k=top_k)  # type: ignore[arg-type]


def test_evidence_has_what_a_reader_needs(store: ChromaRecordStore) -> None:
    value = simple(
        "r1", metadata={"component_id": "P-1", "plant": "X"}, provenance={"chunk_id": "c1"}, doc_type="cr"
    )
    store.upsert_records([value])
    [evidence] = adapter(store).query("pump seal leak", top_k=1)
    assert evidence["metadata"].pop("_vector_metadata")["chunk_id"] == "c1"
    assert evidence.pop("similarity") == pytest.approx(1.0, abs=1e-6)
    assert evidence.pop("score") == pytest.approx(1 / 61)
    assert evidence == {
        "record_id": "r1", "chunk_id": "c1", "snippet": "pump seal leak", "doc_id": "d1", "doc_type": "CR",
        "component_id": "P-1", "metadata": {"component_id": "P-1", "plant": "X"}, "record": value, "missing": False,
    }  # fmt: skip


def test_words_searched_without_a_model_give_no_similarity_and_strict_json(
    two: ChromaRecordStore,
) -> None:
    two.close()
    with ChromaRecordStore(two.persist_directory, mode="sparse") as store:
        [result] = retrieve(store, doc_types=["WO"], query_text="pump repair", k_final=1).results
        assert (result.record_id, result.similarity) == ("w2", None)
        assert (result.per_view["WO"]["rank"], result.per_view["WO"]["similarity"]) == (1, None)
        found = adapter(store).query("pump repair", top_k=4)
        assert [evidence["similarity"] for evidence in found] == [None] * len(found)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_chunk_id_falls_back_from_provenance_to_the_index_to_the_record_id(
    store: ChromaRecordStore,
) -> None:
    store.upsert_records([
        simple("r1", doc_id="a", provenance={"chunk_id": "from provenance"}, metadata={"chunk_id": "not this"}),
        simple("r2", doc_id="b", metadata={"chunk_id": "from metadata"}),
        simple("r3", doc_id="c", chunk_id="from the record"),
        simple("r4", doc_id="d", provenance={"chunk_id": " "}),
    ])  # fmt: skip
    found = {e["record_id"]: e["chunk_id"] for e in adapter(store).query("pump", top_k=9)}
    assert found == {"r1": "from provenance", "r2": "from metadata", "r3": "from the record", "r4": "r4"}


def test_asset_id_joins_component_ids_in_order(
    store: ChromaRecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id, component in (("r1", "P-1"), ("r2", "P-2"), ("r3", "P-3")):
        store.upsert_records([simple(id, metadata={"component_ids": [component, "ALL"]})])
    asked: list[Any] = []
    search = ChromaRecordStore.search

    def listening(self: Any, *given: Any, **keywords: Any) -> Any:
        asked.append(keywords["filter_meta"])
        return search(self, *given, **keywords)

    monkeypatch.setattr(ChromaRecordStore, "search", listening)

    def found(filters: dict[str, Any]) -> list[str]:
        return sorted(e["record_id"] for e in adapter(store).query("pump", top_k=9, filters=filters))

    assert found({"asset_id": "P-1"}) == ["r1"]
    assert found({"component_ids": ["P-3", "P-2"], "asset_id": ["P-2", "P-1"]}) == ["r1", "r2", "r3"]
    assert asked[-1] == {"component_ids": ["P-3", "P-2", "P-1"]}
    assert found({"component_ids": ["P-3"], "asset_id": None}) == ["r3"]
    assert found({"component_ids": [], "asset_id": ""}) == ["r1", "r2", "r3"]
    assert found({"asset_id": "NONE"}) == []


def test_operators_on_components_are_conditions_like_any_other(store: ChromaRecordStore) -> None:
    for id, component in (("r1", "P-1"), ("r2", "P-2"), ("r3", "P-3")):
        store.upsert_records([simple(id, metadata={"component_ids": [component, "ALL"], "n": int(id[1])})])

    def found(filters: dict[str, Any]) -> list[str]:
        return sorted(e["record_id"] for e in adapter(store).query("pump", top_k=9, filters=filters))

    assert found({"component_ids": {"$any": ["P-1", "P-3"]}}) == ["r1", "r3"]
    assert found({"component_ids": {"$all": ["P-1", "ALL"]}}) == ["r1"]
    assert found({"asset_id": {"$contains": "P-2"}}) == ["r2"]
    assert found({"component_ids": {"$any": ["P-1"]}, "asset_id": ["P-2"]}) == ["r1", "r2"], "any will do"
    assert found({"component_ids": "P-1", "asset_id": {"$any": ["P-3"]}, "n": {"$gte": 2}}) == ["r3"]
    narrowed = {"$or": [{"n": 1}, {"n": 2}], "component_ids": {"$any": ["ALL"]}, "asset_id": {}}
    assert found(narrowed) == ["r1", "r2"]


@pytest.mark.parametrize("key", ["component_ids", "asset_id"])
@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [{"a": 1}], [["P-1"]], {"$any": "P-1"}, {"$any": [["P-1"]]}, {7: 1}, b"P-1", object()],
)
def test_components_that_cannot_be_asked_for_are_an_error(
    store: ChromaRecordStore, key: str, value: Any
) -> None:
    store.upsert_records([simple()])
    with pytest.raises(InvalidFilterError):
        adapter(store).query("pump", top_k=1, filters={key: value})


@pytest.mark.parametrize("outer", ["$and", "doc_type"])
def test_a_filter_that_is_nested_too_deep_is_an_error(store: ChromaRecordStore, outer: str) -> None:
    store.upsert_records([simple()])
    inner: dict[str, Any] = {"plant": "X"}
    for _ in range(3_000):
        inner = {"$and": [inner]}
    with pytest.raises(InvalidFilterError, match="nested"):
        store.query_doc_type("CR", "pump", filter_meta={outer: [inner]})


def test_filters_choose_types_and_every_other_key_narrows(two: ChromaRecordStore) -> None:
    def found(filters: Any, **settings: Any) -> list[str]:
        return sorted(
            e["record_id"] for e in adapter(two, **settings).query("pump", top_k=9, filters=filters)
        )

    assert found(None) == ["c1", "c2", "w1", "w2"], "all types that exist"
    assert found({"doc_type": "wo"}) == found({"doc_types": ["WO"]}) == ["w1", "w2"]
    assert found({}, default_doc_types=["CR"]) == ["c1", "c2"]
    assert found({"doc_type": []}, default_doc_types=["CR"]) == ["c1", "c2"]
    assert found({"doc_ids": ["d2"]}) == []
    assert found({"plant": "nowhere"}) == [], "a key that nobody knows is not ignored"
    with pytest.raises(UnknownRecordTypeError, match="there are: CR, WO"):
        found({"doc_type": "SOP"})
    with pytest.raises(InvalidFilterError):
        found(["doc_type"])


def test_no_type_at_all_is_an_error(store: ChromaRecordStore) -> None:
    with pytest.raises(UnknownRecordTypeError, match="no record type exists"):
        adapter(store).query("pump", top_k=1)


def test_evidence_that_cannot_be_hydrated_says_so(two: ChromaRecordStore) -> None:
    retriever = LCProcessedRetriever(two, ProcessedRecordStore())
    found = ProcessedEvidenceStoreAdapter(retriever).query("pump seal leak", top_k=1)
    assert [(e["missing"], e["record"], e["snippet"], e["doc_id"], e["chunk_id"]) for e in found] == [
        (True, None, None, "d1", "c1")
    ]


def test_two_thousand_records_give_evidence_of_one_component(many: Any) -> None:
    store, _, given = many
    wanted = {v["record_id"] for v in given if "P-101" in v["metadata"]["component_ids"]}
    found = adapter(store, k_final=500, top_k_per_doc_type=100).query(
        "worn", top_k=500, filters={"asset_id": "P-101"}
    )
    assert {e["record_id"] for e in found} == wanted
    assert all(e["record"] is not None and e["snippet"] for e in found)
