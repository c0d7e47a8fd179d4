"""Who is asking: the one definition of what a caller may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .chunks import PRIVATE, PUBLIC, SCOPE_KEY, SESSION_KEY, validate_session_id
from .errors import InvalidAccessError, InvalidChunkError


@dataclass(frozen=True, init=False)
class Access:
    """The sessions that may be read (none: public only), and at most one that is written.

    Bound when a store view or a retriever is built, never passed per call. The plugin
    authorizes; authenticating the caller is the application's part.
    """

    read: frozenset[str]
    write: str | None

    __slots__ = ("read", "write")

    def __init__(self, read: Iterable[str] = (), write: str | None = None) -> None:
        """Raises InvalidAccessError for an id that is none, or a written session that is not read."""
        if hasattr(self, "write"):
            raise InvalidAccessError("an access cannot be changed; build another one")
        if isinstance(read, str):
            raise InvalidAccessError("read must be a set of session ids; write read={'A'}, not 'A'")
        try:
            sessions = frozenset(validate_session_id(s) for s in read)
            if write is not None:
                validate_session_id(write)
        except (InvalidChunkError, TypeError) as error:
            raise InvalidAccessError(str(error)) from None
        if write is not None and write not in sessions:
            raise InvalidAccessError("the written session must be among those read")
        object.__setattr__(self, "read", sessions)
        object.__setattr__(self, "write", write)

    @classmethod
    def public(cls) -> Access:
        """Reads public chunks and writes no session."""
        return cls()

    @classmethod
    def session(cls, session_id: str) -> Access:
        """Reads public chunks and one session, and writes that session."""
        return cls(read=(session_id,), write=session_id)

    def permits(self, metadata: Mapping[str, Any] | None) -> bool:
        """Whether a chunk with this metadata may be seen: public, or private of a read session.

        Anything else is denied: no metadata, an unknown scope, a private chunk without a
        session, a public one with one.
        """
        if metadata is None:
            return False
        scope, session = metadata.get(SCOPE_KEY), metadata.get(SESSION_KEY)
        if type(scope) is not str:
            return False
        if scope == PUBLIC:
            return session is None
        return scope == PRIVATE and type(session) is str and session in self.read

    def where(self) -> dict[str, Any]:
        """The mandatory filter in Chroma's ``where`` syntax, equal in meaning to :meth:`permits`."""
        public: dict[str, Any] = {"$and": [{SCOPE_KEY: PUBLIC}, {SESSION_KEY: {"$eq": None}}]}
        if not self.read:
            return public
        mine = {"$and": [{SCOPE_KEY: PRIVATE}, {SESSION_KEY: {"$in": sorted(self.read)}}]}
        return {"$or": [public, mine]}

    def __repr__(self) -> str:
        return f"Access(read={len(self.read)} sessions, write={'one' if self.write else 'none'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Access, (tuple(sorted(self.read)), self.write))
