"""What ``fiscal-rag`` prints for people; for scripts, see :mod:`.cli_json`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .citations import page_label
from .cli_json import STATES, print_json

if TYPE_CHECKING:
    from .answers import RAGAnswer
    from .drafts import DocumentInfo
    from .engines.base import Hit
    from .ingest.run import IngestReport, OnProgress
    from .ingest.run import Progress as IngestProgress
    from .maintenance import Stats
    from .ranking import Explained, SearchResult

EXCERPT_CHARS = 320
_PIPE_COLUMNS = 10_000
"""A pipe has no width: wrapped at 80, an id in it could not be found by ``grep``."""
_ROOMY_COLUMNS = 100
_NAME_COLUMNS = 28
_KEPT_LINE = re.compile(r"\s*(?:[-*+•|#>]|\d+[.)]|[a-zñ]\))")
"""A list item, table row, heading or quotation, which stays a line of its own."""


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=_PIPE_COLUMNS)
    return console


out, err = _console(), _console(stderr=True)


def clean(text: str) -> str:
    """Document text without what a terminal would obey; a no-break space is a space."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else " " if c.isspace() else "" if c == "\xad" else "\ufffd"
        for c in text
    )


def print_table(table: Table) -> None:
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()))


def complain(message: str, kind: str = "Error") -> None:
    colour = "bold red" if kind == "Error" else "bold yellow"
    err.print(Text.assemble((f"{kind}: ", colour), clean(message)))


def hint(message: str) -> None:
    err.print(Text(clean(message), style="dim"))


def print_version() -> None:
    try:
        version = metadata.version("fiscal-rag-plugin")
    except metadata.PackageNotFoundError:
        version = "(not installed, run from its source)"
    print(f"fiscal-rag {version}")


def supported_formats() -> str:
    from .ingest.files import SUPPORTED_SUFFIXES

    return ", ".join(sorted(SUPPORTED_SUFFIXES))


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_COLUMNS else "…" + name[1 - _NAME_COLUMNS :]


@contextmanager
def ingest_progress(*, visible: bool) -> Iterator[OnProgress | None]:
    """A bar over the bytes of all files, with chunks a second and the time left."""
    if not visible or not err.is_terminal:
        yield None
        return
    columns = (
        BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn(compact=True),
        TextColumn("left {task.fields[rate]}"), TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def on_progress(now: IngestProgress) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f"· {now.embedded / elapsed:.1f} chunks/s ·" if now.embedded and elapsed else ""
            bar.update(
                task,
                description=_cut(clean(now.path)),
                completed=now.done_bytes,
                total=now.total_bytes,
                rate=rate,
            )

        yield on_progress


def print_report(report: IngestReport, *, quiet: bool) -> None:
    for warning in report.warnings:
        complain(warning, "Warning")
    for problem in report.problems:
        complain(problem)
    if quiet or not report.files:
        return
    states = [f"{report.count(name)} {name}" for name in STATES if report.count(name)]
    out.print(f"Files:  {', '.join(states)}")
    parts = {
        "embedded": "embedded",
        "kept": "kept",
        "updated": "updated",
        "removed": "replaced by newer text",
    }
    told = [f"{report.total(name)} {word}" for name, word in parts.items() if report.total(name)]
    out.print(f"Chunks: {', '.join(told) or 'none'}")


def _place(hit: Hit) -> Text:
    flat = hit.record.flat()
    parts = [str(hit.record.ref or hit.record.id), str(flat.get("section_label") or "")]
    if flat.get("page"):
        parts.append(page_label(flat.get("page"), flat.get("page_end")))
    line = Text(clean(" · ".join(part for part in parts if part)))
    if hit.record.scope == "private":
        line.append("  private", style="bold magenta")
    return line


def print_result(
    result: SearchResult, candidates: Sequence[Explained] | None, threshold: float | None
) -> None:
    found = Table.grid(padding=(0, 1), pad_edge=False)
    for rank, hit in enumerate(result.hits, 1):
        text = " ".join(clean(hit.record.text).split())
        short = text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS].rsplit(" ", 1)[0] + " …"
        similarity = Text(_number(hit.score, 4), style="cyan")
        found.add_row(Text(f"{rank}.", style="bold"), similarity, _place(hit))
        found.add_row("", "", Text(short + "\n", style="dim"))
    print_table(found)
    if not result.hits:
        out.print("No passage found within this access.")
    if result.cut:
        out.print(
            f"{result.cut} of the nearest passages were below the threshold {threshold:g} "
            f"(the best has {result.best:.4f}); --no-threshold shows them."
        )
    if candidates is not None:
        _print_candidates(candidates)
        out.print(f"Plan: {result.plan}", style="dim")
    if result.degraded:
        complain(f"words were not searched: {result.degraded}")


def _print_candidates(candidates: Sequence[Explained]) -> None:
    words = any(candidate.hit.bm25 is not None for candidate in candidates)
    names = ["similarity", *(["bm25", "ranks", "rrf"] if words else []), "decision", "candidate"]
    table = Table(*names, box=None, header_style="bold", pad_edge=False)
    for candidate in candidates:
        hit, kept = candidate.hit, candidate.decision.startswith("kept")
        decision = Text(candidate.decision, style="green" if kept else "dim", no_wrap=True)
        ranks = f"{hit.dense_rank or '-'}+{hit.lexical_rank or '-'}"
        by_words = [_number(hit.bm25, 2), ranks, _number(hit.rrf, 5)] if words else []
        table.add_row(_number(hit.score, 4), *by_words, decision, _place(hit))
    print_table(table)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def print_answer(answer: RAGAnswer) -> None:
    """The answer; passages that stand for one are set to the width of the terminal."""
    if answer.status != "answered":
        out.print(Text(clean(answer.answer)))
        hint("`fiscal-rag search --explain` shows what was near, and why it was left out.")
        return
    out.print(Text(clean(answer.answer.partition("\n\n")[0])))
    for document, citation in zip(answer.source_documents, answer.citations, strict=True):
        out.print(Text("\n" + clean(str(citation)), style="bold"))
        out.print(Text(_flowing(clean(document.page_content))))


def _flowing(text: str) -> str:
    """Paragraphs without the line ends of a PDF page, which a terminal would wrap once more."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1].strip() and line.strip() and not _KEPT_LINE.match(line):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines)


def print_documents(documents: Sequence[DocumentInfo], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(document) for document in documents])
        return
    if not documents:
        out.print("No documents.")
        return
    columns: dict[str, list[str]] = {
        "document": [d.doc_id or "(none)" for d in documents],
        "scope": [d.source_scope for d in documents],
        "tax": [d.tax for d in documents],
        "type": [d.doc_type for d in documents],
        "chunks": [str(d.chunks) for d in documents],
    }
    if out.width >= _ROOMY_COLUMNS:
        columns["retrieved"] = [d.retrieved_at[:10] for d in documents]
    if any(d.expires_at is not None for d in documents):
        columns["expires"] = [_local(d.expires_at) for d in documents]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        side: Literal["left", "right"] = "right" if name == "chunks" else "left"
        table.add_column(name, justify=side, overflow="fold")  # a cut id could not be pasted
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(clean(cell)) for cell in row))
    print_table(table)
    out.print(f"{len(documents)} documents, {sum(d.chunks for d in documents)} chunks", style="dim")


def _local(seconds: float | None) -> str:
    return "" if seconds is None else f"{dt.datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


def print_stats(found: Stats, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    rows: dict[str, Any] = {
        "directory": found.directory, "collection": found.collection,
        "public chunks": found.public_chunks,
        "private chunks": f"{found.private_chunks} of {found.sessions} sessions",
        "model": found.model or "not declared", "dimension": found.dimension or "none yet",
        "size on disk": f"{found.bytes_on_disk / 1e6:.1f} MB",
    }  # fmt: skip
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(str(value)))
    print_table(table)


def print_deleted(deleted: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted_chunks": deleted})
    else:
        out.print(
            f"{deleted} chunks deleted."
            if deleted
            else "Nothing to delete: no such document or session here."
        )


def print_repaired(texts: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"texts": texts})
    else:
        out.print(f"The words of {texts} public chunks are indexed anew.")


def print_check(problems: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": not problems, "problems": list(problems)})
        return
    for problem in problems:
        complain(problem)
    if not problems:
        out.print("Everything that was read is whole.")
