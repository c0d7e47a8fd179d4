"""What ``fiscal-rag --json`` prints."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answers import RAGAnswer
    from .engines.base import Hit
    from .ingest.run import IngestReport
    from .ranking import Explained, SearchResult

STATES = ("ingested", "unchanged", "failed")


def print_json(value: Any) -> None:
    """JSON in which what a terminal would obey is escaped, too."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    told = json.dumps(value, ensure_ascii=not utf8, indent=2)
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in told))


def report_as_dict(report: IngestReport) -> dict[str, Any]:
    totals = {name: report.total(name) for name in ("chunks", "embedded", "kept", "updated", "removed")}
    states = {name: report.count(name) for name in STATES}
    return {"files": [asdict(file) for file in report.files], "totals": {**states, **totals}}


def hit_as_dict(hit: Hit) -> dict[str, Any]:
    flat = hit.record.flat()
    words = {
        "bm25": hit.bm25,
        "dense_rank": hit.dense_rank,
        "lexical_rank": hit.lexical_rank,
        "rrf": hit.rrf,
    }
    return {
        "similarity": None if hit.score is None else round(hit.score, 6),
        **({} if hit.bm25 is None else words), "chunk_id": hit.record.id, "doc_id": hit.record.ref,
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
        **({"degraded": result.degraded} if result.degraded else {}),
    }
    if candidates is not None:
        found["candidates"] = [{"decision": c.decision, **hit_as_dict(c.hit)} for c in candidates]
    return found


def answer_as_dict(answer: RAGAnswer) -> dict[str, Any]:
    told = answer.to_dict()
    told["source_documents"] = [
        {"text": document.page_content, "metadata": document.metadata}
        for document in answer.source_documents
    ]
    return told
