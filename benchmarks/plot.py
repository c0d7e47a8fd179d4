"""The median time of each case by peer, as a picture: python -m benchmarks.plot results.json docs/speed.svg

Times go by factors, so the axis is logarithmic. Needs matplotlib, which `make bench` installs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullLocator

from .cases import ALL_SESSIONS, AUTHORIZED, COLD, FEW, QUARTER, WARM
from .peers.base import ENGINE, LANG, LLAMA, RAW
from .results import Results

CASES = {
    AUTHORIZED: "No filter", QUARTER: "Filter: 25 % match", FEW: "Filter: 20 chunks match",
    COLD: "Own chunks, first question", WARM: "Own chunks, again", ALL_SESSIONS: "20 sessions, 2,000 chunks",
}  # fmt: skip
NAMES = {ENGINE: "fiscal_rag_plugin", LLAMA: "  its LlamaIndex retriever", LANG: "  its LangChain retriever",
         RAW: "raw Chroma, no access control"}  # fmt: skip
OURS, OFFICIAL, OTHER = "#0b6e4f", "#b3432b", "#4a5a6a"
COLOURS = {
    ENGINE: OURS, LLAMA: OURS, LANG: OURS, "official LlamaIndex": OFFICIAL, "official LangChain": OFFICIAL,
}  # fmt: skip
HOLLOW = (LLAMA, LANG, RAW)


def millis(value: float) -> str:
    """Two figures that count, such as 0.35, 2.8, 51 or 970."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def ordered(results: Results, n: int) -> list[str]:
    """The package first, then its retrievers, raw Chroma, and the others as they were asked."""
    peers = list(dict.fromkeys(row.peer for row in results.rows if row.n == n))
    return sorted(peers, key=lambda peer: list(NAMES).index(peer) if peer in NAMES else len(NAMES))


def draw_case(axes: Axes, results: Results, n: int, case: str, peers: list[str]) -> None:
    for place, peer in enumerate(peers):
        row = results.row(n, case, peer)
        if row is None:
            continue
        colour = COLOURS.get(peer, OTHER)
        # A dot: the length of a bar means nothing on a logarithmic axis.
        axes.axhline(place, color="#e4e7eb", linewidth=1, zorder=0)
        axes.plot(
            row.p50_ms, place, "o", markersize=9, markeredgecolor=colour, markeredgewidth=1.5,
            markerfacecolor="white" if peer in HOLLOW else colour,
        )  # fmt: skip
        recall = "" if row.recall is None or row.recall >= 0.995 else f"   recall {row.recall:.2f}"
        axes.annotate(
            f"{millis(row.p50_ms)}{recall}", (row.p50_ms, place), xytext=(9, 0), textcoords="offset points",
            va="center", fontsize=9.5, color=colour, fontweight="bold" if peer == ENGINE else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.set_title(CASES[case], loc="left", fontsize=11, fontweight="bold", pad=6)


def draw(results: Results, n: int, path: Path) -> None:
    """One panel for each case, all on one scale."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    mpl.rcParams["svg.hashsalt"] = "speed"  # the same picture is the same file
    peers = ordered(results, n)
    cases = [case for case in CASES if any(row.n == n and row.case == case for row in results.rows)]
    lines = -(-len(cases) // 2)
    spacing = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12, hspace=0.04)
    figure, grid = plt.subplots(
        lines, 2, figsize=(12, 1.2 + lines * (0.9 + 0.25 * len(peers))), sharex=True, sharey=True,
        squeeze=False, layout=spacing,
    )  # fmt: skip
    times = [row.p50_ms for row in results.rows if row.n == n]
    panels = list(grid.flat)
    for axes, case in zip(panels, cases, strict=False):
        draw_case(axes, results, n, case, peers)
        axes.set_xscale("log")
        # Room on the right for the number behind the longest bar.
        axes.set_xlim(min(times) / 2, max(times) * 4)
        axes.set_yticks(range(len(peers)), [NAMES.get(peer, peer) for peer in peers], fontsize=9.5)
        axes.set_ylim(len(peers) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=9, colors="#555555", labelbottom=True)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="x", which="major", color="#e4e7eb")
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
    for axes in panels[len(cases) :]:
        axes.set_visible(False)
    figure.suptitle(
        f"Time of one authorized query over {n:,} chunks: median in ms, logarithmic, less is better",
        x=0.01, ha="left", fontsize=14, fontweight="bold",
    )  # fmt: skip
    about = results.environment
    figure.supxlabel(
        f"top 8, 384 dimensions; {about.get('cores', '?')} cores, Python {about.get('Python', '?')}, Chroma "
        f"{about.get('chromadb', '?')}, {about.get('date', '')}; one run, questions in turn. recall@8 at least "
        "0.995 where none is given.",
        x=0.01, ha="left", fontsize=9, color="#555555",
    )  # fmt: skip
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    results = Results.load(Path(sys.argv[1]))
    largest = max(row.n for row in results.rows)
    for path in map(Path, sys.argv[2:]):
        draw(results, largest, path)


if __name__ == "__main__":
    main()
