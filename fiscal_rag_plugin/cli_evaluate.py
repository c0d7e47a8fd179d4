"""The verb that measures: which way to search finds what labelled questions should find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from . import cli_options as option
from . import cli_output as output
from .cli_app import app, opened, settings_of
from .cli_json import print_json

if TYPE_CHECKING:
    from .evaluation import Evaluation, Scores
    from .evaluation.run import OnQuestion

_WITH_INTERVAL = ("nDCG@10", "Recall@8")


@app.command()
def evaluate(
    queries: Annotated[Path, typer.Option(help="JSON lines with _id and text")],
    qrels: Annotated[Path, typer.Option(help="question, doc_id, grade, parted by tabs")],
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="as mode=dense,hybrid, hybrid_weight=0.3,0.7, score_threshold=none,0.8; repeatable"
        ),
    ] = None,
    session: option.Session = None,
    filter_json: option.Filter = None,
    as_of: option.AsOf = None,
    tax_year: option.TaxYear = None,
    directory: option.Dir = None,
    collection: option.Collection = None,
    as_json: option.Json = False,
) -> None:
    """Measure retrieval on labelled questions, for each way to search, side by side."""
    from .evaluation import configurations, load_questions
    from .evaluation import evaluate as measured

    for name, path in (("--queries", queries), ("--qrels", qrels)):
        if not path.is_file():
            raise typer.BadParameter(f"{path} is no file", param_hint=name)
    condition = option.condition_of(filter_json, as_of, tax_year)
    compared = configurations(compare) if compare else configurations()
    asked = load_questions(queries, qrels)
    with opened(settings_of(directory, collection), session) as store, _progress(as_json) as on_question:
        found = measured(store, asked, compared, condition=condition, on_question=on_question)
    for problem in asked.problems:
        output.complain(problem, "Note")
    if found.absent:
        output.complain(
            f"{len(found.absent)} relevant documents are not in the index, so their questions cannot "
            f"score fully: {', '.join(found.absent[:5])}", "Note",
        )  # fmt: skip
    if as_json:
        print_json(evaluation_as_dict(found))
    else:
        print_evaluation(found)


@contextmanager
def _progress(as_json: bool) -> Iterator[OnQuestion | None]:
    if as_json or not output.err.is_terminal:
        yield None
        return
    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn(compact=True)
    with Progress(*columns, console=output.err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_evaluation(found: Evaluation) -> None:
    from .evaluation import MEASURES, interval

    asked = f"{len(found.questions)} questions, documents ranked"
    table = Table(title=f"{asked}; in parentheses, 95 % of resampled question sets")
    table.add_column("search", no_wrap=True)
    for measure in MEASURES:
        table.add_column(measure, justify="right", no_wrap=True)
    best = {m: max(scores.mean(m) for scores in found.scores) for m in MEASURES}
    for scores in found.scores:
        cells = []
        for measure in MEASURES:
            mean = scores.mean(measure)
            cell = f"{mean:.3f}"
            if mean == best[measure] and len(found.scores) > 1:
                cell = f"[bold]{cell}[/]"
            if measure in _WITH_INTERVAL:
                value = interval(scores.values[measure])
                cell += f" [dim]({value.low:.2f} to {value.high:.2f})[/]"
            cells.append(cell)
        table.add_row(scores.configuration.name, *cells)
    output.print_table(table)
    lines = list(_comparisons(found.scores))
    for line in lines:
        output.out.print(line)
    if lines:
        output.out.print(
            "The difference of the means; p is how often chance alone does as much.", style="dim"
        )


def _comparisons(scores: Sequence[Scores]) -> Iterator[str]:
    """The best configuration by nDCG@10 against each other one."""
    from .evaluation import paired

    if len(scores) < 2:
        return
    best = max(scores, key=lambda s: s.mean("nDCG@10"))
    for other in scores:
        if other is not best:
            told = []
            for measure in _WITH_INTERVAL:
                c = paired(best.values[measure], other.values[measure])
                told.append(f"{measure} {c.difference:+.3f} (p = {c.p:.3f})")
            yield f"{best.configuration.name} against {other.configuration.name}: {', '.join(told)}"


def evaluation_as_dict(found: Evaluation) -> dict[str, Any]:
    from .evaluation import MEASURES, interval, paired

    return {
        "questions": [
            {
                "id": question.id,
                "found": {s.configuration.name: s.found[i] for s in found.scores},
                "values": {
                    s.configuration.name: {m: s.values[m][i] for m in MEASURES} for s in found.scores
                },
            }
            for i, question in enumerate(found.questions)
        ],
        "configurations": [
            {
                "name": s.configuration.name, **asdict(s.configuration),
                "measures": {m: asdict(interval(s.values[m])) for m in MEASURES},
            }
            for s in found.scores
        ],
        "comparisons": [
            {
                "first": a.configuration.name, "second": b.configuration.name,
                "measures": {m: asdict(paired(a.values[m], b.values[m])) for m in MEASURES},
            }
            for a, b in combinations(found.scores, 2)
        ],
        "absent": found.absent,
    }  # fmt: skip
