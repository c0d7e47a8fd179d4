"""What a search did, as an event of LlamaIndex's instrumentation: how, and never for whom."""

from __future__ import annotations

import time

import llama_index.core.instrumentation as instrument
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.events import BaseEvent

from ..ranking import SearchQuery, SearchResult
from ..view import View

dispatcher = instrument.get_dispatcher(__name__)  # type: ignore[attr-defined]


class FiscalSearchEvent(BaseEvent):
    """One search; no text, vector, id, filter value or session is in it."""

    plan: str
    """Which way each partition was searched, as ``search --explain`` prints it."""
    mode: str
    top_k: int
    hits: int
    cut: int
    """Hits of the top k that fell below the threshold."""
    degraded: bool
    """Words were not searched although the mode asked for it, because that failed."""
    seconds: float

    @classmethod
    def class_name(cls) -> str:
        return "FiscalSearchEvent"


def _is_heard() -> bool:
    """Whether anybody handles events; making one for nobody takes as long as a hit."""
    asked = dispatcher
    while True:
        if any(not isinstance(handler, NullEventHandler) for handler in asked.event_handlers):
            return True
        if not asked.propagate:
            return False
        asked = asked.parent


def searched(view: View, query: SearchQuery) -> SearchResult:
    """``view.search(query)``, with its event."""
    started = time.perf_counter()
    result = view.search(query)
    if not _is_heard():
        return result
    dispatcher.event(
        FiscalSearchEvent(
            plan=result.plan, mode=query.mode, top_k=query.top_k, hits=len(result.hits), cut=result.cut,
            degraded=bool(result.degraded), seconds=time.perf_counter() - started,
        )
    )  # fmt: skip
    return result
