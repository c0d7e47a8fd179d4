from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore

from fiscal_rag_plugin import FiscalVectorStore
from fiscal_rag_plugin.errors import AccessDeniedError, InvalidChunkError, NoEmbedderError
from fiscal_rag_plugin.llama import FiscalEmbedding, FiscalIngestionPipeline

from .embedders import HashEmbedder
from .llama_nodes import open_store

STRATEGIES = list(DocstoreStrategy)


class Fails(HashEmbedder):
    """An embedder that can be told to fail at the n-th text from now."""

    def __init__(self) -> None:
        super().__init__(16)
        self.fail_at: int | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        for _ in texts:
            if self.fail_at is not None:
                self.fail_at -= 1
                if self.fail_at < 0:
                    raise RuntimeError("the model broke")
        return super().embed_documents(texts)


@pytest.fixture
def embedder() -> Fails:
    return Fails()


@pytest.fixture
def store(tmp_path: Path, embedder: Fails) -> Any:
    with open_store(tmp_path, embed_model=embedder) as opened:
        yield opened


def docs(**texts: str) -> list[Document]:
    return [Document(id_=id, text=text) for id, text in texts.items()]


def pipeline(store: Any, *, kind: type[IngestionPipeline] = FiscalIngestionPipeline, **options: Any) -> Any:
    """One node a document; the embedding is a transformation unless ``embed=False``."""
    embed = options.pop("embed", True)
    steps: list[Any] = [SentenceSplitter(chunk_size=64, chunk_overlap=0)]
    if embed:
        steps.append(FiscalEmbedding(store.view.embedder))
    options.setdefault("docstore", SimpleDocumentStore())
    return kind(transformations=steps, vector_store=store, **options)


def stored(store: FiscalVectorStore) -> list[tuple[str | None, str]]:
    return sorted((n.ref_doc_id or "", n.get_content()) for n in store.get_nodes())


def ran(pipe: IngestionPipeline, documents: list[Document], *, in_async: bool = False) -> list[str]:
    """Texts of the nodes that a run made."""
    nodes = asyncio.run(pipe.arun(documents=documents)) if in_async else pipe.run(documents=documents)
    return sorted(n.get_content() for n in nodes)


RUNS = [
    docs(a="uno", b="dos", c="tres"),
    docs(a="uno", b="dos", c="tres"),
    docs(a="uno", b="DOS", d="tres"),
    docs(b="DOS", e="cinco"),
]


@pytest.mark.parametrize("in_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
def test_every_strategy_makes_and_stores_what_the_stock_pipeline_does(
    tmp_path: Path, embedder: Fails, strategy: DocstoreStrategy, in_async: bool
) -> None:
    results = []
    for kind in (IngestionPipeline, FiscalIngestionPipeline):
        with open_store(tmp_path / kind.__name__, embed_model=embedder) as store:
            pipe = pipeline(store, kind=kind, docstore_strategy=strategy)
            history = []
            for run in RUNS:
                made = ran(pipe, run, in_async=in_async)
                known = sorted(pipe.docstore.get_all_document_hashes().values())
                history.append((made, stored(store), known))
            results.append(history)
    assert results[1] == results[0]
    assert results[1][1][0] == [], "an unchanged run made nodes"


@pytest.mark.parametrize("in_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("embed", [True, False], ids=["embedding step", "store embeds"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
@pytest.mark.parametrize("fail_at", [0, 1])
def test_a_run_that_fails_leaves_the_old_version_and_can_be_repeated(
    store: FiscalVectorStore, embedder: Fails, strategy: DocstoreStrategy, embed: bool, in_async: bool,
    fail_at: int,
) -> None:  # fmt: skip
    pipe = pipeline(store, docstore_strategy=strategy, embed=embed)
    ran(pipe, docs(a="uno v1", b="dos v1"), in_async=in_async)
    before = stored(store)
    embedder.fail_at = fail_at
    with pytest.raises(RuntimeError, match="broke"):
        ran(pipe, docs(a="uno v2", b="dos v2"), in_async=in_async)
    assert stored(store) == before
    embedder.fail_at = None
    assert ran(pipe, docs(a="uno v2", b="dos v2"), in_async=in_async) == ["dos v2", "uno v2"]
    old = before if strategy == DocstoreStrategy.DUPLICATES_ONLY else []
    assert stored(store) == sorted([("a", "uno v2"), ("b", "dos v2"), *old])


def test_the_stock_pipeline_loses_the_document_in_that_case(
    store: FiscalVectorStore, embedder: Fails
) -> None:
    pipe = pipeline(store, kind=IngestionPipeline)
    ran(pipe, docs(a="uno v1"))
    embedder.fail_at = 0
    with pytest.raises(RuntimeError):
        ran(pipe, docs(a="uno v2"))
    assert stored(store) == []


def test_a_first_run_that_fails_after_storing_is_not_doubled_by_the_next(
    store: FiscalVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = pipeline(store)
    with monkeypatch.context() as patch:
        patch.setattr(
            SimpleDocumentStore,
            "add_documents",
            lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")),
        )
        patch.setattr(SimpleDocumentStore, "set_document_hashes", lambda *a, **k: None)
        with pytest.raises(OSError, match="disk full"):
            ran(pipe, docs(a="uno"))
    assert stored(store) == [("a", "uno")]
    ran(pipe, docs(a="uno"))
    assert stored(store) == [("a", "uno")]


def test_without_a_docstore_a_repeated_document_is_swapped_rather_than_doubled(
    store: FiscalVectorStore,
) -> None:
    for text in ("uno", "uno", "uno v2"):
        ran(pipeline(store, docstore=None), docs(a=text))
    assert stored(store) == [("a", "uno v2")]


def test_nodes_given_one_by_one_do_not_replace_their_documents_other_nodes(
    store: FiscalVectorStore,
) -> None:
    pipe = pipeline(store)
    for text in ("uno", "dos"):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}
        pipe.run(nodes=[TextNode(id_=text, text=text, relationships=source)])
    assert [text for _, text in stored(store)] == ["dos", "uno"]


def test_a_document_stored_as_one_node_is_replaced_by_its_chunks(store: FiscalVectorStore) -> None:
    whole = FiscalIngestionPipeline(
        transformations=[FiscalEmbedding(store.view.embedder)],
        vector_store=store,
        docstore=SimpleDocumentStore(),
    )
    whole.run(documents=docs(a="uno"))
    whole.run(documents=docs(a="dos"))
    assert stored(store) == [("", "dos")]
    ran(pipeline(store, docstore=whole.docstore), docs(a="tres"))
    assert stored(store) == [("a", "tres")]


def test_a_changed_document_without_text_leaves_nothing_of_the_old_version(
    store: FiscalVectorStore,
) -> None:
    class Drops(SentenceSplitter):
        def __call__(self, nodes: Any, **kwargs: Any) -> Any:
            return [n for n in super().__call__(nodes, **kwargs) if n.get_content() != "vacío"]

    pipe = FiscalIngestionPipeline(
        transformations=[Drops()], vector_store=store, docstore=SimpleDocumentStore()
    )
    pipe.run(documents=docs(a="uno", b="dos"))
    pipe.run(documents=docs(a="vacío", b="dos"))
    assert stored(store) == [("b", "dos")]


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
def test_sessions_sharing_a_docstore_keep_their_own_documents(
    store: FiscalVectorStore, strategy: DocstoreStrategy
) -> None:
    shared = SimpleDocumentStore()
    a, b = (
        pipeline(store.for_session(s), docstore=shared, docstore_strategy=strategy, embed=False)
        for s in "AB"
    )
    ran(a, docs(x="texto común", only_a="de A"))
    ran(b, docs(x="texto común", only_b="de B"))
    ran(a, docs(x="texto común", only_a="de A"))
    ran(b, docs(only_b="de B v2"))
    public = pipeline(store, docstore=shared, docstore_strategy=strategy, embed=False)
    ran(public, docs(x="pública"))

    assert stored(store) == [("x", "pública")]
    mine = [(ref, text) for ref, text in stored(store.for_session("A")) if text != "pública"]
    assert mine == [("only_a", "de A"), ("x", "texto común")]
    theirs = [(ref, text) for ref, text in stored(store.for_session("B")) if text != "pública"]
    assert (
        theirs
        == {
            DocstoreStrategy.UPSERTS: [("only_b", "de B v2"), ("x", "texto común")],
            DocstoreStrategy.DUPLICATES_ONLY: [
                ("only_b", "de B"),
                ("only_b", "de B v2"),
                ("x", "texto común"),
            ],
            DocstoreStrategy.UPSERTS_AND_DELETE: [("only_b", "de B v2")],
        }[strategy]
    )


def test_one_sessions_run_does_not_make_anothers_run_again(store: FiscalVectorStore) -> None:
    shared = SimpleDocumentStore()
    a, b = (
        pipeline(
            store.for_session(s), docstore=shared, docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE
        )
        for s in "AB"
    )
    ran(b, docs(only_b="de B"))
    ran(a, docs(only_a="de A"))
    assert ran(b, docs(only_b="de B")) == []


def test_the_operator_ingests_private_documents_once_and_touches_no_public_twin(
    store: FiscalVectorStore,
) -> None:
    pipe = pipeline(store, docstore_strategy=DocstoreStrategy.UPSERTS)
    private = {"source_scope": "private", "session_id": "A"}

    def run(text: str) -> list[str]:
        return [
            n.get_content() for n in pipe.run(documents=[Document(id_="x", text=text, metadata=private)])
        ]

    ran(pipeline(store), docs(x="pública"))
    assert run("v1") == ["v1"]
    assert run("v1") == []
    assert run("v2") == ["v2"]
    assert stored(store) == [("x", "pública")]
    assert stored(store.for_session("A")) == [("x", "pública"), ("x", "v2")]


def test_a_document_that_claims_another_session_stops_the_run_before_anything_changes(
    store: FiscalVectorStore,
) -> None:
    mine = store.for_session("A")
    pipe = pipeline(mine)
    ran(pipe, docs(a="uno v1"))
    planted = Document(id_="b", text="plantado", metadata={"source_scope": "private", "session_id": "B"})
    with pytest.raises(AccessDeniedError):
        pipe.run(documents=[*docs(a="uno v2"), planted])
    with pytest.raises(InvalidChunkError):
        pipeline(store).run(documents=[Document(text="t", metadata={"source_scope": ["public"]})])
    assert stored(mine) == [("a", "uno v1")]
    assert stored(store.for_session("B")) == []


def test_a_shared_cache_hands_no_session_anothers_node_ids(store: FiscalVectorStore) -> None:
    first = pipeline(store.for_session("A"))
    second = pipeline(store.for_session("B"), cache=first.cache)
    made = [
        n
        for pipe, id in ((first, "doc-secreto-de-A"), (second, "b"))
        for n in pipe.run(documents=docs(**{id: "mismo texto"}))
    ]
    assert [n.ref_doc_id for n in made] == ["doc-secreto-de-A", "b"]
    assert made[0].node_id != made[1].node_id
    assert stored(store.for_session("B")) == [("b", "mismo texto")]


# --- defaults -----------------------------------------------------------------------------------


def test_by_default_the_store_embeds_and_remembers_the_model(
    store: FiscalVectorStore, embedder: Fails
) -> None:
    pipe = FiscalIngestionPipeline(vector_store=store)
    [made] = pipe.run(documents=docs(a="uno"))
    assert (made.embedding, embedder.documents) == (None, ["uno"])
    assert store.view._corpus.directory.database.manifest("fiscal")["model"] == "hash-16"


def test_without_any_embedder_the_run_fails_before_storing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        pipe = FiscalIngestionPipeline(vector_store=store, docstore=SimpleDocumentStore())
        with pytest.raises(NoEmbedderError):
            pipe.run(documents=docs(a="uno"))
        assert store.get_nodes() == []
        assert pipe.docstore is not None
        assert pipe.docstore.get_all_document_hashes() == {}


def test_over_another_vector_store_it_is_the_stock_pipeline(embedder: Fails) -> None:
    other = SimpleVectorStore()
    steps = [SentenceSplitter(), FiscalEmbedding(embedder)]
    pipe = FiscalIngestionPipeline(
        transformations=steps, vector_store=other, docstore=SimpleDocumentStore()
    )
    assert ran(pipe, docs(a="uno")) == ["uno"]
    assert ran(pipe, docs(a="uno"), in_async=True) == []
    assert len(other.data.embedding_dict) == 1


def test_without_a_vector_store_it_only_transforms() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe = FiscalIngestionPipeline(transformations=[SentenceSplitter()])
        assert ran(pipe, docs(a="uno")) == ["uno"]
