"""RAGPipeline: retrieve, ask a model over the passages, cite them, and abstain without any."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence

from .answers import AnswerStream, AsyncAnswerStream, RAGAnswer, Status, Turn
from .citations import Passage
from .errors import InvalidQueryError, SettingsError
from .frameworks import AnyLLM, AnyRetriever, Generation, Retrieval
from .prompts import DEFAULT_PROMPT, check_prompt, render_prompt

NO_CONTEXT_MESSAGE = (
    "No he encontrado en los documentos disponibles ningún pasaje que responda a esta pregunta."
)
WITHOUT_LLM_MESSAGE = (
    "No hay ningún modelo de lenguaje configurado; estos son los pasajes encontrados, sin redactar "
    "una respuesta:"
)


class RAGPipeline:
    """Answers questions from a retriever's passages, through either framework's model, with citations.

    The retriever decides what may be seen; the pipeline adds nothing to it and takes no session.
    An error of this package (access, arguments, storage, embedding) raised by the retriever is raised
    to the caller, so that it is never taken for "nothing found". A model is only ever the one given.
    """

    __slots__ = ("_answer_without_context", "_generation", "_llm", "_no_context", "_prompt",
                 "_retrieval", "_retriever")  # fmt: skip

    def __init__(
        self,
        retriever: AnyRetriever,
        llm: AnyLLM | None = None,
        *,
        prompt: str = DEFAULT_PROMPT,
        answer_without_context: bool = False,
        no_context_message: str = NO_CONTEXT_MESSAGE,
    ) -> None:
        """``prompt`` is text with ``{context}`` and ``{question}``, see ``prompts.render_prompt``.

        ``answer_without_context`` asks the model even when nothing was found; the default prompt
        still tells it to say so. Raises SettingsError for an argument of another kind.
        """
        if not isinstance(no_context_message, str) or not no_context_message.strip():
            raise SettingsError("no_context_message must be non-blank text")
        if not isinstance(answer_without_context, bool):
            raise SettingsError("answer_without_context must be True or False")
        self._retriever, self._retrieval = retriever, Retrieval(retriever)
        self._llm, self._generation = llm, None if llm is None else Generation(llm)
        self._prompt = check_prompt(prompt)
        self._answer_without_context = answer_without_context
        self._no_context = no_context_message

    @property
    def retriever(self) -> AnyRetriever:
        return self._retriever

    @property
    def llm(self) -> AnyLLM | None:
        return self._llm

    def answer_query(self, question: str) -> RAGAnswer:
        """The answer to a non-blank question; see RAGAnswer for what each status means."""
        turn = Turn(_checked(question))
        with turn.retrieving():
            turn.documents, turn.passages = self._retrieval.retrieve(question)
        if ask := self._ask(turn):
            with turn.generating():
                turn.pieces.append(ask.complete(self._prompt_of(turn)))
        return turn.end(*self._outcome(turn))

    async def aanswer_query(self, question: str) -> RAGAnswer:
        """:meth:`answer_query` through the async methods of both; those without run in a thread."""
        turn = Turn(_checked(question))
        with turn.retrieving():
            turn.documents, turn.passages = await self._retrieval.aretrieve(question)
        if ask := self._ask(turn):
            with turn.generating():
                turn.pieces.append(await ask.acomplete(self._prompt_of(turn)))
        return turn.end(*self._outcome(turn))

    def stream_query(self, question: str) -> AnswerStream:
        """The answer in pieces; ``stream.result`` is the RAGAnswer, whose answer is all of them joined.

        When the model fails half way, the last piece says so and the status is ``error``.
        """
        turn = Turn(_checked(question))
        return AnswerStream(self._pieces(turn), turn)

    def astream_query(self, question: str) -> AsyncAnswerStream:
        """:meth:`stream_query` for ``async for``; ``await stream`` is the RAGAnswer."""
        turn = Turn(_checked(question))
        return AsyncAnswerStream(self._apieces(turn), turn)

    def _pieces(self, turn: Turn) -> Generator[str]:
        with turn.retrieving():
            turn.documents, turn.passages = self._retrieval.retrieve(turn.question)
        if ask := self._ask(turn):
            with turn.generating():
                for piece in filter(None, ask.stream(self._prompt_of(turn))):
                    turn.pieces.append(piece)
                    with turn.reader():
                        yield piece
        status, closing = self._outcome(turn)
        turn.end(status, closing)
        if closing:
            yield closing

    async def _apieces(self, turn: Turn) -> AsyncGenerator[str]:
        with turn.retrieving():
            turn.documents, turn.passages = await self._retrieval.aretrieve(turn.question)
        if ask := self._ask(turn):
            with turn.generating():
                async for piece in ask.astream(self._prompt_of(turn)):
                    if piece:
                        turn.pieces.append(piece)
                        with turn.reader():
                            yield piece
        status, closing = self._outcome(turn)
        turn.end(status, closing)
        if closing:
            yield closing

    def _ask(self, turn: Turn) -> Generation | None:
        """The model, when there is one and something to ask it."""
        if turn.error is not None or not (turn.has_text or self._answer_without_context):
            return None
        return self._generation

    def _prompt_of(self, turn: Turn) -> str:
        return render_prompt(self._prompt, turn.question, turn.passages)

    def _outcome(self, turn: Turn) -> tuple[Status, str]:
        """The status, and what is still to be said after the model's own text."""
        if turn.error is not None:
            return "error", f"\n\n{turn.failure}" if turn.pieces else turn.failure
        if self._ask(turn) is not None:
            return "answered", ""
        if turn.has_text:
            return "answered", _passages_answer(turn.passages)
        return "no_context", self._no_context

    def __repr__(self) -> str:
        llm = None if self._llm is None else type(self._llm).__name__
        return f"RAGPipeline(retriever={type(self._retriever).__name__}, llm={llm})"


def _checked(question: object) -> str:
    if not isinstance(question, str) or not question.strip():
        raise InvalidQueryError("a question must be non-blank text")
    return question


def _passages_answer(passages: Sequence[Passage]) -> str:
    """The answer without a model: each passage as it is, under its citation."""
    return "\n\n".join([WITHOUT_LLM_MESSAGE, *(f"{p.citation}\n{p.text}" for p in passages)])
