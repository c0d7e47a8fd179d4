"""Public chunks in Chroma: the nearest candidates come from its HNSW index, the decision from us."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Collection as Collection_
from typing import TYPE_CHECKING, Any, cast

from ..access import Access
from ..chunks import PUBLIC
from ..errors import CollectionMismatchError, CollectionNotFoundError, SettingsError
from ..vectors import Matrix, Vector
from .base import ANYTHING, Condition, Found, Key, Record, Swap, check_unmoved
from .blob import BLOB_KEY, REF_KEY, chroma_where, encode, project
from .chroma_rows import PAGE, Rows, decoded, open_rows
from .chroma_search import Search
from .directory import Directory

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

LAYOUT_KEY = "fiscal:layout"
LAYOUT = 1
SCAN_AT_ONCE = 20_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]")


def validate_collection_name(name: object) -> str:
    """Chroma's own rule, said before anything is opened; a name is never rewritten."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise SettingsError(
            f"collection name {name!r:.60} is not usable: 3 to 512 characters of a-z, A-Z, 0-9, '.', '_' "
            "or '-', with a letter or digit at both ends and no '..'"
        )
    return name


def open_collection(directory: Directory, name: str, *, create: bool) -> None:
    """Check the collection's space and layout, or create it.

    Raises:
        CollectionNotFoundError: it is absent and ``create`` is False; lists those that exist.
        CollectionMismatchError: another space than cosine, or not written by this package.
    """
    validate_collection_name(name)

    def look(client: ClientAPI) -> tuple[list[str], Any, Any]:
        names = sorted(c.name for c in client.list_collections())
        if name not in names:
            return names, None, None
        collection = client.get_collection(name, embedding_function=None)
        # The parsed `configuration` warns about every collection without an embedding function.
        return names, collection.configuration_json, collection.metadata

    names, configuration, metadata = directory.read(look)
    if name in names:
        space = (configuration.get("hnsw") or configuration.get("spann") or {}).get("space")
        if space != "cosine":
            raise CollectionMismatchError(
                f"collection {name!r} in {directory.path} has space {space!r}; this package needs "
                "'cosine'. Nothing was changed: choose another collection name and ingest again"
            )
        if (metadata or {}).get(LAYOUT_KEY) != LAYOUT:
            raise CollectionMismatchError(
                f"collection {name!r} in {directory.path} was not written by fiscal-rag-plugin (no layout "
                f"{LAYOUT} marker). Nothing was changed: bring it over with `fiscal-rag import`, or choose "
                "another collection name"
            )
        return
    if not create:
        there = ", ".join(names) if names else "none"
        raise CollectionNotFoundError(f"no collection {name!r} in {directory.path}; there are: {there}")
    with directory.commit() as client:
        client.create_collection(
            name,
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine"}},
            metadata={LAYOUT_KEY: LAYOUT},
        )


class ChromaEngine:
    """The public half of one collection. Vectors of ``raw_query`` aside, no distance leaves it."""

    def __init__(self, directory: Directory, collection: str) -> None:
        self._directory = directory
        self._name = collection
        self._opened: tuple[Collection, Rows] | None = None

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

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        """Batch by batch; each one is seen whole or not at all."""
        limit = len(records)
        start = 0
        while start < len(records):
            with self._directory.commit() as client:
                limit = client.get_max_batch_size()
                part = slice(start, start + limit)
                self._write(client, records[part], vectors[part])
            start += limit

    def update(self, records: Sequence[Record]) -> None:
        if records:
            with self._directory.commit() as client:
                rows = self._rows(self._collection(client))
                check_unmoved(records, rows.records([record.id for record in records]))
                for part in self._batches(client, records):
                    self._write(client, records[part], None)

    def delete(self, keys: Sequence[Key]) -> None:
        ids = [id for scope, _, id in keys if scope == PUBLIC]
        if ids:
            with self._directory.commit() as client:
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
        with self._directory.commit() as client:
            collection = self._collection(client)
            staying = [*swap.kept, *swap.changed]
            rows = self._rows(collection)
            check_unmoved(staying, rows.records([record.id for record in staying]))
            old = [id for id in self._ids_of_documents(collection, swap.doc_ids) if id not in swap.ids]
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
        collection = self._collection(client)
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

    def _read(self, query: Callable[[Collection, frozenset[str]], Any]) -> Any:
        """Run ``query`` with the collection and the ids that an unfinished replacement added."""
        database = self._directory.database
        return self._directory.read(
            lambda client: query(self._collection(client), database.pending(self._name))
        )

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        ids = list(dict.fromkeys(id for scope, _, id in keys if scope == PUBLIC))
        if not ids:
            return {}

        def fetch(collection: Collection, hidden: frozenset[str]) -> dict[str, Record]:
            return {id: r for id, r in self._rows(collection).records(ids).items() if id not in hidden}

        return {record.key: record for record in self._read(fetch).values()}

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        """Of one moment up to SCAN_AT_ONCE rows; beyond, page by page, and writers may come between."""
        where = chroma_where(condition)

        def look(collection: Collection, hidden: frozenset[str]) -> tuple[list[str], dict[str, Record]]:
            ids = sorted(condition.ids or self._candidates(collection, where))
            ids = [id for id in ids if id not in hidden]
            return ids, self._rows(collection).records(ids if len(ids) <= SCAN_AT_ONCE else [])

        if condition.ids == frozenset() or condition.doc_ids == frozenset():
            return
        ids, records = self._read(look)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            if len(ids) > SCAN_AT_ONCE:
                records = {key[2]: r for key, r in self.get([(PUBLIC, "", id) for id in page]).items()}
            found = (records[id] for id in page if id in records)
            yield from (r for r in found if access.permits(r.flat()) and condition.matches(r))

    def count(self) -> int:
        return int(self._read(lambda collection, _: collection.count()))

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        if condition.doc_ids == frozenset() or condition.ids == frozenset():
            return Found([], "empty")

        def run(collection: Collection, hidden: frozenset[str]) -> Found:
            return Search(collection, self._rows(collection), hidden, vector, k, access, condition).run()

        return cast("Found", self._read(run))

    def unreadable(self, dimension: int | None) -> int:
        """How many rows have been edited, or have no vector of this dimension."""

        def inspect(collection: Collection, hidden: frozenset[str]) -> int:
            ids = [id for id in collection.get(include=[])["ids"] if id not in hidden]
            bad = 0
            for start in range(0, len(ids), PAGE):
                page = collection.get(
                    ids=ids[start : start + PAGE], include=["metadatas", "documents", "embeddings"]
                )
                vectors = cast("Any", page["embeddings"])
                whole = {id for id, v in zip(page["ids"], vectors, strict=True) if len(v) == dimension}
                bad += len(ids[start : start + PAGE]) - len(whole & decoded(page).keys())
            return bad

        return int(self._read(inspect))

    def client(self) -> ClientAPI:
        """The client as it is open now; the next reopening closes it."""
        return self._directory.read(lambda client: client)

    def raw_query(self, vector: Vector, k: int, where: dict[str, Any] | None) -> Any:
        """Chroma's own result, with distances: infrastructure, never an answer to a user."""
        return self._read(
            lambda collection, _: collection.query(
                query_embeddings=vector[None, :], n_results=k, where=where,
                include=["documents", "metadatas", "distances"],
            )
        )  # fmt: skip

    def close(self) -> None:
        self._directory.close()
