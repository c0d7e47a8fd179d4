"""An interrupted ingest goes on where it was: what was embedded is not embedded again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiscal_rag_plugin import vectorizing
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder


class Interrupted(HashEmbedder):
    """Stops the program after some texts, as Ctrl-C does."""

    batch_size = 4

    def __init__(self, after: int) -> None:
        super().__init__(32)
        self.after = after

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if len(self.documents) + len(texts) > self.after:
            raise KeyboardInterrupt
        return super().embed_documents(texts)


def chunks(session: str | None, n: int = 20) -> list[Chunk]:
    scope = "public" if session is None else "private"
    metadata = ChunkMetadata(doc_id="largo.pdf", doc_type="manual", source_scope=scope, session_id=session)  # type: ignore[arg-type]
    return [Chunk(f"texto {i}", f"texto {i}", metadata, i, i + 1) for i in range(n)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorizing, "STAGE_SECONDS", 0.0)


def opened(path: Path, embedder: HashEmbedder) -> View:
    return View(Corpus.open(str(path), "fiscal", embedder=embedder))


def staged(view: View) -> int:
    return int(view._corpus.directory.database.query("SELECT COUNT(*) FROM staged")[0][0])


@pytest.mark.parametrize("session", [None, "A"])
def test_the_run_after_an_interruption_embeds_only_the_rest(tmp_path: Path, session: str | None) -> None:
    view = opened(tmp_path / "db", Interrupted(after=12))
    with pytest.raises(KeyboardInterrupt):
        view.replace_document("largo.pdf", chunks(session))
    assert list(view.scan()) == []
    view.close()
    again = HashEmbedder(32)
    view = opened(tmp_path / "db", again)
    assert len(view.replace_document("largo.pdf", chunks(session)).ids) == 20
    assert sorted(again.documents) == sorted(f"texto {i}" for i in range(12, 20))
    assert staged(view) == 0
    view.close()


@pytest.mark.parametrize("session", [None, "A"])
def test_an_index_made_of_staged_vectors_alone_remembers_its_model(
    tmp_path: Path, session: str | None
) -> None:
    view = opened(tmp_path / "db", Interrupted(after=20))
    with pytest.raises(KeyboardInterrupt):
        view.replace_document("largo.pdf", chunks(session, 24))
    view.close()
    again = HashEmbedder(32)
    view = opened(tmp_path / "db", again)
    view.replace_document("largo.pdf", chunks(session, 20))
    assert again.documents == []
    assert view.stats().model == "hash-32"
    view.close()


def test_what_was_made_for_one_session_is_not_used_for_another(tmp_path: Path) -> None:
    view = opened(tmp_path / "db", Interrupted(after=12))
    with pytest.raises(KeyboardInterrupt):
        view.replace_document("largo.pdf", chunks("A"))
    view.close()
    again = HashEmbedder(32)
    view = opened(tmp_path / "db", again)
    view.for_session("B").replace_document("largo.pdf", chunks("B"))
    assert len(again.documents) == 20
    assert staged(view) == 12
    view.delete_session("A")
    assert staged(view) == 0
    view.close()


def test_another_model_does_not_take_over_what_was_made(tmp_path: Path) -> None:
    view = opened(tmp_path / "db", Interrupted(after=12))
    with pytest.raises(KeyboardInterrupt):
        view.replace_document("largo.pdf", chunks(None))
    view.close()
    other = HashEmbedder(32)
    other.model_id = "other-32"
    view = opened(tmp_path / "db", other)
    view.replace_document("largo.pdf", chunks(None))
    assert len(other.documents) == 20
    view.close()
