"""Asking every question in every configuration, and scoring the ranked documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..engines.base import ANYTHING, Condition
from ..errors import EvaluationError, missing_extra
from ..view import View
from .configurations import Configuration
from .questions import Question, QuestionSet

if TYPE_CHECKING:
    from ..vectors import Vector

_IR_NAMES = {
    "nDCG@10": "nDCG@10", "Recall@8": "R@8", "MRR@10": "RR@10", "Hit@1": "Success@1", "Hit@8": "Success@8",
}  # fmt: skip
MEASURES = tuple(_IR_NAMES)
DEPTH = 10
"""Documents ranked for each question: the deepest that a measure looks."""
_CHUNKS_AT_FIRST = 4 * DEPTH
_IR_NAMES = {
    "nDCG@10": "nDCG@10",
    "Recall@8": "R@8",
    "MRR@10": "RR@10",
    "Hit@1": "Success@1",
    "Hit@8": "Success@8",
}
OnQuestion = Callable[[int, int], None]
"""Questions done and in all, over all configurations."""


@dataclass(frozen=True, slots=True)
class Scores:
    """One configuration: each measure's value of each question, in order, and the documents found."""

    configuration: Configuration
    values: dict[str, list[float]]
    found: list[list[str]]
    """doc_ids, best first, of each question"""

    def mean(self, measure: str) -> float:
        """Over the questions; how sure it is takes :func:`interval` thousands of resamples."""
        return fmean(self.values[measure])


@dataclass(frozen=True, slots=True)
class Evaluation:
    questions: tuple[Question, ...]
    scores: list[Scores]
    absent: list[str]
    """relevant documents that the index does not have, or this access may not see"""


def evaluate(
    view: View, asked: QuestionSet, compared: Sequence[Configuration], *,
    condition: Condition = ANYTHING, on_question: OnQuestion | None = None,
) -> Evaluation:  # fmt: skip
    """Score each configuration on the same questions, within the view's access.

    A document's rank is that of its best chunk. Values are those of trec_eval, by ir-measures;
    a question to which nothing is found scores 0.

    Raises:
        EvaluationError: none of the relevant documents is in the index.
        MissingExtraError: ``fiscal-rag-plugin[evaluation]`` is not installed.
    """
    measures = _measures()
    there = {info.doc_id for info in view.list_documents()}
    absent = sorted(asked.judged - there)
    if len(absent) == len(asked.judged):
        some = ", ".join(sorted(doc for doc in there if doc)[:3]) or "nothing"
        raise EvaluationError(
            f"none of the {len(absent)} relevant documents is in the index; the judgements name "
            f"{', '.join(absent[:3])}, the index has {some}"
        )
    vectors: dict[str, Vector] = {}
    done, total = 0, len(compared) * len(asked.questions)
    scores = []
    for configuration in compared:
        found = []
        for question in asked.questions:
            # Words alone need no model.
            if configuration.mode != "sparse" and question.id not in vectors:
                vectors[question.id] = view.embed_query(question.text)
            vector = None if configuration.mode == "sparse" else vectors[question.id]
            found.append(_documents(view, configuration, question, vector, condition))
            done += 1
            if on_question is not None:
                on_question(done, total)
        scores.append(Scores(configuration, _values(measures, asked, found), found))
    return Evaluation(asked.questions, scores, absent)


def _documents(
    view: View,
    configuration: Configuration,
    question: Question,
    vector: Vector | None,
    condition: Condition,
) -> list[str]:
    """The ten best documents, fewer when there are fewer."""
    top_k = _CHUNKS_AT_FIRST
    while True:
        hits = view.search(configuration.query(question.text, vector, top_k, condition))
        found = list(dict.fromkeys(hit.record.ref for hit in hits.hits if hit.record.ref is not None))
        if len(found) >= DEPTH or len(hits.hits) + hits.cut < top_k or hits.cut:
            return found[:DEPTH]
        top_k *= 4


def _values(
    measures: dict[str, Any], asked: QuestionSet, found: Sequence[list[str]]
) -> dict[str, list[float]]:
    import ir_measures

    run = {
        question.id: {doc_id: 1.0 / rank for rank, doc_id in enumerate(documents, 1)}
        for question, documents in zip(asked.questions, found, strict=True)
        if documents
    }
    metrics = ir_measures.iter_calc(measures.values(), asked.relevant, run) if run else ()
    by_question = {(metric.query_id, metric.measure): float(metric.value) for metric in metrics}
    return {
        name: [_known(by_question.get((question.id, measure), 0.0)) for question in asked.questions]
        for name, measure in measures.items()
    }


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _measures() -> dict[str, Any]:
    try:
        import ir_measures
    except ImportError:
        raise missing_extra("ir-measures", "evaluation") from None
    return {name: ir_measures.parse_measure(_IR_NAMES[name]) for name in MEASURES}
