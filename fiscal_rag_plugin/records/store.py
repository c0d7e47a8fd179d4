"""ChromaRecordStore: records by type, one collection each, written and read through views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from langchain_core.documents import Document

from ..access import Access
from ..chunks import PUBLIC, check_scope
from ..corpus import Corpus
from ..drafts import Draft
from ..embedding import as_embedder
from ..engines.base import Hit
from ..errors import (
    AccessDeniedError,
    InvalidChunkError,
    NotPicklableError,
    SettingsError,
)
from ..ranking import check_mode
from ..view import View
from .canonical import block, record_type
from .collections import RecordCollections
from .drafts import draft_of
from .errors import MixedRecordTypesError
from .lines import BadRecord, Numbered, OnProblem, Problems, of_batch, of_file
from .search import DEFAULT_HYBRID_WEIGHT, DEFAULT_MODE, asked_types, document_of, record_query

MAX_LISTED_IDS = 10


class JsonlReport(dict[str, int]):
    """Records stored by type; ``bad`` are the lines that were skipped."""

    def __init__(self, counts: Mapping[str, int], bad: Sequence[BadRecord]) -> None:
        super().__init__(counts)
        self.bad = tuple(bad)

    @property
    def skipped(self) -> int:
        return len(self.bad)


class ChromaRecordStore:
    """Canonical records on disk, a collection a type, with an access that never changes.

    Without an access it is the operator's: it reads and writes public records. With one, or bound
    by :meth:`for_session` or :meth:`for_access`, it reads public records and its sessions', and
    writes its session's. Types are the same in any case: "cr" is "CR".
    """

    __slots__ = ("_access", "_collections", "_mode")

    def __init__(
        self, persist_directory: str | Path, *, embed_model: object = None,
        collection_prefix: str = "processed", mode: str = DEFAULT_MODE, access: Access | None = None,
        create: bool = True, lock_timeout: float = 10.0,
    ) -> None:  # fmt: skip
        """Open a directory. ``embed_model`` is anything that embeds; no model is loaded.

        Raises:
            StorageError: the directory is absent and ``create`` is False, or cannot be used.
        """
        if access is not None and not isinstance(access, Access):
            raise SettingsError(f"access must be an Access, not {type(access).__name__}")
        self._mode: str = check_mode(mode)
        self._access = access
        embedder = None if embed_model is None else as_embedder(embed_model)
        self._collections = RecordCollections(
            str(persist_directory), embedder, collection_prefix, create=create, lock_timeout=lock_timeout
        )

    @classmethod
    def from_view(
        cls, view: View, *, collection_prefix: str = "processed", mode: str = DEFAULT_MODE,
        lock_timeout: float = 10.0,
    ) -> ChromaRecordStore:  # fmt: skip
        """In the directory of a view (``FiscalVectorStore.view``), with its embedder and access."""
        return cls(
            view.directory, embed_model=view.embedder, collection_prefix=collection_prefix, mode=mode,
            access=view.access, lock_timeout=lock_timeout,
        )  # fmt: skip

    # --- access ---------------------------------------------------------------------------------

    @property
    def access(self) -> Access | None:
        return self._access

    @property
    def persist_directory(self) -> str:
        return self._collections.path

    @property
    def collection_prefix(self) -> str:
        return self._collections.prefix

    @property
    def mode(self) -> str:
        return self._mode

    def for_session(self, session_id: str) -> ChromaRecordStore:
        """This store for one session: reads public records and its own, writes its own."""
        return self.for_access(Access.session(session_id))

    def for_access(self, access: Access) -> ChromaRecordStore:
        if self._access is not None:
            raise AccessDeniedError("for_access belongs to the unbound store; this one is bound")
        if not isinstance(access, Access):
            raise SettingsError(f"access must be an Access, not {type(access).__name__}")
        bound = object.__new__(type(self))
        bound._access, bound._collections, bound._mode = access, self._collections, self._mode
        return bound

    def _view(self, corpus: Corpus) -> View:
        return View(corpus, self._access, PUBLIC if self._access is None else None)

    # --- collections ------------------------------------------------------------------------------

    def doc_types(self) -> list[str]:
        """The types that exist within this access, by name."""
        return self._collections.types(self._access)

    def get_or_create_collection(self, doc_type: str, collection_name: str | None = None) -> View:
        """The collection of a type, as a view with this store's access.

        Raises:
            AccessDeniedError: a bound store gives another name than the type's own.
            CollectionMismatchError: the name is taken by another type, or by what are no records.
        """
        return self._view(self._collections.create(doc_type, collection_name, self._access))

    def load_collection(self, doc_type: str, collection_name: str | None = None) -> View:
        """The collection of a type that exists, whichever process wrote it.

        Raises:
            UnknownRecordTypeError: it was never created; lists the types that exist.
            AccessDeniedError: a bound store gives another name than the type's own.
        """
        return self._view(self._collections.load(doc_type, collection_name, self._access))

    # --- writing ----------------------------------------------------------------------------------

    def upsert_records(
        self, records: Iterable[object], *, doc_type: str | None = None,
        collection_name: str | None = None, on_problem: OnProblem | None = None,
    ) -> int:  # fmt: skip
        """Store records of one type, ``doc_type`` or the first record's; returns how many.

        A malformed record is logged, handed to ``on_problem`` and skipped. A record that is stored
        already with the same embedding text is not embedded again.

        Raises:
            InvalidRecordError: ``records`` is no list of records but one of them, or nothing.
            MixedRecordTypesError: records of several types; lists up to ten of the others' ids.
        """
        problems = Problems("record", on_problem)
        good = list(of_batch(records, problems))
        wanted = None if doc_type is None else record_type(doc_type)
        if good:
            wanted = wanted or record_type(good[0][1]["doc_type"])
            others = [str(r["record_id"]) for _, r in good if record_type(r["doc_type"]) != wanted]
            if others:
                more = f" and {len(others) - MAX_LISTED_IDS} more" if len(others) > MAX_LISTED_IDS else ""
                listed = ", ".join(f"{id:.80}" for id in others[:MAX_LISTED_IDS])
                raise MixedRecordTypesError(
                    f"a batch of type {wanted!r} has {len(others)} records of other types: {listed}{more}; "
                    "write each type in a call of its own, or use upsert_jsonl"
                )
        written = 0
        if wanted and good:
            view = self.get_or_create_collection(wanted, collection_name)
            written = self._write(view, good, wanted, problems)
        problems.log_total()
        return written

    def upsert_jsonl(
        self, jsonl_path: str | Path, *, doc_type_override: str | None = None,
        on_problem: OnProblem | None = None,
    ) -> JsonlReport:  # fmt: skip
        """Store a JSONL file, each record in its type's collection; returns how many by type.

        With ``doc_type_override`` all of them go into that type's collection, and filters see that
        type; the canonical record keeps its own. A bad line is skipped and reported with its number.

        Raises:
            IngestError: the file cannot be read.
        """
        path = Path(jsonl_path)
        problems = Problems(f"{path.name}, line", on_problem)
        override = None if doc_type_override is None else record_type(doc_type_override)
        counts = self.upsert_checked(of_file(path, problems), problems, override)
        problems.log_total()
        return JsonlReport(counts, sorted(problems.bad, key=lambda bad: bad.number))

    def upsert_checked(
        self, records: Iterable[Numbered], problems: Problems, override: str | None = None
    ) -> dict[str, int]:
        """As :meth:`upsert_jsonl`, for records that ``canonical`` has passed already."""
        grouped: dict[str, list[Numbered]] = {}
        for number, record in records:
            grouped.setdefault(override or record_type(record["doc_type"]), []).append((number, record))
        # Every collection is there before the first record is written.
        views = {doc_type: self.get_or_create_collection(doc_type) for doc_type in grouped}
        return {t: self._write(views[t], part, t, problems) for t, part in grouped.items()}

    def _write(self, view: View, records: Sequence[Numbered], doc_type: str, problems: Problems) -> int:
        """Write records of one type; one whose scope is none, or not this store's to write, is skipped."""
        drafts: list[Draft] = []
        for number, record in records:
            try:
                scope, session_id = view.placed(block(record, "metadata"))
                check_scope(scope, session_id)
                drafts.append(draft_of(record, doc_type, scope, session_id))
            except (InvalidChunkError, AccessDeniedError) as error:
                problems.skip(number, error)
        view.write(drafts)
        return len({draft.record.key for draft in drafts})

    # --- reading ----------------------------------------------------------------------------------

    def query_doc_type(
        self, doc_type: str, query_text: str, *, top_k: int = 8,
        filter_meta: Mapping[str, Any] | None = None, collection_name: str | None = None,
        hybrid_weight: float = DEFAULT_HYBRID_WEIGHT, mode: str | None = None,
    ) -> list[Document]:  # fmt: skip
        """The best records of one type as LangChain documents; their metadata has ``_score``.

        ``filter_meta``: see ``record_where``. ``mode`` and ``hybrid_weight``: see ``record_query``.

        Raises:
            UnknownRecordTypeError: the type was never created; lists the types that exist.
        """
        found = self.search(
            [doc_type], query_text, top_k=top_k, filter_meta=filter_meta, collection_name=collection_name,
            hybrid_weight=hybrid_weight, mode=mode,
        )  # fmt: skip
        return [document_of(hit) for hits in found.values() for hit in hits]

    def search(
        self, doc_types: Sequence[str], query_text: str, *, top_k: int = 8,
        filter_meta: Mapping[str, Any] | None = None, collection_name: str | None = None,
        hybrid_weight: float = DEFAULT_HYBRID_WEIGHT, mode: str | None = None,
    ) -> dict[str, list[Hit]]:  # fmt: skip
        """The best hits of each type, in the order of ``doc_types``; the question is embedded once.

        Nothing is asked unless every type exists, and a failure of one is not a shorter answer.
        """
        query = record_query(
            query_text, top_k=top_k, filter_meta=filter_meta,
            mode=self._mode if mode is None else mode, hybrid_weight=hybrid_weight,
        )  # fmt: skip
        views = {t: self.load_collection(t, collection_name) for t in asked_types(doc_types)}
        first = next(iter(views.values()))
        if first.embedder is not None or query.mode != "sparse":
            query = replace(query, vector=first.embed_query(query_text))
        return {doc_type: view.search(query).hits for doc_type, view in views.items()}

    # --- end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release files and locks; every store bound from this one is closed with it."""
        self._collections.close()

    def __enter__(self) -> ChromaRecordStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __copy__(self) -> ChromaRecordStore:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ChromaRecordStore:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPicklableError("a store is not pickled; open it again in the other process")

    def __repr__(self) -> str:
        return f"ChromaRecordStore({self.persist_directory!r}, access={self._access!r})"
