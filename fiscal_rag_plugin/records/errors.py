"""What can be wrong with records and their types."""

from __future__ import annotations

from ..errors import CollectionNotFoundError, InvalidChunkError


class InvalidRecordError(InvalidChunkError):
    """A record breaks the rules of processed_text_record; it was not written."""


class MixedRecordTypesError(InvalidRecordError):
    """One batch has records of several types; nothing of it was written."""


class UnknownRecordTypeError(CollectionNotFoundError, ValueError):
    """No record of this type was ever stored within this access; the message lists the types that exist."""
