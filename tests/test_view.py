"""The values that must hold, through the one door: a corpus and its views."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata, chunk_id
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    CollectionMismatchError,
    FiscalRagError,
    InvalidChunkError,
    InvalidQueryError,
    InvalidVectorError,
    NoEmbedderError,
    NotPicklableError,
    UnsupportedModeError,
)
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder


def chunk(text: str, session: str | None = None, doc: str = "d.md", **fields: Any) -> Chunk:
    scope = "public" if session is None else "private"
    metadata = ChunkMetadata(doc_id=doc, doc_type="guide", source_scope=scope, session_id=session, **fields)  # type: ignore[arg-type]
    return Chunk(text, f"Guía\n{text}", metadata, 0, len(text))


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(32)


@pytest.fixture
def store(tmp_path: Path, embedder: HashEmbedder) -> Iterator[View]:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=embedder))
    yield view
    view.close()


def found(view: View, vector: Any = (1.0, 0.0), where: Any = None, **query: Any) -> list[str]:
    condition = Condition(parse_filter(where))
    result = view.search(SearchQuery(vector, **{"top_k": 50, **query}, condition=condition))
    return [hit.record.text for hit in result.hits]


def add(store: View, rows: list[tuple[Chunk, list[float]]]) -> list[str]:
    return store.add_chunks([c for c, _ in rows], vectors=[v for _, v in rows])


@pytest.mark.parametrize(("threshold", "expected"), [(None, 3), (0.5, 2), (0.7, 1), (-1, 3)])
def test_the_threshold_keeps_what_is_at_least_as_similar(
    store: View, threshold: Any, expected: int
) -> None:
    add(store, [(chunk("a"), [1, 0]), (chunk("b"), [0.6, 0.8]), (chunk("c"), [-1, 0])])
    assert len(found(store, score_threshold=threshold)) == expected


def test_an_exact_cosine_of_0_82_passes_0_82(store: View) -> None:
    add(store, [(chunk("a"), [0.82, (1 - 0.82**2) ** 0.5])])
    assert found(store, score_threshold=0.82) == ["a"]
    assert found(store, score_threshold=0.8201) == []


def test_the_threshold_comes_after_top_k_and_never_loosens(
    store: View, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, [(chunk("a"), [0.6, 0.8]), (chunk("b"), [0.5, 0.866])])
    with caplog.at_level(logging.WARNING):
        assert found(store, top_k=1, score_threshold=0.9) == []
    assert "cut all 1 hits; the best similarity was 0.6000" in caplog.text


@pytest.fixture
def mixed(store: View) -> View:
    add(store, [(chunk("público"), [0, 1]), (chunk("de A", "A"), [0.6, 0.8]), (chunk("de B", "B"), [1, 0])])
    return store


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["de A", "público"]),
        ({}, ["de A", "público"]),
        ({"session_id": "B"}, []),
        ({"source_scope": "private"}, ["de A"]),
        ({"$or": [{"source_scope": "public"}, {"source_scope": "private"}]}, ["de A", "público"]),
        ({"$or": [{"session_id": "B"}, {"source_scope": "public"}]}, ["público"]),
        ({"session_id": {"$ne": "A"}}, ["público"]),
        ({"$not": {"session_id": "A"}}, ["público"]),
        ({"session_id": {"$in": ["A", "B"]}}, ["de A"]),
        ({"session_id": None}, ["público"]),
    ],
)
def test_a_filter_only_narrows_what_access_permits(mixed: View, where: Any, expected: list[str]) -> None:
    assert found(mixed.for_session("A"), where=where) == expected


def test_nobody_elses_nearer_chunk_takes_a_place(mixed: View) -> None:
    assert found(mixed.for_session("A"), top_k=1) == ["de A"]
    assert found(mixed) == ["público"]
    assert found(mixed.for_access(Access())) == ["público"]
    assert found(mixed.for_access(Access({"A", "B"}, "A"))) == ["de B", "de A", "público"]


@pytest.mark.parametrize("other", ["a", " A ", "AA"])
def test_sessions_that_look_alike_are_others(mixed: View, other: str) -> None:
    assert found(mixed.for_session(other)) == ["público"]


def test_the_same_caller_id_in_two_sessions_and_public_is_three_rows(store: View) -> None:
    from fiscal_rag_plugin.drafts import Draft
    from fiscal_rag_plugin.engines.base import Record

    def put(view: View, scope: Any, session: str | None, text: str) -> None:
        view.write([Draft(Record("1", scope, session, None, text, {}, "node"), text, [1.0, 0.0])])

    a, b = store.for_session("A"), store.for_session("B")
    put(store, "public", None, "público")
    put(a, "private", "A", "de A")
    put(b, "private", "B", "de B")
    assert [r.text for r in a.get(["1"])] == ["público", "de A"]
    assert [r.text for r in b.get(["1"])] == ["público", "de B"]
    assert b.delete(Condition(ids=frozenset(["1"]))) == 1
    assert [r.text for r in a.get(["1"])] == ["público", "de A"]
    assert [r.text for r in b.get(["1"])] == ["público"]


def test_a_view_writes_and_deletes_its_own_session_only(mixed: View) -> None:
    a = mixed.for_session("A")
    for theirs in (chunk("x"), chunk("x", "B")):
        with pytest.raises(AccessDeniedError):
            a.add_chunks([theirs])
        with pytest.raises(AccessDeniedError):
            a.replace_document("d.md", [theirs])
    assert a.delete(Condition()) == 1
    assert found(mixed.for_session("B")) == ["de B", "público"]
    reader = mixed.for_access(Access({"B"}))
    with pytest.raises(AccessDeniedError):
        reader.delete(Condition())
    with pytest.raises(AccessDeniedError):
        reader.add_chunks([chunk("x", "B")])


@pytest.mark.parametrize(
    "metadata",
    [
        {"source_scope": "public"},
        {"session_id": "B"},
        {"source_scope": "private", "session_id": "B"},
        {"source_scope": ["private"]},
    ],
)
def test_metadata_that_claims_another_place_is_refused_on_a_view(
    mixed: View, metadata: dict[str, Any]
) -> None:
    with pytest.raises(AccessDeniedError):
        mixed.for_session("A").placed(metadata)


def test_an_unbound_store_wants_to_be_told_the_scope(store: View, tmp_path: Path) -> None:
    with pytest.raises(InvalidChunkError, match="default_scope"):
        store.placed({})
    assert store.placed({"source_scope": "private", "session_id": "A"}) == ("private", "A")
    public = View(Corpus.open(str(tmp_path / "db"), "fiscal"), default_scope="public")
    assert public.placed({}) == ("public", None)
    with pytest.raises(InvalidChunkError):
        public.placed({"session_id": "A"})
    public.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda v: v.for_session("B"),
        lambda v: v.for_access(Access({"B"})),
        lambda v: v.delete_session("A"),
        lambda v: v.list_sessions(),
        lambda v: v.raw_query([1.0, 0.0]),
        lambda v: v.narrowed(session_id="B"),
        lambda v: v.narrowed(access=Access({"A", "B"}, "A")),
        lambda v: v.narrowed(session_id="A", access=Access.session("A")),
    ],
)
def test_what_is_the_operators_is_refused_to_a_view(mixed: View, use: Any) -> None:
    with pytest.raises(AccessDeniedError):
        use(mixed.for_session("A"))


def test_a_view_stays_what_it_is(mixed: View) -> None:
    a = mixed.for_session("A")
    for name in ("access", "default_scope", "other"):
        with pytest.raises(AttributeError):
            setattr(a, name, Access.session("B"))
    assert copy.copy(a).access == copy.deepcopy(a).access == Access.session("A")
    with pytest.raises(NotPicklableError):
        pickle.dumps(a)
    assert a.narrowed() is a
    assert a.narrowed(session_id="A") is a
    assert "session" not in repr(a) or "'A'" not in repr(a)


def test_chunks_stored_already_are_not_embedded_again(store: View, embedder: HashEmbedder) -> None:
    chunks = [chunk("uno", page=1), chunk("dos")]
    assert store.add_chunks([*chunks, chunks[0]]) == [chunk_id(c) for c in [*chunks, chunks[0]]]
    assert len(embedder.documents) == 2
    store.add_chunks([chunk("uno", page=1, retrieved_at="2026-11-30"), chunk("tres")])
    assert embedder.documents == ["Guía\nuno", "Guía\ndos", "Guía\ntres"]
    stored = {r.text: r.metadata["retrieved_at"] for r in store.scan()}
    assert stored == {"uno": "2026-11-30", "dos": "", "tres": ""}
    assert store.add_chunks([]) == []


def test_the_text_that_is_stored_is_the_sources_and_not_what_was_embedded(
    store: View, tmp_path: Path
) -> None:
    store.add_chunks([chunk("texto literal")])
    raw = store.raw_query(HashEmbedder(32).embed_query("texto literal"), top_k=1)
    assert raw["documents"] == [["texto literal"]]
    assert raw["distances"][0][0] == pytest.approx(0, abs=0.5)
    store.close()
    everything = b"".join(p.read_bytes() for p in (tmp_path / "db").rglob("*") if p.is_file())
    assert "Guía\ntexto literal".encode() not in everything


def test_a_source_is_replaced_by_its_new_version_alone(store: View) -> None:
    store.replace_document("d.md", [chunk("viejo 1"), chunk("igual")])
    store.replace_document("d.md", [chunk("viejo privado", "A")])
    store.add_chunks([chunk("otro", doc="e.md")])
    report = store.replace_document("d.md", [chunk("igual"), chunk("nuevo")])
    assert (report.embedded, report.kept, report.removed) == (1, 1, 1)
    assert sorted(r.text for r in store.scan()) == ["igual", "nuevo", "otro"]
    assert [
        r.text for r in store.for_session("A").scan(Condition(parse_filter({"source_scope": "private"})))
    ] == ["viejo privado"]
    with pytest.raises(InvalidChunkError):
        store.replace_document("d.md", [chunk("ajeno", doc="e.md")])


class Failing(HashEmbedder):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        made = super().embed_documents(texts)
        if any("roto" in text for text in texts):
            made[-1] = [float("nan")] * self.dimension
        if any("error" in text for text in texts):
            raise RuntimeError("no memory")
        return made[:-1] if any("pocos" in text for text in texts) else made


@pytest.mark.parametrize("text", ["roto", "error", "pocos"])
@pytest.mark.parametrize("session", [None, "A"])
def test_when_embedding_fails_nothing_is_written_and_the_old_version_answers(
    tmp_path: Path, text: str, session: str | None
) -> None:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=Failing(32)))
    view.replace_document("d.md", [chunk("v1", session)])
    reader = view if session is None else view.for_session(session)
    with pytest.raises((FiscalRagError, RuntimeError)):
        view.replace_document("d.md", [chunk("bueno", session), chunk(text, session)])
    assert [r.text for r in reader.scan()] == ["v1"]
    view.replace_document("d.md", [chunk("v2", session)])
    assert [r.text for r in reader.scan()] == ["v2"]
    view.close()


@pytest.mark.parametrize("vector", [[float("nan"), 0], [float("inf"), 0], [1e39, 0], [0, 0], [1, 0, 0]])
def test_a_bad_vector_is_refused_before_anything_is_written_or_asked(
    store: View, vector: list[float]
) -> None:
    add(store, [(chunk("a"), [1, 0])])
    with pytest.raises(InvalidVectorError):
        add(store, [(chunk("b"), [0, 1]), (chunk("c"), vector)])
    with pytest.raises(InvalidVectorError):
        found(store, vector)
    assert [r.text for r in store.scan()] == ["a"]


@pytest.mark.parametrize(
    "query",
    [
        {"top_k": 0}, {"top_k": True}, {"top_k": 2.0}, {"top_k": -1}, {"score_threshold": 1.1},
        {"score_threshold": float("nan")}, {"score_threshold": True}, {"score_threshold": "0.8"},
        {"mmr_threshold": 2}, {"mmr_prefetch_k": 0}, {"vector": None, "text": " "}, {"vector": None}, {"vector": None, "text": {"question": "x"}}, {"score_threshold": 10**400},
    ],
)  # fmt: skip
def test_a_query_out_of_range_is_refused(mixed: View, query: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueryError):
        mixed.search(SearchQuery(**{"vector": [1.0, 0.0], **query}))


@pytest.mark.parametrize("mode", ["semantic_hybrid", "svm", "", None])
def test_a_mode_that_is_not_offered_is_an_error_that_names_it(mixed: View, mode: Any) -> None:
    with pytest.raises(UnsupportedModeError, match=repr(mode)):
        mixed.search(SearchQuery([1.0, 0.0], mode=mode))


def test_mmr_chooses_among_both_partitions(store: View) -> None:
    add(
        store,
        [(chunk("a"), [1, 0]), (chunk("gemelo", "A"), [0.999, 0.01]), (chunk("distinto", "A"), [0.7, 0.7])],
    )
    a = store.for_session("A")
    assert found(a, mode="mmr", top_k=2, mmr_threshold=0.3) == ["a", "distinto"]
    assert found(store, mode="mmr", top_k=2, mmr_threshold=0.3) == ["a"]


def test_another_model_is_refused_and_an_undeclared_one_is_not(store: View, tmp_path: Path) -> None:
    store.add_chunks([chunk("a")])
    with pytest.raises(CollectionMismatchError, match="hash-32"):
        Corpus.open(str(tmp_path / "db"), "fiscal", embedder=HashEmbedder(64))

    class Undeclared(HashEmbedder):
        def __init__(self) -> None:
            super().__init__(32)
            del self.model_id

    other = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=Undeclared()))
    assert other.search(SearchQuery(text="a")).hits
    other.close()


def test_without_an_embedder_vectors_work_and_texts_are_a_clear_error(tmp_path: Path) -> None:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    add(view, [(chunk("a"), [1, 0])])
    assert found(view) == ["a"]
    with pytest.raises(NoEmbedderError, match="embed"):
        view.search(SearchQuery(text="¿Qué gastos?"))
    with pytest.raises(NoEmbedderError):
        view.add_chunks([chunk("b")])
    view.close()


def test_explain_says_of_every_candidate_why_it_was_kept_or_dropped(mixed: View) -> None:
    query = SearchQuery([1.0, 0.0], top_k=1, condition=Condition(parse_filter({"source_scope": "private"})))
    _, explained = mixed.for_session("A").explain(query)
    assert [(e.hit.record.text, e.decision) for e in explained] == [
        ("de A", "kept, rank 1"),
        ("público", "dropped by the filter"),
    ]
    _, explained = mixed.for_session("A").explain(SearchQuery([1.0, 0.0], top_k=1, score_threshold=0.5))
    assert [e.decision for e in explained] == ["kept, rank 1", "below score_threshold 0.5"]
    _, explained = mixed.for_access(Access({"A", "B"})).explain(SearchQuery([1.0, 0.0], top_k=2))
    assert [e.decision for e in explained] == ["kept, rank 1", "kept, rank 2", "beyond top_k 2"]


def test_list_documents_is_what_the_caller_may_see(mixed: View) -> None:
    assert [(d.doc_id, d.source_scope, d.chunks) for d in mixed.for_session("A").list_documents()] == [
        ("d.md", "public", 1),
        ("d.md", "private", 1),
    ]
    assert len(mixed.list_documents()) == 1
    assert mixed.list_sessions() == [("A", 1), ("B", 1)]


def test_only_private_chunks_expire(store: View) -> None:
    with pytest.raises(InvalidChunkError, match="only private"):
        store.replace_document("d.md", [chunk("a")], expires_at=2e9)
