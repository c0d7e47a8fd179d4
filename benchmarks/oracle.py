"""Does every plan of the engine find what the oracle finds? On few rows, where HNSW is exact."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol, cast
from unittest.mock import patch

import numpy as np

from fiscal_rag_plugin import Access, Chunk, ChunkMetadata, FiscalVectorStore
from fiscal_rag_plugin.engines import chroma_search
from fiscal_rag_plugin.engines.base import ANYTHING, Condition, Found, Hit
from fiscal_rag_plugin.engines.memory import MemoryEngine
from fiscal_rag_plugin.filters import all_of, in_force, parse_filter
from fiscal_rag_plugin.vectors import Vector

from .data import SESSIONS, TAXES, private_rows, public_rows, questions

PUBLIC = 240
PRIVATE = 20
READERS = SESSIONS[:3]
"""Together 300 rows."""
BUILDS = 5
COLLECTION = "oracle"
TOP_KS = (8, 40)

LOOKS = {"NARROW": -1, "FIRST_LOOK": 0, "LAST_LOOK": 0}
FORCED: dict[str, dict[str, int]] = {
    "as it comes": {},
    "over-fetched": {"NARROW": -1, "FIRST_LOOK": 10_000},
    "narrow": {"NARROW": 10_000},
    "matches scored": LOOKS,
    "matches scored page by page": {**LOOKS, "PAGE": 7},
    "walked with the filter": {**LOOKS, "EXACT_LIMIT": -1},
    "no margin": {"MARGIN": 0},
}
"""Values of ``engines.chroma_search`` that make its planner go each way, also where it would not.

A name that the planner has no more is an error of the check, so that nothing is left unforced in silence."""

FILTERS: dict[str, object] = {
    "a quarter": {"tax": "IVA"},
    "all but a quarter": {"tax": {"$ne": "IVA"}},
    "one document": {"doc_id": "doc3"},
    "nothing": {"tax": "ISD"},
    "own chunks": {"source_scope": "private"},
    "public chunks": {"source_scope": "public"},
    "a range": {"chunk_index": {"$gte": 5, "$lt": 9}},
    "unknown or late": {"$or": [{"fiscal_year": 0}, {"fiscal_year": {"$gt": 2022}}]},
    "none of two": {"tax": {"$nin": ["IVA", "IS"]}},
    "not all but a quarter": {"$not": {"tax": {"$ne": "IVA"}}},
    "not one label": {"$not": {"section_label": "Artículo 7"}},
}


class Searches(Protocol):
    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found: ...


@dataclass
class Comparison:
    """Sentences about what differs, and how many answers each plan gave."""

    disagreements: list[str]
    plans: Counter[str]


def conditions() -> dict[str, Condition]:
    named = {name: Condition(parse_filter(source)) for name, source in FILTERS.items()}
    named["no filter"] = ANYTHING
    named["in force in June 2023"] = Condition(in_force("2023-06-30"))
    named["for 2022"] = Condition(in_force(tax_year=2022))
    of_iva = all_of(parse_filter({"tax": "IVA"}), in_force("2021-01-01"))
    named["IVA in force in 2021"] = Condition(of_iva)
    named["two documents by id"] = Condition(doc_ids=frozenset({"doc1", "doc7"}))
    return named


def chunk(i: int, session: str | None) -> Chunk:
    """Every tenth chunk has no dates and no year; the others of a tax follow each other by years."""
    year = 0 if i % 10 == 0 else 2019 + i % 6
    metadata = ChunkMetadata(
        doc_id=f"doc{i // 20}", doc_type="law", tax=TAXES[i % 4], fiscal_year=year,
        valid_from=f"{year}-01-01" if year else "", valid_to=f"{year}-12-31" if year and i % 3 else "",
        section_label=f"Artículo {i}", chunk_index=i % 20,
        source_scope="public" if session is None else "private", session_id=session,
    )  # fmt: skip
    return Chunk(f"Texto del artículo {i}.", f"{i}", metadata, 0, 10)


def write(store: FiscalVectorStore) -> None:
    (rows,) = public_rows(PUBLIC)
    # Some vectors twice: equal similarities must come in the same order on every way.
    vectors = rows.vectors.copy()
    vectors[1::40] = vectors[::40]
    store.add_chunks([chunk(i, None) for i in range(PUBLIC)], vectors=vectors)
    private = [chunk(i, session) for session in READERS for i in range(PRIVATE)]
    store.add_chunks(private, vectors=private_rows().vectors[: len(private)])


def read_back(store: FiscalVectorStore) -> MemoryEngine:
    """The oracle on the records and vectors that the store holds, not on those it was given."""
    oracle = MemoryEngine()
    engine = store.view._corpus.engine
    public = store.client.get_collection(COLLECTION, embedding_function=None).get(include=["embeddings"])
    vectors = dict(zip(public["ids"], np.asarray(public["embeddings"], dtype=np.float32), strict=True))
    records = list(engine.scan(Access.public()))
    oracle.upsert(records, np.stack([vectors[record.id] for record in records]))
    for session in READERS:
        hits = engine.private.search(vectors[records[0].id], 2 * PRIVATE, Access.session(session)).hits
        oracle.upsert([hit.record for hit in hits], np.stack([cast("Vector", hit.vector) for hit in hits]))
    return oracle


def compare(
    engine: Searches, oracle: MemoryEngine, vectors: np.ndarray, forced: Mapping[str, Any] | None = None
) -> Comparison:
    """Every way, filter, access and k; ids, order, records and similarities must be the same."""
    found = Comparison([], Counter())
    accesses = {"public": Access.public(), "a session": Access.session(READERS[0]), "all": Access(READERS)}
    asked = list(product(conditions().items(), accesses.items(), TOP_KS, enumerate(vectors)))
    expected = [oracle.search(vector, k, access, c).hits for (_, c), (_, access), k, (_, vector) in asked]
    for way, settings in (FORCED if forced is None else forced).items():
        with patch.multiple(chroma_search, **settings) if settings else patch.dict({}):
            for question, best in zip(asked, expected, strict=True):
                (name, condition), (reader, access), k, (number, vector) = question
                answer = engine.search(vector, k, access, condition)
                found.plans[answer.plan] += 1
                if (difference := _difference(answer.hits, best)) is not None:
                    found.disagreements.append(
                        f"{name}, read by {reader}, k = {k}, question {number}, {way} ({answer.plan}): "
                        f"{difference}"
                    )
    return found


def _difference(answer: Sequence[Hit], best: Sequence[Hit]) -> str | None:
    """Where two answers first differ in record or similarity, or None."""
    for place, (mine, right) in enumerate(zip(answer, best, strict=False), 1):
        if mine.record != right.record:
            return f"another chunk at place {place} of {len(best)}"
        if mine.similarity != right.similarity:
            return f"similarity {mine.similarity} and not {right.similarity} at place {place}"
    return None if len(answer) == len(best) else f"{len(answer)} hits and not {len(best)}"


def open_exact(directory: Path) -> FiscalVectorStore:
    """A store with the corpus, whose HNSW finds every row, so that only a plan can be wrong.

    Chroma builds its graph with several threads. With its default breadth of 100, a row of 240 was
    missed by 1 of 800 searches; a breadth of more than all rows misses those that no edge leads to,
    and then the graph is built anew.
    """
    for attempt in range(BUILDS):
        store = FiscalVectorStore.from_params(str(directory / f"oracle-{attempt}"), COLLECTION)
        configuration: Any = {"hnsw": {"ef_search": 4 * PUBLIC}}
        with warnings.catch_warnings():
            # Chroma warns of every collection without an embedding function when it reads its settings.
            warnings.simplefilter("ignore", DeprecationWarning)
            collection = store.client.get_collection(COLLECTION, embedding_function=None)
            collection.modify(configuration=configuration)
        write(store)
        found = [store.raw_query(vector, top_k=PUBLIC)["ids"][0] for vector in questions(PUBLIC, 3)]
        if all(len(set(ids)) == PUBLIC for ids in found):
            return store
        store.close()
    raise RuntimeError(f"Chroma's HNSW missed rows of {PUBLIC} in each of {BUILDS} builds")


def check_plans(directory: Path, count: int) -> Comparison:
    """Write the corpus below an empty directory and compare ``count`` questions."""
    with open_exact(directory) as store:
        return compare(store.view._corpus.engine, read_back(store), questions(PUBLIC, count))
