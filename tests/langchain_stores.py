"""A small corpus for the LangChain tests: real Chroma and SQLite under a test's own directory."""

from __future__ import annotations

from pathlib import Path

from langchain_core.documents import Document

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.view import View
from langchain_fiscal_rag import FiscalRagVectorStore


class WrittenVectors:
    """Reads the vector out of the text: "0.6 0.8 | anything" is (0.6, 0.8), so cosines are exact."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(number) for number in text.split("|")[0].split()]


def open_view(path: Path, embedder: object, default_scope: str | None = None) -> View:
    """The operator's view of a new collection."""
    return View(Corpus.open(str(path), "fiscal", embedder=embedder), default_scope=default_scope)  # type: ignore[arg-type]


def plant(view: View) -> None:
    """One public document and one private of A and of B, all nearest to "iva"; B's is the nearest."""
    public = FiscalRagVectorStore(View(view._corpus, default_scope="public"))
    public.add_documents(
        [Document(id="p", page_content="iva general publico", metadata={"tax": "IVA", "doc_id": "ley"})]
    )
    FiscalRagVectorStore(view.for_session("A")).add_documents(
        [Document(id="a", page_content="iva de la sesion primera", metadata={"tax": "IVA", "n": 1})]
    )
    FiscalRagVectorStore(view.for_session("B")).add_documents(
        [Document(id="b", page_content="iva", metadata={"tax": "IVA", "n": 2})]
    )


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def both(view: View) -> View:
    return view.for_access(Access(read={"A", "B"}, write="A"))
