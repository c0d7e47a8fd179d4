"""RAGAnswer: what comes of a question, whole or in pieces, and what its making took."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from .citations import Citation, Passage
from .errors import FiscalRagError, GenerationError

logger = logging.getLogger(__name__)

Status = Literal["answered", "no_context", "error"]

RETRIEVAL_FAILED_MESSAGE = "No se han podido consultar los documentos; la pregunta queda sin responder."
GENERATION_FAILED_MESSAGE = (
    "El modelo de lenguaje ha fallado al redactar la respuesta. Los pasajes encontrados están en las "
    "fuentes."
)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Seconds of each stage; the total also covers making the prompt, and no time a reader took."""

    retrieval_seconds: float
    generation_seconds: float
    """0.0 when no model was asked"""
    total_seconds: float
    documents: int


@dataclass(frozen=True, slots=True)
class RAGAnswer(Mapping[str, Any]):
    """What came of a question. Also a mapping of its fields: ``result["answer"]``, ``dict(result)``.

    ``answered``: the model's text; without a model, the passages themselves, said to be so.
    ``no_context``: nothing was found, and ``answer`` says that.
    ``error``: the model failed, or the retriever did for a reason that is none of this package's own
    errors; ``answer`` says which, ``error`` is the exception. Its text is the model's or the
    retriever's own and may quote a passage, so it is not repeated in ``answer`` or in any log.
    """

    answer: str = field(repr=False)
    status: Status
    source_documents: list[Any] = field(repr=False)
    """the retriever's own objects, ``NodeWithScore`` or ``Document``, in its order"""
    citations: list[Citation]
    """one a document, in the same order: ``[n]`` in the answer is ``citations[n - 1]``"""
    metrics: Metrics
    error: Exception | None = field(default=None, repr=False)

    def __getitem__(self, key: str) -> Any:
        if key not in _FIELDS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELDS)

    def __len__(self) -> int:
        return len(_FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """The fields with plain dicts inside; documents stay objects, ``error`` is its type's name."""
        error = None if self.error is None else type(self.error).__name__
        citations = [asdict(citation) for citation in self.citations]
        return {**self, "citations": citations, "metrics": asdict(self.metrics), "error": error}


_FIELDS = tuple(f.name for f in fields(RAGAnswer))


class Turn:
    """One question on its way: what was found and said so far, and how long each took."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.documents: list[Any] = []
        self.passages: list[Passage] = []
        self.pieces: list[str] = []
        self.error: Exception | None = None
        self.failure = ""
        self.result: RAGAnswer | None = None
        self._started = self._retrieval = self._generation = self._away = 0.0

    @property
    def has_text(self) -> bool:
        """Whether anything was found that can be read: an image node alone is no passage."""
        return any(passage.text.strip() for passage in self.passages)

    def _clock(self) -> float:
        return time.perf_counter() - self._away

    @contextmanager
    def retrieving(self) -> Iterator[None]:
        """Times the retrieval, the first stage. Our own errors pass: they are typed and say what to do."""
        self._started = self._clock()
        try:
            yield
        except FiscalRagError:
            raise
        except Exception as error:
            self._fail(error, "retrieval", RETRIEVAL_FAILED_MESSAGE)
        self._retrieval = self._clock() - self._started

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Times the model; whatever it raises, and an empty answer, becomes the turn's error."""
        started = self._clock()
        try:
            yield
            if not "".join(self.pieces).strip():
                raise GenerationError("the model returned no text")
        except Exception as error:
            self._fail(error, "generation", GENERATION_FAILED_MESSAGE)
        self._generation = self._clock() - started

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Around a ``yield``: the time that a stream's reader takes is nobody's."""
        left = time.perf_counter()
        yield
        self._away += time.perf_counter() - left

    def _fail(self, error: Exception, stage: str, failure: str) -> None:
        # The type only: a model's error may quote the prompt, and so the passages.
        logger.warning("%s failed: %s", stage, type(error).__name__)
        self.error, self.failure = error, failure

    def end(self, status: Status, closing: str) -> RAGAnswer:
        """The answer: all the pieces, ``closing`` the last."""
        self.pieces.append(closing)
        self.result = RAGAnswer(
            answer="".join(self.pieces), status=status, source_documents=self.documents,
            citations=[passage.citation for passage in self.passages],
            metrics=Metrics(
                self._retrieval, self._generation, self._clock() - self._started, len(self.documents)
            ),
            error=self.error,
        )  # fmt: skip
        logger.debug("%s, %d documents", status, len(self.documents))
        return self.result


class AnswerStream(Iterator[str]):
    """The pieces of an answer as they come. Nothing is retrieved before the first is asked for."""

    def __init__(self, pieces: Generator[str], turn: Turn) -> None:
        self._pieces = pieces
        self._turn = turn

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def result(self) -> RAGAnswer:
        """The whole answer; reads the rest of the stream first. Raises GenerationError after close()."""
        for _ in self:
            pass
        return _complete(self._turn)

    def close(self) -> None:
        """Stop asking the model for more."""
        self._pieces.close()


class AsyncAnswerStream(AsyncIterator[str]):
    """The async twin of :class:`AnswerStream`; ``await stream`` reads the rest and gives the answer."""

    def __init__(self, pieces: AsyncGenerator[str], turn: Turn) -> None:
        self._pieces = pieces
        self._turn = turn

    async def __anext__(self) -> str:
        return await anext(self._pieces)

    def __await__(self) -> Generator[Any, None, RAGAnswer]:
        return self._drain().__await__()

    async def _drain(self) -> RAGAnswer:
        async for _ in self:
            pass
        return self.result

    @property
    def result(self) -> RAGAnswer:
        """The whole answer, once the stream was read to its end; before that, GenerationError."""
        return _complete(self._turn)

    async def aclose(self) -> None:
        """Stop asking the model for more."""
        await self._pieces.aclose()


def _complete(turn: Turn) -> RAGAnswer:
    if turn.result is None:
        raise GenerationError("this stream was not read to its end, so its answer is not complete")
    return turn.result
