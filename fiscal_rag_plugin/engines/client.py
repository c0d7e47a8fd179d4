"""Chroma's embedded client: opened quietly, closed safely, its failures given a type."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FiscalRagError, StorageError
from .database import storage_errors

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

MIN_SQLITE = (3, 35, 0)
"""What Chroma needs (docs.trychroma.com, troubleshooting)."""


def open_client(path: Path) -> ClientAPI:
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        wanted = ".".join(map(str, MIN_SQLITE))
        raise StorageError(
            f"Chroma needs sqlite {wanted} or newer, this Python has {sqlite3.sqlite_version}"
        )
    import chromadb
    from chromadb.config import Settings

    with storage_errors(path, "opening"), chroma_errors(path):
        try:
            return chromadb.PersistentClient(
                path=str(path), settings=Settings(anonymized_telemetry=False, allow_reset=False)
            )
        except BaseException:
            forget_client(path)
            raise


def forget_client(path: Path) -> None:
    """Chroma keeps a client per path, also a broken one: the next opening would get that one."""
    from chromadb.api.shared_system_client import SharedSystemClient

    for kept in (SharedSystemClient._identifier_to_system, SharedSystemClient._identifier_to_refcount):
        kept.pop(str(path), None)


def close_client(client: Any) -> None:
    with suppress(Exception):
        client.close()


@contextmanager
def chroma_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (FiscalRagError, sqlite3.Error, OSError):
        raise
    except BaseException as error:
        # A panic of Chroma's Rust core is a BaseException of its own kind.
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise
        if isinstance(error, (ValueError, TypeError)) and not type(error).__module__.startswith("chromadb"):
            raise
        message = str(error)
        remedy = "check that the disk is not full and that this user may write there"
        if "malformed" in message or "not a database" in message:
            remedy = (
                "its files are damaged and were left as they are; restore a copy, or ingest into another"
            )
        raise StorageError(
            f"Chroma failed in {path} ({type(error).__name__}: {message[:120]}); {remedy}"
        ) from error
