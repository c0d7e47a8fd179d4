"""Measuring retrieval on labelled questions: which mode finds the right source, and how surely."""

from .configurations import Configuration, configurations
from .questions import Question, QuestionSet, load_questions
from .run import MEASURES, Evaluation, Scores, evaluate
from .statistics import Comparison, Interval, interval, paired

__all__ = [
    "MEASURES", "Comparison", "Configuration", "Evaluation", "Interval", "Question", "QuestionSet",
    "Scores", "configurations", "evaluate", "interval", "load_questions", "paired",
]  # fmt: skip
