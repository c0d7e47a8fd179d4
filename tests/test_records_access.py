"""Records of a session: seen by it alone, in every method, and gone to the byte when it is erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.errors import AccessDeniedError, SettingsError
from fiscal_rag_plugin.records import (
    BadRecord,
    ChromaRecordStore,
    LCProcessedRetriever,
    ProcessedEvidenceStoreAdapter,
    ProcessedRecordStore,
    UnknownRecordTypeError,
)
from tests.embedders import HashEmbedder
from tests.processes import run_python
from tests.records import simple, write_jsonl

SECRET = "Golondrina"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChromaRecordStore]:
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32)) as made:
        made.upsert_records([simple("p1", "apple public"), simple("p2", "apple tart")])
        yield made


def everything(store: ChromaRecordStore) -> str:
    """All that the package says of records to whoever holds this store."""
    shelf = ProcessedRecordStore(index=store)
    retriever = LCProcessedRetriever(store, shelf)
    said: list[Any] = [store.doc_types(), shelf.all_record_ids(), len(shelf), store]
    said += [shelf.get("a1"), shelf.get_many(["a1", "p1"]), shelf.get_by_chunk_id("chunk-a1")]
    for doc_type in ("CR", "RCA"):
        try:
            said += store.query_doc_type(doc_type, "apple", top_k=50)
            said += LCProcessedRetriever(store).query_doc_types(
                doc_types=[doc_type], query_text="apple", k_final=50
            ).results  # fmt: skip
        except UnknownRecordTypeError as error:
            said.append(str(error))
    adapter = ProcessedEvidenceStoreAdapter(retriever, k_final=50, top_k_per_doc_type=50)
    said += [
        adapter.query("apple", top_k=50),
        adapter.query("apple", top_k=50, filters={"source_scope": "private"}),
    ]
    return repr(said)


def write_as_a(store: ChromaRecordStore) -> ChromaRecordStore:
    a = store.for_session("A")
    a.upsert_records(
        [
            simple("a1", f"apple {SECRET}", provenance={"chunk_id": "chunk-a1"}),
            simple("p1", f"{SECRET} twin"),
        ]
    )
    a.upsert_records([simple("a2", f"apple {SECRET}", doc_type="rca")])
    return a


def test_records_of_a_session_are_seen_by_it_and_by_nobody_else(store: ChromaRecordStore) -> None:
    others = [store, store.for_session("B"), store.for_access(Access.public())]
    before = [everything(other) for other in others]
    a = write_as_a(store)
    assert [everything(other) for other in others] == before, "not a bit of an answer moved"
    mine = everything(a)
    for expected in (SECRET, "a1", "a2", "RCA", "chunk-a1", "apple public"):
        assert expected in mine


def test_at_most_what_one_may_see_is_found_however_much_is_asked_for(store: ChromaRecordStore) -> None:
    """Case B14."""
    store.for_session("B").upsert_records([simple(f"b{i}", "apple") for i in range(3)])
    s = store.for_session("S")
    s.upsert_records([simple("s1", "apple mine"), simple("s2", "mine")])
    found = s.query_doc_type("CR", "apple", top_k=50)
    assert sorted(d.id for d in found) == ["p1", "p2", "s1", "s2"]
    private = s.query_doc_type("CR", "apple", top_k=50, filter_meta={"source_scope": "private"})
    assert sorted(d.id for d in private) == ["s1", "s2"]


def test_a_public_record_and_ones_own_may_share_an_id_and_each_is_hydrated_as_itself(
    store: ChromaRecordStore,
) -> None:
    a = write_as_a(store)
    pack = LCProcessedRetriever(a).query_doc_types(
        doc_types=["CR"], query_text=f"{SECRET} twin apple public"
    )
    twins = {r.snippet for r in pack.results if r.record_id == "p1"}
    assert twins == {"apple public", f"{SECRET} twin"}
    shelf = ProcessedRecordStore(index=a)
    assert shelf.get("p1") == simple("p1", f"{SECRET} twin"), "one's own first"
    assert LCProcessedRetriever(a, shelf).query_doc_types(doc_types=["CR"], query_text="x").missing == []


def test_a_record_store_in_memory_that_knows_a_secret_twin_does_not_tell_it(
    store: ChromaRecordStore,
) -> None:
    shelf = ProcessedRecordStore()
    shelf.add_record(simple("p1", f"{SECRET} twin"))
    pack = LCProcessedRetriever(store.for_session("B"), shelf).query_doc_types(
        doc_types=["CR"], query_text="apple"
    )
    assert SECRET not in repr(pack)
    assert "p1" in pack.missing


@pytest.mark.parametrize(
    "claim",
    [{"session_id": "A"}, {"source_scope": "public"}, {"source_scope": "private", "session_id": "A"}],
)
def test_a_record_that_claims_another_scope_is_skipped_and_reported(
    store: ChromaRecordStore, tmp_path: Path, claim: dict[str, str]
) -> None:
    b = store.for_session("B")
    lines = [simple("b1"), simple("b2", metadata=claim)]
    report = b.upsert_jsonl(write_jsonl(tmp_path / "r.jsonl", lines))
    assert (report, [bad.number for bad in report.bad]) == ({"CR": 1}, [2])
    assert ProcessedRecordStore(index=b).get("b2") is None
    assert ProcessedRecordStore(index=store.for_session("A")).get("b2") is None


UNUSABLE: list[dict[str, Any]] = [
    {"source_scope": "internal"}, {"source_scope": ["private"]}, {"source_scope": {"private": 1}},
    {"source_scope": 1}, {"source_scope": "public", "session_id": "x"}, {"session_id": 7}, {"session_id": ["A"]},
    {"source_scope": "private", "session_id": 7}, {"source_scope": "private", "session_id": " "},
]  # fmt: skip
UNBOUND_ONLY: list[dict[str, Any]] = [{"session_id": "A"}, {"source_scope": "private"}]


@pytest.mark.parametrize("session", [None, "A"])
def test_a_record_whose_scope_cannot_be_used_is_skipped_and_the_others_are_written(
    store: ChromaRecordStore, tmp_path: Path, session: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    claims = UNUSABLE + (UNBOUND_ONLY if session is None else [])
    bad = [simple(f"bad{i}", metadata=claim) for i, claim in enumerate(claims)]
    # The last one has the id of a good one, which stays.
    given = [simple("first"), *bad, simple("last"), simple("first", "other", metadata=claims[0])]
    numbers = [*range(2, len(bad) + 2), len(given)]
    writer = store if session is None else store.for_session(session)
    shelf = ProcessedRecordStore(index=writer)
    path = write_jsonl(tmp_path / "r.jsonl", given)

    report = writer.upsert_jsonl(path)
    assert (report, [b.number for b in report.bad]) == ({"CR": 2}, numbers)
    assert f"r.jsonl, line {numbers[-1]} is skipped" in caplog.text
    in_batch: list[BadRecord] = []
    assert writer.upsert_records(given, on_problem=in_batch.append) == 2
    assert [b.number for b in in_batch] == numbers
    in_shelf: list[BadRecord] = []
    assert shelf.add_jsonl(path, on_problem=in_shelf.append) == 2
    assert [b.number for b in in_shelf] == numbers
    assert not shelf.add_record(bad[0], on_problem=in_shelf.append)
    assert in_shelf[-1].number == 1
    assert sorted(shelf.all_record_ids()) == ["first", "last", "p1", "p2"]
    assert shelf.get("first") == simple("first")


def test_the_operator_writes_public_records_unless_a_record_says_whose_it_is(
    store: ChromaRecordStore,
) -> None:
    private = simple("r9", "apple", metadata={"source_scope": "private", "session_id": "A"})
    store.upsert_records([simple("r8", "apple"), private])
    assert {d.id for d in store.query_doc_type("CR", "apple")} == {"p1", "p2", "r8"}
    assert ProcessedRecordStore(index=store.for_session("A")).get("r9") == private
    assert ProcessedRecordStore(index=store.for_session("B")).get("r9") is None


def test_a_public_view_writes_nothing_and_creates_nothing(store: ChromaRecordStore, tmp_path: Path) -> None:
    public = store.for_access(Access.public())
    path = write_jsonl(tmp_path / "r.jsonl", [simple("x")])
    attempts: list[Callable[[], Any]] = [
        lambda: public.upsert_records([simple("x")]), lambda: public.upsert_jsonl(path),
        lambda: public.get_or_create_collection("NEW"), lambda: ProcessedRecordStore(index=public).add_record(simple("x")),
        lambda: ProcessedRecordStore([path], index=public),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(AccessDeniedError):
            attempt()
    assert store.doc_types() == ["CR"]


def test_an_access_is_bound_once(store: ChromaRecordStore) -> None:
    a = store.for_session("A")
    for attempt in (lambda: a.for_session("B"), lambda: a.for_access(Access.session("B"))):
        with pytest.raises(AccessDeniedError):
            attempt()
    with pytest.raises(AttributeError):
        a.access = Access.session("B")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        a.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(SettingsError):
        store.for_access("A")  # type: ignore[arg-type]
    with pytest.raises(AccessDeniedError):
        a.load_collection("CR").for_session("B")


def test_a_store_opened_with_an_access_is_that_sessions(tmp_path: Path) -> None:
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32), access=Access.session("A")) as a:
        assert a.upsert_records([simple("a1")]) == 1
        assert a.doc_types() == ["CR"]
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32)) as operator:
        assert operator.doc_types() == [], "a type that only a session uses"
        operator.upsert_records([simple("p1")])
        assert {d.id for d in operator.query_doc_type("CR", "x")} == {"p1"}


def test_a_session_creates_no_collection_whose_name_is_its_own_text(
    store: ChromaRecordStore, tmp_path: Path
) -> None:
    a = store.for_session("A")
    path = write_jsonl(tmp_path / "r.jsonl", [simple("a1"), simple("a2", doc_type=SECRET)])
    attempts: list[Callable[[], Any]] = [
        lambda: a.upsert_jsonl(path), lambda: a.upsert_records([simple("a2", doc_type=SECRET)]),
        lambda: a.get_or_create_collection(SECRET),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(
            UnknownRecordTypeError, match="a session may use: CR, ECA, FMEA, MANUAL, RCA, SOP, WO"
        ):
            attempt()
    assert ProcessedRecordStore(index=a).get("a1") is None, "nothing of the file was written"
    store.get_or_create_collection(SECRET)
    assert a.upsert_jsonl(path) == {"CR": 1, SECRET.upper(): 1}


@pytest.mark.parametrize("others", ["nobody", "session", "operator"])
def test_a_session_that_names_a_collection_is_told_the_same_whatever_others_have(
    tmp_path: Path, others: str
) -> None:
    pairs = [
        ("WO", "processed_SOP"), ("WO", "processed_CR"), ("SOP", "mine"), ("CR", SECRET), ("WO", ""),
        ("NEW", "processed_X.0123456789ab"), ("WO", "\ud800"),
    ]  # fmt: skip
    with ChromaRecordStore(tmp_path / "db", embed_model=HashEmbedder(32)) as store:
        if others == "session":
            store.for_session("B").upsert_records([simple("b1", doc_type="SOP")])
        if others == "operator":
            store.upsert_records([simple("p1", doc_type="SOP")])
            store.get_or_create_collection("SOP", "mine")
        before = store.doc_types()
        said = []
        for bound in (store.for_session("A"), store.for_access(Access(read={"A", "C"}, write="C"))):
            for t, name in pairs:
                attempts: list[Callable[[], Any]] = [
                    lambda b=bound, t=t, n=name: b.get_or_create_collection(t, n),
                    lambda b=bound, t=t, n=name: b.load_collection(t, n),
                    lambda b=bound, t=t, n=name: b.upsert_records([simple(doc_type=t)], collection_name=n),
                    lambda b=bound, t=t, n=name: b.query_doc_type(t, "pump", collection_name=n),
                    lambda b=bound, t=t, n=name: b.search([t], "pump", collection_name=n),
                ]  # fmt: skip
                for attempt in attempts:
                    with pytest.raises(AccessDeniedError) as caught:
                        attempt()
                    said.append(str(caught.value))
        assert set(said) == {"only the unbound store may name collections; give no collection_name"}
        assert store.doc_types() == before, "nothing was created"
        for doc_type in ("CR", "WO", "SOP"):
            assert store.upsert_records([simple(doc_type=doc_type)]) == 1, "no name was taken"


def test_a_session_may_spell_out_the_name_that_a_type_has_anyway(store: ChromaRecordStore) -> None:
    a = store.for_session("A")
    assert a.upsert_records([simple("a1", doc_type="wo")], collection_name="processed_WO") == 1
    assert [d.id for d in a.query_doc_type("WO", "x", collection_name="processed_WO")] == ["a1"]
    assert a.load_collection("cr", "processed_CR").collection == "processed_CR"


def test_an_access_of_two_sessions_reads_both_and_writes_one(store: ChromaRecordStore) -> None:
    for name in ("client", "firm", "other"):
        store.for_session(name).upsert_records([simple(f"r-{name}", "apple")])
    both = store.for_access(Access(read={"client", "firm"}, write="client"))
    both.upsert_records([simple("new", "apple")])
    assert {d.id for d in both.query_doc_type("CR", "apple", top_k=50)} == {
        "p1",
        "p2",
        "r-client",
        "r-firm",
        "new",
    }
    assert {d.id for d in store.for_session("firm").query_doc_type("CR", "apple", top_k=50)} == {
        "p1",
        "p2",
        "r-firm",
    }


def test_a_session_is_erased_to_the_byte_with_its_canonical_records(store: ChromaRecordStore) -> None:
    write_as_a(store)
    directory = Path(store.persist_directory)

    def files() -> list[str]:
        return [p.name for p in directory.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]

    assert any(name.startswith("fiscal.sqlite3") for name in files())
    assert store.load_collection("CR").delete_session("A") == 3
    assert files() == []
    assert store.for_session("A").doc_types() == ["CR"]


def test_private_text_never_reaches_a_file_of_chroma(store: ChromaRecordStore) -> None:
    write_as_a(store)
    for path in Path(store.persist_directory).rglob("*"):
        if path.is_file() and not path.name.startswith("fiscal.sqlite3"):
            assert SECRET.encode() not in path.read_bytes(), path.name


def test_another_process_holds_to_the_same_rule(store: ChromaRecordStore) -> None:
    write_as_a(store)
    code = """
        from fiscal_rag_plugin.records import ChromaRecordStore, ProcessedRecordStore
        from tests.embedders import HashEmbedder
        with ChromaRecordStore({path!r}, embed_model=HashEmbedder(32), create=False) as store:
            bound = store.for_session({session!r})
            print(bound.doc_types(), sorted(d.id for d in bound.query_doc_type("CR", "apple")), ProcessedRecordStore(index=bound).get("a1"))
    """
    printed = {
        s: run_python(code.format(path=store.persist_directory, session=s)).stdout for s in ("A", "B")
    }
    assert printed["B"].strip() == "['CR'] ['p1', 'p2'] None"
    assert SECRET in printed["A"]


def test_sessions_in_threads_do_not_mix(store: ChromaRecordStore) -> None:
    """Attack 22."""
    bound = {name: store.for_session(name) for name in "ABCD"}

    def work(turn: int) -> bool:
        name = "ABCD"[turn % 4]
        bound[name].upsert_records([simple(f"{name}{turn % 8}", f"apple of {name}")])
        found = LCProcessedRetriever(bound[name]).query_doc_types(
            doc_types=["CR"], query_text="apple", k_final=50
        )
        return all(
            r.record_id[0] in ("p", name) and (r.snippet or "")[-1] in ("c", "t", name)
            for r in found.results
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(60)))
