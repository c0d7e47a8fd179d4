"""Words beside vectors: the same rules of access, filter and order, after any restart or crash."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

import langchain_fiscal_rag as langchain
from fiscal_rag_plugin import Access, FiscalVectorStore, get_retriever
from fiscal_rag_plugin.drafts import Draft
from fiscal_rag_plugin.engines.base import Condition, Hit
from fiscal_rag_plugin.errors import (
    InvalidQueryError,
    NoEmbedderError,
    StorageError,
    UnsupportedModeError,
)
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import Texts
from fiscal_rag_plugin.lexical import texts as texts_module
from fiscal_rag_plugin.ranking import SearchQuery

from .embedders import HashEmbedder
from .llama_nodes import chunk
from .processes import run_python

LAW = [
    ("ley", "Deducción de inversiones en bienes de equipo", {"tax": "IS"}),
    ("ley", "El tipo general del art. 90 es el 21 por ciento", {"tax": "IVA"}),
    ("ley", "Obligación de presentar el modelo 303 cada trimestre", {"tax": "IVA"}),
    ("ley", "Gastos de suministros de la vivienda habitual", {"tax": "IRPF"}),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def store(path: Path) -> Iterator[FiscalVectorStore]:
    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as opened:
        opened.add_chunks([chunk(doc, text, **fields) for doc, text, fields in LAW])
        for session in "AB":
            texts = [f"Factura de {session} con el modelo 303 y la casilla 0505", f"Nota de {session}"]
            opened.for_session(session).add_chunks([chunk("f", text, session_id=session) for text in texts])
        yield opened


def search(store: FiscalVectorStore, text: str, mode: str = "sparse", **options: Any) -> list[Hit]:
    where = options.pop("where", None)
    query = SearchQuery(text=text, mode=mode, condition=Condition(parse_filter(where)), **options)
    return store.view.search(query).hits


def texts(hits: list[Hit]) -> list[str]:
    return [hit.record.text for hit in hits]


# --- words ----------------------------------------------------------------------------------------


def test_other_forms_of_a_word_find_it_and_a_text_without_any_is_no_hit(store: FiscalVectorStore) -> None:
    assert texts(search(store, "deducciones inversion", top_k=8)) == [LAW[0][1]]
    assert search(store, "palabra inexistente", top_k=8) == []
    assert search(store, "¿qué es lo que?", top_k=8) == []


def test_titles_of_the_document_and_of_the_article_are_searched(store: FiscalVectorStore) -> None:
    titles = {"title": "Ley del Impuesto sobre Sociedades", "section_title": "Reserva de capitalización"}
    store.add_chunks([chunk("lis", "Un diez por ciento.", section_label="Artículo 25", extra=titles)])
    for question in ("sociedades", "reserva de capitalización", "art. 25"):
        assert texts(search(store, question, top_k=1)) == ["Un diez por ciento."]


@pytest.mark.parametrize(
    "question", ["artículo 90", "ART. 90", "el 21 %", "session_id:A OR tipo", '+tipo -"general"']
)
def test_exact_marks_of_tax_law_are_found_and_nothing_is_a_query_language(
    store: FiscalVectorStore, question: str
) -> None:
    assert texts(search(store, question, top_k=1)) == [LAW[1][1]]


def test_a_session_is_scored_with_public_statistics_and_others_do_not_exist(
    store: FiscalVectorStore, path: Path
) -> None:
    mine = store.for_session("A")
    before = [(h.record.id, h.bm25, h.similarity, h.rrf) for h in search(mine, "modelo 303", "hybrid")]
    assert {h.record.session_id for h in search(mine, "modelo 303", "hybrid")} == {None, "A"}
    store.for_session("B").add_chunks(
        [chunk("g", f"modelo 303 repetido {i}", session_id="B") for i in range(30)]
    )
    store.for_session("C").add_chunks([chunk("g", "modelo 303 de C", session_id="C")])
    after = [(h.record.id, h.bm25, h.similarity, h.rrf) for h in search(mine, "modelo 303", "hybrid")]
    assert after == before
    store.delete_session("B")
    again = [(h.record.id, h.bm25, h.similarity, h.rrf) for h in search(mine, "modelo 303", "hybrid")]
    assert again == before


def test_the_same_text_scores_the_same_public_and_private(store: FiscalVectorStore) -> None:
    text = "Prorrateo especial del régimen de deducciones"
    store.add_chunks([chunk("uno", text)])
    store.for_session("A").add_chunks([chunk("dos", text, session_id="A")])
    hits = search(store.for_session("A"), "prorrateo especial", top_k=4)
    assert len(hits) == 2
    assert hits[0].bm25 == hits[1].bm25


def test_no_file_of_the_index_has_a_private_word(store: FiscalVectorStore, path: Path) -> None:
    store.for_session("A").add_chunks([chunk("f", "unicornio confidencial", session_id="A")])
    assert texts(search(store.for_session("A"), "unicornios")) == ["unicornio confidencial"]
    assert search(store, "unicornios") == []
    for file in (path / "lexical").rglob("*"):
        assert not file.is_file() or b"unicorni" not in file.read_bytes()


def test_the_forbidden_never_fill_up_a_large_k(store: FiscalVectorStore) -> None:
    # B14: nodes masked by a score of 0 came back when k was large.
    for mode in ("sparse", "hybrid"):
        for hit in search(store.for_session("A"), "modelo 303 nota factura", mode, top_k=100):
            assert hit.record.session_id in (None, "A")
        assert not [h for h in search(store, "nota factura", mode, top_k=100) if h.record.session_id]


@pytest.mark.parametrize("mode", ["sparse", "hybrid"])
@pytest.mark.parametrize(
    "where",
    [{"tax": "IVA"}, {"tax": {"$ne": "IVA"}}, {"source_scope": "private"}, {"tax": {"$in": []}}],
)
def test_filters_hold_before_the_top_k(store: FiscalVectorStore, mode: str, where: dict[str, Any]) -> None:
    view = store.for_session("A")
    condition = Condition(parse_filter(where))
    everything = search(view, "modelo 303 tipo deducción nota", mode, top_k=50)
    wanted = [h.record.id for h in everything if condition.matches(h.record)]
    found = search(view, "modelo 303 tipo deducción nota", mode, top_k=2, where=where)
    assert [h.record.id for h in found] == wanted[:2]


# --- fusion ---------------------------------------------------------------------------------------


def test_each_hybrid_hit_carries_its_cosine_bm25_ranks_and_fused_value(store: FiscalVectorStore) -> None:
    hits = search(store.for_session("A"), "modelo 303", "hybrid", top_k=6)
    dense = {h.record.id: h for h in search(store.for_session("A"), "modelo 303", "dense", top_k=6)}
    sparse = {h.record.id: h for h in search(store.for_session("A"), "modelo 303", "sparse", top_k=6)}
    assert [h.rrf for h in hits] == sorted((h.rrf for h in hits), reverse=True)
    assert {h.record.id for h in hits} == set(dense) | set(sparse)
    for rank, hit in enumerate(dense.values(), 1):
        fused = next(h for h in hits if h.record.id == hit.record.id)
        assert (fused.similarity, fused.dense_rank) == (hit.similarity, rank)
        own = sparse.get(hit.record.id)
        assert fused.bm25 == (own.bm25 if own else 0.0)
        assert fused.lexical_rank == (own.lexical_rank if own else None)


def test_at_either_end_of_the_weight_the_other_leg_adds_no_hits(store: FiscalVectorStore) -> None:
    words = search(store, "modelo 303", "hybrid", hybrid_weight=0.0)
    assert texts(words) == texts(search(store, "modelo 303", "sparse"))
    vectors = search(store, "modelo 303", "hybrid", hybrid_weight=1.0)
    assert texts(vectors) == texts(search(store, "modelo 303", "dense"))


def test_the_order_is_the_fused_one_and_the_threshold_is_on_the_cosine(store: FiscalVectorStore) -> None:
    everything = search(store, "modelo 303", "hybrid", top_k=4)
    bar = sorted(hit.similarity for hit in everything)[1]
    kept = search(store, "modelo 303", "hybrid", top_k=4, score_threshold=bar)
    assert [h.record.id for h in kept] == [h.record.id for h in everything if h.similarity >= bar - 1e-6]
    assert len(kept) == 3


def test_distinct_chunks_with_equal_text_both_stay(store: FiscalVectorStore) -> None:
    # B59: a fusion keyed by content dropped one of them.
    store.add_chunks(
        [chunk("d1", "Texto repetido sobre aduanas"), chunk("d2", "Texto repetido sobre aduanas")]
    )
    assert len(search(store, "texto repetido aduanas", "hybrid", top_k=2)) == 2
    assert {h.record.ref for h in search(store, "aduanas", "hybrid", top_k=2)} == {"d1", "d2"}


# --- both frameworks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sparse"}, {"mode": "hybrid"}, {"mode": "hybrid", "hybrid_weight": 0.9},
        {"mode": "hybrid", "filter_dict": {"tax": "IVA"}}, {"mode": "hybrid", "score_threshold": 0.2},
    ],
)  # fmt: skip
def test_both_frameworks_give_the_same_hits_with_their_scores(
    store: FiscalVectorStore, options: dict[str, Any]
) -> None:
    given = {"score_threshold": None, "session_id": "A", "include_scores": True, **options}
    nodes = get_retriever(vectorstore=store, **given).retrieve("modelo 303")
    documents = langchain.get_retriever(vectorstore=store, **given).invoke("modelo 303")
    assert [n.node_id for n in nodes] == [d.id for d in documents]
    assert len(nodes) >= 2
    for node, document in zip(nodes, documents, strict=True):
        values = {name: node.metadata[name] for name in ("similarity", "bm25", "rrf")}
        assert values == {name: document.metadata[name] for name in values}
        assert node.score == values["similarity"]
        assert "bm25" not in node.node.get_content(metadata_mode="llm")  # type: ignore[arg-type]


def test_scores_stay_out_of_metadata_unless_asked_for(store: FiscalVectorStore) -> None:
    (node, *_) = get_retriever(vectorstore=store, mode="hybrid", score_threshold=None).retrieve("modelo")
    (document, *_) = langchain.get_retriever(vectorstore=store, mode="hybrid", score_threshold=None).invoke(
        "modelo"
    )
    assert not {"bm25", "rrf", "similarity"} & {*node.metadata, *document.metadata}
    hits = get_retriever(vectorstore=store, mode="hybrid", score_threshold=None).hits("modelo")
    assert isinstance(hits[0], Hit)
    assert hits[0].rrf is not None


def test_llamaindex_query_parameters_mean_what_they_say(store: FiscalVectorStore) -> None:
    def ids(**options: Any) -> list[str]:
        query = VectorStoreQuery(query_str="modelo 303 tipo", query_embedding=None, **options)
        return store.query(query).ids or []

    hybrid = VectorStoreQueryMode.HYBRID
    assert len(ids(mode=hybrid, similarity_top_k=4, hybrid_top_k=2)) == 2
    assert ids(mode=hybrid, similarity_top_k=4, alpha=0.0) == ids(
        mode=VectorStoreQueryMode.SPARSE, similarity_top_k=4
    )
    assert len(ids(mode=VectorStoreQueryMode.SPARSE, similarity_top_k=4, sparse_top_k=1)) == 1
    index = store.as_index()
    nodes = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=3, alpha=0.3).retrieve(
        "modelo 303"
    )
    assert nodes[0].get_content() == LAW[2][1]


@pytest.mark.parametrize("mode", ["svm", "text_search", "semantic_hybrid"])
def test_a_mode_that_does_not_exist_is_named_and_never_runs_as_another(
    store: FiscalVectorStore, mode: str
) -> None:
    with pytest.raises(UnsupportedModeError, match=mode):
        store.query(VectorStoreQuery(query_str="x", mode=VectorStoreQueryMode(mode)))


def test_modes_with_words_need_a_text(store: FiscalVectorStore) -> None:
    with pytest.raises(InvalidQueryError, match="text"):
        store.view.search(SearchQuery(vector=[1.0] * 64, mode="hybrid"))


def test_words_can_be_searched_without_a_model(store: FiscalVectorStore, path: Path) -> None:
    store.close()
    with FiscalVectorStore.from_params(str(path)) as bare:
        (hit,) = search(bare, "modelo 303", top_k=1)
        assert math.isnan(hit.similarity)
        assert hit.score is None
        query = VectorStoreQuery(query_str="modelo 303", mode=VectorStoreQueryMode.SPARSE)
        assert bare.query(query).similarities == [None]
        with pytest.raises(NoEmbedderError):
            search(bare, "modelo 303", "hybrid")
        with pytest.raises(NoEmbedderError):
            search(bare, "modelo 303", score_threshold=0.5)


# --- kept in step ---------------------------------------------------------------------------------


def test_a_new_process_finds_an_exact_term_without_any_docstore(
    store: FiscalVectorStore, path: Path
) -> None:
    # B61, B62.
    store.close()
    done = run_python(
        f"""
        import socket
        def refuse(*a, **k): raise OSError("no network here")
        socket.socket.connect = refuse
        from tests.embedders import HashEmbedder
        from fiscal_rag_plugin import FiscalVectorStore, get_retriever
        with FiscalVectorStore.from_params({str(path)!r}, embed_model=HashEmbedder(), create=False) as store:
            found = get_retriever(vectorstore=store, mode="hybrid", score_threshold=None).retrieve("casilla modelo 303")
            print(found[0].get_content())
        """
    )
    assert done.stdout.strip() == LAW[2][1], done.stderr


@pytest.mark.parametrize("at", [1, 256])
def test_replacements_deletes_and_metadata_changes_reach_the_words(
    store: FiscalVectorStore, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(texts_module, "INDEX_AT", at)
    store.replace_document("ley", [chunk("ley", "Nuevo texto sobre plusvalías", tax="IIVTNU")])
    assert search(store, "modelo 303") == []
    assert texts(search(store, "plusvalía", where={"tax": "IIVTNU"})) == ["Nuevo texto sobre plusvalías"]
    store.add(
        [
            TextNode(
                id_="n",
                text="texto fijo sobre herencias",
                metadata={"tax": "ISD", "source_scope": "public"},
            )
        ]
    )
    assert len(search(store, "herencia", where={"tax": "ISD"})) == 1
    store.add(
        [
            TextNode(
                id_="n",
                text="texto fijo sobre herencias",
                metadata={"tax": "otro", "source_scope": "public"},
            )
        ]
    )
    assert search(store, "herencia", where={"tax": "ISD"}) == []
    assert len(search(store, "herencia", where={"tax": "otro"})) == 1
    store.delete_nodes(["n"])
    assert search(store, "herencia") == []
    store.clear()
    assert search(store, "plusvalía") == []


def test_what_a_write_did_not_index_is_indexed_before_the_next_search(
    store: FiscalVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(store, "modelo")
    monkeypatch.setattr(texts_module, "INDEX_AT", 1)

    def dies(self: Texts, view: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Texts, "mend", dies)
        with pytest.raises(KeyboardInterrupt):
            store.add_chunks([chunk("tarde", "Régimen especial de recargo de equivalencia")])
    assert texts(search(store, "recargo equivalencia")) == ["Régimen especial de recargo de equivalencia"]


def test_an_index_written_before_there_were_words_gets_them(store: FiscalVectorStore, path: Path) -> None:
    search(store, "modelo")
    store.close()
    shutil.rmtree(path / "lexical")
    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as again:
        assert texts(search(again, "modelo 303")) == [LAW[2][1]]


def test_other_processes_see_what_is_written_and_may_index_it(store: FiscalVectorStore, path: Path) -> None:
    search(store, "modelo")
    code = f"""
        from tests.embedders import HashEmbedder
        from fiscal_rag_plugin import FiscalVectorStore
        from fiscal_rag_plugin.ranking import SearchQuery
        with FiscalVectorStore.from_params({str(path)!r}, embed_model=HashEmbedder()) as store:
            print([h.record.text for h in store.view.search(SearchQuery(text="aduanas", mode="sparse")).hits])
        """
    store.add_chunks([chunk("x", "Aranceles en aduanas")])
    assert run_python(code).stdout.strip() == "['Aranceles en aduanas']"
    store.add_chunks([chunk("y", "Otra vez aduanas")])
    assert len(search(store, "aduanas")) == 2
    assert "Otra vez" in run_python(code).stdout


# --- failures -------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    for file in (path / "lexical").rglob("*"):
        if file.suffix in (".term", ".store", ".json"):
            file.write_bytes(b"")


def test_a_damaged_index_is_an_error_that_says_what_to_do_and_repair_does_it(
    store: FiscalVectorStore, path: Path
) -> None:
    search(store, "modelo")
    store.close()
    damage(path)
    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as again:
        for mode in ("sparse", "hybrid"):
            with pytest.raises(StorageError, match="repair"):
                search(again, "modelo 303", mode)
        assert search(again, "modelo 303", "dense")
        assert any("repair" in problem for problem in again.view.check())
        assert again.view.repair() == len(LAW)
        assert texts(search(again, "modelo 303")) == [LAW[2][1]]
        assert again.view.check() == []


def test_degrading_is_a_choice_and_the_result_says_so(store: FiscalVectorStore, path: Path) -> None:
    search(store, "modelo")
    dense = search(store, "modelo 303", "dense")
    store.close()
    damage(path)
    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as again:
        query = SearchQuery(text="modelo 303", mode="hybrid", on_lexical_failure="dense")
        result = again.view.search(query)
        assert [h.record.id for h in result.hits] == [h.record.id for h in dense]
        assert "lexical index" in result.degraded
        assert all(hit.bm25 is None for hit in result.hits)
        retriever = get_retriever(
            vectorstore=again, mode="hybrid", score_threshold=None, on_lexical_failure="dense"
        )
        assert len(retriever.retrieve("modelo 303")) == len(dense)
        wrong = SearchQuery(text="x", on_lexical_failure="ignore")
        with pytest.raises(InvalidQueryError, match="on_lexical_failure"):
            again.view.search(wrong)


def test_an_edited_row_is_no_hit_of_words_either(store: FiscalVectorStore) -> None:
    (hit,) = search(store, "modelo 303", top_k=1)
    collection = store.client.get_collection("fiscal", embedding_function=None)
    collection.update(ids=[hit.record.id], metadatas=[{"source_scope": "private"}])
    assert search(store, "modelo 303", top_k=1) == []
    assert hit.record.id not in {h.record.id for h in search(store, "modelo 303", "hybrid")}


def test_answers_in_words_equal_those_of_every_text_scored_by_itself(tmp_path: Path) -> None:
    """An oracle: each permitted, matching text scored alone, with the statistics of all public ones."""
    from fiscal_rag_plugin.lexical import Bag, Statistics, analyse, question_tokens, scores

    generator = np.random.default_rng(11)
    vocabulary = [f"palabra{i}" for i in range(40)]
    with FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=HashEmbedder()) as store:
        for session in (None, "A", "B"):
            made = [
                chunk(
                    f"d{i % 5}", " ".join(generator.choice(vocabulary, size=int(generator.integers(3, 30)))) + f" {i}",
                    session_id=session, tax=("IVA", "IRPF")[i % 2],
                )
                for i in range(80)
            ]  # fmt: skip
            (store if session is None else store.for_session(session)).add_chunks(made)
        everything = [
            *store.view.scan(),
            *store.for_session("A").view.scan(Condition(parse_filter({"source_scope": "private"}))),
        ]
        bags = {r.key: Bag.of(analyse(r.text)) for r in everything}
        public = [bags[r.key] for r in everything if r.scope == "public"]
        for number in range(30):
            words = generator.choice(vocabulary, size=3)
            where = [None, {"tax": "IVA"}, {"doc_id": "d3"}, {"tax": {"$ne": "IVA"}}][number % 4]
            condition = Condition(parse_filter(where))
            tokens = question_tokens(" ".join(words))
            known = Statistics(
                len(public), sum(b.length for b in public) / len(public),
                {t: sum(t in b.counts for b in public) for t in tokens},
            )  # fmt: skip
            permitted = [r for r in everything if condition.matches(r)]
            values = scores(tokens, [bags[r.key] for r in permitted], known).tolist()
            expected = sorted(((-v, r.id, r.key) for v, r in zip(values, permitted, strict=True) if v > 0))[
                :7
            ]
            found = search(store.for_session("A"), " ".join(words), top_k=7, where=where)
            assert [(-float(h.bm25 or 0), h.record.id, h.record.key) for h in found] == expected


def test_access_of_several_sessions_and_of_none(store: FiscalVectorStore) -> None:
    both = store.for_access(Access(["A", "B"]))
    assert {h.record.session_id for h in search(both, "factura")} == {"A", "B"}
    assert search(store.for_access(Access()), "factura") == []


@pytest.mark.parametrize("session", [None, "A"])
def test_a_hybrid_ranks_vectors_exactly_though_distances_come_first(
    tmp_path: Path, session: str | None
) -> None:
    """Rows that lie nearer to each other than Chroma's distances are exact, public and private mixed."""
    generator = np.random.default_rng(5)
    near = generator.normal(size=64)
    with FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=HashEmbedder()) as store:
        for owner in (None, "A", "B"):
            # A walk of small steps: neighbours differ by some 1e-6, and some are equal.
            steps = np.cumsum(generator.choice([0.0, 1e-6, 1e-5, 1e-3], size=(60, 64)), axis=0)
            rows = (near + steps).astype(np.float32)
            made = [
                chunk(f"d{i}", f"palabra{i % 3} {owner} {i}", session_id=owner, tax=("IVA", "IS")[i % 2])
                for i in range(60)
            ]
            (store if owner is None else store.for_session(owner)).add_chunks(made, vectors=rows)
        view = store.for_access(Access([] if session is None else [session])).view
        for where in (
            None,
            {"tax": "IVA"},
            {"doc_id": {"$in": [f"d{i}" for i in range(9)]}},
            {"tax": {"$ne": "IS"}},
        ):
            condition = Condition(parse_filter(where))
            for k in (1, 5, 40):
                vector = near + generator.normal(size=64) * 0.01
                dense = view.search(SearchQuery(vector, top_k=max(k, 50), condition=condition)).hits
                query = SearchQuery(vector, "palabra1", k, mode="hybrid", condition=condition)
                place = {hit.record.key: rank for rank, hit in enumerate(dense, 1)}
                for hit in view.search(query).hits:
                    assert hit.dense_rank == place.get(hit.record.key)
                    if hit.dense_rank:
                        assert hit.similarity == dense[hit.dense_rank - 1].similarity


# --- faults ---------------------------------------------------------------------------------------


def unwritable(path: Path) -> Path:
    """Put a file where the index is."""
    index = path / "lexical" / "fiscal"
    index.rename(index.with_name("aside"))
    index.write_text("")
    return index


def test_a_public_write_whose_words_cannot_be_indexed_stays_and_is_found_later(
    store: FiscalVectorStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = texts(search(store, "modelo 303"))
    index = unwritable(path)
    store.add_chunks([chunk("n", f"manzana {i}") for i in range(300)])
    assert "not searched yet" in caplog.text
    assert store.delete(ref_doc_id="ley") is None
    with pytest.raises(StorageError):
        search(store, "manzana")
    index.unlink()
    index.with_name("aside").rename(index)
    assert len(search(store, "manzana", top_k=400)) == 300
    assert before == [LAW[2][1]]
    assert search(store, "modelo 303") == []
    assert store.view.check() == []


def test_what_a_failed_write_left_in_memory_is_never_indexed(
    store: FiscalVectorStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = {"source_scope": "public"}

    def nodes(word: str) -> list[TextNode]:
        return [TextNode(id_=f"n{i}", text=f"{word} {i}", metadata=scope) for i in range(2)]

    def fails(*_: Any) -> None:
        raise StorageError("the disk is full")

    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as other:
        with monkeypatch.context() as broken:
            broken.setattr(Texts, "commit", fails)
            with pytest.raises(StorageError, match="full"):
                store.add(nodes("manzana"))
        other.add(nodes("pera"))
        for reader in (store, other):
            assert search(reader, "manzana") == []
            assert texts(search(reader, "pera")) == ["pera 0", "pera 1"]
            assert reader.view.check() == []


def test_check_sees_words_that_are_not_those_of_the_stored_texts(
    store: FiscalVectorStore, path: Path
) -> None:
    search(store, "modelo")
    shutil.copytree(path / "lexical", path.parent / "old")
    store.add_chunks([chunk("n", "pera nueva")])
    search(store, "pera")
    store.close()
    shutil.rmtree(path / "lexical")
    shutil.move(path.parent / "old", path / "lexical")
    with FiscalVectorStore.from_params(str(path), embed_model=HashEmbedder()) as again:
        assert any("words of 1 public chunks are out of date" in line for line in again.view.check())
        again.view.repair()
        assert again.view.check() == []
        assert texts(search(again, "pera")) == ["pera nueva"]


def test_an_index_removed_under_an_open_store_is_made_anew(store: FiscalVectorStore, path: Path) -> None:
    assert texts(search(store, "modelo 303")) == [LAW[2][1]]
    shutil.rmtree(path / "lexical")
    assert texts(search(store, "modelo 303")) == [LAW[2][1]]


def test_repair_replaces_a_file_that_stands_in_the_place_of_the_index(
    store: FiscalVectorStore, path: Path
) -> None:
    search(store, "modelo")
    unwritable(path)
    assert store.view.repair() == len(LAW)
    assert texts(search(store, "modelo 303")) == [LAW[2][1]]


def test_a_collection_name_longer_than_a_file_name_can_be_has_words_too(tmp_path: Path) -> None:
    for name in ("a" * 512, "a" * 511 + "b"):
        opened = FiscalVectorStore.from_params(str(tmp_path / "db"), name, embed_model=HashEmbedder())
        with opened as store:
            store.add_chunks([chunk("d", f"modelo 303 de {name[-1]}")])
            assert texts(search(store, "303")) == [f"modelo 303 de {name[-1]}"]


def test_an_expired_upload_takes_no_rank(store: FiscalVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    view = store.for_session("A").view
    now = time.time()
    short = [chunk("e", f"pera {i} pera", session_id="A") for i in range(30)]
    view.write([Draft.of_chunk(upload, expires_at=now + 3600) for upload in short])
    view.add_chunks([chunk("k", "pera y nada más que una sola vez aquí", session_id="A")])
    query = SearchQuery(text="pera", top_k=1, mode="sparse")
    assert "pera y nada" not in view.search(query).hits[0].record.text
    monkeypatch.setattr(time, "time", lambda: now + 7200)
    (hit,) = view.search(query).hits
    assert (hit.record.text[:11], hit.lexical_rank) == ("pera y nada", 1)


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
def test_half_a_character_is_refused_in_filters_and_matches_no_id(
    store: FiscalVectorStore, mode: str
) -> None:
    from fiscal_rag_plugin.errors import InvalidFilterError

    for where in ({"tax": "\ud800"}, {"tax": {"$in": ["IVA", "\ud800"]}}):
        with pytest.raises(InvalidFilterError, match="surrogate"):
            search(store, "modelo", mode, where=where)
    for condition in (Condition(ids=frozenset(["\ud800"])), Condition(doc_ids=frozenset(["\ud800"]))):
        assert store.view.search(SearchQuery(text="modelo", mode=mode, condition=condition)).hits == []
    store.delete_nodes(["\ud800"])
    assert store.get_nodes(["\ud800"]) == []
    store.delete("\ud800")
    assert store.view.stats().public_chunks == len(LAW)


def test_explain_keeps_the_ranks_and_the_fused_value_of_what_is_answered(store: FiscalVectorStore) -> None:
    result, candidates = store.view.explain(SearchQuery(text="modelo 303", mode="hybrid", top_k=2))
    assert [c.hit for c in candidates[:2]] == result.hits
    assert candidates[0].hit.rrf == pytest.approx(1 / 61, abs=1e-3)


def test_explain_says_which_candidates_have_no_word_of_the_question(store: FiscalVectorStore) -> None:
    _, candidates = store.view.explain(SearchQuery(text="inversiones", mode="sparse"))
    said = {c.hit.record.text: c.decision for c in candidates}
    assert said[LAW[0][1]] == "kept, rank 1"
    assert said[LAW[3][1]] == "has no word of the question"
