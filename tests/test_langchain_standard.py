"""LangChain's own standard suites on a real directory: the definition of done for its interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from langchain_fiscal_rag import FiscalRagRetriever, FiscalRagVectorStore
from tests.embedders import HashEmbedder
from tests.langchain_stores import open_view


class TestSessionStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[FiscalRagVectorStore]:  # type: ignore[override]
        view = open_view(tmp_path, self.get_embeddings())
        yield FiscalRagVectorStore(view.for_session("A"))
        view.close()


class TestPublicStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[FiscalRagVectorStore]:  # type: ignore[override]
        view = open_view(tmp_path, self.get_embeddings(), default_scope="public")
        yield FiscalRagVectorStore(view)
        view.close()


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _corpus(self, tmp_path: Path) -> Iterator[None]:
        view = open_view(tmp_path, HashEmbedder())
        self.store = FiscalRagVectorStore(view.for_session("A"))
        self.store.add_documents([Document(page_content=f"tipo general del iva {i}") for i in range(5)])
        yield
        view.close()

    @property
    def retriever_constructor(self) -> type[FiscalRagRetriever]:
        return FiscalRagRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": self.store}

    @property
    def retriever_query_example(self) -> str:
        return "¿Cuál es el tipo general del IVA?"

    @property
    def num_results_arg_name(self) -> str:
        return "top_k"
