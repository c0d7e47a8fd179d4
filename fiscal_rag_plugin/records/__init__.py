"""DACKAR's record store on this package's corpus: records by type, hydrated, fused, as evidence."""

from .errors import InvalidRecordError, MixedRecordTypesError, UnknownRecordTypeError
from .lines import BadRecord
from .snippets import select_processed_snippet

__all__ = [
    "BadRecord",
    "InvalidRecordError",
    "MixedRecordTypesError",
    "UnknownRecordTypeError",
    "select_processed_snippet",
]
