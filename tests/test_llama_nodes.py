from __future__ import annotations

import json
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from fiscal_rag_plugin import FiscalVectorStore
from fiscal_rag_plugin.errors import InvalidChunkError
from fiscal_rag_plugin.llama.nodes import drafts_of

from .embedders import HashEmbedder
from .llama_nodes import ask, chunk, ids, node, open_store, where

ACCESS_KEYS = ["source_scope", "session_id"]
METADATA = {"none": None, "list": ["iva", "irpf"], "mixed": ["a", 1, None], "nested": {"a": {"b": []}},
            "empty": [], "año": "2024", "n": 7, "x": 0.5, "yes": True, "blank": ""}  # fmt: skip
COMMON: dict[str, Any] = {
    "id_": "nodo-ñ-日本",
    "metadata": METADATA,
    "excluded_embed_metadata_keys": ["n"],
    "excluded_llm_metadata_keys": ["x", "año"],
    "metadata_template": "<{key}={value}>",
    "metadata_separator": "; ",
    "text_template": "{content} || {metadata_str}",
    "relationships": {
        NodeRelationship.SOURCE: RelatedNodeInfo(
            node_id="doc/á",
            node_type=ObjectType.DOCUMENT,
            metadata={"file": "á.pdf", "none": None},
            hash="h",
        ),
        NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id="before"),
        NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
    },
}
NODES: dict[str, BaseNode] = {
    "text": TextNode(
        **COMMON, text="Artículo 90.\n\n", mimetype="text/html", start_char_idx=3, end_char_idx=9
    ),
    "plain text": TextNode(id_="1", text="x"),
    "document": Document(**COMMON, text="El tipo general"),
    "image": ImageNode(
        **COMMON, text="a caption", image="aGk=", image_path="a.png", image_url="http://x/a.png"
    ),
    "image without text": ImageNode(id_="i", image_url="http://x/b.png"),
    "index": IndexNode(**COMMON, text="see the table", index_id="table-1"),
    "multimodal": Node(
        **COMMON,
        text_resource=MediaResource(text="hola", mimetype="text/markdown"),
        image_resource=MediaResource(data=b"\x89PNG\r\n\x1a\n....", url="http://x/c.png"),
        audio_resource=MediaResource(path=Path("/tmp/a.mp3")),
    ),
    "node without text": Node(id_="m", image_resource=MediaResource(data=b"GIF89a")),
    "node with a null text": Node(id_="m", text_resource=MediaResource(url="http://x/d.txt")),
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path, embed_model=HashEmbedder(16)) as opened:
        yield opened


def expected(put_in: BaseNode, access: dict[str, str]) -> BaseNode:
    return put_in.model_copy(
        update={
            "embedding": None,
            "metadata": {**put_in.metadata, **access},
            "excluded_embed_metadata_keys": [*put_in.excluded_embed_metadata_keys, *ACCESS_KEYS],
            "excluded_llm_metadata_keys": [*put_in.excluded_llm_metadata_keys, *ACCESS_KEYS],
        }
    )


@pytest.mark.parametrize("session", [None, "A"])
@pytest.mark.parametrize("kind", NODES)
def test_a_node_reads_back_equal_plus_the_access_keys(
    store: FiscalVectorStore, kind: str, session: str | None
) -> None:
    put_in = NODES[kind].model_copy(update={"embedding": [1.0, 0.0]})
    before = put_in.model_dump_json()
    mine = store if session is None else store.for_session(session)
    access = {"source_scope": "public"}
    if session is not None:
        access = {"source_scope": "private", "session_id": session}

    assert mine.add([put_in]) == [put_in.node_id]
    [back] = mine.get_nodes([put_in.node_id])

    assert type(back) is type(put_in)
    assert back == expected(put_in, access)
    assert put_in.model_dump_json() == before, "the caller's node was changed"
    if isinstance(put_in, Node):
        assert isinstance(back, Node)
        for name in ("image_resource", "audio_resource"):
            given, got = getattr(put_in, name), getattr(back, name)
            assert (given and given.data) == (got and got.data)


def test_a_node_that_was_read_can_be_written_again_and_is_the_same(store: FiscalVectorStore) -> None:
    mine = store.for_session("A")
    mine.add([NODES["text"]])
    [first] = mine.get_nodes()
    report = mine.view.write(drafts_of([first], mine.view))
    assert (report.kept, report.embedded, report.updated) == (1, 0, 0), "the access keys made it another"
    [second] = mine.get_nodes()
    assert second == first


def test_access_keys_that_are_null_claim_nothing(store: FiscalVectorStore) -> None:
    for mine in (store, store.for_session("A")):
        mine.add([node("n", [1, 0], source_scope=None, session_id=None)])
    scopes = [n.metadata["source_scope"] for n in store.for_session("A").get_nodes()]
    assert sorted(scopes) == ["private", "public"]


def test_vectors_never_come_back(store: FiscalVectorStore) -> None:
    image = NODES["image"].model_copy(update={"embedding": [1.0, 0.0], "text_embedding": [3.0, 4.0]})
    store.add([image, node("t", [0.0, 1.0])])
    dumped = [n.model_dump() for n in store.get_nodes()]
    assert [d["embedding"] for d in dumped] == [None, None]
    assert [d["text_embedding"] for d in dumped if "text_embedding" in d] == [None]


def test_a_node_without_source_has_no_reference_rather_than_the_word_none(store: FiscalVectorStore) -> None:
    store.add([node("n1", [1, 0])])
    assert store.get_nodes()[0].ref_doc_id is None
    assert ask(store, [1, 0], doc_ids=["None"]) == []


def test_the_object_of_an_index_node_is_not_stored_and_that_is_said(
    store: FiscalVectorStore, caplog: pytest.LogCaptureFixture
) -> None:
    inner = TextNode(id_="inner", text="SECRETO de otra sesión")
    with caplog.at_level(logging.WARNING):
        store.add([IndexNode(id_="i", text="ver", index_id="inner", obj=inner, embedding=[1, 0])])
    [back] = store.get_nodes()
    assert isinstance(back, IndexNode)
    assert back.obj is None
    assert "SECRETO" not in back.model_dump_json()
    assert "obj of 1 IndexNodes is not stored" in caplog.text
    assert "SECRETO" not in caplog.text


def test_a_subclass_comes_back_as_its_base_and_is_refused_when_it_has_fields_to_lose(
    store: FiscalVectorStore,
) -> None:
    class Renamed(TextNode):
        pass

    class Richer(TextNode):
        article: str = ""

    store.add([Renamed(id_="r", text="t", embedding=[1, 0])])
    assert type(store.get_nodes()[0]) is TextNode
    with pytest.raises(InvalidChunkError, match="article"):
        store.add([Richer(id_="r2", text="t", embedding=[1, 0])])


@pytest.mark.parametrize(
    "metadata",
    [
        {"chroma:document": "x"}, {"_node_content": "y"}, {"_node_type": "TextNode"}, {"$or": []},
        {"#document": "x"}, {"fiscal:blob": "{}"}, {"": 1}, {"nan": float("nan")}, {"inf": [float("inf")]},
        {"set": {1, 2}}, {"bytes": b"x"}, {"deep": {"a": object()}}, {"half": "\ud800"},
    ],
    ids=lambda metadata: str(next(iter(metadata))) or "blank",
)  # fmt: skip
def test_metadata_that_cannot_be_kept_is_refused_before_anything_is_written(
    store: FiscalVectorStore, metadata: dict[str, Any]
) -> None:
    with pytest.raises(InvalidChunkError):
        store.add(
            [node("good", [1, 0]), TextNode(id_="bad", text="t", metadata=metadata, embedding=[1, 0])]
        )
    assert store.get_nodes() == []


@pytest.mark.parametrize("id", ["", "a\x00b", "x" * 1025])
def test_an_unusable_node_id_is_refused(store: FiscalVectorStore, id: str) -> None:
    with pytest.raises(InvalidChunkError, match="id"):
        store.add([node(id, [1, 0])])


def test_a_text_with_a_lone_surrogate_is_refused_without_being_quoted(store: FiscalVectorStore) -> None:
    with pytest.raises(InvalidChunkError, match="surrogate") as error:
        store.add([node("n", [1, 0], text="secreto \ud800")])
    assert "secreto" not in str(error.value)


def test_what_is_no_node_is_refused_with_what_to_do(store: FiscalVectorStore) -> None:
    with pytest.raises(InvalidChunkError, match="add_chunks"):
        store.add([chunk("d", "text")])  # type: ignore[list-item]


def test_caller_keys_named_like_other_integrations_columns_stay_the_callers(
    store: FiscalVectorStore,
) -> None:
    metadata = {"document_id": "mine", "doc_id": "mine too", "ref_doc_id": "and mine", "text": "no text"}
    put_in = node("n", [1, 0], ref="d1").model_copy(update={"metadata": metadata})
    store.add([put_in])
    [back] = store.get_nodes()
    assert back.metadata == {**metadata, "source_scope": "public"}
    assert (back.ref_doc_id, back.get_content()) == ("d1", "text of n")


def test_the_access_keys_do_not_move_the_vector(tmp_path: Path) -> None:
    embedder = HashEmbedder(16)
    with open_store(tmp_path, embed_model=embedder) as store:
        store.add(
            [node("plain", tax="IVA"), node("said", tax="IVA", source_scope="public", text="text of plain")]
        )
    assert embedder.documents == ["tax: IVA\n\ntext of plain"] * 2


def test_a_chunk_is_a_text_node_with_source_offsets_and_flat_metadata(store: FiscalVectorStore) -> None:
    given = chunk(
        "liva", "El tipo es del 21 por ciento", session_id="A", tax="IVA", page=5, extra={"k": [1]}
    )
    mine = store.for_session("A")
    [id] = mine.add_chunks([given])
    [back] = mine.get_nodes([id])
    assert isinstance(back, TextNode)
    assert back.metadata == given.metadata.to_store_dict()
    assert (back.text, back.start_char_idx, back.end_char_idx) == (given.text, given.start, given.end)
    assert back.ref_doc_id == "liva"
    assert back.source_node is not None
    assert back.source_node.node_type == ObjectType.DOCUMENT


def test_a_chunk_shows_a_model_what_is_known_and_no_bookkeeping(store: FiscalVectorStore) -> None:
    given = chunk(
        "liva", "El tipo", tax="IVA", section_label="Artículo 90", chunk_index=3, extra={"key": 7}
    )
    store.add_chunks([given])
    [back] = store.get_nodes()
    assert back.get_content(MetadataMode.LLM).splitlines() == [
        "doc_id: liva", "doc_type: law", "tax: IVA", "section_label: Artículo 90", "key: 7", "", "El tipo"
    ]  # fmt: skip
    assert back.get_content(MetadataMode.EMBED).splitlines() == [
        "tax: IVA", "section_label: Artículo 90", "", "El tipo"
    ]  # fmt: skip


def test_metadata_lists_and_nulls_can_be_filtered(store: FiscalVectorStore) -> None:
    store.add([node("a", [1, 0], tags=["iva", "irpf"], x=None), node("b", [1, 0], tags=[], x="")])
    found = lambda *conditions: ids(store.get_nodes(filters=where(*conditions)))  # noqa: E731
    assert found(("tags", "contains", "iva")) == ["a"]
    assert found(("tags", "any", ["x", "irpf"])) == ["a"]
    assert found(("tags", "all", ["iva", "x"])) == []
    assert found(("tags", "is_empty", None)) == ["b"]
    assert found(("x", "is_empty", None)) == ["a"]
    assert found(("x", "==", "")) == ["b"]


def edit_shell(path: Path, edit: Any) -> None:
    """Change a private row's blob in the database, as somebody with the files could."""
    connection = sqlite3.connect(path / "fiscal.sqlite3")
    [(blob,)] = connection.execute("SELECT blob FROM private").fetchall()
    inner = json.loads(blob)
    edit(inner)
    connection.execute("UPDATE private SET blob = ?", (json.dumps(inner),))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "planted",
    [
        {"text": "planted"}, {"metadata": {"planted": 1}}, {"id_": "planted"}, {"embedding": [9.0]},
        {"obj": {"__data__": {"text": "planted"}, "__type__": "1"}},
        {"class_name": "IndexNode", "index_id": "x", "obj": "planted"},
    ],
    ids=lambda planted: next(iter(planted)),
)  # fmt: skip
def test_a_shell_edited_in_the_database_adds_no_text_metadata_id_or_object(
    store: FiscalVectorStore, tmp_path: Path, planted: dict[str, Any]
) -> None:
    mine = store.for_session("A")
    mine.add([node("n", [1, 0], k=1)])
    edit_shell(tmp_path, lambda inner: inner["shell"].update(planted))
    [back] = mine.get_nodes()
    assert (back.node_id, back.get_content(), back.embedding) == ("n", "text of n", None)
    assert back.metadata == {"k": 1, "source_scope": "private", "session_id": "A"}
    assert "planted" not in back.model_dump_json()


@pytest.mark.parametrize("class_name", ["Nothing", None, "ImageNode"])
def test_a_shell_that_fits_no_class_leaves_a_plain_text_node(
    store: FiscalVectorStore, tmp_path: Path, class_name: Any
) -> None:
    mine = store.for_session("A")
    mine.add([node("n", [1, 0], ref="d", k=1)])
    edit_shell(
        tmp_path, lambda inner: inner.update(shell={"class_name": class_name, "start_char_idx": "x"})
    )
    [back] = mine.get_nodes()
    assert (type(back), back.get_content(), back.ref_doc_id) == (TextNode, "text of n", "d")


@pytest.mark.parametrize(
    "edit",
    [
        lambda inner: inner.update(session="B"),
        lambda inner: inner.update(scope="public", session=None),
        lambda inner: inner.update(id="other"),
        lambda inner: inner["metadata"].update(session_id="B"),
        lambda inner: inner["metadata"].update(source_scope="public"),
        lambda inner: inner.pop("shell"),
    ],
)
def test_a_row_whose_inside_disagrees_with_its_place_is_nobodys(
    store: FiscalVectorStore, tmp_path: Path, edit: Any
) -> None:
    store.for_session("A").add([node("n", [1, 0], k=1)])
    edit_shell(tmp_path, edit)
    for mine in (store, store.for_session("A"), store.for_session("B")):
        assert mine.get_nodes() == []
        assert ask(mine, [1, 0]) == []
