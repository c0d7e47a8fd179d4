"""What makes a collection's vectors: one model, one dimension, remembered with the index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .chunks import PUBLIC, Json
from .drafts import Draft, is_of_text
from .embedding import Embedder, embed_checked, embed_query_checked
from .embedding.port import model_id_of
from .engines.database import Database
from .engines.staging import Staging
from .errors import CollectionMismatchError, NoEmbedderError
from .vectors import Matrix, Vector, as_matrix

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (texts embedded, texts to embed)."""


STAGE_SECONDS = 1.0


class Vectorizer:
    """Turns drafts and questions into checked vectors of the collection's model."""

    def __init__(self, database: Database, collection: str, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self._database = database
        self._collection = collection
        self._dimension: int | None = None
        self._staging = Staging(database, collection)
        self.check_model()

    @property
    def dimension(self) -> int | None:
        """Of the vectors stored, None while there are none."""
        if self._dimension is None:
            stored = self._database.manifest(self._collection).get("dimension")
            self._dimension = stored if isinstance(stored, int) else None
        return self._dimension

    def check_model(self) -> None:
        """Refuse an embedder that declares another model than the one that made the index."""
        model = model_id_of(self.embedder)
        stored = self._database.manifest(self._collection).get("model")
        if model and stored and model != stored:
            raise CollectionMismatchError(
                f"collection {self._collection!r} was made with model {stored!r}, this embedder is "
                f"{model!r}; open it with the former, or ingest into another collection"
            )

    def embed_query(self, text: str) -> Vector:
        """float32 ``(dim,)`` of a question."""
        if self.embedder is None:
            raise NoEmbedderError(
                "the store was opened without an embedder; pass embedding_service= or embed_model=, "
                "or query with a vector"
            )
        self.check_model()
        return embed_query_checked(self.embedder, text)

    def vectors(self, drafts: Sequence[Draft], on_progress: Progress | None) -> Matrix:
        """Vectors of the drafts, given or embedded, all checked before anything is written.

        Of a long run, what was made so far is staged each second, for the run after an interruption.
        """
        to_embed = [i for i, draft in enumerate(drafts) if draft.vector is None]
        given = [i for i, draft in enumerate(drafts) if draft.vector is not None]
        rows: list[Vector | None] = [None] * len(drafts)
        if given:
            matrix = as_matrix([drafts[i].vector for i in given], len(given), self.dimension)
            for i, row in zip(given, matrix, strict=True):
                rows[i] = row
        if to_embed:
            if self.embedder is None:
                raise NoEmbedderError("text has to be embedded; open the store with an embedder")
            self.check_model()
            stage = _Stage(self._staging) if model_id_of(self.embedder) else None
            step = max(1, int(getattr(self.embedder, "batch_size", 32)))
            for start in range(0, len(to_embed), step):
                part = to_embed[start : start + step]
                labels = [drafts[i].record.id for i in part]
                matrix = embed_checked(self.embedder, [drafts[i].embedding_text for i in part], labels)
                for i, row in zip(part, matrix, strict=True):
                    rows[i] = row
                    if stage is not None:
                        stage.add(self._staging_key(drafts[i]), row)
                if on_progress is not None:
                    on_progress(start + len(part), len(to_embed))
        matrix = as_matrix([row for row in rows if row is not None], len(drafts), self.dimension)
        # A vector that an earlier run staged is the model's, as one made now.
        embedded = any(is_of_text(draft.record.fingerprint) for draft in drafts)
        # What one session brings ready-made must not decide what another may bring.
        if embedded or any(draft.record.scope == PUBLIC for draft in drafts):
            self._claim(matrix, embedded=embedded)
        return matrix

    def _claim(self, matrix: Matrix, *, embedded: bool) -> None:
        """The first vectors decide dimension and model of the collection."""
        values: dict[str, Json] = {"dimension": int(matrix.shape[1])}
        model = model_id_of(self.embedder)
        if embedded and model:
            values["model"] = model
        stored = self._database.claim_manifest(self._collection, values)
        as_matrix(matrix, len(matrix), int(str(stored["dimension"])))
        if embedded:
            self.check_model()

    def made_before(self, drafts: Sequence[Draft]) -> dict[str, Vector]:
        """Vectors by fingerprint that an interrupted run of this model made of these drafts."""
        if not model_id_of(self.embedder):
            return {}
        keys = {self._staging_key(draft): draft for draft in drafts if draft.vector is None}
        kept = self._staging.kept(list(keys))
        return {keys[key].record.fingerprint: vector for key, vector in kept.items()}

    def stored(self, drafts: Sequence[Draft]) -> None:
        """Forget what was staged of drafts that are stored now."""
        self._staging.drop([self._staging_key(draft) for draft in drafts])

    def _staging_key(self, draft: Draft) -> tuple[str, str]:
        """(session, model and fingerprint): another model's vectors are not taken for this one's."""
        model = model_id_of(self.embedder)
        return (draft.record.session_id or "", f"{model} {draft.record.fingerprint}")


class _Stage:
    """Collects vectors and writes them once a second, so that a fast model is not slowed down."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._waiting: dict[tuple[str, str], Vector] = {}
        self._written_at = time.monotonic()

    def add(self, key: tuple[str, str], vector: Vector) -> None:
        self._waiting[key] = vector
        if time.monotonic() - self._written_at >= STAGE_SECONDS:
            self._staging.keep(self._waiting)
            self._waiting.clear()
            self._written_at = time.monotonic()
