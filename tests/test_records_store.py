"""ChromaRecordStore on real directories: write, read, in this process and in another."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.errors import (
    CollectionMismatchError,
    CollectionNotFoundError,
    FiscalRagError,
    InvalidQueryError,
    NoEmbedderError,
    NotPicklableError,
    StorageError,
    StoreClosedError,
    UnsupportedModeError,
)
from fiscal_rag_plugin.llama.vector_store import FiscalVectorStore
from fiscal_rag_plugin.records import (
    ChromaRecordStore,
    InvalidRecordError,
    MixedRecordTypesError,
    ProcessedRecordStore,
    UnknownRecordTypeError,
)
from fiscal_rag_plugin.records.lines import BadRecord
from fiscal_rag_plugin.records.search import DEFAULT_MODE
from tests.embedders import HashEmbedder
from tests.processes import run_python
from tests.records import TYPES, records, simple, write_jsonl


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(32)


@pytest.fixture
def store(tmp_path: Path, embedder: HashEmbedder) -> Iterator[ChromaRecordStore]:
    with ChromaRecordStore(tmp_path / "db", embed_model=embedder) as made:
        yield made


def ids(documents: Any) -> list[str]:
    return [document.id for document in documents]


# --- writing ----------------------------------------------------------------------------------------


def test_records_of_one_type_are_stored_and_found(store: ChromaRecordStore) -> None:
    assert store.upsert_records([simple("r1"), simple("r2", "valve stuck open", doc_type="cr")]) == 2
    [first, second] = store.query_doc_type("cr", "valve stuck")
    assert (first.id, first.page_content) == ("r2", "valve stuck open")
    assert first.metadata["doc_type"] == "CR"
    assert first.metadata["record_id"] == "r2"
    assert first.metadata["_score"] > second.metadata["_score"]
    assert store.doc_types() == ["CR"]


def test_the_embedding_text_makes_the_vector_and_the_raw_text_is_the_documents(
    store: ChromaRecordStore, embedder: HashEmbedder
) -> None:
    store.upsert_records([simple("r1", "embedded words", enrichment={"raw_text": "raw words"})])
    assert embedder.documents == ["embedded words"]
    [found] = store.query_doc_type("CR", "embedded words")
    assert found.page_content == "raw words"
    assert found.metadata["_similarity"] == pytest.approx(1.0, abs=1e-6)


def test_a_record_written_again_replaces_the_old_one_whole(store: ChromaRecordStore) -> None:
    store.upsert_records([simple("r1", "OLD", metadata={"only_old": 1})])
    store.upsert_records([simple("r1", "NEW", metadata={"v": 2})])
    [found] = store.query_doc_type("CR", "NEW")
    assert (found.page_content, found.metadata["v"], "only_old" in found.metadata) == ("NEW", 2, False)


def test_a_record_is_embedded_again_only_when_its_text_changed(
    store: ChromaRecordStore, embedder: HashEmbedder
) -> None:
    store.upsert_records([simple("r1", "same"), simple("r2", "other")])
    store.upsert_records([simple("r1", "same", metadata={"severity": 5}), simple("r2", "changed")])
    assert embedder.documents == ["same", "other", "changed"]
    assert ids(store.query_doc_type("CR", "same", filter_meta={"severity": 5})) == ["r1"]


def test_repeats_of_an_id_are_one_record_and_the_last_one_wins(store: ChromaRecordStore) -> None:
    assert store.upsert_records([simple("r1", "first"), simple("r1", "last")]) == 1
    assert [d.page_content for d in store.query_doc_type("CR", "x")] == ["last"]


def test_nothing_in_nothing_written(store: ChromaRecordStore) -> None:
    assert store.upsert_records([]) == 0
    assert store.upsert_records([{"bad": 1}], doc_type="CR") == 0
    assert store.doc_types() == []


@pytest.mark.parametrize("given", [None, simple(), {}, "r1", b"r1", 7])
def test_what_is_no_list_of_records_is_an_error_that_says_so(store: ChromaRecordStore, given: Any) -> None:
    with pytest.raises(InvalidRecordError, match=r"a list of records.*pass one record as"):
        store.upsert_records(given)
    assert store.upsert_records(value for value in [simple()]) == 1


def test_a_mixed_batch_is_a_value_error_that_lists_up_to_ten_ids_and_writes_nothing(
    store: ChromaRecordStore, embedder: HashEmbedder
) -> None:
    batch = [simple("good"), *(simple(f"w{i:02d}", doc_type="WO") for i in range(14))]
    with pytest.raises(MixedRecordTypesError) as caught:
        store.upsert_records(batch)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FiscalRagError)
    message = str(caught.value)
    assert [i for i in range(14) if f"w{i:02d}" in message] == list(range(10))
    assert "4 more" in message
    assert "good" not in message
    assert (store.doc_types(), embedder.calls) == ([], 0)


def test_a_batch_of_another_type_than_the_one_named_is_mixed(store: ChromaRecordStore) -> None:
    with pytest.raises(MixedRecordTypesError, match="r1"):
        store.upsert_records([simple("r1")], doc_type="WO")
    assert store.upsert_records([simple("r1")], doc_type="cr") == 1


def test_malformed_records_of_a_batch_are_skipped_and_reported_by_place(store: ChromaRecordStore) -> None:
    bad: list[BadRecord] = []
    batch = [simple("r1"), {"record_id": "r2"}, "text", simple("r3", "")]
    assert store.upsert_records(batch, on_problem=bad.append) == 1
    assert [problem.number for problem in bad] == [2, 3, 4]


def test_a_jsonl_is_stored_by_type_and_bad_lines_are_counted_by_number(
    store: ChromaRecordStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", [simple("r1"), simple("r2", doc_type="wo"), simple("r3")])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{broken", *lines[1:], '{"record_id": "r9"}']))
    report = store.upsert_jsonl(str(path))
    assert report == {"CR": 2, "WO": 1}
    assert report.skipped == 2
    assert [bad.number for bad in report.bad] == [2, 5]
    assert "r.jsonl, line 2 is skipped" in caplog.text
    assert "embedding_text" in report.bad[1].reason


def test_an_override_puts_every_record_into_that_type_and_leaves_the_canonical_ones_alone(
    store: ChromaRecordStore, tmp_path: Path
) -> None:
    given = [simple("r1"), simple("r2", doc_type="WO"), simple("r3", doc_type="SOP")]
    report = store.upsert_jsonl(write_jsonl(tmp_path / "r.jsonl", given), doc_type_override="fmea")
    assert report == {"FMEA": 3}
    assert store.doc_types() == ["FMEA"]
    found = store.query_doc_type("FMEA", "pump", filter_meta={"doc_types": ["Fmea"]})
    assert {d.metadata["doc_type"] for d in found} == {"FMEA"}
    assert len(found) == 3
    assert ProcessedRecordStore(index=store).get_many(["r1", "r2", "r3"]) == given


def test_what_a_failing_embedder_would_have_made_is_not_written_and_the_failure_is_seen(
    tmp_path: Path,
) -> None:
    class Failing(HashEmbedder):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise RuntimeError("out of memory")

    with ChromaRecordStore(tmp_path / "db", embed_model=Failing()) as store:
        with pytest.raises(RuntimeError, match="out of memory"):
            store.upsert_records([simple("r1")])
        assert len(ProcessedRecordStore(index=store)) == 0


# --- types and collections ----------------------------------------------------------------------------


def test_a_type_that_was_never_created_is_an_error_that_lists_the_types_that_exist(
    store: ChromaRecordStore,
) -> None:
    with pytest.raises(UnknownRecordTypeError, match="there are: none"):
        store.query_doc_type("CR", "x")
    store.upsert_records([simple("r1", doc_type="WO")])
    store.get_or_create_collection("sop")
    for attempt in (lambda: store.query_doc_type("cr", "x"), lambda: store.load_collection("CR")):
        with pytest.raises(UnknownRecordTypeError, match=r"'CR'.*there are: SOP, WO") as caught:
            attempt()
        assert isinstance(caught.value, (CollectionNotFoundError, ValueError, KeyError))
    assert store.query_doc_type("SOP", "x") == [], "an empty type exists"


def test_a_collection_has_the_name_that_was_asked_for(store: ChromaRecordStore) -> None:
    assert store.get_or_create_collection("cr").collection == "processed_CR"
    store.upsert_records([simple("r1")], collection_name="mine")
    assert store.get_or_create_collection("CR", "mine").collection == "mine"
    assert ids(store.query_doc_type("CR", "x", collection_name="mine")) == ["r1"]
    assert store.query_doc_type("CR", "x") == []
    with pytest.raises(CollectionMismatchError, match="'CR'"):
        store.query_doc_type("WO", "x", collection_name="mine")
    with pytest.raises(CollectionMismatchError, match="'CR'"):
        store.upsert_records([simple("r2", doc_type="WO")], collection_name="mine")


@pytest.mark.parametrize("name", ["processed_SOP", "processed_A-B_2", "processed_A_B.0123456789ab"])
def test_a_collection_is_not_given_the_name_of_another_type(store: ChromaRecordStore, name: str) -> None:
    attempts: list[Callable[[], Any]] = [
        lambda: store.get_or_create_collection("WO", name), lambda: store.load_collection("WO", name),
        lambda: store.upsert_records([simple(doc_type="WO")], collection_name=name),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(CollectionMismatchError, match="belongs to another type than 'WO'"):
            attempt()
    assert store.upsert_records([simple(doc_type="SOP")], collection_name="processed_SOP") == 1
    assert store.get_or_create_collection("WO", "processed_sop").collection == "processed_sop"


def test_types_that_chroma_cannot_spell_have_collections_of_their_own(store: ChromaRecordStore) -> None:
    for i, doc_type in enumerate(("a/b", "A_B", "Órden de trabajo")):
        store.upsert_records([simple(f"r{i}", doc_type=doc_type)])
    assert store.doc_types() == ["A/B", "A_B", "ÓRDEN DE TRABAJO"]
    assert ids(store.query_doc_type("A/B", "x")) == ["r0"]
    assert ids(store.query_doc_type("órden de trabajo", "x")) == ["r2"]


def test_a_collection_of_other_chunks_is_not_taken_for_records(
    tmp_path: Path, embedder: HashEmbedder
) -> None:
    Corpus.open(str(tmp_path / "db"), "fiscal", embedder=embedder).close()
    with ChromaRecordStore(tmp_path / "db", embed_model=embedder) as store:
        with pytest.raises(CollectionMismatchError, match="not made for records"):
            store.upsert_records([simple()], collection_name="fiscal")
        with pytest.raises(UnknownRecordTypeError):
            store.load_collection("CR", "fiscal")


def test_a_prefix_keeps_stores_of_one_directory_apart(tmp_path: Path, embedder: HashEmbedder) -> None:
    with ChromaRecordStore(tmp_path / "db", embed_model=embedder, collection_prefix="one") as one:
        one.upsert_records([simple("r1")])
        with ChromaRecordStore(tmp_path / "db", embed_model=embedder, collection_prefix="two") as two:
            assert (one.doc_types(), two.doc_types()) == (["CR"], [])


def test_records_live_beside_a_fiscal_store_and_use_its_embedder(
    tmp_path: Path, embedder: HashEmbedder
) -> None:
    with (
        FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=embedder) as fiscal,
        ChromaRecordStore.from_view(fiscal.view) as store,
    ):
        store.upsert_records([simple("r1")])
        assert ids(store.query_doc_type("CR", "pump")) == ["r1"]
        assert fiscal.list_documents() == []
        bound = ChromaRecordStore.from_view(fiscal.for_session("A").view)
        assert bound.access == fiscal.for_session("A").access
        bound.close()


def test_a_record_collection_opens_as_a_llama_index_store(tmp_path: Path, embedder: HashEmbedder) -> None:
    with ChromaRecordStore(tmp_path / "db", embed_model=embedder) as store:
        store.upsert_records([simple("r1")])
        view = store.load_collection("CR")
        [node] = FiscalVectorStore(view).get_nodes(["r1"])
        assert (node.get_content(), node.metadata["doc_type"]) == ("pump seal leak", "CR")


# --- querying -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("top_k", [0, -1, True, 1.5, "3"])
def test_top_k_is_an_int_of_at_least_1(store: ChromaRecordStore, top_k: Any) -> None:
    store.upsert_records([simple()])
    with pytest.raises(InvalidQueryError):
        store.query_doc_type("CR", "x", top_k=top_k)


@pytest.mark.parametrize("question", ["", "  ", None, 7])
def test_a_question_is_text(store: ChromaRecordStore, question: Any) -> None:
    store.upsert_records([simple()])
    with pytest.raises(InvalidQueryError):
        store.query_doc_type("CR", question)


@pytest.mark.parametrize("weight", [-0.1, 1.1, True, "0.5", float("nan")])
def test_a_hybrid_weight_is_a_number_between_0_and_1(store: ChromaRecordStore, weight: Any) -> None:
    store.upsert_records([simple()])
    with pytest.raises(InvalidQueryError):
        store.query_doc_type("CR", "x", hybrid_weight=weight)


def test_a_mode_is_the_stores_or_the_calls_and_an_unknown_one_is_an_error(store: ChromaRecordStore) -> None:
    store.upsert_records([simple("r1"), simple("r2", "pump seal"), simple("r3", "valve")])
    assert store.mode == DEFAULT_MODE
    assert len(store.query_doc_type("CR", "pump", mode="mmr", top_k=2)) == 2
    with pytest.raises(UnsupportedModeError):
        store.query_doc_type("CR", "pump", mode="magic")
    with pytest.raises(UnsupportedModeError):
        ChromaRecordStore(store.persist_directory, mode="magic")


def test_an_outage_is_an_error_and_never_an_empty_answer(tmp_path: Path, embedder: HashEmbedder) -> None:
    class Down(HashEmbedder):
        def embed_query(self, text: str) -> list[float]:
            raise ConnectionError("no route to the model")

    with ChromaRecordStore(tmp_path / "db", embed_model=embedder) as store:
        store.upsert_records([simple()])
    with ChromaRecordStore(tmp_path / "db", embed_model=Down(32)) as store, pytest.raises(ConnectionError):
        store.query_doc_type("CR", "pump")
    with ChromaRecordStore(tmp_path / "db") as store, pytest.raises(NoEmbedderError):
        store.query_doc_type("CR", "pump")
    with pytest.raises(StoreClosedError):
        store.query_doc_type("CR", "pump")


def test_a_question_to_several_types_is_embedded_once(
    store: ChromaRecordStore, embedder: HashEmbedder
) -> None:
    store.upsert_records([simple("r1")])
    store.upsert_records([simple("r2", doc_type="WO")])
    found = store.search(["wo", "CR"], "pump")
    assert [(doc_type, len(hits)) for doc_type, hits in found.items()] == [("WO", 1), ("CR", 1)]
    assert embedder.queries == ["pump"]


# --- 2,000 records ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ChromaRecordStore, list[dict[str, Any]]]]:
    directory = tmp_path_factory.mktemp("many")
    given = records()
    path = write_jsonl(directory / "records.jsonl", given)
    with ChromaRecordStore(directory / "db", embed_model=HashEmbedder(32)) as store:
        report = store.upsert_jsonl(path)
        assert report == Counter(value["doc_type"].upper() for value in given)
        assert report.skipped == 0
        yield store, given


def test_two_thousand_records_come_back_bit_for_bit(many: Any) -> None:
    store, given = many
    back = ProcessedRecordStore(index=store)
    assert json.dumps(back.get_many([v["record_id"] for v in given])) == json.dumps(given)
    assert len(back) == 2_000
    assert sorted(back.all_record_ids()) == sorted(v["record_id"] for v in given)


@pytest.mark.parametrize("component", ["P-100", "MOV-117", "HX-103", "NONE-1"])
def test_a_component_filter_misses_no_record(many: Any, component: str) -> None:
    store, given = many
    for doc_type in TYPES:
        expected = {
            v["record_id"] for v in given
            if v["doc_type"].upper() == doc_type and component in v["metadata"]["component_ids"]
        }  # fmt: skip
        found = store.query_doc_type(
            doc_type, "seal", top_k=400, filter_meta={"component_ids": [component]}
        )
        assert set(ids(found)) == expected
        contains = {"component_ids": {"$contains": component}}
        assert ids(store.query_doc_type(doc_type, "seal", top_k=400, filter_meta=contains)) == ids(found)


@pytest.mark.parametrize(
    "filter_meta",
    [
        {"doc_ids": ["CR-2024-003", "CR-2024-010"]}, {"severity": [1, 2], "plant": "Ñ-1"}, {"open": True},
        {"component_ids": ["P-100", "P-101", "V-103"], "severity": {"$gte": 2}}, {"doc_types": ["cr"]},
        {"risk": {"$lt": 0.5}}, {"doc_types": ["wo"]}, {"page_start": {"$lte": 3}, "section_role": "finding"},
        {"system_names": {"$contains": "feed"}},
    ],
)  # fmt: skip
def test_filters_hold_before_top_k(many: Any, filter_meta: dict[str, Any]) -> None:
    store, given = many

    def wanted(value: dict[str, Any]) -> bool:
        m, p = value["metadata"], value["provenance"]
        checks = {
            "doc_ids": lambda x: value["doc_id"] in x, "plant": lambda x: m["plant"] == x,
            "open": lambda x: m["open"] is x, "doc_types": lambda x: "cr" in x,
            "component_ids": lambda x: bool(set(x) & set(m["component_ids"])),
            "risk": lambda x: m["risk"] < 0.5, "page_start": lambda x: p["page_start"] <= 3,
            "section_role": lambda x: True, "system_names": lambda x: "feed" in m["system_names"],
            "severity": lambda x: m["severity"] in x if isinstance(x, list) else m["severity"] >= 2,
        }  # fmt: skip
        return all(checks[key](x) for key, x in filter_meta.items())

    expected = {v["record_id"] for v in given if v["doc_type"].upper() == "CR" and wanted(v)}
    found = ids(store.query_doc_type("CR", "seal leaked", top_k=500, filter_meta=filter_meta))
    assert set(found) == expected
    assert ids(store.query_doc_type("CR", "seal leaked", top_k=5, filter_meta=filter_meta)) == found[:5]


def test_another_process_reads_records_types_and_hits(many: Any) -> None:
    store, given = many
    here = store.query_doc_type("WO", "the seal leaked", top_k=5, filter_meta={"open": True})
    other = run_python(f"""
        import json
        from fiscal_rag_plugin.records import ChromaRecordStore, ProcessedRecordStore
        from tests.embedders import HashEmbedder
        with ChromaRecordStore({store.persist_directory!r}, embed_model=HashEmbedder(32), create=False) as store:
            found = store.query_doc_type("wo", "the seal leaked", top_k=5, filter_meta={{"open": True}})
            record = ProcessedRecordStore(index=store).get({given[8]["record_id"]!r})
            by_chunk = ProcessedRecordStore(index=store).get_by_chunk_id("chunk-00008")
            print(json.dumps([store.doc_types(), [[d.id, d.metadata["_score"]] for d in found], record, by_chunk]))
    """)
    assert other.returncode == 0, other.stderr
    types, found, record, by_chunk = json.loads(other.stdout)
    assert types == sorted(TYPES)
    assert found == [[d.id, d.metadata["_score"]] for d in here]
    assert record == by_chunk == given[8]


def test_what_another_process_writes_is_seen_at_the_next_question(store: ChromaRecordStore) -> None:
    store.upsert_records([simple("r1")])
    code = f"""
        from fiscal_rag_plugin.records import ChromaRecordStore
        from tests.embedders import HashEmbedder
        from tests.records import simple
        with ChromaRecordStore({store.persist_directory!r}, embed_model=HashEmbedder(32)) as store:
            store.upsert_records([simple("r2", "valve stuck")])
            store.upsert_records([simple("r3", doc_type="WO")])
    """
    store.close()
    with ChromaRecordStore(store.persist_directory, embed_model=HashEmbedder(32)) as reader:
        assert ids(reader.query_doc_type("CR", "valve")) == ["r1"]
        other = run_python(code)
        assert other.returncode == 0, other.stderr
        assert ids(reader.query_doc_type("CR", "valve")) == ["r2", "r1"]
        assert ids(reader.query_doc_type("WO", "pump")) == ["r3"]


# --- handles ------------------------------------------------------------------------------------------


def test_an_absent_directory_is_not_created_to_read_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        ChromaRecordStore(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_a_store_is_copied_as_itself_and_not_pickled(store: ChromaRecordStore) -> None:
    assert copy.copy(store) is copy.deepcopy(store) is store
    with pytest.raises(NotPicklableError):
        pickle.dumps(store)


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    store = ChromaRecordStore(tmp_path / "db")
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.doc_types()


def test_no_text_of_a_record_is_logged(store: ChromaRecordStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fiscal_rag_plugin")
    store.upsert_records([simple("r1", "SECRET text"), simple("r2", "SECRET", chunk_index="SECRET")])
    store.query_doc_type("CR", "SECRET question")
    assert "SECRET" not in caplog.text
    assert "record 2 is skipped" in caplog.text
