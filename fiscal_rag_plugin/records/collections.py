"""The collections of one directory that hold records, each opened once, and for whom they exist.

A mark in the directory's manifest tells of each: its type, and whether the operator created it.
A type that only sessions use does not exist for anybody else, and a session creates none whose
name is its own text: names of collections are public, and stay when a session is erased.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..access import Access
from ..chunks import PRIVATE, SCOPE_KEY
from ..corpus import Corpus
from ..embedding import Embedder
from ..engines.base import Condition
from ..engines.collections import validate_collection_name
from ..engines.directory import open_directory
from ..errors import AccessDeniedError, CollectionMismatchError, CollectionNotFoundError, StoreClosedError
from ..filters import parse_filter
from ..view import View
from .canonical import RECORD_TYPES, record_type
from .errors import UnknownRecordTypeError
from .naming import collection_name_for_doc_type, is_default_name

_MARK = "records:"
_PRIVATE_ONES = Condition(parse_filter({SCOPE_KEY: PRIVATE}))


@dataclass(frozen=True, slots=True)
class Mark:
    """One collection of records: its type, and whether the operator created it."""

    doc_type: str
    public: bool


class RecordCollections:
    """Opens and creates them; shared by a store and the stores bound from it.

    ``access`` is None for the operator, as in a :class:`View`.
    """

    def __init__(
        self, path: str, embedder: Embedder | None, prefix: str, *, create: bool, lock_timeout: float
    ) -> None:
        validate_collection_name(f"{prefix}_X")
        self.path = path
        self.prefix = prefix
        self._embedder = embedder
        self._lock_timeout = lock_timeout
        self._directory = open_directory(path, create=create, lock_timeout=lock_timeout)
        self._open: dict[str, Corpus] = {}
        self._guard = threading.RLock()
        self._closed = False

    def load(self, doc_type: str, name: str | None, access: Access | None) -> Corpus:
        """The collection of a type that exists for this access.

        Raises:
            UnknownRecordTypeError: it does not; lists the types that do.
            AccessDeniedError, CollectionMismatchError: see :meth:`_named`.
        """
        doc_type, name = self._named(doc_type, name, access)
        mark = self._marks().get(name)
        corpus = None if mark is None else self._opened(name)
        if mark is None or corpus is None or not _exists(mark, corpus, access):
            there = ", ".join(self.types(access)) or "none"
            raise UnknownRecordTypeError(
                f"no records of type {doc_type!r} (collection {name!r}) in {self.path}; there are: {there}"
            )
        _check_type(name, mark, doc_type)
        return corpus

    def create(self, doc_type: str, name: str | None, access: Access | None) -> Corpus:
        """The collection of a type, created when it is absent.

        Raises:
            AccessDeniedError: this access writes no session, or names a collection.
            UnknownRecordTypeError: a session asks for a type that is none of RECORD_TYPES and that the
                operator has not created.
            CollectionMismatchError: the name is taken, by another type or by what are no records.
        """
        if access is not None and access.write is None:
            raise AccessDeniedError("this store writes no session, so it creates no collection")
        doc_type, name = self._named(doc_type, name, access)
        with self._guard:
            mark = self._marks().get(name)
            if access is not None and not (mark is not None and mark.public):
                self._check_common(doc_type, name, access)
            if mark is None and self._opened(name) is not None:
                self._open.pop(name).close()
                raise CollectionMismatchError(
                    f"collection {name!r} in {self.path} was not made for records; choose another name"
                )
            if mark is None or (access is None and not mark.public):
                if mark is not None:
                    _check_type(name, mark, doc_type)
                mark = self._marked(name, Mark(doc_type, public=access is None))
            _check_type(name, mark, doc_type)
            return self._opened(name) or self._opened(name, create=True)  # type: ignore[return-value]

    def types(self, access: Access | None) -> list[str]:
        """The types that exist for this access, by name."""
        found = []
        for name, mark in self._marks().items():
            if name == collection_name_for_doc_type(mark.doc_type, self.prefix):
                corpus = self._opened(name)
                if corpus is not None and _exists(mark, corpus, access):
                    found.append(mark.doc_type)
        return sorted(found)

    def _check_common(self, doc_type: str, name: str, access: Access) -> None:
        common = [collection_name_for_doc_type(t, self.prefix) for t in RECORD_TYPES]
        if name not in common:
            there = ", ".join(sorted({*RECORD_TYPES, *self.types(access)}))
            raise UnknownRecordTypeError(
                f"type {doc_type!r} (collection {name!r}) was not created by the operator; a session may "
                f"use: {there}"
            )

    def _named(self, doc_type: str, name: str | None, access: Access | None) -> tuple[str, str]:
        """The type, and the name of its collection: ``name``, or the type's own one without it.

        Decided before anything is looked up: what a session is told here must not depend on what
        others have, and no name that is a type's own may come to hold another type.

        Raises:
            AccessDeniedError: a bound access gives another name than the type's own.
            CollectionMismatchError: ``name`` is the own name of another type.
        """
        doc_type = record_type(doc_type)
        own = collection_name_for_doc_type(doc_type, self.prefix)
        if name is None or name == own:
            return doc_type, validate_collection_name(own)
        if access is not None:
            raise AccessDeniedError("only the unbound store may name collections; give no collection_name")
        if is_default_name(validate_collection_name(name), self.prefix):
            raise CollectionMismatchError(
                f"collection name {name!r} belongs to another type than {doc_type!r}; choose another name"
            )
        return doc_type, name

    def _marks(self) -> dict[str, Mark]:
        self.check_usable()
        return {
            key.removeprefix(_MARK): Mark(str(value["doc_type"]), value["public"] is True)
            for key, value in self._directory.database.manifest("").items()
            if key.startswith(_MARK) and isinstance(value, dict)
        }

    def _marked(self, name: str, mark: Mark) -> Mark:
        """Set before the collection is created: a crash between leaves a mark of nothing, never a
        collection that nobody may use."""
        database = self._directory.database
        write = database.set_manifest if mark.public else database.claim_manifest
        write("", {_MARK + name: {"doc_type": mark.doc_type, "public": mark.public}})
        return self._marks()[name]

    def _opened(self, name: str, *, create: bool = False) -> Corpus | None:
        with self._guard:
            if name not in self._open:
                self.check_usable()
                try:
                    self._open[name] = Corpus.open(
                        self.path, name, embedder=self._embedder,
                        create=create, lock_timeout=self._lock_timeout,
                    )  # fmt: skip
                except CollectionNotFoundError:
                    return None
            return self._open[name]

    def check_usable(self) -> None:
        """Raise StoreClosedError after close() or a fork."""
        if self._closed:
            raise StoreClosedError("the record store is closed; open it again")
        self._directory.check_usable()

    def close(self) -> None:
        """Release files and locks; a second call does nothing."""
        with self._guard:
            if not self._closed:
                self._closed = True
                for corpus in self._open.values():
                    corpus.close()
                self._open.clear()
                self._directory.close()


def _exists(mark: Mark, corpus: Corpus, access: Access | None) -> bool:
    """Whether there is such a type for this access: the operator's, or with records of its own."""
    if mark.public:
        return True
    return access is not None and any(True for _ in View(corpus, access).scan(_PRIVATE_ONES))


def _check_type(name: str, mark: Mark, doc_type: str) -> None:
    if mark.doc_type != doc_type:
        raise CollectionMismatchError(
            f"collection {name!r} holds records of type {mark.doc_type!r}, not {doc_type!r}"
        )
