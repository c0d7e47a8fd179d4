from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from llama_index.core.llms import MockLLM

from fiscal_rag_plugin.citations import passages_of
from fiscal_rag_plugin.errors import GenerationError, SettingsError
from fiscal_rag_plugin.frameworks import Generation, Retrieval, text_of

MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "llama-index": (lambda: MockLLM(max_tokens=3), "text text text"),
    "llama-index echo": (MockLLM, "hola"),
    "langchain chat": (lambda: FakeListChatModel(responses=["buenos días"]), "buenos días"),
    "langchain generic chat": (
        lambda: GenericFakeChatModel(messages=iter([AIMessage("buenos días")])), "buenos días",
    ),
    "langchain llm": (lambda: FakeListLLM(responses=["buenos días"]), "buenos días"),
    "langchain chain": (
        lambda: FakeListChatModel(responses=["buenos días"]) | StrOutputParser(), "buenos días",
    ),
    "function": (lambda: str.upper, "HOLA"),
}  # fmt: skip


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> tuple[Generation, str]:
    make, expected = MODELS[request.param]
    return Generation(make()), expected


def test_every_kind_of_model_completes(model: tuple[Generation, str]) -> None:
    generation, expected = model
    assert generation.complete("hola") == expected


async def test_every_kind_of_model_completes_async(model: tuple[Generation, str]) -> None:
    generation, expected = model
    assert await generation.acomplete("hola") == expected


def test_the_pieces_of_every_kind_of_model_are_its_answer(model: tuple[Generation, str]) -> None:
    generation, expected = model
    assert "".join(generation.stream("hola")) == expected


async def test_the_async_pieces_of_every_kind_of_model_are_its_answer(
    model: tuple[Generation, str],
) -> None:
    generation, expected = model
    assert "".join([piece async for piece in generation.astream("hola")]) == expected


def test_a_model_that_streams_gives_several_pieces() -> None:
    assert list(Generation(MockLLM(max_tokens=2)).stream("x")) == ["text ", "text"]
    assert len(list(Generation(FakeListChatModel(responses=["hola"])).stream("x"))) > 1


def test_content_blocks_give_their_text_and_no_reasoning() -> None:
    blocks: list[str | dict[str, Any]] = [
        {"type": "reasoning", "reasoning": "pienso", "text": "pienso"},
        {"type": "text", "text": "El 21 "},
        "por ciento",
        {"type": "tool_call", "name": "f", "args": {}, "id": "1"},
        {"type": "text", "text": None},
    ]
    assert text_of(AIMessage(content=blocks)) == "El 21 por ciento"


@pytest.mark.parametrize("output", [None, 3, {"answer": "x"}, object()])
def test_an_output_without_text_is_an_error_that_names_its_type(output: object) -> None:
    with pytest.raises(GenerationError, match=type(output).__name__):
        text_of(output)


class OnlyInvoke:
    def invoke(self, prompt: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return prompt * 2


async def test_a_model_without_async_methods_runs_off_the_event_loop() -> None:
    generation = Generation(OnlyInvoke())
    assert await generation.acomplete("a") == "aa"
    assert [piece async for piece in generation.astream("a")] == ["aa"]


async def test_a_stop_iteration_in_a_thread_is_an_error_and_no_endless_wait() -> None:
    nothing = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(Generation(lambda prompt: next(nothing)).acomplete("a"), timeout=30)


@pytest.mark.parametrize("llm", ["gpt-4o", 3, MockLLM, FakeListChatModel, object()])
def test_what_is_no_model_is_refused_and_no_default_takes_its_place(llm: Any) -> None:
    with pytest.raises(SettingsError, match="llm must have complete"):
        Generation(llm)


@pytest.mark.parametrize("retriever", [None, "x", len, MockLLM, object(), FakeListChatModel])
def test_what_is_no_retriever_is_refused(retriever: Any) -> None:
    with pytest.raises(SettingsError, match=r"as_retriever\(\)"):
        Retrieval(retriever)


async def test_a_runnable_of_documents_is_a_retriever() -> None:
    found = [Document(page_content="x")]
    retrieval = Retrieval(RunnableLambda(lambda question: found))
    assert retrieval.retrieve("q") == (found, passages_of(found))
    assert await retrieval.aretrieve("q") == (found, passages_of(found))


async def test_a_retriever_without_async_methods_runs_off_the_event_loop() -> None:
    class OnlyRetrieve:
        def retrieve(self, question: str) -> list[Document]:
            assert threading.current_thread() is not threading.main_thread()
            return [Document(page_content=question)]

    documents, _ = await Retrieval(OnlyRetrieve()).aretrieve("q")
    assert documents == [Document(page_content="q")]


class Scored(BaseRetriever):
    """A LangChain retriever that can show its similarity, as FiscalRagRetriever."""

    similarity_key: str | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(
                page_content=query, metadata={self.similarity_key: 0.75} if self.similarity_key else {}
            )
        ]


async def test_a_similarity_that_a_retriever_keeps_to_itself_is_cited_and_documents_stay_as_they_are() -> (
    None
):
    retriever = Scored()
    for documents, passages in (
        Retrieval(retriever).retrieve("q"),
        await Retrieval(retriever).aretrieve("q"),
    ):
        assert passages[0].citation.similarity == 0.75
        assert documents == retriever.invoke("q") == [Document(page_content="q")]
    assert retriever.similarity_key is None


def test_a_similarity_key_of_the_callers_own_is_read_and_left() -> None:
    retriever = Scored(similarity_key="coseno")
    documents, passages = Retrieval(retriever).retrieve("q")
    assert passages[0].citation.similarity == 0.75
    assert documents == retriever.invoke("q")


def test_a_retriever_is_asked_as_it_is_now() -> None:
    retriever = Scored()
    retrieval = Retrieval(retriever)
    retriever.similarity_key = "coseno"
    assert retrieval.retrieve("q")[0][0].metadata == {"coseno": 0.75}
