from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.api import ClientAPI
from llama_index.core.schema import Document, IndexNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery, VectorStoreQueryMode

from fiscal_rag_plugin import Access, FiscalVectorStore
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    CollectionMismatchError,
    CollectionNotFoundError,
    InvalidChunkError,
    InvalidFilterError,
    InvalidQueryError,
    InvalidVectorError,
    NoEmbedderError,
    NotPicklableError,
    SettingsError,
    StoreClosedError,
    UnexpectedArgumentError,
    UnsupportedModeError,
)

from .embedders import HashEmbedder
from .llama_nodes import ask, chunk, ids, node, open_store, where
from .processes import run_python


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path) as opened:
        yield opened


# --- writing ------------------------------------------------------------------------------------


def test_writing_an_id_again_replaces_text_vector_and_metadata_whole(store: FiscalVectorStore) -> None:
    store.add([node("x", [1, 0], text="OLD", gone=1, v=1)])
    assert store.add([node("x", [0, 1], text="NEW", v=2)]) == ["x"]
    result = store.query(VectorStoreQuery(query_embedding=[0, 1], similarity_top_k=5))
    assert result.nodes is not None
    [found] = result.nodes
    assert (found.get_content(), found.metadata) == ("NEW", {"v": 2, "source_scope": "public"})
    assert result.similarities == [1.0]


def test_changed_metadata_alone_is_stored_and_leaves_no_stale_key(store: FiscalVectorStore) -> None:
    store.add([node("x", [1, 0], a=1, b=2)])
    store.add([node("x", [1, 0], a=5)])
    assert store.get_nodes()[0].metadata == {"a": 5, "source_scope": "public"}
    assert store.get_nodes(filters=where(("b", "==", 2))) == []


def test_repeats_in_one_call_are_written_once_and_the_last_wins(store: FiscalVectorStore) -> None:
    assert store.add([node("1", [1, 0], text="apple"), node("1", [1, 0], text="pear")]) == ["1", "1"]
    assert [n.get_content() for n in store.get_nodes()] == ["pear"]


def test_nothing_added_is_no_error(store: FiscalVectorStore) -> None:
    assert store.add([]) == []
    assert store.add_chunks([]) == []


def test_nodes_without_a_vector_are_embedded_by_the_store_and_need_an_embedder(tmp_path: Path) -> None:
    with open_store(tmp_path / "without") as store:
        with pytest.raises(NoEmbedderError, match="embedder"):
            store.add([node("with", [1, 0]), node("without")])
        assert store.get_nodes() == []
    embedder = HashEmbedder(8)
    with open_store(tmp_path / "with", embed_model=embedder) as store:
        store.add([node("a", text="el iva"), node("b", list(np.ones(8)))])
        assert embedder.documents == ["el iva"]
        again = node("a", text="el iva", more=1)
        again.excluded_embed_metadata_keys = ["more"]
        store.add([again])
        assert store.get_nodes(["a"])[0].metadata["more"] == 1
        assert embedder.documents == ["el iva"], "an unchanged text was embedded again"


def test_chunks_take_explicit_vectors(store: FiscalVectorStore) -> None:
    chunks = [chunk("d", "uno"), chunk("d", "dos", chunk_index=1)]
    first, second = store.add_chunks(chunks, vectors=np.array([[1, 0], [0, 1]]))
    assert ask(store, [1, 0], 1) == [first]
    assert ask(store, [0, 1], 1) == [second]


def test_the_unbound_store_wants_to_be_told_the_scope(tmp_path: Path) -> None:
    with open_store(tmp_path, default_scope=None) as store:
        with pytest.raises(InvalidChunkError, match="default_scope"):
            store.add([node("x", [1, 0])])
        store.add(
            [
                node("x", [1, 0], source_scope="public"),
                node("y", [1, 0], source_scope="private", session_id="A"),
            ]
        )
        assert ids(store.get_nodes()) == ["x"]
        assert ids(store.for_session("A").get_nodes()) == ["x", "y"]


def test_replacing_a_document_swaps_its_chunks(store: FiscalVectorStore) -> None:
    store.add_chunks([chunk("d", "uno"), chunk("e", "otro")], vectors=[[1, 0], [0, 1]])
    report = store.replace_document("d", [chunk("d", "dos")], vectors=[[1, 0]])
    assert (report.embedded, report.removed) == (1, 1)
    assert {n.get_content() for n in store.get_nodes()} == {"dos", "otro"}


@pytest.mark.parametrize("bad", [[float("nan"), 0], [float("inf"), 0], [1e39, 0], [0, 0], [1, 0, 0], []])
def test_an_unusable_vector_is_refused_when_written_and_when_asked(
    store: FiscalVectorStore, bad: list[float]
) -> None:
    store.add([node("x", [1, 0])])
    with pytest.raises(InvalidVectorError):
        store.add([node("good", [0, 1]), node("bad", bad)])
    with pytest.raises(InvalidVectorError):
        ask(store, bad)
    assert ids(store.get_nodes()) == ["x"]


# --- asking -------------------------------------------------------------------------------------


def test_similarities_are_cosines_in_order(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0]), node("b", [0, 1]), node("c", [-1, 0])])
    result = store.query(VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=3))
    assert result.ids == ["a", "b", "c"]
    assert result.similarities == pytest.approx([1.0, 0.0, -1.0], abs=1e-6)
    assert result.nodes is not None
    assert ids(result.nodes) == result.ids


def test_top_k_is_a_maximum_and_an_int_of_at_least_one(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0]), node("b", [0.8, 0.6]), node("c", [0.6, 0.8])])
    assert ask(store, [1, 0], 10) == ["a", "b", "c"]
    assert ask(store, [1, 0], 1) == ["a"]
    assert ask(store, [1, 0], 3, keywords={"top_k": 2}) == ["a", "b"]
    for bad in (0, -1, True, 1.5, "2"):
        with pytest.raises(InvalidQueryError, match="top_k"):
            ask(store, [1, 0], bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "mode",
    [m for m in VectorStoreQueryMode if m.value not in ("default", "mmr", "sparse", "hybrid")],
    ids=lambda m: m.value,
)
def test_a_mode_that_is_not_offered_is_named_and_never_replaced(
    store: FiscalVectorStore, mode: VectorStoreQueryMode
) -> None:
    store.add([node("a", [1, 0])])
    for vector in ([1.0, 0.0], None):
        with pytest.raises(UnsupportedModeError, match=mode.value):
            store.query(VectorStoreQuery(query_embedding=vector, query_str="x", mode=mode))


def test_mmr_prefers_a_different_neighbour_and_keeps_cosines(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0, 0]), node("a2", [0.999, 0.04, 0]), node("b", [0.7, 0, 0.7])])
    mmr = VectorStoreQueryMode.MMR
    assert ask(store, [1, 0, 0], 2) == ["a", "a2"]
    assert ask(store, [1, 0, 0], 2, mode=mmr, mmr_threshold=0.3) == ["a", "b"]
    assert ask(store, [1, 0, 0], 2, mode=mmr, keywords={"mmr_threshold": 0.3}) == ["a", "b"]
    assert ask(store, [1, 0, 0], 2, mode=mmr, keywords={"mmr_threshold": 1.0}) == ["a", "a2"]
    # Two candidates leave no choice: the prefetch decides what MMR may choose among.
    for keywords in ({"mmr_prefetch_k": 2}, {"mmr_prefetch_factor": 1.0}):
        assert ask(store, [1, 0, 0], 2, mode=mmr, mmr_threshold=0.3, keywords=keywords) == ["a", "a2"]
    result = store.query(
        VectorStoreQuery(query_embedding=[1, 0, 0], similarity_top_k=2, mode=mmr, mmr_threshold=0.3)
    )
    assert result.similarities == pytest.approx([1.0, 0.7 / np.sqrt(0.98)], abs=1e-6)


@pytest.mark.parametrize(
    "keywords",
    [
        {"mmr_threshold": 1.5}, {"mmr_threshold": True}, {"mmr_prefetch_k": 0}, {"mmr_prefetch_factor": 0},
        {"mmr_prefetch_factor": float("nan")}, {"mmr_prefetch_k": 5, "mmr_prefetch_factor": 2.0},
    ],
    ids=str,
)  # fmt: skip
def test_mmr_parameters_out_of_range_are_refused(
    store: FiscalVectorStore, keywords: dict[str, Any]
) -> None:
    store.add([node("a", [1, 0])])
    with pytest.raises(InvalidQueryError, match="mmr"):
        ask(store, [1, 0], mode=VectorStoreQueryMode.MMR, keywords=keywords)


def test_doc_ids_and_node_ids_restrict_and_only_empty_node_ids_do_not(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], ref="d1"), node("b", [1, 0], ref="d2"), node("c", [1, 0])])
    assert ask(store, [1, 0], doc_ids=["d1", "nobody"]) == ["a"]
    assert ask(store, [1, 0], doc_ids=[]) == []
    assert ask(store, [1, 0], node_ids=["c", "b"]) == ["b", "c"]
    assert ask(store, [1, 0], node_ids=[]) == ["a", "b", "c"]
    assert ask(store, [1, 0], node_ids=["a", "b"], doc_ids=["d2"]) == ["b"]
    for wrong in ("abc", [1], 7):
        with pytest.raises(InvalidQueryError, match="ids"):
            ask(store, [1, 0], doc_ids=wrong)


def test_filters_of_both_kinds_are_conjoined_and_none_changes_nothing(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], tax="IVA", year=2024), node("b", [1, 0], tax="IVA", year=2023)])
    both = where(("tax", "==", "IVA"), ("year", "==", 2024))
    assert ask(store, [1, 0], filters=both) == ["a"]
    assert ask(store, [1, 0], filters=where(("tax", "==", "IVA")), keywords={"filter": {"year": 2023}}) == [
        "b"
    ]
    assert ask(store, [1, 0], keywords={"filter": {"tax": "IVA", "year": 2024}}) == ["a"]
    assert ask(store, [1, 0], keywords={"filter": None}) == ["a", "b"]
    assert ask(store, [1, 0], filters=MetadataFilters(filters=[])) == ["a", "b"]


def test_list_bool_and_date_filters_mean_what_they_say(store: FiscalVectorStore) -> None:
    store.add(
        [
            node("a", [1, 0], subject="10000032", vigente=True, fecha="2023-12-31"),
            node("b", [1, 0], subject="10000764", vigente=False, fecha="2024-05-01"),
            node("c", [1, 0], subject="9", vigente=1),
        ]
    )
    assert ask(store, [1, 0], filters=where(("subject", "in", ["10000032", "10000764"]))) == ["a", "b"]
    assert ask(store, [1, 0], filters=where(("subject", "in", []))) == []
    assert ask(store, [1, 0], filters=where(("subject", "nin", []))) == ["a", "b", "c"]
    either = where(("subject", "in", []), ("source_scope", "==", "public"), condition="or")
    assert ask(store, [1, 0], filters=either) == ["a", "b", "c"]
    assert ask(store, [1, 0], keywords={"filter": {"vigente": True}}) == ["a"]
    assert ask(store, [1, 0], keywords={"filter": {"vigente": 1}}) == ["c"]
    assert ask(store, [1, 0], filters=where(("fecha", ">=", "2024-01-01"))) == ["b"]
    assert ask(store, [1, 0], filters=where(("subject", "!=", "9"), condition="not")) == ["c"]


def test_a_filter_beyond_the_limits_is_refused(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0])])
    deep = where(("k", "==", 1))
    for _ in range(200):
        deep = MetadataFilters(filters=[deep])
    wide = where(*[("k", "==", i) for i in range(5_000)], condition="or")
    for filters in (deep, wide, where(("k", "==", "x" * 1_000_000))):
        with pytest.raises(InvalidFilterError):
            ask(store, [1, 0], filters=filters)


@pytest.mark.parametrize(
    "keywords",
    [{"where": {}}, {"session_id": "B"}, {"access": None}, {"qdrant_filters": None}, {"where_document": {}},
     {"include": ["embeddings"]}, {"filters": None}],
    ids=str,
)  # fmt: skip
def test_an_unknown_keyword_is_a_type_error(store: FiscalVectorStore, keywords: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedArgumentError, match=next(iter(keywords))):
        ask(store, [1, 0], keywords=keywords)
    with pytest.raises(TypeError):
        store.add([], **keywords)
    with pytest.raises(TypeError):
        store.delete("d", **keywords)
    if "filters" not in keywords:
        with pytest.raises(TypeError):
            store.delete_nodes(["a"], **keywords)


def test_a_text_is_embedded_by_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path, embed_model=HashEmbedder(16)) as store:
        store.add([node("a", text="tipo general"), node("b", text="otra cosa distinta")])
        result = store.query(VectorStoreQuery(query_str="tipo general", similarity_top_k=1))
        assert result.ids == ["a"]
        assert result.similarities == pytest.approx([1.0], abs=1e-6)


def test_a_query_by_filter_alone_returns_whole_ids_in_order(store: FiscalVectorStore) -> None:
    store.add([node("abc-124", [1, 0], k=1), node("abc-123", [0, 1], k=1), node("z", [0, 1], k=2)])
    query = VectorStoreQuery(filters=where(("k", "==", 1)), similarity_top_k=5)
    result = store.query(query)
    assert (result.ids, result.similarities) == (["abc-123", "abc-124"], None)
    assert store.query(VectorStoreQuery(node_ids=["z"], similarity_top_k=1)).ids == ["z"]
    assert len(store.query(VectorStoreQuery(filters=query.filters, similarity_top_k=1)).ids or []) == 1


@pytest.mark.parametrize("text", [None, "", "  "])
def test_a_query_that_asks_for_nothing_is_refused(store: FiscalVectorStore, text: str | None) -> None:
    store.add([node("a", [1, 0])])
    for filters in (None, MetadataFilters(filters=[])):
        with pytest.raises(InvalidQueryError, match="non-blank text or a vector"):
            store.query(VectorStoreQuery(query_str=text, filters=filters))


# --- getting and deleting -----------------------------------------------------------------------


def test_get_nodes_takes_ids_filters_both_or_neither(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], k=1), node("b", [1, 0], k=2), node("c", [1, 0], k=1)])
    assert store.get_nodes([]) == []
    assert store.get_nodes(node_ids=[], filters=where(("k", "==", 1))) == []
    assert ids(store.get_nodes(["b", "a", "nobody", "b"])) == ["b", "a"]
    assert ids(store.get_nodes(filters=where(("k", "==", 1)))) == ["a", "c"]
    assert ids(store.get_nodes(["c", "b"], where(("k", "==", 1)))) == ["c"]
    assert ids(store.get_nodes()) == ["a", "b", "c"]
    with pytest.raises(InvalidQueryError, match="node_ids"):
        store.get_nodes("abc")  # type: ignore[arg-type]


def test_delete_nodes_never_wipes(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], k=1), node("b", [1, 0], k=2), node("c", [1, 0], k=1)])
    store.delete_nodes([])
    store.delete_nodes(node_ids=[], filters=where(("k", "==", 1)))
    for filters in (
        None,
        MetadataFilters(filters=[]),
        MetadataFilters(filters=[MetadataFilters(filters=[])]),
    ):
        with pytest.raises(ValueError, match="clear"):
            store.delete_nodes(filters=filters)
    assert ids(store.get_nodes()) == ["a", "b", "c"]
    store.delete_nodes(["b", "nobody"])
    store.delete_nodes(["a"], filters=where(("k", "==", 2)))
    assert ids(store.get_nodes()) == ["a", "c"]
    store.delete_nodes(filters=where(("k", "==", 1)))
    assert store.get_nodes() == []


def test_deleting_the_document_called_none_spares_nodes_without_a_source(store: FiscalVectorStore) -> None:
    store.add([node("n1", [1, 0]), node("n2", [1, 0]), node("n3", [1, 0], ref="d1")])
    store.delete("None")
    assert ids(store.get_nodes()) == ["n1", "n2", "n3"]
    store.delete("d1")
    assert ids(store.get_nodes()) == ["n1", "n2"]
    with pytest.raises(InvalidQueryError, match="ref_doc_id"):
        store.delete(None)  # type: ignore[arg-type]


def test_clear_deletes_what_the_store_writes_and_nothing_else(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    store.add([node("p", [1, 0])])
    mine.add([node("a", [1, 0])])
    store.for_session("B").add([node("b", [1, 0])])
    mine.clear()
    assert ids(mine.get_nodes()) == ["p"]
    store.clear()
    assert store.get_nodes() == []
    assert store.list_sessions() == [("B", 1)]


# --- size ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store with 6,000 nodes of one document, written in one call, and the ids returned."""
    generator = np.random.default_rng(7)
    with open_store(tmp_path_factory.mktemp("big")) as store:
        nodes = [
            node(f"n{i}", generator.normal(size=8).tolist(), ref="big", text="x") for i in range(6_000)
        ]
        yield store, store.add(nodes)


def test_more_nodes_than_chromas_batch_limit_go_in_one_call_in_order(big: Any) -> None:
    store, returned = big
    assert store.client.get_max_batch_size() < 6_000
    assert returned == [f"n{i}" for i in range(6_000)]
    assert len(store.get_nodes()) == 6_000


def test_forty_thousand_ids_can_be_asked_for(big: Any) -> None:
    store, _ = big
    asked = [f"n{i}" for i in range(39_999, -1, -1)]
    assert ids(store.get_nodes(asked)) == asked[-6_000:]


def test_a_document_of_six_thousand_chunks_is_deleted_whole(big: Any) -> None:
    store, _ = big
    store.add([node("other", [1.0] * 8, ref="other")])
    store.delete("big")
    assert ids(store.get_nodes()) == ["other"]


# --- access, copies, opening again --------------------------------------------------------------


def test_a_bound_store_lends_no_client_and_binds_no_other(store: FiscalVectorStore) -> None:
    assert isinstance(store.client, ClientAPI)
    assert store.raw_query([1, 0], top_k=1)["ids"] == [[]]
    for mine in (store.for_session("A"), store.for_access(Access.public())):
        for refused in (
            lambda mine=mine: mine.client,
            lambda mine=mine: mine.for_session("B"),
            lambda mine=mine: mine.for_access(Access.public()),
            lambda mine=mine: mine.raw_query([1, 0]),
            lambda mine=mine: mine.list_sessions(),
            lambda mine=mine: mine.delete_session("A"),
        ):
            with pytest.raises(AccessDeniedError):
                refused()


def test_no_attribute_that_decides_access_can_be_set(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    for name in ("access", "view", "client", "bound", "persist_dir", "collection_name", "session_id", "x"):
        with pytest.raises((AttributeError, ValueError)):
            setattr(mine, name, Access.session("B"))
    assert mine.access == Access.session("A")


def test_copies_are_the_store_and_cannot_be_updated(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    for same in (
        copy.copy(mine),
        copy.deepcopy(mine),
        mine.model_copy(),
        mine.model_copy(deep=True),
        mine.copy(),
    ):
        assert same.access == Access.session("A")
        assert same.view is mine.view
    for update in ({"_view": store.view}, {"access": None}, {"bound": False}):
        with pytest.raises(UnexpectedArgumentError):
            mine.model_copy(update=update)
        with pytest.raises(UnexpectedArgumentError):
            mine.copy(update=update)


def test_a_store_is_not_pickled(store: FiscalVectorStore) -> None:
    for opened in (store, store.for_session("A")):
        with pytest.raises(NotPicklableError, match="open it again"):
            pickle.dumps(opened)


def test_a_dict_reopens_the_collection_and_carries_nothing_secret(tmp_path: Path) -> None:
    with open_store(tmp_path, embed_model=HashEmbedder(8)) as store:
        store.add([node("a", text="hola")])
        data = store.to_dict()
    assert data == {
        "class_name": "FiscalVectorStore", "persist_dir": str(tmp_path), "collection_name": "fiscal",
        "default_scope": "public", "bound": False,
    }  # fmt: skip
    with FiscalVectorStore.from_dict(data, embed_model=HashEmbedder(8)) as again:
        assert ids(again.get_nodes()) == ["a"]
        assert again.to_dict() == data
    with pytest.raises(CollectionNotFoundError):
        FiscalVectorStore.from_dict({**data, "collection_name": "typo"})
    with pytest.raises(SettingsError):
        FiscalVectorStore.from_dict({**data, "class_name": "ChromaVectorStore"})


def test_the_dict_of_a_bound_store_does_not_come_back_unbound(store: FiscalVectorStore) -> None:
    mine = store.for_session("secreta-A")
    for data in (mine.to_dict(), mine.model_dump(), mine.dict()):
        assert "secreta-A" not in str(data)
        with pytest.raises(AccessDeniedError, match="bind it again"):
            FiscalVectorStore.from_dict(data)
    assert "secreta-A" not in repr(mine)


def test_what_was_written_is_there_after_reopening_with_the_same_similarities(tmp_path: Path) -> None:
    query = VectorStoreQuery(query_embedding=[0.3, 0.7], similarity_top_k=5)
    with open_store(tmp_path) as store:
        store.add([node("a", [1, 0]), node("b", [0.1, 0.9])])
        store.for_session("A").add([node("c", [0.5, 0.5])])
        before = store.for_session("A").query(query)
    with open_store(tmp_path, create=False) as store:
        after = store.for_session("A").query(query)
    assert (after.ids, after.similarities) == (before.ids, before.similarities)


def test_a_typo_in_the_collection_lists_what_exists(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(CollectionNotFoundError, match="fiscal"):
        FiscalVectorStore.from_params(str(tmp_path), "fiscla", create=False)


def test_an_embedder_of_another_model_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path, embed_model=HashEmbedder(8)) as store:
        store.add([node("a", text="hola")])
    with pytest.raises(CollectionMismatchError, match="hash-8"):
        open_store(tmp_path, embed_model=HashEmbedder(16))


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([node("a", [1, 0])])
        mine = store.for_session("A")
    for closed in (store, mine):
        with pytest.raises(StoreClosedError):
            ask(closed, [1, 0])
    store.close()


def test_an_invalid_default_scope_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="default_scope"):
        open_store(tmp_path, default_scope="private")
    with open_store(tmp_path) as store:
        store.add([node("a", [1, 0])])


# --- async --------------------------------------------------------------------------------------


async def test_every_async_call_does_what_its_twin_does(store: FiscalVectorStore) -> None:
    assert await store.async_add([node("a", [1, 0], ref="d"), node("b", [0, 1], k=1), node("c", [1, 1])]) == [
        "a", "b", "c"
    ]  # fmt: skip
    query = VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=2)
    assert (await store.aquery(query, filter={"k": 1})).ids == ["b"]
    assert ids(await store.aget_nodes(["b", "a"])) == ["b", "a"]
    await store.adelete("d")
    await store.adelete_nodes(["b"])
    assert ids(await store.aget_nodes()) == ["c"]
    await store.aclear()
    assert await store.aget_nodes() == []
    with pytest.raises(TypeError):
        await store.aquery(query, session_id="B")
    with pytest.raises(TypeError):
        await store.adelete_nodes(["b"], session_id="B")


async def test_async_calls_leave_the_event_loop_free(store: FiscalVectorStore) -> None:
    release = threading.Event()

    class Waits(HashEmbedder):
        def embed_query(self, text: str) -> list[float]:
            assert release.wait(20), "the event loop was blocked"
            return [1.0, 0.0]

    store.add([node("a", [1, 0])])
    store.view._corpus.vectorizer.embedder = Waits(2)
    asking = asyncio.create_task(store.aquery(VectorStoreQuery(query_str="x")))
    await asyncio.sleep(0.05)
    release.set()
    assert (await asking).ids == ["a"]


# --- the rest -----------------------------------------------------------------------------------


def test_persist_takes_llama_indexs_call_and_writes_nothing(
    store: FiscalVectorStore, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    store.persist(persist_path=str(tmp_path / "vector_store.json"), fs=None)
    assert sorted(tmp_path.iterdir()) == before


def test_documents_and_sessions_are_listed_within_access(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], ref="ley")])
    store.for_session("A").add([node("b", [1, 0], ref="factura"), node("c", [1, 0], ref="factura")])
    assert [(d.doc_id, d.chunks) for d in store.list_documents()] == [("ley", 1)]
    assert [(d.doc_id, d.chunks) for d in store.for_session("A").list_documents()] == [
        ("ley", 1),
        ("factura", 2),
    ]
    assert store.list_sessions() == [("A", 2)]
    assert store.delete_session("A") == 2
    assert store.list_sessions() == []


def test_the_store_info_describes_real_fields_and_no_access_key(store: FiscalVectorStore) -> None:
    names = [info.name for info in store.store_info().metadata_info]
    assert set(names) < set(chunk("d", "t").metadata.to_store_dict())
    assert not {"source_scope", "session_id"} & set(names)
    store.store_info().metadata_info.clear()
    assert [info.name for info in store.store_info().metadata_info] == names


def test_opening_adding_and_asking_log_no_text_no_vector_and_no_telemetry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), open_store(tmp_path, embed_model=HashEmbedder(8)) as store:
        mine = store.for_session("sesion-secreta")
        mine.add([node("a", text="texto confidencial"), Document(id_="d", text="otro texto confidencial")])
        mine.query(VectorStoreQuery(query_str="texto", similarity_top_k=5))
        mine.add([IndexNode(id_="i", text="texto confidencial", index_id="x")])
        store.client.get_settings()
        assert store.client.get_settings().anonymized_telemetry is False
    for record in caplog.records:
        message = record.getMessage()
        assert "confidencial" not in message
        assert "secreta" not in message
        assert "telemetry" not in f"{record.name} {message}".lower()


def test_without_network_or_embedder_vectors_work_and_a_text_is_a_clear_error(tmp_path: Path) -> None:
    done = run_python(
        f"""
        import os, socket, sys
        os.environ["HOME"] = {str(tmp_path)!r}
        def blocked(*a, **k): raise OSError("network is blocked")
        socket.socket.connect = blocked; socket.create_connection = blocked
        from llama_index.core.schema import TextNode
        from llama_index.core.vector_stores.types import VectorStoreQuery
        from fiscal_rag_plugin import FiscalVectorStore
        from fiscal_rag_plugin.errors import NoEmbedderError
        store = FiscalVectorStore.from_params({str(tmp_path / "db")!r}, "fiscal", default_scope="public")
        store.add([TextNode(id_="a", text="hola", embedding=[1, 0])])
        assert store.query(VectorStoreQuery(query_embedding=[1, 0])).ids == ["a"]
        for ask in (lambda: store.query(VectorStoreQuery(query_str="hola")),
                    lambda: store.as_index().as_retriever().retrieve("hola"),
                    lambda: store.add([TextNode(text="sin vector")])):
            try: ask()
            except NoEmbedderError: pass
            else: sys.exit("no error")
        assert not os.path.exists({str(tmp_path / ".cache" / "chroma")!r})
        store.close()
        print("ok")
        """
    )
    assert done.stdout.strip().endswith("ok"), done.stderr


def test_ids_written_by_two_processes_are_the_same_rows(tmp_path: Path) -> None:
    code = f"""
        from fiscal_rag_plugin import FiscalVectorStore
        from tests.embedders import HashEmbedder
        from tests.llama_nodes import chunk
        with FiscalVectorStore.from_params({str(tmp_path)!r}, "fiscal", embed_model=HashEmbedder(8)) as store:
            print(store.add_chunks([chunk("d", "uno"), chunk("d", "dos")]), len(store.get_nodes()))
        """
    first, second = run_python(code), run_python(code)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.strip().endswith(" 2")


def test_text_nodes_are_accepted_from_anywhere(store: FiscalVectorStore) -> None:
    store.add([TextNode(text="sin id ni metadatos", embedding=[1, 0])])
    assert [n.metadata for n in store.get_nodes()] == [{"source_scope": "public"}]


@pytest.mark.parametrize("collection", [object(), "fiscal", None])
def test_a_collection_or_anything_but_a_view_is_a_type_error_at_construction(collection: object) -> None:
    with pytest.raises(TypeError, match="from_params"):
        FiscalVectorStore(collection)  # type: ignore[arg-type]


def test_an_index_does_not_embed_who_owns_a_node(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    with FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=embedder) as store:
        node = TextNode(
            id_="x", text="hola", metadata={"source_scope": "private", "session_id": "client:17"}
        )
        store.as_index().insert_nodes([node])
        assert embedder.documents == ["hola"]
        assert node.excluded_embed_metadata_keys == [], "the caller's node is left alone"
