"""What ``fiscal-rag`` prints: tables for people on a terminal, JSON for scripts."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .answers import RAGAnswer
from .citations import page_label
from .drafts import DocumentInfo
from .engines.base import Hit
from .ingest import SUPPORTED_SUFFIXES
from .ingest.run import IngestReport, OnProgress
from .ingest.run import Progress as IngestProgress
from .maintenance import Stats
from .ranking import Explained, SearchResult

EXCERPT_CHARS = 320
_STATES = ("ingested", "unchanged", "failed")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def clean(text: str) -> str:
    """Document text without what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def complain(message: str) -> None:
    err.print(Text.assemble(("Error: ", "bold red"), clean(message)))


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def supported_formats() -> str:
    return ", ".join(sorted(SUPPORTED_SUFFIXES))


@contextmanager
def ingest_progress(*, visible: bool) -> Iterator[OnProgress | None]:
    """A bar over the bytes of all files, with chunks a second and the time left."""
    if not visible or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"), TextColumn("left"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("reading", total=None, rate="")

        def on_progress(now: IngestProgress) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f"{now.embedded / elapsed:.1f} chunks/s" if now.embedded and elapsed else ""
            name = clean(now.path)[-32:]
            bar.update(task, description=name, completed=now.done_bytes, total=now.total_bytes, rate=rate)

        yield on_progress


def report_as_dict(report: IngestReport) -> dict[str, Any]:
    totals = {name: report.total(name) for name in ("chunks", "embedded", "kept", "updated", "removed")}
    states = {name: report.count(name) for name in _STATES}
    return {"files": [asdict(file) for file in report.files], "totals": {**states, **totals}}


def print_report(report: IngestReport, *, quiet: bool) -> None:
    for problem in report.problems:
        complain(problem)
    if quiet or not report.files:
        return
    states = [f"{report.count(name)} {name}" for name in _STATES if report.count(name)]
    out.print(f"Files:  {', '.join(states)}")
    parts = {
        "embedded": "embedded",
        "kept": "kept",
        "updated": "updated",
        "removed": "replaced by newer text",
    }
    told = [f"{report.total(name)} {word}" for name, word in parts.items() if report.total(name)]
    out.print(f"Chunks: {', '.join(told) or 'none'}")


def hit_as_dict(hit: Hit) -> dict[str, Any]:
    flat = hit.record.flat()
    return {
        "similarity": round(hit.similarity, 6), "chunk_id": hit.record.id, "doc_id": hit.record.ref,
        "source": flat.get("source") or flat.get("source_url") or hit.record.ref,
        "article": flat.get("section_label") or "", "page": flat.get("page") or 0,
        "page_end": flat.get("page_end") or 0, "scope": hit.record.scope,
        "text": hit.record.text, "metadata": flat,
    }  # fmt: skip


def result_as_dict(result: SearchResult, candidates: Sequence[Explained] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "hits": [{"rank": rank, **hit_as_dict(hit)} for rank, hit in enumerate(result.hits, 1)],
        "cut_by_threshold": result.cut,
        "best_similarity": None if math.isnan(result.best) else round(result.best, 6),
        "plan": result.plan,
    }
    if candidates is not None:
        found["candidates"] = [{"decision": c.decision, **hit_as_dict(c.hit)} for c in candidates]
    return found


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
    for rank, hit in enumerate(result.hits, 1):
        out.print(Text.assemble((f"{rank}. ", "bold"), (f"{hit.similarity:.4f}  ", "cyan"), _place(hit)))
        text = " ".join(clean(hit.record.text).split())
        short = text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS].rsplit(" ", 1)[0] + " …"
        out.print(Padding(Text(short, style="dim"), (0, 0, 1, 3)))
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


def _print_candidates(candidates: Sequence[Explained]) -> None:
    table = Table("similarity", "candidate", "decision", box=None, header_style="bold", pad_edge=False)
    for candidate in candidates:
        kept = candidate.decision.startswith("kept")
        similarity = f"{candidate.hit.similarity:.4f}"
        table.add_row(
            similarity, _place(candidate.hit), Text(candidate.decision, style="green" if kept else "dim")
        )
    out.print(table)


def answer_as_dict(answer: RAGAnswer) -> dict[str, Any]:
    told = answer.to_dict()
    told["source_documents"] = [
        {"text": document.page_content, "metadata": document.metadata}
        for document in answer.source_documents
    ]
    return told


def print_answer(answer: RAGAnswer) -> None:
    out.print(Text(clean(answer.answer)))


def print_documents(documents: Sequence[DocumentInfo], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(document) for document in documents])
        return
    if not documents:
        out.print("No documents.")
        return
    columns = ("document", "scope", "tax", "type", "chunks", "retrieved", "expires")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for d in documents:
        expires = "" if d.expires_at is None else _local(d.expires_at)
        table.add_row(
            Text(clean(d.doc_id or "(none)")), d.source_scope, Text(clean(d.tax)), Text(clean(d.doc_type)),
            str(d.chunks), clean(d.retrieved_at)[:10], expires,
        )  # fmt: skip
    out.print(table)
    out.print(f"{len(documents)} documents, {sum(d.chunks for d in documents)} chunks", style="dim")


def _local(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="minutes")


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
    out.print(table)


def print_deleted(deleted: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted_chunks": deleted})
    else:
        out.print(
            f"{deleted} chunks deleted."
            if deleted
            else "Nothing to delete: no such document or session here."
        )


def print_check(problems: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": not problems, "problems": list(problems)})
        return
    for problem in problems:
        complain(problem)
    if not problems:
        out.print("Everything that was read is whole.")
