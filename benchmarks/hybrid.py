"""Words and vectors together, beside vectors alone and words alone, on the same questions."""

from __future__ import annotations

import numpy as np

from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.ranking import SearchQuery

from .data import SESSIONS, Extra, questions
from .peers.base import TOP_K, Ask
from .peers.ours import Ours
from .prose import SEED, draw
from .results import Figure
from .timing import measure

WORDS = 5
FILTERS: dict[str, Extra | None] = {"": None, ", filter that 25 % match": {"tax": "IVA"}}
MODES = ("dense", "sparse", "hybrid")


def hybrid_figures(ours: Ours, n: int, count: int) -> list[Figure]:
    """How many times a dense search's p50 a hybrid one takes, as a reader of one session of 100 chunks."""
    vectors = questions(n, count)
    generator = np.random.default_rng([SEED, 6])
    texts = [" ".join(draw(generator, WORDS)) for _ in range(count)]
    view = ours.store.view.for_session(SESSIONS[0])
    figures = []
    for name, extra in FILTERS.items():
        condition = Condition(parse_filter(extra))

        def way(mode: str, condition: Condition = condition) -> Ask:
            def ask(number: np.ndarray) -> list[str]:
                i = int(number)
                query = SearchQuery(vectors[i], texts[i], TOP_K, mode=mode, condition=condition)
                return [hit.record.id for hit in view.search(query).hits]

            return ask

        ways = {mode: way(mode) for mode in MODES}
        # The questions are told by their number: one is a vector and a text.
        timed = measure({mode: [ways[mode]] for mode in ways}, ways, np.arange(count), 60.0)
        ratio = timed["hybrid"].p50_ms / timed["dense"].p50_ms
        figures += [
            # Not enforced before it is reached: 3.3 at 10,000 is too near to where a check would fail.
            Figure(f"hybrid over dense query{name}", n, ratio, limit=2.0),
            Figure(f"words alone, 5 of them{name}", n, timed["sparse"].p50_ms, "ms"),
        ]
    return figures
