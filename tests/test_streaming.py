"""A stream of chunks: in windows, resumable, and never more than two of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fiscal_rag_plugin import Chunk, FiscalVectorStore
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    InvalidChunkError,
    InvalidQueryError,
    NotAChunkError,
)
from fiscal_rag_plugin.streaming import StreamReport

from .embedders import HashEmbedder
from .llama_nodes import chunk


class Counting(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return super().embed_documents(texts)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def store(tmp_path: Path, embedder: Counting) -> Iterator[FiscalVectorStore]:
    with FiscalVectorStore.from_params(str(tmp_path / "db"), embed_model=embedder) as opened:
        yield opened


def chunks(n: int, session: str | None = None) -> Iterator[Chunk]:
    return (chunk(f"doc{i // 10}", f"texto número {i}", session_id=session) for i in range(n))


def test_a_generator_is_stored_whole_with_progress_after_each_window(store: FiscalVectorStore) -> None:
    seen: list[int] = []
    report = store.add_chunk_stream(chunks(25), window=10, on_progress=lambda r: seen.append(r.chunks))
    assert report == StreamReport(chunks=25, embedded=25)
    assert seen == [10, 20, 25]
    assert len(store.get_nodes()) == 25


def test_the_same_stream_again_embeds_nothing(store: FiscalVectorStore, embedder: Counting) -> None:
    store.add_chunk_stream(chunks(25), window=10)
    before = embedder.texts
    assert store.add_chunk_stream(chunks(25), window=7) == StreamReport(chunks=25, kept=25)
    assert embedder.texts == before == 25


def test_vectors_stream_beside_the_chunks_and_must_be_as_many(store: FiscalVectorStore) -> None:
    vectors = ([1.0, float(i)] for i in range(30))
    assert store.add_chunk_stream(chunks(30), vectors=vectors, window=8).embedded == 30
    with pytest.raises(InvalidChunkError, match="more chunks than vectors"):
        store.add_chunk_stream(chunks(3), vectors=[[1.0, 2.0]])


def test_what_was_written_before_a_failure_stays_and_the_rest_can_follow(
    store: FiscalVectorStore, embedder: Counting
) -> None:
    def broken() -> Iterator[Chunk]:
        yield from chunks(15)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        store.add_chunk_stream(broken(), window=5)
    assert len(store.get_nodes()) == 15
    assert store.add_chunk_stream(chunks(20), window=5) == StreamReport(20, embedded=5, kept=15)
    assert embedder.texts == 20


def test_a_window_with_something_else_than_a_chunk_is_not_written(store: FiscalVectorStore) -> None:
    with pytest.raises(NotAChunkError):
        store.add_chunk_stream([*chunks(3), "texto"], window=10)  # type: ignore[list-item]
    assert store.get_nodes() == []


def test_a_view_streams_into_its_own_session_only(store: FiscalVectorStore, embedder: Counting) -> None:
    mine = store.for_session("A")
    assert mine.add_chunk_stream(chunks(12, "A"), window=5).embedded == 12
    with pytest.raises(AccessDeniedError):
        mine.add_chunk_stream(chunks(3, "B"))
    with pytest.raises(AccessDeniedError):
        mine.add_chunk_stream(chunks(3))
    assert embedder.texts == 12
    assert store.list_sessions() == [("A", 12)]


def test_no_more_than_two_windows_are_ahead_of_what_is_stored(store: FiscalVectorStore) -> None:
    ahead: list[int] = []

    def watched() -> Iterator[Chunk]:
        for i, made in enumerate(chunks(60)):
            if i % 10 == 9:
                ahead.append(i + 1 - len(store.get_nodes()))
            yield made

    store.add_chunk_stream(watched(), window=10)
    assert len(ahead) == 6
    assert max(ahead) <= 2 * 10


@pytest.mark.parametrize("window", [0, -1, True, 2.5])
def test_a_window_is_at_least_one(store: FiscalVectorStore, window: int) -> None:
    with pytest.raises(InvalidQueryError, match="window"):
        store.add_chunk_stream(chunks(1), window=window)
