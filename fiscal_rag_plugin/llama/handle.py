"""What a store is to whoever copies or pickles it: one open thing with one access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from typing_extensions import Self

from ..errors import NotPicklableError, UnexpectedArgumentError
from ..view import View


def checked(view: object) -> View:
    """``view`` when it is a View; a Chroma collection or an index cannot be handed over."""
    if not isinstance(view, View):
        raise UnexpectedArgumentError(
            f"expected a FiscalVectorStore, not {type(view).__name__}; open one with get_vectorstore() or "
            "FiscalVectorStore.from_params()"
        )
    return view


class Handle:
    """Copies are the object itself, so that none can carry another access; pickling is refused."""

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002
    ) -> Self:
        """The object itself, which has no state of its own; it takes no update."""
        # pydantic would write an update of "_view" where it is looked up first.
        if update:
            raise UnexpectedArgumentError("a copy keeps its access; use for_session or for_access")
        return self

    def copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Self:
        return self.model_copy(update=update)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotPicklableError("a store is not pickled; open it again in the other process")
