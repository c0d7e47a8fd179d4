"""Headers and footers: what stands at a page's edge on page after page and is not its text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

MIN_PAGES = 3
MIN_SHARE = 0.4
MAX_EDGE_LINES = 3
# "Página 21", "p. 21 de 350", "21/350", or the number alone. Any other number that happens to count
# with the pages (the month of a payslip) is content.
_PAGE_NUMBER = re.compile(
    r"(?:\b(?:p[áa]g(?:ina)?s?|p|page|hoja|folio)\b\.?:?\s*(?P<named>\d{1,5})\b)"
    r"|\b(?P<part>\d{1,5})\s*(?:/|de|of)\s*(?P<total>\d{1,5})\b|^\W*(?P<alone>\d{1,5})\W*$",
    re.IGNORECASE,
)
# A line without its page number, and by how much that number runs ahead of the page's index.
_Key = tuple[str, int]


def drop_furniture(pages: Sequence[str], titles: Iterable[tuple[int, str]] = ()) -> list[str]:
    """``pages`` without running headers and footers.

    Dropped is a first or last line that, on at least 3 pages and 40 % of all,

    - is the same, or the same but for a page number that counts with the pages ("Página 21").
      Other numbers must be equal: totals at the foot of invoices stay. The first page that has
      such a line keeps it, so no word is lost.
    - is the title of some bookmark (``titles``: page index and title), unless that bookmark leads
      to this page and the line is the only place where its title stands.
    """
    lines = [page.split("\n") for page in pages]
    targets = set(titles)
    for edge in (-1, 0):
        kept: set[int] = set()
        for _ in range(MAX_EDGE_LINES):
            repeated = _repeated(lines, edge, kept)
            running = _running_titles(lines, edge, kept, targets)
            if not repeated and not running:
                break
            seen: set[_Key] = set()
            for index, page in enumerate(lines):
                if index in kept or not page:
                    continue
                found = _keys(page[edge], index, len(lines)) & repeated
                if found and not found <= seen and index not in running:
                    seen |= found
                    kept.add(index)
                elif found or index in running:
                    del page[edge]
    return ["\n".join(page) for page in lines]


def _keys(line: str, index: int, pages: int) -> set[_Key]:
    line = " ".join(line.split())
    keys = {(line, -1)} if line else set()
    for match in _PAGE_NUMBER.finditer(line):
        if match["total"] and int(match["total"]) != pages and not match["named"]:
            continue
        group = next(name for name in ("named", "part", "alone") if match[name])
        keys.add((f"{line[: match.start(group)]}#{line[match.end(group) :]}", int(match[group]) - index))
    return keys


def _enough(count: int, pages: int) -> bool:
    return count >= max(MIN_PAGES, MIN_SHARE * pages)


def _repeated(lines: list[list[str]], edge: int, kept: set[int]) -> set[_Key]:
    edges = [(i, page[edge]) for i, page in enumerate(lines) if page and i not in kept]
    counts = Counter(key for i, line in edges for key in _keys(line, i, len(lines)))
    return {key for key, count in counts.items() if _enough(count, len(lines))}


def _running_titles(
    lines: list[list[str]], edge: int, kept: set[int], targets: set[tuple[int, str]]
) -> set[int]:
    names = {title for _, title in targets}
    found: set[int] = set()
    for index, page in enumerate(lines):
        line = " ".join(page[edge].split()) if page and index not in kept else ""
        if line in names and not ((index, line) in targets and _count(page, line) == 1):
            found.add(index)
    return found if _enough(len(found), len(lines)) else set()


def _count(page: list[str], title: str) -> int:
    return " ".join(" ".join(page).split()).count(title)
