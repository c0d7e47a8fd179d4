"""What every retriever here keeps: the view it was built with, whatever is done to the object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableSerializable
from langchain_core.runnables.utils import AnyConfigurableField
from pydantic import ConfigDict, Field
from typing_extensions import Self

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    NotPicklableError,
    SettingsError,
    UnexpectedArgumentError,
)

from .asking import view_of

BOUND = frozenset({"vectorstore", "session_id", "access"})


class BoundRetriever(BaseRetriever):
    """A retriever whose ``vectorstore`` decides access and can be neither replaced nor pickled.

    Assignment, ``model_copy(update=...)`` and ``configurable_fields`` refuse it; copies keep it.
    That stops accidents and framework parameters, not code that reaches into Python's internals.
    """

    # An unknown field that is silently ignored may be a misspelt filter.
    model_config = ConfigDict(extra="forbid")

    vectorstore: Any = Field(exclude=True, repr=False)
    similarity_key: str | None = None
    """Metadata key under which documents carry their cosine; None shows it nowhere."""

    @property
    def access(self) -> Access:
        """Who is asking; fixed."""
        return view_of(self.vectorstore).access or Access.public()

    @property
    def session_id(self) -> str | None:
        """The session whose retriever this is (the one its access writes), or None; fixed."""
        return self.access.write

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        """``value`` when it may stand in the field ``name``."""
        if name not in cls.model_fields:
            raise UnexpectedArgumentError(f"{cls.__name__} has no field {name!r:.60}")
        if name == "similarity_key" and value is not None and (not isinstance(value, str) or not value):
            raise SettingsError(f"similarity_key must be None or a metadata key, not {value!r:.40}")
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in BOUND:
            raise _fixed(name)
        super().__setattr__(name, self._checked(name, value) if name in type(self).model_fields else value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the same access; pydantic writes ``update`` unchecked, so it is checked here."""
        for name in update or {}:
            if name in BOUND:
                raise _fixed(name)
        checked = {name: self._checked(name, value) for name, value in (update or {}).items()}
        return super().model_copy(update=checked, deep=deep)

    def copy(self, **options: Any) -> Self:
        """pydantic v1's name of :meth:`model_copy`."""
        return self.model_copy(**options)

    def configurable_fields(self, **kwargs: AnyConfigurableField) -> RunnableSerializable[str, list[Any]]:
        """LangChain's, without the fields that decide access."""
        for name in kwargs:
            if name in BOUND:
                raise _fixed(name)
        return cast("RunnableSerializable[str, list[Any]]", super().configurable_fields(**kwargs))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPicklableError("a retriever is not pickled; build it again in the other process")


def _fixed(name: str) -> AccessDeniedError:
    return AccessDeniedError(f"{name} is fixed when a retriever is built; build another one")
