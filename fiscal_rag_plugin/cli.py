"""The ``fiscal-rag`` command: verbs over one view, no logic of their own.

Chroma, numpy and LangChain are imported by the verb that needs them: ``--help`` and a mistyped
option answer at once.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from . import cli_evaluate as cli_evaluate
from . import cli_json, errors
from . import cli_operator as cli_operator
from . import cli_options as option
from . import cli_output as output
from .cli_app import BAD_DATA, FAILED, INTERRUPTED, USAGE, app, opened, settings_of
from .defaults import DEFAULT_SCORE_THRESHOLD, DEFAULT_TOP_K


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
    directory: option.Dir = None,
    collection: option.Collection = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print problems only")] = False,
    as_json: option.Json = False,
) -> None:
    """Read files, cut them into chunks, embed what is new, and store it."""
    if not path.exists():
        raise typer.BadParameter(f"{path} does not exist", param_hint="PATH")
    if expires_at is not None and session is None:
        raise typer.BadParameter("only a private upload expires; add --session", param_hint="--expires-at")
    from .ingest.files import iter_source_files
    from .ingest.run import IngestOptions, ingest_path

    settings = settings_of(directory, collection)
    options = IngestOptions(
        tax=tax, doc_type=doc_type, fiscal_year=fiscal_year,
        chunk_tokens=settings.chunk_tokens if chunk_tokens is None else chunk_tokens,
        chunk_overlap=settings.chunk_overlap if chunk_overlap is None else chunk_overlap,
        expires_at=option.zoned_time(expires_at),
    )  # fmt: skip
    if not any(iter_source_files(path)):
        raise errors.IngestError(f"{path}: nothing to ingest; supported are {output.supported_formats()}")
    try:
        with (
            opened(settings, session, create=True) as store,
            output.ingest_progress(visible=not quiet and not as_json) as on_progress,
        ):
            report = ingest_path(store, path, options, on_progress=on_progress)
    except KeyboardInterrupt:
        output.complain("interrupted; the files done are stored whole, and the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        cli_json.print_json(cli_json.report_as_dict(report))
    else:
        output.print_report(report, quiet=quiet)
    if report.problems or report.warnings:
        raise typer.Exit(BAD_DATA)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="a question in your own words")],
    session: option.Session = None,
    filter_json: option.Filter = None,
    as_of: option.AsOf = None,
    tax_year: option.TaxYear = None,
    top_k: option.TopK = DEFAULT_TOP_K,
    threshold: option.Threshold = DEFAULT_SCORE_THRESHOLD,
    no_threshold: option.NoThreshold = False,
    mode: option.Mode = "dense",
    hybrid_weight: option.Weight = 0.5,
    directory: option.Dir = None,
    collection: option.Collection = None,
    as_json: option.Json = False,
) -> None:
    """Answer with the passages themselves and their citations (no LLM is configured here)."""
    from langchain_fiscal_rag import get_retriever

    from .pipeline import RAGPipeline

    where = option.json_filter(filter_json)
    with opened(settings_of(directory, collection), session) as store:
        retriever = get_retriever(
            vectorstore=store, filter_dict=where, as_of=as_of, tax_year=tax_year, top_k=top_k,
            score_threshold=None if no_threshold else threshold, mode=mode, hybrid_weight=hybrid_weight,
        )  # fmt: skip
        answer = RAGPipeline(retriever=retriever).answer_query(question)
    if as_json:
        cli_json.print_json(cli_json.answer_as_dict(answer))
    else:
        output.print_answer(answer)
    if answer.status == "error":
        raise typer.Exit(FAILED)


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="a question in your own words")],
    session: option.Session = None,
    filter_json: option.Filter = None,
    as_of: option.AsOf = None,
    tax_year: option.TaxYear = None,
    top_k: option.TopK = DEFAULT_TOP_K,
    threshold: option.Threshold = DEFAULT_SCORE_THRESHOLD,
    no_threshold: option.NoThreshold = False,
    mode: option.Mode = "dense",
    hybrid_weight: option.Weight = 0.5,
    explain: Annotated[
        bool, typer.Option("--explain", help="every candidate, and why it was kept")
    ] = False,
    directory: option.Dir = None,
    collection: option.Collection = None,
    as_json: option.Json = False,
) -> None:
    """Show the passages nearest to a question, within what the session may see."""
    from .ranking import SearchQuery, check_query

    query = SearchQuery(
        text=question, top_k=top_k, mode=mode, hybrid_weight=hybrid_weight,
        condition=option.condition_of(filter_json, as_of, tax_year),
        score_threshold=None if no_threshold else threshold,
    )  # fmt: skip
    check_query(query)
    with opened(settings_of(directory, collection), session) as store:
        result, candidates = store.explain(query) if explain else (store.search(query), None)
    if as_json:
        cli_json.print_json(cli_json.result_as_dict(result, candidates))
    else:
        output.print_result(result, candidates, query.score_threshold)


_USAGE_ERRORS = (
    errors.InvalidAccessError, errors.InvalidFilterError, errors.InvalidQueryError,
    errors.SettingsError, errors.InvalidChunkError,
)  # fmt: skip


def main() -> NoReturn:
    """Run the command and exit with its code."""
    # The program's own messages say it; a library's log lines would stand between them.
    logging.getLogger("fiscal_rag_plugin").addHandler(logging.NullHandler())
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except typer.Abort:
        code = INTERRUPTED
    except usage_error as error:
        if message := error.format_message():  # none for the bare command, which printed its help
            output.complain(message)
        code = USAGE
    except errors.FiscalRagError as error:
        output.complain(str(error))
        code = USAGE if isinstance(error, _USAGE_ERRORS) else FAILED
        code = BAD_DATA if isinstance(error, (errors.IngestError, errors.EvaluationError)) else code
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Typer and Rich end the same way, with the same
        # code, when the pipe breaks inside a print; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except OSError as error:
        output.complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        code = FAILED
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
