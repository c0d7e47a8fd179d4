"""Questions 2, 3 and 5 of side_by_side.py: what many vectors show."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters, VectorStoreQuery
from side_by_side_stores import (
    COSINE,
    MAY_SEE_B,
    MAY_SEE_B_LLAMA,
    Comparison,
    Official,
    OneEmbedder,
    Ours,
    private,
    public,
    verdict,
)  # fmt: skip

from langchain_fiscal_rag import FiscalRagVectorStore

TOP_K, DIM, SAMPLE = 8, 128, 25


def many_vectors(root: Path, n: int) -> list[Comparison]:
    """2, 3 and 5."""
    documents, upload, questions, embedder = clustered(n)
    places = root / "official", root / "ours"
    official, ours = Official(places[0], embedder, COSINE), Ours(places[1], embedder)
    official.add(documents)
    ours.add(documents)
    asked = searches(official, ours, embedder)
    second = interference(official, ours, asked, questions, upload)
    fifth = speed(asked, questions, n)
    return [second, erasure(official, ours, places, upload, embedder.known), fifth]


def clustered(n: int) -> tuple[list[Document], list[Document], list[str], OneEmbedder]:
    """n chunks in 50 clusters, 300 more for A to upload, 20 questions, and all their vectors.

    One chunk in ten is private, of forty sessions, of which B is one.
    """
    generator = np.random.default_rng(20261130)
    centres = generator.normal(size=(50, DIM))
    chunks = centres[generator.integers(50, size=n)] + 0.4 * generator.normal(size=(n, DIM))
    asked_at = centres[:20] + 0.4 * generator.normal(size=(20, DIM))
    of_a = centres[generator.integers(20, size=300)] + 0.3 * generator.normal(size=(300, DIM))
    points = np.vstack([chunks, of_a, asked_at])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    texts = [f"texto {i}" for i in range(n)]
    secrets = [f"secreto de A, número {i}" for i in range(300)]
    questions = [f"pregunta {i}" for i in range(20)]
    known = zip([*texts, *secrets, *questions], points.astype(np.float32).tolist(), strict=True)
    embedder = OneEmbedder(dict(known))

    owners = ["B", *(f"S{i}" for i in range(39))]
    documents = [
        private(owners[i // 10 % 40], str(i), text) if i % 10 == 0 else public(str(i), text)
        for i, text in enumerate(texts)
    ]
    upload = [private("A", f"a{i}", text) for i, text in enumerate(secrets)]
    return documents, upload, questions, embedder


def answers(search: Callable[[str], list[tuple[str, float]]], questions: list[str]) -> list[list]:
    """Per question what B gets: ids in order, and each score's exact bits."""
    return [[(id, float(score).hex()) for id, score in search(question)] for question in questions]


def searches(official: Official, ours: Ours, embedder: OneEmbedder) -> dict[str, tuple[Callable, Callable]]:
    """The authorized query of B, per framework: (official, ours)."""

    def by_langchain(store: VectorStore, **options: dict) -> Callable:
        def search(question: str) -> list[tuple[str, float]]:
            found = store.similarity_search_with_score(question, k=TOP_K, **options)
            return [(document.id, score) for document, score in found]

        return search

    def by_llamaindex(store: BasePydanticVectorStore, filters: MetadataFilters | None = None) -> Callable:
        def search(question: str) -> list[tuple[str, float]]:
            vector = embedder.embed_query(question)
            found = store.query(VectorStoreQuery(vector, similarity_top_k=TOP_K, filters=filters))
            return list(zip(found.ids, found.similarities, strict=True))

        return search

    return {
        "LangChain": (by_langchain(official.langchain, filter=MAY_SEE_B), by_langchain(ours.langchain)),
        "LlamaIndex": (by_llamaindex(official.llamaindex, MAY_SEE_B_LLAMA), by_llamaindex(ours.llamaindex)),
    }


def interference(
    official: Official, ours: Ours, asked: dict, questions: list[str], upload: list
) -> Comparison:
    before = {name: [answers(search, questions) for search in pair] for name, pair in asked.items()}
    official.add(upload)
    ours.add(upload)
    rows, moved = [], [0, 0]
    for name, pair in asked.items():
        cells = []
        for side, search in enumerate(pair):
            changes = list(zip(before[name][side], answers(search, questions), strict=True))
            changed = sum(old != new for old, new in changes)
            others = sum([id for id, _ in old] != [id for id, _ in new] for old, new in changes)
            moved[side] += changed
            detail = f"{others} in ids or order, {changed - others} only in a score's bits"
            said = verdict(changed, f"{changed} of {len(questions)} answers changed")
            cells.append(f"{said}\n[dim]{detail}[/]")
        rows.append((f"{name}, ids and exact scores", *cells))
    total = len(questions) * len(asked)
    ids = same_id(official, ours, upload[0].page_content)
    for name, *cells in ids:
        marked = [verdict("lost" in cell or "not" in cell, cell) for cell in cells]
        rows.append((f"{name}, A uses an id that B has", *marked))
    return (
        f"2. B's answers before and after A uploads {len(upload)} chunks", rows,
        f"After A's upload {moved[0]} of {total} answers to B differed in the official integrations, and "
        f"{moved[1]} of {total} in fiscal_rag_plugin. When A then used an id that B has, the official: "
        + "; ".join(f"{name}, {old}" for name, old, _ in ids)
        + f"; fiscal_rag_plugin: {' / '.join(sorted({new for *_, new in ids}))}.",
    )  # fmt: skip


def same_id(official: Official, ours: Ours, text: str) -> list[tuple[str, str, str]]:
    """(framework, official, ours): whose text is there after A writes under the id of B's first chunk."""
    id = "0"
    for side in (official, ours):
        side.add([private("A", id, text)])

    def said(found: list) -> str:
        owners = {item.metadata["session_id"] for item in found}
        b, a = ("kept" if "B" in owners else "lost"), ("stored" if "A" in owners else "not stored")
        return f"B's text {b}, A's {a}"

    of_a = ours.store.for_session("A")
    both = FiscalRagVectorStore(ours.llamaindex), FiscalRagVectorStore(of_a)
    return [
        ("LangChain", said(official.langchain.get_by_ids([id])),
         said([document for store in both for document in store.get_by_ids([id])])),
        ("LlamaIndex", said(official.llamaindex.get_nodes([id])),
         said([node for store in (ours.llamaindex, of_a) for node in store.get_nodes([id])])),
    ]  # fmt: skip


def traces(directory: Path, marker: bytes, vectors: list[bytes]) -> tuple[int, str]:
    """(files with something of A's, what they hold), read byte by byte."""
    contents = {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
    found = {
        path: data for path, data in contents.items() if any(part in data for part in [marker, *vectors])
    }
    texts = sum(data.count(marker) for data in found.values())
    kept = sum(any(vector in data for data in found.values()) for vector in vectors)
    names = f": {', '.join(path.name for path in found)}" if found else ""
    return len(found), verdict(len(found), f"{len(found)} of {len(contents)} files{names}") + (
        f"\n[dim]texts {texts:,} times, vectors {kept} of {len(vectors)}[/]"
    )


def erasure(
    official: Official, ours: Ours, places: tuple[Path, Path], upload: list, known: dict
) -> Comparison:
    marker = b"secreto de A"
    vectors = [np.array(known[d.page_content], dtype="<f4").tobytes() for d in upload[:SAMPLE]]
    look = [[traces(place, marker, vectors) for place in places]]
    official.langchain.delete(where={"session_id": "A"})
    official.llamaindex.delete("upload of A")
    ours.store.delete_session("A")
    look.append([traces(place, marker, vectors) for place in places])
    official.close()
    ours.store.close()
    with closing(sqlite3.connect(places[0] / "chroma.sqlite3")) as database:
        database.execute("VACUUM")
    look.append([traces(place, marker, vectors) for place in places])
    when = ("before, as a control", "A deleted, still open", "closed, and Chroma's file VACUUMed")
    rows = [(name, *(said for _, said in pair)) for name, pair in zip(when, look, strict=True)]
    return (
        "3. A is deleted; the directory is searched byte by byte", rows,
        f"Files with something of A's after A was deleted: {look[1][0][0]} of the official integrations "
        f"({look[2][0][0]} after VACUUM), {look[1][1][0]} of fiscal_rag_plugin.",
    )  # fmt: skip


def speed(asked: dict, questions: list[str], n: int) -> Comparison:
    rows, ratios = [], []
    for name, pair in asked.items():
        times: tuple[list[float], list[float]] = ([], [])
        for run in range(30):
            for side in (0, 1) if run % 2 else (1, 0):
                started = time.perf_counter()
                pair[side](questions[run % len(questions)])
                times[side].append(time.perf_counter() - started)
        left, right = (statistics.median(seconds) for seconds in times)
        ratios.append(left / right)
        rows.append((f"{name}, median of 30", f"{left * 1000:.2f} ms\n[dim]{left / right:.1f} × ours[/]",
                     f"{right * 1000:.2f} ms\n[dim]1 ×[/]"))  # fmt: skip
    return (
        f"5. One authorized query at {n:,} chunks", rows,
        f"At {n:,} chunks an authorized query took langchain-chroma {ratios[0]:.1f} and LlamaIndex's store "
        f"{ratios[1]:.1f} times as long as fiscal_rag_plugin.",
    )  # fmt: skip
