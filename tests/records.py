"""Synthetic processed_text_records: the same in every process, of seven types, with every optional block."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

TYPES = ("CR", "WO", "SOP", "RCA", "ECA", "FMEA", "MANUAL")
COMPONENTS = [f"{kind}-{number}" for kind in ("P", "V", "HX", "MOV") for number in range(100, 125)]
_PARTS = (
    "seal",
    "bearing",
    "stem",
    "gasket",
    "impeller",
    "actuator",
    "breaker",
    "flange",
    "coupling",
    "relay",
)
_FINDINGS = ("leaked", "vibrated", "overheated", "stuck", "corroded", "tripped", "drifted", "cracked")
_CAUSES = ("misalignment", "lack of grease", "a worn thread", "moisture", "a wrong setpoint", "fatigue")


def record(number: int, rng: random.Random, **changes: Any) -> dict[str, Any]:
    doc_type = TYPES[number % len(TYPES)]
    part, finding, cause = rng.choice(_PARTS), rng.choice(_FINDINGS), rng.choice(_CAUSES)
    components = rng.sample(COMPONENTS, rng.randint(0, 3))
    raw = f"The {part} of {' and '.join(components) or 'the unit'} {finding} because of {cause}, note {number}."
    made: dict[str, Any] = {
        "record_id": f"{doc_type.lower()}-{number:05d}",
        "doc_id": f"{doc_type}-2024-{number // 14:03d}",
        "doc_type": doc_type if number % 3 else doc_type.lower(),
        "chunk_index": number % 14,
        "embedding_text": f"{doc_type} {part} {finding}. {raw}",
        "metadata": {
            "component_ids": components, "system_names": ["cooling", "feed"][: number % 3], "plant": "Ñ-1",
            "severity": number % 5, "risk": round(rng.random(), 3), "open": bool(number % 2), "closed_by": None,
        },
        "provenance": {
            "chunk_id": f"chunk-{number:05d}", "section_path": ["Findings", f"{number % 9}"],
            "page_start": number % 40 + 1, "page_end": number % 40 + 2,
            "authority_level": "plant", "section_role": "finding",
        },
    }  # fmt: skip
    if number % 2:
        made["enrichment"] = {
            "raw_text": raw,
            "retrieval_summary_json": {"scope": f"{part} {finding}"},
            "stage5_causal_condition": {
                "extracted_causal_statements": [
                    {"cause_text": cause, "connector": "led to", "effect_text": f"the {part} {finding}",
                     "sentence_text": f"{cause} led to it", "confidence": 0.75}
                ],
                "condition_state": {"as_found": f"{part} {finding}", "as_left": f"{part} replaced"},
            },
            "extracted_entities": {"alarm_ids": [f"A{number}"], "nested": {"deep": [1, 2.5, None, True]}},
        }  # fmt: skip
    if doc_type == "WO":
        made["condition_assessment"] = {"as_found_condition": "degraded", "measurements": [{"value": 3.25}]}
    if doc_type == "ECA":
        made["eca"] = {"confidence": 0.9, "causal_factors": [cause]}
    if doc_type == "MANUAL":
        made["oe_metadata"] = {"issuing_body": "INPO", "oe_number": f"{number}"}
    return {**made, **changes}


def records(n: int = 2_000, seed: int = 7) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [record(number, rng) for number in range(n)]


def write_jsonl(path: Path, values: list[dict[str, Any]]) -> Path:
    """Every second line wrapped under ``processed_text_record``."""
    lines = [
        json.dumps(value if i % 2 else {"processed_text_record": value, "stage": 6}, ensure_ascii=False)
        for i, value in enumerate(values)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def simple(record_id: str = "r1", text: str = "pump seal leak", **changes: Any) -> dict[str, Any]:
    """The smallest record there is."""
    return {
        "record_id": record_id, "doc_id": "d1", "doc_type": "CR", "chunk_index": 0,
        "embedding_text": text, "metadata": {}, "provenance": {}, **changes,
    }  # fmt: skip
