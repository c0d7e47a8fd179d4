"""Speed of the lexical index: 100,000 chunks, questions of five words, with a filter and without.

    python -m benchmarks.lexical [--n 100000] [--dir KEEP]

A quarter of the chunks is of each tax.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import Bag, analyse, facet_query, question_tokens, scores
from fiscal_rag_plugin.lexical.index import LexicalIndex, Row

from .prose import SEED, draw, prose

TAXES = ("IVA", "IRPF", "IS", "LGT")
TOP_K = 8


def texts(n: int) -> tuple[list[str], list[str]]:
    """n chunks of 180 words, and 200 questions of five words drawn from the same law."""
    generator = np.random.default_rng(SEED)
    chunks = [f"Artículo {i % 300} de la Ley {i % 40}/1992. {t}" for i, t in enumerate(prose(generator, n))]
    return chunks, [" ".join(draw(generator, 5)) for _ in range(200)]


def record(i: int, text: str) -> Record:
    flat = {
        "doc_id": f"doc{i // 20}", "doc_type": "law", "tax": TAXES[i % 4], "fiscal_year": 2020 + i % 5,
        "section_path": f"Ley {i // 20}", "source_url": f"https://example.org/{i // 20}", "chunk_index": i % 20,
        "source_scope": "public",
    }  # fmt: skip
    return Record(
        id=f"{i:064x}", scope="public", session_id=None, ref=f"doc{i // 20}", text=text, metadata=flat
    )


def build(directory: Path, chunks: list[str], console: Console) -> LexicalIndex:
    index = LexicalIndex(directory)
    if index.mark != str(len(chunks)):
        started = time.perf_counter()
        for text in chunks:
            analyse(text)
        analysed = time.perf_counter()
        index.clear()
        index.add(Row.of(record(i, text)) for i, text in enumerate(chunks))
        index.commit(str(len(chunks)))
        written = time.perf_counter()
        size = sum(f.stat().st_size for f in directory.iterdir()) / 2**20
        console.print(
            f"analysis {analysed - started:.1f} s, index with analysis {written - analysed:.1f} s, {size:.0f} MiB"
        )
    return index


def milliseconds(ask: Callable[[str], object], questions: list[str]) -> list[float]:
    found = []
    for question in questions:
        started = time.perf_counter()
        ask(question)
        found.append(1_000 * (time.perf_counter() - started))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--dir", type=Path)
    arguments = parser.parse_args()
    console = Console(highlight=False)
    chunks, questions = texts(arguments.n)
    with tempfile.TemporaryDirectory() as temporary:
        index = build(arguments.dir or Path(temporary), chunks, console)
        quarter = facet_query(Condition(filter=parse_filter({"tax": "IVA"})))
        few = facet_query(Condition(filter=parse_filter({"section_path": "Ley 3"})))
        own = [Bag.of(analyse(text)) for text in chunks[:100]]

        def kept(ids: object) -> set[str]:
            return {id for id in ids if int(id, 16) % 4 == 0}  # type: ignore[attr-defined]

        def session(question: str) -> object:
            tokens = question_tokens(question)
            return scores(tokens, own, index.statistics(tokens))

        cases: dict[str, Callable[[str], object]] = {
            "no filter": lambda q: index.search(question_tokens(q), TOP_K),
            "filter that 25 % match": lambda q: index.search(question_tokens(q), TOP_K, quarter),
            "filter that 20 chunks match": lambda q: index.search(question_tokens(q), TOP_K, few),
            "25 % kept by a callback": lambda q: index.search(question_tokens(q), TOP_K, (), kept),
            "BM25 of 8 given ids": lambda q: index.scores(
                question_tokens(q), [f"{i:064x}" for i in range(8)]
            ),
            "a session's 100 chunks": session,
            "ids of everything": lambda _: index.ids(),
        }
        table = Table(
            "question of 5 words, k = 8", "p50 ms", "p95 ms", "max ms", title=f"{index.count():,} chunks"
        )
        for name, ask in cases.items():
            some = questions[:3] if name.startswith("ids") else questions
            index.reload()  # document frequencies are counted once a commit
            times = milliseconds(ask, some)
            again = milliseconds(ask, some)
            for label, values in ((f"{name}, first time", times), (name, again)):
                table.add_row(
                    label,
                    f"{np.median(values):.2f}",
                    f"{np.percentile(values, 95):.2f}",
                    f"{max(values):.2f}",
                )
        console.print(table)
        index.close()


if __name__ == "__main__":
    main()
