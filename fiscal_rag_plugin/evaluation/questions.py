"""Labelled questions, in the files of BEIR: ``queries.jsonl`` and ``qrels.tsv``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import EvaluationError


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions that have judgements, and what could not be used of the files."""

    questions: tuple[Question, ...]
    relevant: dict[str, dict[str, int]]
    """question id to doc_id to grade; only grades above 0"""
    problems: tuple[str, ...] = field(default=())

    @property
    def judged(self) -> set[str]:
        """Every doc_id that is relevant to some question."""
        return {doc_id for grades in self.relevant.values() for doc_id in grades}


def load_questions(queries: str | Path, qrels: str | Path) -> QuestionSet:
    """``queries``: JSON lines with ``_id`` and ``text``. ``qrels``: question, doc_id and grade, by tabs.

    A first line of qrels whose grade is no number is a heading. Judgements are of documents:
    their second column is the ``doc_id`` that chunks carry.

    Raises:
        EvaluationError: a file cannot be read, a line is malformed, an id is given twice, or no
            question has a judgement.
    """
    asked = _queries(Path(queries))
    grades = _qrels(Path(qrels))
    problems = []
    if unknown := sorted(set(grades) - set(asked)):
        problems.append(f"{len(unknown)} judged questions are not in {queries}: {', '.join(unknown[:5])}")
    relevant = {id: {doc: g for doc, g in grades.get(id, {}).items() if g > 0} for id in asked}
    if without := [id for id in asked if not relevant[id]]:
        problems.append(f"{len(without)} questions have no relevant document: {', '.join(without[:5])}")
    kept = tuple(Question(id, text) for id, text in asked.items() if relevant[id])
    if not kept:
        raise EvaluationError(f"no question of {queries} has a relevant document in {qrels}")
    return QuestionSet(kept, {question.id: relevant[question.id] for question in kept}, tuple(problems))


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(f"{path} cannot be read: {error}") from None
    return [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _queries(path: Path) -> dict[str, str]:
    asked: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise EvaluationError(f"{path}:{number}: not a line of JSON") from None
        id, text = (value.get("_id"), value.get("text")) if isinstance(value, dict) else (None, None)
        if not isinstance(id, str) or not isinstance(text, str) or not id or not text.strip():
            raise EvaluationError(f"{path}:{number}: a question needs the texts _id and text")
        if id in asked:
            raise EvaluationError(f"{path}:{number}: the question {id!r:.60} is there twice")
        asked[id] = text
    return asked


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for place, (number, line) in enumerate(_lines(path)):
        cells = line.rstrip("\r").split("\t")
        if len(cells) == 4:  # TREC's form has an unused second column
            del cells[1]
        try:
            id, doc_id, grade = cells[0], cells[1], int(cells[2])
        except (IndexError, ValueError):
            if place == 0:
                continue
            raise EvaluationError(
                f"{path}:{number}: a judgement is question, doc_id and a whole grade, parted by tabs"
            ) from None
        grades.setdefault(id, {})[doc_id] = grade
    return grades
