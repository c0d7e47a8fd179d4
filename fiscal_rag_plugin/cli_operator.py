"""The verbs of whoever keeps the index: what is there, whether it is whole, and what goes."""

from __future__ import annotations

from typing import Annotated

import typer

from . import cli_options as option
from . import cli_output as output
from .cli_app import BAD_DATA, FAILED, app, opened, settings_of


@app.command("list")
def list_documents(
    session: option.Session = None,
    directory: option.Dir = None,
    collection: option.Collection = None,
    as_json: option.Json = False,
) -> None:
    """List the documents: the public ones, and a session's."""
    with opened(settings_of(directory, collection), session) as store:
        documents = store.list_documents()
    output.print_documents(documents, as_json=as_json)


@app.command()
def stats(
    directory: option.Dir = None, collection: option.Collection = None, as_json: option.Json = False
) -> None:
    """Show how much is stored (the operator's view: it counts every session)."""
    with opened(settings_of(directory, collection)) as store:
        found = store.stats()
    output.print_stats(found, as_json=as_json)


@app.command()
def delete(
    doc_id: Annotated[str | None, typer.Option(help="the document, as `list` shows it")] = None,
    session: Annotated[str | None, typer.Option(help="of this session; alone: erase the session")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask before erasing a session")] = False,
    directory: option.Dir = None,
    collection: option.Collection = None,
    as_json: option.Json = False,
) -> None:
    """Delete a document, or erase everything of a session."""
    if doc_id is None and session is None:
        raise typer.BadParameter("say what: --doc-id, --session, or both")
    from .access import Access
    from .engines.base import Condition

    settings = settings_of(directory, collection)
    if doc_id is not None:
        with opened(settings, session) as store:
            deleted = store.delete(Condition(doc_ids=frozenset([doc_id])))
    else:
        Access.session(erased := session or "")
        with opened(settings) as store:
            if not yes and not option.confirmed(f"Erase everything that session {erased!r} uploaded?"):
                output.complain("nothing was erased")
                raise typer.Exit(FAILED)
            deleted = store.delete_session(erased)
    output.print_deleted(deleted, as_json=as_json)
    if not deleted:
        raise typer.Exit(BAD_DATA)


@app.command()
def check(
    directory: option.Dir = None, collection: option.Collection = None, as_json: option.Json = False
) -> None:
    """Read every row and say what is wrong."""
    with opened(settings_of(directory, collection)) as store:
        problems = store.check()
    output.print_check(problems, as_json=as_json)
    if problems:
        raise typer.Exit(BAD_DATA)


@app.command()
def repair(
    directory: option.Dir = None, collection: option.Collection = None, as_json: option.Json = False
) -> None:
    """Make the word index anew from the stored chunks; vectors and texts stay as they are."""
    with opened(settings_of(directory, collection)) as store:
        texts = store.repair()
    output.print_repaired(texts, as_json=as_json)
