"""ProcessedRecordStore: canonical records by record id and by chunk id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

from ..chunks import PRIVATE, copy_json
from ..engines.base import ANYTHING, Condition, Record
from ..errors import InvalidChunkError, InvalidQueryError
from ..filters import parse_filter
from .canonical import RecordJson, chunk_id_of
from .drafts import hydrated
from .lines import Numbered, OnProblem, Problems, of_batch, of_file
from .store import ChromaRecordStore

logger = logging.getLogger(__name__)


class Shelf(Protocol):
    """Where canonical records stand."""

    def put(self, records: Sequence[Numbered], problems: Problems) -> int:
        """Add records, replacing those of the same id; returns how many. Bad ones go to ``problems``."""
        ...

    def versions(self, record_ids: Sequence[str]) -> dict[str, list[RecordJson]]:
        """Every record of each id, the one that counts first."""
        ...

    def by_chunk(self, chunk_id: str) -> RecordJson | None: ...

    def ids(self) -> list[str]: ...


class ProcessedRecordStore:
    """Hydrates record ids and chunk ids into canonical records.

    On an ``index`` it reads what that store holds, within its access, whichever process wrote it,
    and adds through it. Without one it is a collection in memory that belongs to its maker.
    None is nobody's id; an id that is no text is an InvalidQueryError in every method.
    """

    def __init__(
        self, jsonl_paths: Iterable[str | Path] | None = None, *, index: ChromaRecordStore | None = None
    ) -> None:
        self._shelf: Shelf = InMemory() if index is None else InIndex(index)
        for path in jsonl_paths or ():
            self.add_jsonl(path)

    def __len__(self) -> int:
        return len(self._shelf.ids())

    def add_jsonl(self, jsonl_path: str | Path, *, on_problem: OnProblem | None = None) -> int:
        """Add a file's records, replacing those with the same id; returns how many.

        A bad line is skipped and reported with its number.

        Raises:
            IngestError: the file cannot be read.
        """
        path = Path(jsonl_path)
        problems = Problems(f"{path.name}, line", on_problem)
        added = self._shelf.put(list(of_file(path, problems)), problems)
        problems.log_total()
        return added

    def add_record(self, rec: object, *, on_problem: OnProblem | None = None) -> bool:
        """Add one record, replacing one with the same id; False when it is malformed."""
        problems = Problems("record", on_problem)
        return self._shelf.put(list(of_batch([rec], problems)), problems) == 1

    def get(self, record_id: str) -> RecordJson | None:
        """The canonical record, None when there is none within access."""
        return next(iter(self.versions([record_id]).get(record_id, [])), None)

    def get_by_chunk_id(self, chunk_id: str) -> RecordJson | None:
        """The record of ``provenance.chunk_id``, None when there is none within access."""
        wanted = _id(chunk_id, "a chunk id")
        # A blank one names no record, although metadata may hold it.
        return self._shelf.by_chunk(wanted) if wanted.strip() else None

    def get_many(self, record_ids: Sequence[str]) -> list[RecordJson]:
        """The records in the order of the ids, repeats included; missing ones are logged."""
        wanted = _ids(record_ids)
        found = self._shelf.versions(wanted)
        missing = [id for id in wanted if not found.get(id)]
        if missing:
            logger.warning("%d records are missing, the first is %.80r", len(missing), missing[0])
        return [_copy(found[id][0]) for id in wanted if found.get(id)]

    def versions(self, record_ids: Sequence[str]) -> dict[str, list[RecordJson]]:
        """Every record of each id within access: of a session and public, or of two types."""
        found = self._shelf.versions(_ids(record_ids))
        return {id: [_copy(record) for record in records] for id, records in found.items()}

    def all_record_ids(self) -> list[str]:
        return self._shelf.ids()


class InMemory:
    def __init__(self) -> None:
        self._records: dict[str, RecordJson] = {}
        self._by_chunk: dict[str, str] = {}

    def put(self, records: Sequence[Numbered], problems: Problems) -> int:  # noqa: ARG002
        for _, record in records:
            id = str(record["record_id"])
            before = self._records.get(id)
            old_chunk = None if before is None else chunk_id_of(before)
            if old_chunk is not None and self._by_chunk.get(old_chunk) == id:
                del self._by_chunk[old_chunk]
            self._records[id] = record
            if (chunk := chunk_id_of(record)) is not None:
                self._by_chunk[chunk] = id
        return len({record["record_id"] for _, record in records})

    def versions(self, record_ids: Sequence[str]) -> dict[str, list[RecordJson]]:
        return {id: [self._records[id]] for id in record_ids if id in self._records}

    def by_chunk(self, chunk_id: str) -> RecordJson | None:
        id = self._by_chunk.get(chunk_id)
        return None if id is None else _copy(self._records[id])

    def ids(self) -> list[str]:
        return list(self._records)


class InIndex:
    """Types in order of their names; of one id, a session's record comes before the public one."""

    def __init__(self, store: ChromaRecordStore) -> None:
        self._store = store

    def put(self, records: Sequence[Numbered], problems: Problems) -> int:
        return sum(self._store.upsert_checked(records, problems).values())

    def versions(self, record_ids: Sequence[str]) -> dict[str, list[RecordJson]]:
        stored: list[Record] = []
        for doc_type in self._store.doc_types():
            stored += self._store.load_collection(doc_type).get(record_ids)
        stored.sort(key=lambda record: record.scope != PRIVATE)
        found: dict[str, list[RecordJson]] = {}
        for row in stored:
            if (record := hydrated(row)) is not None:
                found.setdefault(row.id, []).append(record)
        return found

    def by_chunk(self, chunk_id: str) -> RecordJson | None:
        rows = self._scan(Condition(parse_filter({"chunk_id": chunk_id})))
        own_first = sorted(rows, key=lambda record: record.scope != PRIVATE)
        return next((record for row in own_first if (record := hydrated(row)) is not None), None)

    def ids(self) -> list[str]:
        return list(dict.fromkeys(row.id for row in self._scan(ANYTHING)))

    def _scan(self, condition: Condition) -> Iterator[Record]:
        for doc_type in self._store.doc_types():
            yield from self._store.load_collection(doc_type).scan(condition)


def _ids(record_ids: object) -> list[str]:
    if isinstance(record_ids, str) or not isinstance(record_ids, Iterable):
        raise InvalidQueryError(
            f"record_ids is a list of ids, not {type(record_ids).__name__}; for one record use get()"
        )
    return [_id(id, "a record id") for id in record_ids]


def _id(value: object, what: str) -> str:
    """``value`` when it is text, never an operator of a filter; for None "", which no record has."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidQueryError(f"{what} is a str, not {type(value).__name__}")
    try:
        return str(copy_json(value, what))
    except InvalidChunkError as error:
        raise InvalidQueryError(str(error)) from None


def _copy(record: RecordJson) -> RecordJson:
    """What a caller does with an answer must not change the store."""
    return cast("RecordJson", copy_json(record, "the record"))
