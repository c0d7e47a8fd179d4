"""BM25 over Spanish tax texts: public ones in a tantivy index, a session's in process, equal values."""

from .analysis import ANALYSIS_VERSION, analyse, question_tokens
from .bm25 import Bag, Statistics, scores
from .facets import facet_query, facets
from .search import LexicalSearch
from .texts import Texts

__all__ = [
    "ANALYSIS_VERSION", "Bag", "LexicalSearch", "Statistics", "Texts",
    "analyse", "facet_query", "facets", "question_tokens", "scores",
]  # fmt: skip
