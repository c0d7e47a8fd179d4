"""DACKAR's record store on this package's corpus: records by type, hydrated, fused, as evidence."""

from .errors import InvalidRecordError, MixedRecordTypesError, UnknownRecordTypeError
from .hydration import ProcessedRecordStore
from .lines import BadRecord
from .snippets import select_processed_snippet
from .store import ChromaRecordStore, JsonlReport

__all__ = [
    "BadRecord",
    "ChromaRecordStore",
    "InvalidRecordError",
    "JsonlReport",
    "MixedRecordTypesError",
    "ProcessedRecordStore",
    "UnknownRecordTypeError",
    "select_processed_snippet",
]
