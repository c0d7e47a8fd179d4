"""Either framework's retriever and language model, told apart by the methods they have.

Neither framework is imported: an object of one exists only where that one is already loaded.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from .citations import SIMILARITY_KEY, Passage, passages_of
from .errors import GenerationError, SettingsError

T = TypeVar("T")


class NodeRetriever(Protocol):
    """LlamaIndex's ``BaseRetriever``: gives ``NodeWithScore`` objects."""

    def retrieve(self, str_or_query_bundle: str, /) -> Any: ...


class Invocable(Protocol):
    """LangChain's ``Runnable``: a retriever of ``Document`` objects, a chat model, an LLM, a chain."""

    def invoke(self, input: str, /) -> Any: ...


class Completer(Protocol):
    """LlamaIndex's ``LLM``."""

    def complete(self, prompt: str, /) -> Any: ...


AnyRetriever: TypeAlias = NodeRetriever | Invocable
AnyLLM: TypeAlias = Completer | Invocable | Callable[[str], str]


BORROWED_KEY = "fiscal:similarity"
"""A metadata key that no caller can use: see ``Retrieval``."""


class Retrieval:
    """A retriever as one call, plain and async: its own objects, and what is shown of each.

    A LangChain ``Document`` has no place for its similarity. A retriever that can put it under a
    ``similarity_key`` and was not told to, as ours, is asked through a copy that does, and the key is
    taken off again: citations carry the cosine, and documents are those that ``invoke`` gives.
    """

    def __init__(self, retriever: AnyRetriever) -> None:
        """Raises SettingsError for an object with neither ``retrieve`` nor ``invoke``."""
        names = _family(retriever, ("retrieve", "aretrieve"), ("invoke", "ainvoke"))
        if names is None:
            raise SettingsError(
                f"retriever must have retrieve (LlamaIndex) or invoke (LangChain); {_name(retriever)} "
                "has neither. An index or a vector store gives one with as_retriever()"
            )
        self._retriever: Any = retriever
        self._plain, self._async = names

    def retrieve(self, question: str) -> tuple[list[Any], list[Passage]]:
        asked, key = self._asked()
        return _found(getattr(asked, self._plain)(question), key)

    async def aretrieve(self, question: str) -> tuple[list[Any], list[Passage]]:
        asked, key = self._asked()
        if (call := getattr(asked, self._async, None)) is None:
            return await _in_thread(self.retrieve, question)
        return _found(await call(question), key)

    def _asked(self) -> tuple[Any, str]:
        """The retriever as it is now, and the key under which its documents carry a similarity."""
        key = getattr(self._retriever, "similarity_key", SIMILARITY_KEY)
        if key is None and hasattr(self._retriever, "model_copy"):
            return self._retriever.model_copy(update={"similarity_key": BORROWED_KEY}), BORROWED_KEY
        return self._retriever, key if isinstance(key, str) else SIMILARITY_KEY


def _found(found: Any, similarity_key: str) -> tuple[list[Any], list[Passage]]:
    documents = list(found)
    passages = passages_of(documents, similarity_key)
    if similarity_key == BORROWED_KEY:
        for document in documents:
            document.metadata.pop(similarity_key, None)
    return documents, passages


class Generation:
    """A language model as text in, text out: whole or in pieces, plain and async.

    A model without async methods runs in a thread, one that cannot stream gives a single piece.
    """

    def __init__(self, llm: AnyLLM) -> None:
        """Raises SettingsError for an object that is no model and no function."""
        names = _family(
            llm,
            ("complete", "acomplete", "stream_complete", "astream_complete"),
            ("invoke", "ainvoke", "stream", "astream"),
        )
        if names is None and (isinstance(llm, type) or not callable(llm)):
            raise SettingsError(
                "llm must have complete (LlamaIndex) or invoke (LangChain), or be a function of the "
                f"prompt; {_name(llm)} is none. Without one, llm=None answers with the passages"
            )
        calls: list[Any] = [getattr(llm, n, None) for n in names] if names else [llm, None, None, None]
        self._call, self._acall, self._stream, self._astream = calls

    def complete(self, prompt: str) -> str:
        return text_of(self._call(prompt))

    async def acomplete(self, prompt: str) -> str:
        if self._acall is None:
            return await _in_thread(self.complete, prompt)
        return text_of(await self._acall(prompt))

    def stream(self, prompt: str) -> Iterator[str]:
        if self._stream is None:
            yield self.complete(prompt)
            return
        for part in self._stream(prompt):
            yield _piece(part)

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        if self._astream is None:
            yield await self.acomplete(prompt)
            return
        parts = self._astream(prompt)
        # LlamaIndex hands over a coroutine that gives the iterator, LangChain the iterator.
        async for part in await parts if inspect.isawaitable(parts) else parts:
            yield _piece(part)


def text_of(output: object) -> str:
    """The text of a ``str``, a ``CompletionResponse``, or a message with text or content blocks.

    Blocks that are not text (reasoning, images, tool calls) are no part of the answer.

    Raises:
        GenerationError: there is no text to be found in an object of this type.
    """
    if isinstance(output, str):
        return output
    content = getattr(output, "content", None)
    if content is None:
        content = getattr(output, "text", None)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_block_text(block) for block in content)
    raise GenerationError(f"the model returned {type(output).__name__}, which has no text")


def _piece(part: object) -> str:
    """What a streamed part adds: LlamaIndex's ``delta``, or the text of LangChain's chunk."""
    if hasattr(part, "delta"):
        return part.delta or ""
    return text_of(part)


def _block_text(block: object) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") == "text":
        return str(block.get("text") or "")
    return ""


async def _in_thread(call: Callable[[str], T], text: str) -> T:
    """``call(text)`` without blocking the event loop."""

    def guarded() -> T:
        try:
            return call(text)
        except StopIteration as error:
            # No future can carry one: the awaiting side would wait for ever.
            raise RuntimeError("the call raised StopIteration") from error

    return await asyncio.to_thread(guarded)


def _family(thing: object, *families: tuple[str, ...]) -> tuple[str, ...] | None:
    """The first family of method names whose first one ``thing`` has."""
    if isinstance(thing, type):
        return None
    return next((names for names in families if callable(getattr(thing, names[0], None))), None)


def _name(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
