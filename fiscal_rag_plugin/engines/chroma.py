"""Public chunks in Chroma: the nearest candidates come from its HNSW index, the decision from us."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Collection as Collection_
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..access import Access
from ..chunks import PUBLIC
from ..vectors import Matrix, Vector, similarities
from .base import ANYTHING, Condition, Found, Hit, Key, Record, Swap, check_unmoved
from .blob import BLOB_KEY, REF_KEY, chroma_where, encode, project
from .chroma_rows import PAGE, PublicView, Rows, TextIndex, decoded, open_rows
from .chroma_search import Candidate, Search
from .directory import Directory
from .side_by_side import SideBySide

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")

SCAN_AT_ONCE = 20_000
WRITE_AT_ONCE = 1_000


class ChromaEngine:
    """The public half of one collection. Vectors of ``raw_query`` aside, no distance leaves it."""

    def __init__(self, directory: Directory, collection: str, texts: TextIndex) -> None:
        self._directory = directory
        self._name = collection
        self._texts = texts
        self._opened: tuple[Collection, Rows] | None = None
        self.side_by_side = SideBySide()

    def _collection(self, client: ClientAPI) -> Collection:
        return self._directory.collection(client, self._name)

    def _rows(self, collection: Collection) -> Rows:
        """The rows of this collection as it is open now."""
        opened = self._opened
        if opened is None or opened[0] is not collection:
            opened = self._opened = (collection, open_rows(collection, self._directory.tables))
        return opened[1]

    def _batches(self, client: ClientAPI, items: Sequence[Any]) -> Iterator[slice]:
        limit = client.get_max_batch_size()
        return (slice(start, start + limit) for start in range(0, len(items), limit))

    # --- writing --------------------------------------------------------------------------------

    @contextmanager
    def _commit(self, ids: Sequence[str]) -> Iterator[ClientAPI]:
        """A commit that writes or removes these ids."""
        with self._directory.commit() as client:
            try:
                self._texts.begin(ids)
                yield client
                self._texts.commit(self._view(client))
            finally:
                self._texts.end()

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        """Batch by batch; each one is seen whole or not at all."""
        limit = self._directory.read(lambda client: client.get_max_batch_size())
        for start in range(0, len(records), limit):
            part = slice(start, start + limit)
            with self._commit([record.id for record in records[part]]) as client:
                self._write(client, records[part], vectors[part])

    def update(self, records: Sequence[Record]) -> None:
        if records:
            ids = [record.id for record in records]
            with self._commit(ids) as client:
                check_unmoved(records, self._rows(self._collection(client)).records(ids))
                for part in self._batches(client, records):
                    self._write(client, records[part], None)

    def delete(self, keys: Sequence[Key]) -> None:
        ids = [id for scope, _, id in keys if scope == PUBLIC]
        if ids:
            with self._commit(ids) as client:
                self._delete(client, ids)

    def swap(self, swap: Swap, done: Callable[[], None]) -> int:
        """Replace sources, and do ``done``, in one commit: new in first, old out after.

        Returns how many rows went. The journal names the ids that do not count: those added,
        until the switch, and those to be removed, after it. Readers leave them out, and after a
        crash the next writer removes them.

        Raises:
            MovedError: a row that was to stay is gone, or has another text or vector by now.
        """
        database = self._directory.database
        with self._commit([r.id for r in [*swap.changed, *swap.new]]) as client:
            collection = self._collection(client)
            staying = [*swap.kept, *swap.changed]
            rows = self._rows(collection)
            check_unmoved(staying, rows.records([record.id for record in staying]))
            old = [id for id in self._ids_of_documents(collection, swap.doc_ids) if id not in swap.ids]
            self._texts.begin(old)
            stored = rows.records([record.id for record in swap.new])
            database.set_pending(self._name, [r.id for r in swap.new if r.id not in stored])
            for part in self._batches(client, swap.new):
                self._write(client, swap.new[part], swap.vectors[part])
            # The switch: at one stroke the new chunks begin to count and the old ones cease to.
            database.set_pending(self._name, old)
            for part in self._batches(client, swap.changed):
                self._write(client, swap.changed[part], None)
            self._delete(client, old)
            database.set_pending(self._name, [])
            done()
        return len(old)

    def _ids_of_documents(self, collection: Collection, doc_ids: Collection_[str]) -> list[str]:
        ordered, ids = sorted(doc_ids), []
        for start in range(0, len(ordered), PAGE):
            ids += self._candidates(collection, {REF_KEY: {"$in": ordered[start : start + PAGE]}})
        return ids

    def _candidates(self, collection: Collection, where: dict[str, Any] | None) -> list[str]:
        """Ids among which are all that fulfil ``where``; of one comparison, exactly those."""
        narrow = None if where is None else self._rows(collection).narrow(where, SCAN_AT_ONCE)
        return collection.get(where=where, include=[])["ids"] if narrow is None else narrow

    def _write(self, client: ClientAPI, records: Sequence[Record], vectors: Matrix | None) -> None:
        """Write within a commit, few at a time: Chroma lets no other Python thread run meanwhile."""
        collection = self._collection(client)
        for start in range(0, len(records), WRITE_AT_ONCE):
            part = slice(start, start + WRITE_AT_ONCE)
            self._write_part(collection, records[part], None if vectors is None else vectors[part])
        self._texts.put(records)

    def _write_part(
        self, collection: Collection, records: Sequence[Record], vectors: Matrix | None
    ) -> None:
        ids = [record.id for record in records]
        rows = [{BLOB_KEY: encode(record), **project(record)} for record in records]
        stored = collection.get(ids=ids, include=["metadatas"])
        # Chroma's upsert merges metadata: a key that the new version lacks must be cleared.
        before = dict(zip(stored["ids"], stored["metadatas"] or [], strict=False))
        for id, row in zip(ids, rows, strict=True):
            row.update({key: None for key in before.get(id) or {} if key not in row})  # type: ignore[misc]
        if vectors is None:
            # Without a document: Chroma would download a model to embed a changed one.
            collection.update(ids=ids, metadatas=cast("Any", rows))
        else:
            collection.upsert(
                ids=ids,
                embeddings=vectors,
                documents=[r.text for r in records],
                metadatas=cast("Any", rows),
            )

    def _delete(self, client: ClientAPI, ids: list[str]) -> None:
        for part in self._batches(client, ids):
            self._collection(client).delete(ids=ids[part])

    # --- reading --------------------------------------------------------------------------------

    def read(self, query: Callable[[PublicView], T]) -> T:
        """``query`` on one moment of the public chunks; it may run more than once."""
        return self._directory.read(lambda client: query(self._view(client)))

    def mend(self, do: Callable[[PublicView], None]) -> None:
        """``do`` while nobody reads or writes, for what is derived from the chunks; from any process."""
        with self._directory.mending() as client:
            do(self._view(client))

    def _view(self, client: ClientAPI) -> PublicView:
        collection = self._collection(client)
        hidden = self._directory.database.pending(self._name)
        return PublicView(collection, self._rows(collection), hidden)

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        ids = list(dict.fromkeys(id for scope, _, id in keys if scope == PUBLIC))
        if not ids:
            return {}
        records = self.read(lambda view: view.records(ids))
        return {record.key: record for record in records.values()}

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        """Of one moment up to SCAN_AT_ONCE rows; beyond, page by page, and writers may come between."""
        where = chroma_where(condition)

        def look(view: PublicView) -> tuple[list[str], dict[str, Record]]:
            ids = sorted(condition.ids or self._candidates(view.collection, where))
            return ids, view.records(ids) if len(ids) <= SCAN_AT_ONCE else {}

        if condition.ids == frozenset() or condition.doc_ids == frozenset():
            return
        ids, records = self.read(look)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            if len(ids) > SCAN_AT_ONCE:
                records = {key[2]: r for key, r in self.get([(PUBLIC, "", id) for id in page]).items()}
            found = (records[id] for id in page if id in records)
            yield from (r for r in found if access.permits(r.flat()) and condition.matches(r))

    def count(self) -> int:
        return self.read(lambda view: view.collection.count())

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        if condition.doc_ids == frozenset() or condition.ids == frozenset():
            return Found([], "empty")
        return self.read(lambda view: Search(view, vector, k, access, condition).run())

    def candidates(
        self, vector: Vector, k: int, access: Access, condition: Condition, refused: Collection_[str]
    ) -> tuple[list[Candidate], str]:
        """What :meth:`search` finds, and near-ties of the k-th, not read; and the plan."""
        if condition.doc_ids == frozenset() or condition.ids == frozenset():
            return [], "empty"
        return self.read(lambda view: Search(view, vector, k, access, condition, refused).candidates())

    def similarities(self, ids: Sequence[str], vector: Vector) -> dict[str, float]:
        """Exact cosines of those of ``ids`` that exist."""
        if not ids:
            return {}
        found, matrix = self.read(lambda view: view.vectors(ids, len(vector)))
        return dict(zip(found, similarities(vector, matrix).tolist(), strict=True))

    def hits(self, ids: Sequence[str], vector: Vector | None) -> dict[str, Hit]:
        """Those of ``ids`` that count, whole, with their similarity; NaN without a vector."""

        def look(view: PublicView) -> dict[str, Hit]:
            if vector is None:
                return {id: Hit(record, math.nan) for id, record in view.records(ids).items()}
            (there, matrix), records = self.side_by_side.run(
                lambda: view.vectors(ids, len(vector)), lambda: view.records(ids)
            )
            scored = zip(there, similarities(vector, matrix).tolist(), matrix, strict=True)
            return {id: Hit(records[id], value, row) for id, value, row in scored if id in records}

        return self.read(look) if ids else {}

    def unreadable(self, dimension: int | None) -> int:
        """How many rows have been edited, or have no vector of this dimension."""

        def inspect(view: PublicView) -> int:
            ids, bad = view.ids(), 0
            for start in range(0, len(ids), PAGE):
                page = view.collection.get(
                    ids=ids[start : start + PAGE], include=["metadatas", "documents", "embeddings"]
                )
                vectors = cast("Any", page["embeddings"])
                whole = {id for id, v in zip(page["ids"], vectors, strict=True) if len(v) == dimension}
                bad += len(ids[start : start + PAGE]) - len(whole & decoded(page).keys())
            return bad

        return self.read(inspect)

    def client(self) -> ClientAPI:
        """The client as it is open now; the next reopening closes it."""
        return self._directory.read(lambda client: client)

    def raw_query(self, vector: Vector, k: int, where: dict[str, Any] | None) -> Any:
        """Chroma's own result, with distances: infrastructure, never an answer to a user."""
        return self.read(
            lambda view: view.collection.query(
                query_embeddings=vector[None, :], n_results=k, where=where,
                include=["documents", "metadatas", "distances"],
            )
        )  # fmt: skip

    def close(self) -> None:
        self.side_by_side.close()
        self._texts.close()
        self._directory.close()
