"""One directory of an index: its database, its Chroma client, and who may write when.

A process holds one :class:`Directory` per path, shared by every store on it. Chroma's embedded
client does not notice what another process writes (its vectors stay old while its SQLite moves
on), so writers announce each commit in the database, and readers compare before and after each
query, reopening the client when it moved.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from filelock import FileLock, Timeout

from ..chunks import Json
from ..errors import FiscalRagError, LockTimeoutError, StaleIndexError, StorageError, StoreClosedError
from .client import chroma_errors, close_client, forget_client, open_client
from .connections import Connections
from .database import Database, storage_errors
from .sharing import SharedLock

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)
T = TypeVar("T")

_POLL_SECONDS = 0.005
_OPTIMISTIC_READS = 3
_open: dict[Path, Directory] = {}
_guard = threading.Lock()


def open_directory(path: str | Path, *, create: bool, lock_timeout: float) -> Directory:
    """The directory at ``path``, shared with every other store of this process on it."""
    resolved = Path(path).expanduser().resolve()
    with _guard:
        found = _open.get(resolved)
        if found is not None and found.usable:
            found.users += 1
            return found
        directory = Directory(resolved, create=create, lock_timeout=lock_timeout)
        _open[resolved] = directory
        return directory


class Directory:
    """See the module; use :func:`open_directory`."""

    def __init__(self, path: Path, *, create: bool, lock_timeout: float) -> None:
        self.path = path
        self.users = 1
        self.lock_timeout = lock_timeout
        self._pid = os.getpid()
        self._shared = SharedLock()
        self._closed = False
        if path.exists() and not path.is_dir():
            raise StorageError(f"{path} is a file; chroma_dir must be a directory")
        if not path.is_dir() and not create:
            raise StorageError(f"{path} does not exist; ingest something first, or check chroma_dir")
        with storage_errors(path, "opening"):
            path.mkdir(parents=True, exist_ok=True)
            # thread_local=False: any thread of this process may give back what another took.
            self._commit_lock = FileLock(path / "commit.lock", thread_local=False)
            self._writer_lock = FileLock(path / "writer.lock", thread_local=False)
        self.database = Database(path, create=create)
        self.tables = Connections(path / "chroma.sqlite3", ["query_only = ON"], create=False)
        self._seen = -1
        self._client: ClientAPI | None = None
        self._collections: dict[str, Collection] = {}
        try:
            with self._shared.exclusive(), self._committing():
                self._reopen()
        except BaseException:
            self.tables.close()
            self.database.close()
            raise

    @property
    def usable(self) -> bool:
        return not self._closed and os.getpid() == self._pid

    def check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed; open it again")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                "this process was forked after the store was opened; open after the fork"
            )

    # --- reading --------------------------------------------------------------------------------

    def read(self, query: Callable[[ClientAPI], T]) -> T:
        """The answer of ``query`` on a view that no public write changed meanwhile.

        ``query`` may run more than once. After three tries it runs while writers wait.

        Raises:
            StaleIndexError: the index cannot be brought up to date.
        """
        for _ in range(_OPTIMISTIC_READS):
            self._refresh()
            with self._shared.shared():
                self.check_usable()
                before = self._seen
                answer = self._attempt(query)
                if self.database.generation() == (before, False):
                    if not isinstance(answer, _Failure):
                        return answer
                    break
        with self._shared.exclusive(), self._committing():
            self.check_usable()
            self._reopen()
            answer = self._attempt(query)
        if isinstance(answer, _Failure):
            raise StaleIndexError(
                f"the index in {self.path} cannot be read ({type(answer.error).__name__}); "
                "run `fiscal-rag check` on it"
            ) from answer.error
        return answer

    def _attempt(self, query: Callable[[ClientAPI], T]) -> T | _Failure:
        """A failure may only mean that the files moved; the caller decides."""
        try:
            return query(self._require_client())
        except (FiscalRagError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of Chroma's Rust core is no Exception
            return _Failure(error)

    def _refresh(self) -> None:
        """Reopen Chroma when another process has written since this one last looked."""
        self.check_usable()
        if self.database.generation() == (self._seen, False):
            return
        with self._shared.exclusive():
            if self.database.generation() != (self._seen, False):
                with self._committing():
                    self._reopen()

    def _reopen(self) -> None:
        """Open the client anew; it reads its vectors at the first query."""
        value, writing = self.database.generation()
        if writing:
            # The writer died inside a commit: the lock that this thread holds was free.
            value = self.database.bump_generation(writing=False)
        self._drop_client()
        self._client = open_client(self.path)
        self._seen = value

    def _drop_client(self) -> None:
        self._collections.clear()
        if self._client is not None:
            close_client(self._client)
            self._client = None

    def collection(self, client: ClientAPI, name: str) -> Collection:
        """A collection of this client, kept: looking it up is a query of its own."""
        if name not in self._collections:
            self._collections[name] = client.get_collection(name, embedding_function=None)
        return self._collections[name]

    def _require_client(self) -> ClientAPI:
        if self._client is None:
            raise StoreClosedError("the store is closed; open it again")
        return self._client

    # --- writing --------------------------------------------------------------------------------

    @contextmanager
    def commit(self) -> Iterator[ClientAPI]:
        """Write public chunks: the only writer, no reader in between, announced to all readers."""
        self._become_writer()
        with self._announced():
            self._roll_back()
            yield self._require_client()

    @contextmanager
    def mending(self) -> Iterator[ClientAPI]:
        """Mend what is derived from the public chunks: nobody reads or writes, any process may do it."""
        with self._shared.exclusive(), self._committing():
            self.check_usable()
            if self.database.generation() != (self._seen, False):
                self._reopen()
            yield self._require_client()

    @contextmanager
    def _announced(self) -> Iterator[None]:
        with self._shared.exclusive(), self._committing():
            self.check_usable()
            if self.database.generation() != (self._seen, False):
                self._reopen()
            self.database.bump_generation(writing=True)
            try:
                with storage_errors(self.path, "writing"), chroma_errors(self.path):
                    yield
            except StorageError:
                # A client whose write failed never comes back from a later one; it is not even closed.
                self._collections.clear()
                self._client = None
                forget_client(self.path)
                raise
            finally:
                value = self.database.bump_generation(writing=False)
                self._seen = value if self._client is not None else -1

    def _become_writer(self) -> None:
        """Take the writer lock, which this process then keeps until it closes the directory."""
        with self._shared.alone():
            self.check_usable()
            if self._writer_lock.is_locked:
                return
            try:
                with storage_errors(self.path, "locking"):
                    self._writer_lock.acquire(timeout=self.lock_timeout, poll_interval=0.05)
            except Timeout:
                raise LockTimeoutError(
                    f"public chunks of {self.path} are being written by {self._holder()}; wait for it "
                    f"or close that store (waited {self.lock_timeout:g} s; FISCAL_RAG_LOCK_TIMEOUT)"
                ) from None
            me: dict[str, Json] = {
                "pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S")
            }  # fmt: skip
            self.database.set_manifest("", {"writer": me})

    def _roll_back(self) -> None:
        """Remove what a replacement that died half way left: it does not count, and nobody sees it."""
        for name, ids in self.database.all_pending().items():
            collection = self.collection(self._require_client(), name)
            limit = self._require_client().get_max_batch_size()
            for start in range(0, len(ids), limit):
                collection.delete(ids=ids[start : start + limit])
            self.database.set_pending(name, [])

    def _holder(self) -> str:
        with suppress(FiscalRagError):
            holder = self.database.manifest("").get("writer")
            if isinstance(holder, dict):
                return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        return "another process"

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """The short cross-process lock around a commit or a reopening."""
        try:
            with storage_errors(self.path, "locking"):
                self._commit_lock.acquire(timeout=max(self.lock_timeout, 60.0), poll_interval=_POLL_SECONDS)
        except Timeout:
            raise LockTimeoutError(f"{self.path} is being written by {self._holder()}; try again") from None
        try:
            yield
        finally:
            self._commit_lock.release()

    # --- end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give up one use; the last one closes the client, the locks and the database."""
        with _guard:
            self.users -= 1
            if self.users > 0 or self._closed:
                return
            if _open.get(self.path) is self:
                del _open[self.path]
        if os.getpid() != self._pid:
            return
        with self._shared.exclusive():
            self._closed = True
            self._drop_client()
            self._writer_lock.release()
            self.tables.close()
            self.database.close()


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


def _forget_after_fork() -> None:
    """A child owns none of its parent's directories, nor a lock that another thread held."""
    global _guard
    _guard = threading.Lock()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
