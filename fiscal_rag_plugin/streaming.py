"""Chunks without end: one window is written while the next is read and embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from .access import Access
from .corpus import Corpus
from .drafts import Draft, WriteReport
from .errors import InvalidQueryError

WINDOW = 1_000


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What a stream wrote; the counts are those of a WriteReport."""

    chunks: int = 0
    embedded: int = 0
    kept: int = 0
    updated: int = 0

    def plus(self, report: WriteReport) -> StreamReport:
        return StreamReport(
            self.chunks + len(report.ids), self.embedded + report.embedded,
            self.kept + report.kept, self.updated + report.updated,
        )  # fmt: skip


def write_stream(
    corpus: Corpus, drafts: Iterable[Draft], *, access: Access | None = None,
    window: int = WINDOW, on_progress: Callable[[StreamReport], None] | None = None,
) -> StreamReport:  # fmt: skip
    """Upsert drafts as they come, holding two windows of them at most.

    A window is written whole or not at all. When anything fails, the windows before it are stored,
    and the same stream again passes over them without embedding.
    """
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise InvalidQueryError(f"window must be an int of at least 1, not {window!r:.40}")
    total = StreamReport()
    left = iter(drafts)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fiscal-write") as writer:
        writing: Future[WriteReport] | None = None
        while True:
            part = list(islice(left, window))
            # Should this fail, the window before is still written whole.
            made = corpus.embed_ahead(part, access=access)
            if writing is not None:
                total = total.plus(writing.result())
                if on_progress is not None:
                    on_progress(total)
            if not part:
                return total
            writing = writer.submit(corpus.write, part, access=access, made=made)
