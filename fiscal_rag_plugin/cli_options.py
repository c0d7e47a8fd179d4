"""The options that several verbs of ``fiscal-rag`` share, and how their texts are read."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .engines.base import Condition

Dir = Annotated[
    str | None, typer.Option("--dir", envvar="FISCAL_RAG_CHROMA_DIR", help="directory of the index")
]
Collection = Annotated[
    str | None, typer.Option(envvar="FISCAL_RAG_CHROMA_COLLECTION", help="collection in it")
]
Session = Annotated[str | None, typer.Option(help="also what this session uploaded")]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
Filter = Annotated[str | None, typer.Option("--filter", help='metadata filter, as \'{"tax": "IVA"}\'')]
AsOf = Annotated[str | None, typer.Option(help="only what was in force on this day, YYYY-MM-DD")]
TaxYear = Annotated[int | None, typer.Option(help="only what applied to this tax year")]
TopK = Annotated[int, typer.Option(help="how many passages at most")]
Threshold = Annotated[float, typer.Option(help="cosine that a passage must reach, in [-1, 1]")]
NoThreshold = Annotated[bool, typer.Option("--no-threshold", help="keep every one of the top k")]
Mode = Annotated[str, typer.Option(help="dense, sparse (words, BM25), hybrid (both) or mmr")]
Weight = Annotated[
    float,
    typer.Option("--hybrid-weight", help="of the vectors in mode hybrid, 0 to 1"),
]


def json_filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f'not JSON ({error}); write it as \'{{"tax": "IVA"}}\'', param_hint="--filter"
        ) from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="--filter")
    return parsed


def condition_of(filter_json: str | None, as_of: str | None, tax_year: int | None) -> Condition:
    """What ``--filter``, ``--as-of`` and ``--tax-year`` leave."""
    from .engines.base import Condition
    from .filters import all_of, in_force, parse_filter

    return Condition(all_of(parse_filter(json_filter(filter_json)), in_force(as_of, tax_year)))


def zoned_time(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise typer.BadParameter("write it as 2026-12-31T23:59:00+01:00", param_hint="--expires-at")
    return time


def confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter("erases a whole session; add --yes where nobody can be asked")
    return typer.confirm(question)
