"""The results for a terminal of 100 columns, and as Markdown for docs/measurements.md."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from .results import Figure, Results, Row

MARKS = {True: "yes", False: "NO", None: ""}


def _rows_table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", width=96)
    table.add_column("peer", no_wrap=True, ratio=1)
    for name in ("questions", "p50 ms", "p95 ms", "times raw", "recall@8"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style="bold" if row.peer.startswith("Fiscal") else "")
    return table


def _cells(row: Row) -> list[str]:
    recall = "" if row.recall is None else f"{row.recall:.4f}"
    return [
        row.peer, str(row.questions), f"{row.p50_ms:,.2f}", f"{row.p95_ms:,.2f}", f"{row.times_raw:,.2f}",
        recall,
    ]  # fmt: skip


def number(value: float) -> str:
    """Three figures that count, so that 0.0123 s and 1,234 MB are both read at once."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _figure_cells(figure: Figure) -> list[str]:
    limit = ""
    if figure.limit is not None:
        limit = f"{'>=' if figure.floor else '<='} {number(figure.limit)}"
    unit = f" {figure.unit}" if figure.unit and figure.unit != "x" else ("x" if figure.unit else "")
    return [figure.name, f"{figure.n:,}", f"{number(figure.value)}{unit}", limit, MARKS[figure.met]]


def show_case(console: Console, rows: list[Row]) -> None:
    console.print(_rows_table(f"{rows[0].case}, n = {rows[0].n:,}", rows))


def show_figures(console: Console, results: Results) -> None:
    table = Table(title="What is aimed at", title_justify="left", title_style="bold", width=96)
    table.add_column("figure", overflow="fold", ratio=1)
    for name in ("n", "seen", "must be", "met"):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in results.figures:
        table.add_row(*_figure_cells(figure), style="red" if figure.met is False else "")
    console.print(table)
    for name, reason in results.skipped.items():
        console.print(f"skipped: {name} ({reason})")


def markdown(results: Results) -> Iterator[str]:
    """Lines to paste: the environment, a table for each case, and one of the figures."""
    yield ", ".join(f"{name} {value}" for name, value in results.environment.items()) + "."
    for name, reason in results.skipped.items():
        yield f"Skipped: {name} ({reason})."
    for n, case in dict.fromkeys((row.n, row.case) for row in results.rows):
        yield ""
        yield f"### {case[0].upper()}{case[1:]}, n = {n:,}"
        yield ""
        yield "| peer | questions | p50 ms | p95 ms | times raw | recall@8 |"
        yield "|---|---|---|---|---|---|"
        for row in results.rows:
            if (row.n, row.case) == (n, case):
                yield "| " + " | ".join(_cells(row)) + " |"
    yield ""
    yield "### Figures"
    yield ""
    yield "| figure | n | seen | must be | met |"
    yield "|---|---|---|---|---|"
    for figure in results.figures:
        yield "| " + " | ".join(_figure_cells(figure)) + " |"
    yield ""
    if results.plans:
        compared = ", ".join(f"{plan} ({count})" for plan, count in sorted(results.plans.items()))
        yield f"Compared with the oracle: {compared}; {len(results.disagreements)} differed."
