"""The ``fiscal-rag`` application: its exit codes, and how its verbs open an index."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from . import cli_output as output

if TYPE_CHECKING:
    from .settings import FiscalSettings
    from .view import View

FAILED, BAD_DATA, USAGE, INTERRUPTED = 1, 2, 64, 130
"""Exit codes: the store or the model failed; some data was refused; the call itself is wrong."""

app = typer.Typer(
    name="fiscal-rag", no_args_is_help=True, add_completion=False, rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # they would print document text
    help="Spanish tax retrieval that never shows anybody what they may not see.\n\n"
    "Every option of the index can also be set by FISCAL_RAG_* variables or a .env file.\n\n"
    "Exit codes: 0 done, 1 the store or the model failed, 2 some data was refused, 64 wrong usage.",
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        output.print_version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


def settings_of(directory: str | None, collection: str | None) -> FiscalSettings:
    from .settings import FiscalSettings

    given = {"chroma_dir": directory, "chroma_collection": collection}
    return FiscalSettings(**{name: value for name, value in given.items() if value is not None})


def opened(settings: FiscalSettings, session: str | None = None, *, create: bool = False) -> closing[View]:
    """The operator's view, or a session's; a wrong session is refused before anything is created."""
    from .access import Access
    from .corpus import Corpus
    from .embedding import EmbeddingService
    from .view import View

    access = None if session is None else Access.session(session)
    corpus = Corpus.open(
        settings.chroma_dir, settings.chroma_collection, create=create,
        embedder=EmbeddingService(settings), lock_timeout=settings.lock_timeout,
    )  # fmt: skip
    return closing(View(corpus, access))
