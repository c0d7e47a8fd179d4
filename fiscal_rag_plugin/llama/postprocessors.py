"""Access and threshold for nodes from anywhere: other retrievers, fusion, a docstore."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr, field_validator
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle

from ..access import Access
from ..errors import AccessDeniedError, SettingsError, UnexpectedArgumentError
from ..ranking import check_threshold, passes
from ..settings import DEFAULT_SCORE_THRESHOLD
from .vector_store import FiscalVectorStore


class AuthorizationPostprocessor(BaseNodePostprocessor):
    """Drops nodes that the access does not permit, by their ``source_scope`` and ``session_id``.

    A node whose metadata lacks these keys is nobody's and is dropped. An IndexNode loses an object
    that is a node outside the access. It believes the metadata: whoever made them must be trusted.
    """

    _access: Access = PrivateAttr()

    def __init__(
        self, *, access: Access | None = None, vectorstore: FiscalVectorStore | None = None, **fields: Any
    ) -> None:
        """Takes an ``access``, or a ``vectorstore``'s: an unbound store permits public nodes only."""
        if (access is None) == (vectorstore is None):
            raise SettingsError("give AuthorizationPostprocessor an access= or a vectorstore=")
        if vectorstore is not None:
            access = vectorstore.access or Access.public()
        if not isinstance(access, Access):
            raise SettingsError(f"access must be an Access, not {type(access).__name__}")
        super().__init__(**fields)
        self._access = access

    @classmethod
    def class_name(cls) -> str:
        return "AuthorizationPostprocessor"

    @property
    def access(self) -> Access:
        return self._access

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002
    ) -> list[NodeWithScore]:
        return [self._without_object(n) for n in nodes if self._access.permits(n.node.metadata)]

    def _without_object(self, found: NodeWithScore) -> NodeWithScore:
        node = found.node
        inner = node.obj if isinstance(node, IndexNode) else None
        if not isinstance(inner, BaseNode) or self._access.permits(inner.metadata):
            return found
        return NodeWithScore(node=node.model_copy(update={"obj": None}), score=found.score)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> AuthorizationPostprocessor:
        if update:
            raise UnexpectedArgumentError("an access is not changed by copying; build another one")
        return super().model_copy(deep=deep)

    @classmethod
    def from_dict(
        cls,
        data: dict[str, Any],  # noqa: ARG003
        **kwargs: Any,
    ) -> AuthorizationPostprocessor:
        """Raises AccessDeniedError without ``access=``: a dict carries none."""
        if kwargs.get("access") is None and kwargs.get("vectorstore") is None:
            raise AccessDeniedError("a dict carries no access; give access= or vectorstore=")
        return cls(**kwargs)


class CosineThresholdPostprocessor(BaseNodePostprocessor):
    """Drops nodes whose score, a cosine, does not reach the threshold within 1e-6, or that have none.

    ``score_threshold=None`` keeps everything. It must follow a retriever whose scores are cosines.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, validate_assignment=True)

    score_threshold: float | None = DEFAULT_SCORE_THRESHOLD

    def __init__(self, *, score_threshold: float | None = DEFAULT_SCORE_THRESHOLD, **fields: Any) -> None:
        """Raises InvalidQueryError unless it is None or a number in [-1, 1]."""
        super().__init__(score_threshold=check_threshold(score_threshold), **fields)

    @field_validator("score_threshold", mode="before")
    @classmethod
    def _in_range(cls, value: object) -> float | None:
        return check_threshold(value)

    @classmethod
    def class_name(cls) -> str:
        return "CosineThresholdPostprocessor"

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002
    ) -> list[NodeWithScore]:
        if self.score_threshold is None:
            return nodes
        return [n for n in nodes if n.score is not None and passes(n.score, self.score_threshold)]
