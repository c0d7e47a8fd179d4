"""The ``fiscal-rag`` command: verbs over one view, no logic of their own."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from . import cli_output as output
from .corpus import Corpus
from .embedding import EmbeddingService
from .engines.base import Condition
from .errors import (
    FiscalRagError,
    IngestError,
    InvalidAccessError,
    InvalidChunkError,
    InvalidFilterError,
    InvalidQueryError,
    SettingsError,
)
from .filters import all_of, in_force, parse_filter
from .ingest.run import IngestOptions, ingest_path
from .ranking import SearchQuery
from .settings import DEFAULT_SCORE_THRESHOLD, DEFAULT_TOP_K, FiscalSettings
from .view import View

FAILED, BAD_DATA, USAGE = 1, 2, 64
"""Exit codes: the store or the model failed; some data was refused; the call itself is wrong."""

app = typer.Typer(
    name="fiscal-rag", no_args_is_help=True, add_completion=False, rich_markup_mode="rich",
    help="Spanish tax retrieval that never shows anybody what they may not see.\n\n"
    "Every option of the index can also be set by FISCAL_RAG_* variables or a .env file.\n\n"
    "Exit codes: 0 done, 1 the store or the model failed, 2 some data was refused, 64 wrong usage.",
)  # fmt: skip

Dir = Annotated[str | None, typer.Option("--dir", help="directory of the index [FISCAL_RAG_CHROMA_DIR]")]
Collection = Annotated[str | None, typer.Option(help="collection in it [FISCAL_RAG_CHROMA_COLLECTION]")]
Session = Annotated[str | None, typer.Option(help="the session whose private chunks are meant, too")]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
Filter = Annotated[str | None, typer.Option("--filter", help='metadata filter, as \'{"tax": "IVA"}\'')]
AsOf = Annotated[str | None, typer.Option(help="only what was in force on this day, YYYY-MM-DD")]
TaxYear = Annotated[int | None, typer.Option(help="only what applied to this tax year")]
TopK = Annotated[int, typer.Option(help="how many passages at most")]
Threshold = Annotated[float, typer.Option(help="cosine that a passage must reach, in [-1, 1]")]
NoThreshold = Annotated[bool, typer.Option("--no-threshold", help="keep every one of the top k")]
Mode = Annotated[str, typer.Option(help="dense or mmr")]


def _open(
    directory: str | None, collection: str | None, *, create: bool = False
) -> tuple[View, FiscalSettings]:
    given = {"chroma_dir": directory, "chroma_collection": collection}
    settings = FiscalSettings(**{name: value for name, value in given.items() if value is not None})
    corpus = Corpus.open(
        settings.chroma_dir, settings.chroma_collection, create=create,
        embedder=EmbeddingService(settings), lock_timeout=settings.lock_timeout,
    )  # fmt: skip
    return View(corpus), settings


def _bound(store: View, session: str | None) -> View:
    return store if session is None else store.for_session(session)


@app.command()
def ingest(
    path: Annotated[Path, typer.Argument(help="a file or a folder: Markdown, text, HTML, BOE, PDF, JSONL")],
    tax: Annotated[str | None, typer.Option(help="for files that do not say their tax, as IVA")] = None,
    doc_type: Annotated[str | None, typer.Option(help="for files that do not say it, as law")] = None,
    fiscal_year: Annotated[int | None, typer.Option(help="for files that do not say it")] = None,
    session: Annotated[str | None, typer.Option(help="upload privately, for this session alone")] = None,
    expires_at: Annotated[str | None, typer.Option(help="private: when it ends, ISO with zone")] = None,
    chunk_tokens: Annotated[int | None, typer.Option(help="budget of a chunk in model tokens")] = None,
    chunk_overlap: Annotated[int | None, typer.Option(help="tokens repeated between chunks")] = None,
    directory: Dir = None,
    collection: Collection = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print problems only")] = False,
    as_json: Json = False,
) -> None:
    """Read files, cut them into chunks, embed what is new, and store it."""
    if not path.exists():
        raise typer.BadParameter(f"{path} does not exist", param_hint="PATH")
    if expires_at is not None and session is None:
        raise typer.BadParameter("only a private upload expires; add --session", param_hint="--expires-at")
    store, settings = _open(directory, collection, create=True)
    options = IngestOptions(
        tax=tax, doc_type=doc_type, fiscal_year=fiscal_year,
        chunk_tokens=chunk_tokens or settings.chunk_tokens,
        chunk_overlap=settings.chunk_overlap if chunk_overlap is None else chunk_overlap,
        expires_at=_time(expires_at),
    )  # fmt: skip
    with output.ingest_progress(visible=not quiet and not as_json) as on_progress:
        report = ingest_path(_bound(store, session), path, options, on_progress=on_progress)
    store.close()
    if as_json:
        output.print_json(output.report_as_dict(report))
    else:
        output.print_report(report, quiet=quiet)
    if not report.files:
        raise IngestError(f"{path}: nothing to ingest; supported are {output.supported_formats()}")
    if report.problems:
        raise typer.Exit(BAD_DATA)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="a question in your own words")],
    session: Session = None,
    filter_json: Filter = None,
    as_of: AsOf = None,
    tax_year: TaxYear = None,
    top_k: TopK = DEFAULT_TOP_K,
    threshold: Threshold = DEFAULT_SCORE_THRESHOLD,
    no_threshold: NoThreshold = False,
    mode: Mode = "dense",
    directory: Dir = None,
    collection: Collection = None,
    as_json: Json = False,
) -> None:
    """Answer with the passages themselves and their citations (no LLM is configured here)."""
    from langchain_fiscal_rag import get_retriever

    from .pipeline import RAGPipeline

    store, _ = _open(directory, collection)
    retriever = get_retriever(
        vectorstore=store, session_id=session, filter_dict=_filter(filter_json), as_of=as_of,
        tax_year=tax_year, top_k=top_k, score_threshold=None if no_threshold else threshold, mode=mode,
    )  # fmt: skip
    answer = RAGPipeline(retriever=retriever).answer_query(question)
    store.close()
    if as_json:
        output.print_json(output.answer_as_dict(answer))
    else:
        output.print_answer(answer)
    if answer.status == "error":
        raise typer.Exit(FAILED)


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="a question in your own words")],
    session: Session = None,
    filter_json: Filter = None,
    as_of: AsOf = None,
    tax_year: TaxYear = None,
    top_k: TopK = DEFAULT_TOP_K,
    threshold: Threshold = DEFAULT_SCORE_THRESHOLD,
    no_threshold: NoThreshold = False,
    mode: Mode = "dense",
    explain: Annotated[
        bool, typer.Option("--explain", help="every candidate, and why it was kept")
    ] = False,
    directory: Dir = None,
    collection: Collection = None,
    as_json: Json = False,
) -> None:
    """Show the passages nearest to a question, within what the session may see."""
    condition = Condition(all_of(parse_filter(_filter(filter_json)), in_force(as_of, tax_year)))
    query = SearchQuery(
        text=question, top_k=top_k, mode=mode, condition=condition,
        score_threshold=None if no_threshold else threshold,
    )  # fmt: skip
    store, _ = _open(directory, collection)
    view = _bound(store, session)
    result, candidates = view.explain(query) if explain else (view.search(query), None)
    store.close()
    if as_json:
        output.print_json(output.result_as_dict(result, candidates))
    else:
        output.print_result(result, candidates, query.score_threshold)


@app.command("list")
def list_documents(
    session: Session = None, directory: Dir = None, collection: Collection = None, as_json: Json = False
) -> None:
    """List the documents: the public ones, and a session's."""
    store, _ = _open(directory, collection)
    documents = _bound(store, session).list_documents()
    store.close()
    output.print_documents(documents, as_json=as_json)


@app.command()
def stats(directory: Dir = None, collection: Collection = None, as_json: Json = False) -> None:
    """Show how much is stored (the operator's view: it counts every session)."""
    store, _ = _open(directory, collection)
    found = store.stats()
    store.close()
    output.print_stats(found, as_json=as_json)


@app.command()
def delete(
    doc_id: Annotated[str | None, typer.Option(help="the document, as `list` shows it")] = None,
    session: Annotated[str | None, typer.Option(help="of this session; alone: erase the session")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask before erasing a session")] = False,
    directory: Dir = None,
    collection: Collection = None,
    as_json: Json = False,
) -> None:
    """Delete a document, or erase everything of a session."""
    if doc_id is None and session is None:
        raise typer.BadParameter("say what: --doc-id, --session, or both")
    store, _ = _open(directory, collection)
    if doc_id is None and session is not None:
        if not yes and not typer.confirm(f"Erase everything that session {session!r} uploaded?"):
            raise typer.Exit(FAILED)
        deleted = store.delete_session(session)
    else:
        deleted = _bound(store, session).delete(Condition(doc_ids=frozenset([doc_id or ""])))
    store.close()
    output.print_deleted(deleted, as_json=as_json)
    if not deleted:
        raise typer.Exit(BAD_DATA)


@app.command()
def check(directory: Dir = None, collection: Collection = None, as_json: Json = False) -> None:
    """Read every row and say what is wrong."""
    store, _ = _open(directory, collection)
    problems = store.check()
    store.close()
    output.print_check(problems, as_json=as_json)
    if problems:
        raise typer.Exit(BAD_DATA)


def _filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f'not JSON ({error}); write it as \'{{"tax": "IVA"}}\'', param_hint="--filter"
        ) from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="--filter")
    return parsed


def _time(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise typer.BadParameter("write it as 2026-12-31T23:59:00+01:00", param_hint="--expires-at")
    return time


_USAGE_ERRORS = (
    InvalidAccessError, InvalidFilterError, InvalidQueryError, SettingsError, InvalidChunkError,
)  # fmt: skip


def main() -> NoReturn:
    """Run the command and exit with its code."""
    # The program's own messages say it; a library's log lines would stand between them.
    logging.getLogger("fiscal_rag_plugin").addHandler(logging.NullHandler())
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 130
    except usage_error as error:
        output.complain(error.format_message())
        code = USAGE
    except IngestError as error:
        output.complain(str(error))
        code = BAD_DATA
    except _USAGE_ERRORS as error:
        output.complain(str(error))
        code = USAGE
    except FiscalRagError as error:
        output.complain(str(error))
        code = FAILED
    except KeyboardInterrupt:
        output.complain("interrupted; what was written is whole, and running it again goes on from there")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
