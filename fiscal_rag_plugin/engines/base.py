"""The port every engine implements, and the records that pass through it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from ..access import Access
from ..chunks import PRIVATE, SCOPE_KEY, SESSION_KEY, Json, Scope, has_surrogate
from ..filters import Filter, matches
from ..vectors import Matrix, Vector, rounded

Kind = Literal["chunk", "node", "document"]
Key: TypeAlias = "tuple[Scope, str, str]"
"""(scope, session or "", id): one row per key."""


@dataclass(frozen=True, slots=True)
class Record:
    """One stored chunk, without its vector.

    ``metadata`` is the caller's, as it was given; :meth:`flat` adds the access keys. ``ref`` is
    the source document (a chunk's doc_id, a node's ref_doc_id). ``shell`` is what a framework
    needs to rebuild its object. ``fingerprint`` tells what the vector was made from.
    """

    id: str
    scope: Scope
    session_id: str | None
    ref: str | None
    text: str
    metadata: dict[str, Json]
    kind: Kind = "chunk"
    shell: dict[str, Json] = field(default_factory=dict)
    fingerprint: str = ""
    expires_at: float | None = None
    """POSIX seconds; private records only."""

    @property
    def key(self) -> Key:
        return (self.scope, self.session_id or "", self.id)

    def flat(self) -> dict[str, Any]:
        """The metadata that filters see: the caller's keys, then the access keys."""
        flat: dict[str, Any] = {k: v for k, v in self.metadata.items() if k != SESSION_KEY}
        flat[SCOPE_KEY] = self.scope
        if self.scope == PRIVATE:
            flat[SESSION_KEY] = self.session_id
        return flat


@dataclass(frozen=True, slots=True)
class Condition:
    """What a query asks for beyond access. None is no restriction; an empty set matches nothing."""

    filter: Filter | None = None
    doc_ids: frozenset[str] | None = None
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        # No stored id has half a character, and no database can be asked for one.
        for name in ("doc_ids", "ids"):
            given = getattr(self, name)
            if given is not None and any(map(has_surrogate, given)):
                object.__setattr__(self, name, frozenset(id for id in given if not has_surrogate(id)))

    @property
    def is_empty(self) -> bool:
        return self.filter is None and self.doc_ids is None and self.ids is None

    def matches(self, record: Record) -> bool:
        return (
            (self.ids is None or record.id in self.ids)
            and (self.doc_ids is None or record.ref in self.doc_ids)
            and (self.filter is None or matches(self.filter, record.flat()))
        )


ANYTHING = Condition()


@dataclass(frozen=True, slots=True)
class Hit:
    """A record found, with its cosine in [-1, 1]; ``vector`` stays inside the package."""

    record: Record
    similarity: float
    vector: Vector | None = field(default=None, repr=False)
    bm25: float | None = None
    """0.0 without a word of the question; None where words were not looked at."""
    dense_rank: int | None = None
    lexical_rank: int | None = None
    rrf: float | None = None
    """The fused value that a hybrid answer is ordered by."""

    @property
    def score(self) -> float | None:
        """The similarity, or None where words were searched without a model."""
        return None if math.isnan(self.similarity) else self.similarity

    def scores(self) -> dict[str, float | None]:
        """What ``include_scores`` writes into metadata."""
        return {"similarity": self.score, "bm25": self.bm25, "rrf": self.rrf}

    @property
    def order(self) -> tuple[float, str, Key]:
        """Best first: similarity to six decimals, then id; the key parts public and own twins."""
        return (-rounded(self.similarity), self.record.id, self.record.key)


@dataclass(frozen=True, slots=True)
class Found:
    """The best hits in order, and the plan that found them."""

    hits: list[Hit]
    plan: str
    degraded: str = ""
    """Why a part of the question was not asked, where the caller allowed that."""


class MovedError(Exception):
    """What a write was based on has changed meanwhile; it must be sorted out again."""


@dataclass(frozen=True, slots=True)
class Swap:
    """The new version of some sources within one (scope, session), as it was sorted out.

    ``kept`` and ``changed`` are stored with the text and the vector they need, ``changed`` with
    other metadata; ``new`` come with their ``vectors``. Whatever else the sources have goes.
    """

    doc_ids: frozenset[str]
    session_id: str | None
    kept: Sequence[Record]
    changed: Sequence[Record]
    new: Sequence[Record]
    vectors: Matrix

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(record.id for record in [*self.kept, *self.changed, *self.new])


def check_unmoved(expected: Sequence[Record], stored: Mapping[str, Record]) -> None:
    """Raise MovedError unless each record is still stored with the same text and vector."""
    for record in expected:
        now = stored.get(record.id)
        if now is None or (now.fingerprint, now.text) != (record.fingerprint, record.text):
            raise MovedError


@runtime_checkable
class VectorEngine(Protocol):
    """Stores records with their vectors, and finds them within an access.

    Every answer is what ``access.permits`` and ``condition.matches`` define, filtered before the
    top k; an engine may only be faster than that, never wider.
    """

    def upsert(self, records: Sequence[Record], vectors: Matrix) -> None:
        """Write records with their vectors ``(n, dim)``; a key that exists is replaced whole."""
        ...

    def update(self, records: Sequence[Record]) -> None:
        """Replace the metadata of existing keys; their texts and vectors stay untouched.

        Raises MovedError when one of them is gone or has another text or vector by now.
        """
        ...

    def delete(self, keys: Sequence[Key]) -> None:
        """Remove these keys; absent ones are no error."""
        ...

    def get(self, keys: Sequence[Key]) -> dict[Key, Record]:
        """The records of these keys that exist and have not expired."""
        ...

    def scan(self, access: Access, condition: Condition = ANYTHING) -> Iterator[Record]:
        """Every permitted record that matches, in order of (id, key)."""
        ...

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        """The k best permitted records that match, vectors included."""
        ...

    def close(self) -> None: ...
