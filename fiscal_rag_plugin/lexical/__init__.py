"""BM25 over Spanish tax texts: public ones in a tantivy index, a session's in process, equal values."""

from .analysis import ANALYSIS_VERSION, analyse, question_tokens
from .bm25 import Bag, Statistics, scores

__all__ = ["ANALYSIS_VERSION", "Bag", "Statistics", "analyse", "question_tokens", "scores"]
