"""Every error this package raises on purpose: one root, and the builtin each one refines.

Messages name keys, ids, types and remedies. They never carry chunk text, vectors or the
identifiers of a session other than the caller's.
"""

from __future__ import annotations


class FiscalRagError(Exception):
    """Root of all errors of this package."""


class InvalidChunkError(FiscalRagError, ValueError):
    """A chunk, its metadata or an identifier breaks a rule; nothing was written."""


class NotAChunkError(InvalidChunkError, TypeError):
    """Something else than a Chunk was handed over as one; nothing was written."""


class InvalidFilterError(FiscalRagError, ValueError):
    """A functional filter cannot be understood or exceeds a limit."""


class InvalidQueryError(FiscalRagError, ValueError):
    """A query parameter (vector, top_k, threshold, mode) is out of its range."""


class UnsupportedModeError(InvalidQueryError):
    """A query mode that this store does not offer; it never falls back silently."""


class InvalidVectorError(FiscalRagError, ValueError):
    """A vector is not finite, is zero, or has the wrong dimension or count."""


class InvalidAccessError(FiscalRagError, ValueError):
    """An access cannot be built from these sessions."""


class AccessDeniedError(FiscalRagError, PermissionError):
    """The operation lies outside the access this object is bound to."""


class UnexpectedArgumentError(FiscalRagError, TypeError):
    """A keyword that does not exist at query time, above all one about access."""


class SettingsError(FiscalRagError, ValueError):
    """A setting is unknown or out of its range."""


class CollectionNotFoundError(FiscalRagError, KeyError):
    """No such collection, and the caller asked not to create one."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CollectionMismatchError(FiscalRagError, ValueError):
    """A collection has another space, layout, model or dimension; nothing was changed."""


class StorageError(FiscalRagError, OSError):
    """The directory cannot be read or written; existing data is left as it is."""


class StaleIndexError(StorageError):
    """The index kept moving under a reader, which refuses to answer from a stale view."""


class LockTimeoutError(FiscalRagError, TimeoutError):
    """Another process writes public chunks; the message names it and the remedy."""


class StoreClosedError(FiscalRagError, RuntimeError):
    """The store was closed, or its process was forked after it was opened."""


class NotPicklableError(FiscalRagError, TypeError):
    """Stores and retrievers hold access and file handles; they are not pickled."""


class EmbeddingError(FiscalRagError, RuntimeError):
    """The embedding model failed or returned something that is not one vector a text."""


class InvalidEmbedderError(FiscalRagError, TypeError):
    """The object handed over as an embedder has no way to embed; the message says what is accepted."""


class NoEmbedderError(FiscalRagError, ValueError):
    """A text has to be embedded, and the store was opened without an embedder."""


class TextTooLongError(EmbeddingError, ValueError):
    """A text has more tokens than the model reads; it is never truncated silently."""


class IngestError(FiscalRagError, ValueError):
    """A source file cannot be read; the message names the file and the place in it."""


class EvaluationError(FiscalRagError, ValueError):
    """Labelled questions cannot be used: a malformed file, or judgements of another corpus."""


class GenerationError(FiscalRagError, RuntimeError):
    """A language model returned no text, or an answer is read before it is complete."""


class MissingExtraError(FiscalRagError, ImportError):
    """An optional dependency is absent; the message names the extra to install."""


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """The error for an optional ``package`` that is not installed."""
    return MissingExtraError(
        f"{package} is not installed. Install it with: pip install 'fiscal-rag-plugin[{extra}]' "
        f"(from a checkout: pip install '.[{extra}]')"
    )
