"""Which words of a record are shown as its evidence."""

from __future__ import annotations

from collections.abc import Callable

from ..chunks import Json
from ..errors import InvalidQueryError
from .canonical import RecordJson, block

PREFERENCES = ("raw_text", "stage5", "summary")


def check_preference(preference: object) -> str:
    """``preference`` when it is one of PREFERENCES."""
    if preference not in PREFERENCES:
        raise InvalidQueryError(
            f"snippet_preference {preference!r:.40} is unknown; there are {', '.join(PREFERENCES)}"
        )
    return str(preference)


def select_processed_snippet(record: RecordJson, prefer: str = "raw_text") -> str:
    """The preferred text of a record, else the next one it has; never blank.

    raw_text: the source's text, the stage 5 finding, the summary. stage5: the first causal
    statement (its sentence, else cause, connector and effect), the condition as found or as left,
    the summary. summary: the retrieval summary's scope. Last of all comes the embedding text.
    """
    check_preference(prefer)
    order: dict[str, tuple[Callable[[RecordJson], str], ...]] = {
        "raw_text": (_raw_text, _stage5, _summary),
        "stage5": (_stage5, _summary),
        "summary": (_summary,),
    }
    found = (text for pick in order[prefer] if (text := pick(record)))
    return next(found, "") or _text(record.get("embedding_text"))


def _text(value: Json) -> str:
    return value.strip() if isinstance(value, str) else ""


def _raw_text(record: RecordJson) -> str:
    return _text(block(record, "enrichment").get("raw_text"))


def _summary(record: RecordJson) -> str:
    return _text(block(record, "enrichment", "retrieval_summary_json").get("scope"))


def _stage5(record: RecordJson) -> str:
    stage5 = block(record, "enrichment", "stage5_causal_condition")
    statements = stage5.get("extracted_causal_statements")
    for statement in statements if isinstance(statements, list) else []:
        if isinstance(statement, dict):
            parts = [_text(statement.get(k)) for k in ("cause_text", "connector", "effect_text")]
            text = _text(statement.get("sentence_text")) or " ".join(filter(None, parts))
            if text:
                return text
    state = block(stage5, "condition_state")
    return _text(state.get("as_found")) or _text(state.get("as_left"))
