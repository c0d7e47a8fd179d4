"""DACKAR's record store on this package's corpus: records by type, hydrated, fused, as evidence."""

from .errors import InvalidRecordError, MixedRecordTypesError, UnknownRecordTypeError
from .evidence import ProcessedEvidenceStoreAdapter
from .hydration import ProcessedRecordStore
from .lines import BadRecord
from .retriever import ContextPack, LCProcessedRetriever, RetrieveResult
from .snippets import select_processed_snippet
from .store import ChromaRecordStore, JsonlReport

__all__ = [
    "BadRecord",
    "ChromaRecordStore",
    "ContextPack",
    "InvalidRecordError",
    "JsonlReport",
    "LCProcessedRetriever",
    "MixedRecordTypesError",
    "ProcessedEvidenceStoreAdapter",
    "ProcessedRecordStore",
    "RetrieveResult",
    "UnknownRecordTypeError",
    "select_processed_snippet",
]
