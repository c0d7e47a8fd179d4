"""What a caller may say at query time: it counts or narrows, and anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fiscal_rag_plugin.errors import SettingsError, UnexpectedArgumentError
from fiscal_rag_plugin.filters import all_of, parse_filter
from fiscal_rag_plugin.ranking import SearchQuery, check_threshold, check_top_k
from fiscal_rag_plugin.view import View

# LangChain's and LlamaIndex's names of the same things.
_FIELDS = {
    "k": "top_k", "top_k": "top_k",
    "filter": "filter", "score_threshold": "score_threshold",
    "fetch_k": "mmr_prefetch_k", "mmr_prefetch_k": "mmr_prefetch_k",
    "lambda_mult": "mmr_threshold", "mmr_threshold": "mmr_threshold",
}  # fmt: skip
_FRAMEWORK = frozenset({"verbose"})
"""BaseRetriever reads it from the keywords and leaves it there."""


def view_of(vectorstore: object) -> View:
    """The view of a store of either framework, or the view itself.

    Raises:
        SettingsError: it is neither.
    """
    view = vectorstore if isinstance(vectorstore, View) else getattr(vectorstore, "view", None)
    if not isinstance(view, View):
        raise SettingsError(
            "vectorstore must be a FiscalVectorStore, a FiscalRagVectorStore or a view of one, "
            f"not {type(vectorstore).__name__}"
        )
    return view


def narrowed(query: SearchQuery, given: Mapping[str, Any]) -> SearchQuery:
    """``query`` with the keywords of one call; a None changes nothing.

    ``k``/``top_k`` counts, ``filter`` is added with AND, ``score_threshold`` may only be raised,
    ``fetch_k``/``lambda_mult`` (or ``mmr_prefetch_k``/``mmr_threshold``) steer MMR.

    Raises:
        UnexpectedArgumentError: any other keyword, above all one about access, two names for
            one thing, or a lower threshold than the configured one.
    """
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in _FRAMEWORK:
            continue
        field = _FIELDS.get(name)
        if field is None:
            raise UnexpectedArgumentError(
                f"unexpected keyword {name!r:.60} at query time; there are {', '.join(_FIELDS)}. "
                "Access is bound when the store or retriever is built"
            )
        if value is None:
            continue
        if field in changes:
            raise UnexpectedArgumentError(f"{name!r} and another keyword both give {field}")
        changes[field] = value
    if "top_k" in changes:
        check_top_k(changes["top_k"])
    if "score_threshold" in changes:
        changes["score_threshold"] = _raised(query.score_threshold, changes["score_threshold"])
    if "filter" in changes:
        both = all_of(query.condition.filter, parse_filter(changes.pop("filter")))
        changes["condition"] = replace(query.condition, filter=both)
    return replace(query, **changes)


def _raised(configured: float | None, given: object) -> float | None:
    threshold = check_threshold(given)
    if configured is not None and threshold is not None and threshold < configured:
        raise UnexpectedArgumentError(
            f"score_threshold can only be raised at query time; this retriever has {configured:g}"
        )
    return threshold
