"""A store's own ingest, ingest_file and aingest_file: whose they are, and how they cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fiscal_rag_plugin import FiscalSettings, FiscalVectorStore, get_vectorstore
from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.ingest.run import IngestOptions
from tests.embedders import HashEmbedder

TEXT = "# Nota\n\n" + " ".join(f"La palabra número {i} de la nota." for i in range(60))


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "nota.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FiscalVectorStore]:
    settings = FiscalSettings(chroma_dir=str(tmp_path / "db"), chunk_tokens=40, chunk_overlap=0)
    with get_vectorstore(settings, embedding_service=HashEmbedder()) as store:
        yield store


def longest(store: FiscalVectorStore) -> int:
    return max(len(node.get_content().split()) for node in store.get_nodes())


def test_the_settings_budget_cuts_the_files_of_the_store_and_of_its_views(
    store: FiscalVectorStore, note: Path
):
    a, b = store.for_session("A"), store.for_access(Access.session("B"))
    store.ingest(note)
    for view in (a, b):
        view.ingest_file(note)
    assert [longest(view) <= 40 for view in (store, a, b)] == [True, True, True]
    assert len(store.get_nodes()) > 5


def test_options_of_a_call_take_the_place_of_the_settings(store: FiscalVectorStore, note: Path):
    store.ingest(note, IngestOptions(chunk_tokens=100, chunk_overlap=0))
    assert 40 < longest(store) <= 100


def test_a_store_opened_without_settings_cuts_at_256_tokens(tmp_path: Path, note: Path):
    with FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=HashEmbedder()) as store:
        store.ingest(note)
        assert 100 < longest(store) <= 256


async def test_an_upload_says_what_was_stored_and_is_its_sessions(store: FiscalVectorStore, note: Path):
    report = await store.for_session("A").aingest_file(
        note, name="subida.md", tax="IVA", doc_type="contract"
    )
    mine = store.for_session("A").get_nodes(list(report.ids))
    assert report.chunks == len(mine) > 1
    assert {node.metadata["doc_id"] for node in mine} == {"subida.md"} == set(report.doc_ids)
    assert {(n.metadata["tax"], n.metadata["doc_type"]) for n in mine} == {("IVA", "contract")}
    assert store.get_nodes() == store.for_session("B").get_nodes() == []


def test_what_the_files_do_not_say_is_given_with_the_call(store: FiscalVectorStore, note: Path) -> None:
    store.ingest(note, tax="IVA", doc_type="law", fiscal_year=2024)
    said = {
        tuple(node.metadata[key] for key in ("tax", "doc_type", "fiscal_year"))
        for node in store.get_nodes()
    }
    assert said == {("IVA", "law", 2024)}
