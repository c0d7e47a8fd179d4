"""The benchmark measures what it says, on few rows, and its check fails on what it should."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import data
from benchmarks.aims import failures, growth_figures, query_figures, scaled
from benchmarks.cases import ALL_SESSIONS, AUTHORIZED, CASES, COLD
from benchmarks.filling import PRIVATE, batches, fill
from benchmarks.oracle import check_plans, compare, open_exact, read_back
from benchmarks.peers import base
from benchmarks.peers.base import ENGINE, LANG, LLAMA, RAW, Unavailable, open_peer
from benchmarks.report import markdown, show_case, show_figures
from benchmarks.results import Figure, Results, Row
from benchmarks.run import QUICK, Run
from benchmarks.timing import AT_LEAST, measure
from fiscal_rag_plugin import Access, FiscalVectorStore
from fiscal_rag_plugin.engines.base import ANYTHING, Condition, Found
from fiscal_rag_plugin.engines.memory import MemoryEngine
from fiscal_rag_plugin.vectors import Vector

N = 200


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A whole run at N = 200 of the peers that the test group installs."""
    effort = replace(QUICK, questions=3, concurrent=16)
    run = Run(
        effort, tmp_path_factory.mktemp("bench"), Console(file=io.StringIO()), ["raw", "official", "ours"]
    )
    run.size(N)
    return run.results


# --- the whole run ------------------------------------------------------------------------------


def test_every_case_is_answered_by_every_peer_and_found_whole_where_access_is_kept(
    results: Results,
) -> None:
    peers = {RAW, "official LlamaIndex", "official LangChain", ENGINE, LLAMA, LANG}
    for case in CASES:
        rows = [row for row in results.rows if row.case == case.name]
        assert {row.peer for row in rows} == peers
        assert {row.recall for row in rows} == {None, 1.0}
        assert all(row.p50_ms > 0 and row.p95_ms >= row.p50_ms for row in rows)
        assert next(row for row in rows if row.peer == RAW).times_raw == 1.0
        assert next(row for row in rows if row.peer == RAW).recall is None
    assert {row.questions for row in results.rows if row.case == COLD} == {len(data.SESSIONS) - 1}


def test_a_run_has_a_figure_of_each_kind(results: Results) -> None:
    names = " | ".join(figure.name for figure in results.figures)
    for part in (
        "first ingest: our seconds", "authorized query over raw", "official integrations over ours",
        "over the engine call", ALL_SESSIONS, "hybrid over dense query", "16 threads", "16 asyncio tasks", "block of the event loop",
        "peak memory of ours over raw", "start-up, open", "while another process ingests, p50",
    ):  # fmt: skip
        assert part in names
    assert all(np.isfinite(figure.value) for figure in results.figures)


def test_results_read_back_from_json_as_they_were(results: Results, tmp_path: Path) -> None:
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results


def test_tables_fit_100_columns_with_every_peer_whole(results: Results) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100)
    rows = [row for row in results.rows if row.case == AUTHORIZED]
    show_case(console, [*rows, replace(rows[0], p50_ms=12_345.678, p95_ms=123_456.7, times_raw=9_999.9)])
    show_figures(console, results)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert all(row.peer in text for row in rows)


def test_the_markdown_has_a_line_for_each_row_and_figure(results: Results) -> None:
    lines = list(markdown(results))
    tables = [line for line in lines if line.startswith("| ")]
    assert len(tables) == len(results.rows) + len(results.figures) + len(CASES) + 1
    assert all(line.count("|") in (6, 7) for line in tables)


def test_the_plot_is_drawn(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench group is not installed")
    from benchmarks.plot import draw

    draw(results, N, tmp_path / "speed.svg")
    assert (tmp_path / "speed.svg").stat().st_size > 10_000


# --- data and filling ---------------------------------------------------------------------------


def test_a_chunk_has_the_same_vector_in_a_corpus_of_any_size() -> None:
    small = np.concatenate([rows.vectors for rows in data.public_rows(3_000)])
    large = np.concatenate([rows.vectors for rows in data.public_rows(5_000)])
    later = next(data.public_rows(5_000, start=2_500))
    assert np.array_equal(small, large[:3_000])
    assert np.array_equal(later.vectors, large[2_000:4_000])
    assert np.allclose(np.linalg.norm(large, axis=1), 1, atol=1e-5)


def test_brute_force_batch_by_batch_is_brute_force() -> None:
    n, extra = 2_500, {"tax": "IVA"}
    vectors = data.questions(n, 4)
    rows = [data.private_rows(), *data.public_rows(n)]
    matrix = np.concatenate([r.vectors for r in rows])
    flat = [row for r in rows for row in r.metadata]
    for vector, found in zip(vectors, data.nearest(n, vectors, extra, ["S3"], 8), strict=True):
        order = (flat[i] for i in np.argsort(-(matrix @ vector), kind="stable"))
        mine = (row for row in order if row["tax"] == "IVA" and row.get("session_id") in (None, "S3"))
        assert set(found) == {row["section_label"] for row in islice(mine, 8)}


class Counting:
    """A peer that stores row numbers; ``stops_after`` is how many batches it takes before it fails."""

    def __init__(self, stored: list[str], stops_after: int = 10_000) -> None:
        self.stored, self._left, self.finished = stored, stops_after, 0

    def count(self) -> int:
        return len(self.stored)

    def write(self, rows: data.Rows) -> None:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        self.stored += rows.ids

    def finish(self) -> None:
        self.finished += 1

    def ways(self, sessions: object, extra: object) -> dict[str, base.Ask]:
        return {}

    def close(self) -> None: ...


def test_an_interrupted_ingest_goes_on_where_it_was_and_writes_nothing_twice() -> None:
    n, stored = 5_000, list[str]()
    with pytest.raises(KeyboardInterrupt):
        fill({"a": Counting(stored, stops_after=2)}, n, print)
    fresh = Counting([])
    again = Counting(stored)
    timed = fill({"a": again, "b": fresh}, n, print)
    assert again.stored == fresh.stored
    assert len(set(fresh.stored)) == len(fresh.stored) == PRIVATE + n
    assert timed.keys() == {"b"}
    assert fill({"a": again}, n, print) == {}
    assert (again.finished, fresh.finished) == (1, 1)


def test_an_index_of_something_else_is_refused() -> None:
    stored = [id for rows in batches(3_000) for id in rows.ids]
    with pytest.raises(SystemExit, match="remove it"):
        fill({"a": Counting(stored)}, 5_000, print)


def test_a_peer_that_is_not_installed_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(base.MODULES, "absent", ("absent", ("no_such_package", "numpy", "no.such")))
    with pytest.raises(Unavailable, match=r"not installed: no_such_package, no\.such"):
        open_peer("absent", tmp_path)


def test_questions_begin_with_another_peer_each_time_and_a_slow_one_sits_out() -> None:
    order: list[str] = []

    def ask(name: str) -> base.Ask:
        def answer(vector: np.ndarray) -> list[str]:
            order.append(name)
            return ["x"]

        return answer

    asks = {name: [ask(name)] for name in "abc"}
    timings = measure(asks, {}, np.zeros((AT_LEAST + 5, 2)), budget_seconds=100)
    assert "".join(order[:9]) == "abcbcacab"
    assert {len(timing.seconds) for timing in timings.values()} == {AT_LEAST + 5}
    timings = measure(asks, {}, np.zeros((AT_LEAST + 5, 2)), budget_seconds=-1)
    assert {len(timing.seconds) for timing in timings.values()} == {AT_LEAST}


# --- the oracle ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiscalVectorStore]:
    with open_exact(tmp_path_factory.mktemp("oracle")) as opened:
        yield opened


@pytest.fixture(scope="module")
def oracle(store: FiscalVectorStore) -> MemoryEngine:
    return read_back(store)


def test_every_forced_plan_agrees_with_the_oracle(tmp_path: Path) -> None:
    found = check_plans(tmp_path, 1)
    assert found.disagreements == []
    public = {plan.split(";")[0] for plan in found.plans}
    # Or nothing was forced.
    ways = ("nearest", "narrow", "over-fetch", "exact", "filtered")
    assert public >= {f"public: {way}" for way in ways}


class Wrong:
    """The oracle's own answers, spoilt in one way."""

    def __init__(self, oracle: MemoryEngine, spoil: str) -> None:
        self._oracle, self._spoil = oracle, spoil

    def search(self, vector: Vector, k: int, access: Access, condition: Condition = ANYTHING) -> Found:
        if self._spoil == "ignores the filter":
            condition = ANYTHING
        if self._spoil == "reads another session":
            access = Access(["S0", "S1", "S2"])
        hits = self._oracle.search(vector, k, access, condition).hits
        if self._spoil == "misses the best":
            hits = self._oracle.search(vector, k + 1, access, condition).hits[1:]
        elif self._spoil == "finds one too few":
            hits = hits[:-1]
        elif self._spoil == "swaps the last two" and len(hits) > 1:
            hits = [*hits[:-2], hits[-1], hits[-2]]
        elif self._spoil == "is off in the seventh decimal":
            hits = [replace(hit, similarity=hit.similarity + 2e-7) for hit in hits]
        return Found(hits, "wrong plan")


@pytest.mark.parametrize(
    "spoil",
    [
        "nothing",
        "ignores the filter", "reads another session", "misses the best", "finds one too few",
        "swaps the last two", "is off in the seventh decimal",
    ],
)  # fmt: skip
def test_a_wrong_plan_is_caught_and_a_right_one_is_not(oracle: MemoryEngine, spoil: str) -> None:
    found = compare(Wrong(oracle, spoil), oracle, data.questions(N, 1), {"as it comes": {}})
    if spoil == "nothing":
        assert found.disagreements == []
        return
    assert "wrong plan" in found.disagreements[0]
    assert failures(Results(disagreements=found.disagreements))


# --- what is aimed at ---------------------------------------------------------------------------


def row(case: str, peer: str, p50_ms: float, *, n: int = 100_000, recall: float | None = 1.0) -> Row:
    return Row(n, case, peer, 50, p50_ms, 2 * p50_ms, p50_ms / 3, recall)


def test_the_advantage_asked_for_grows_with_the_corpus_up_to_100000() -> None:
    asked = [scaled(100, n) for n in (200, 10_000, 50_000, 100_000, 1_000_000)]
    assert asked == [1, 10, 50, 100, 100]
    assert all(low <= high for low, high in pairwise(asked))


def test_figures_are_compared_with_the_faster_official_integration() -> None:
    rows = [
        row(AUTHORIZED, RAW, 3.0), row(AUTHORIZED, ENGINE, 4.0), row(AUTHORIZED, LLAMA, 5.0),
        row(AUTHORIZED, "official LlamaIndex", 440.0), row(AUTHORIZED, "official LangChain", 400.0),
    ]  # fmt: skip
    figures = {figure.name: figure for figure in query_figures(Results(rows=rows), 100_000)}
    assert figures["authorized query over raw Chroma"].value == pytest.approx(4 / 3)
    assert figures[f"official integrations over ours: {AUTHORIZED}"].value == pytest.approx(100)
    assert figures[f"{LLAMA} over the engine call"].value == pytest.approx(1.25)
    assert all(figure.met for figure in figures.values())


def test_growth_is_between_neighbouring_sizes() -> None:
    rows = [row(AUTHORIZED, ENGINE, p50, n=n) for n, p50 in ((10, 1.0), (100, 1.5), (1_000, 6.0))]
    growth = list(growth_figures(Results(rows=rows), [10, 100, 1_000]))
    assert [(f.n, f.value, f.met) for f in growth] == [(100, 1.5, True), (1_000, 4.0, False)]


@pytest.mark.parametrize(
    ("figure", "fails"),
    [
        (Figure("at most", 1, 3.0, limit=1.5, enforced=True), False),
        (Figure("at most", 1, 3.01, limit=1.5, enforced=True), True),
        (Figure("at least", 1, 50.0, limit=100.0, floor=True, enforced=True), False),
        (Figure("at least", 1, 49.9, limit=100.0, floor=True, enforced=True), True),
        (Figure("seconds are the machine's", 1, 9.0, "s", limit=0.2), False),
        (Figure("nothing is aimed at", 1, 9.0, enforced=True), False),
        (Figure("none at all", 1, 0.0, "", limit=0.0, enforced=True), False),
        (Figure("none at all", 1, 1.0, "", limit=0.0, enforced=True), True),
    ],
)
def test_a_check_fails_on_ratios_worse_than_half_and_on_no_seconds(figure: Figure, fails: bool) -> None:
    assert bool(failures(Results(figures=[figure]))) is fails


@pytest.mark.parametrize("peer", [ENGINE, LLAMA, LANG])
def test_a_check_fails_on_our_recall_and_not_on_anothers(peer: str) -> None:
    good = [row(AUTHORIZED, peer, 1.0, recall=0.99), row(AUTHORIZED, "pgvector", 1.0, recall=0.5)]
    assert failures(Results(rows=good)) == []
    (line,) = failures(Results(rows=[row(AUTHORIZED, peer, 1.0, recall=0.989)]))
    assert "recall 0.9890" in line
    # A recall that is no number is not a good one.
    assert failures(Results(rows=[row(AUTHORIZED, peer, 1.0, recall=float("nan"))]))
