"""Where a text may be cut: paragraph, closed line, sentence, line, word and, at last, character."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from fiscal_rag_plugin.errors import InvalidChunkError

Span = tuple[int, int]
Fits = Callable[[int, int], bool]

_GAP = re.compile(r"\s+")
_WORD = re.compile(r"\S+")
# What begins an item of its own: list marks, "1.º", "a)", "Uno.", table rows.
_ITEM = re.compile(r"[-*•○▪–—|#>]|\(?\w{1,4}[.)]|[¿¡]|(?:[Uu]n|[Dd]o|[Tt]re|[A-Z][a-zé]{2,12})\w?\.\s")
_CLOSED = re.compile(r"[.:;!?|…»”)\]]$")
_SENTENCE_END = re.compile(r"[.!?…][\"'»”’)\]]*$|[;:]$")
_SENTENCE_START = re.compile(r"[\"'«“‘(\[¿¡]*[^\W_a-záéíóúüñç]")
# A full stop after these ends no sentence, nor does the one of an enumeration ("1.", "Uno.", "a.").
_ABBREVIATION = re.compile(
    r"(?:^|[\s(«“])(?:arts?|n[úu]ms?|p[áa]gs?|p|apdos?|aptdos?|ap|ss?|cfr|ej|etc|vs|vid|ref|sr[ae]?s?|d[ªa]?"
    r"|ud[s]?|excm[oa]|ilm[oa]|dir|inc|cap|t[íi]t|vol|op|cit|aprox|m[áa]x|m[íi]n|tel|av|avda|c|[A-ZÁÉÍÓÚÑ])\.$",
    re.IGNORECASE,
)
_ENUMERATOR = re.compile(
    r"(?:^|[\r\n])[^\S\r\n]*(?:\d{1,3}|[a-zñ]|[ivxlc]{1,5}|[A-Z][a-zé]{2,12})\.(?:[ºª])?$"
)
_LOOK_BACK = 48


# Every place to cut is a run of whitespace; what is around it says how good a place it is.
Cut = Callable[[re.Match[str]], bool]


def _breaks(gap: re.Match[str]) -> int:
    run = gap[0]
    return run.count("\n") + run.count("\r") - run.count("\r\n")


def _paragraph(gap: re.Match[str]) -> bool:
    return _breaks(gap) > 1


def _closed_line(gap: re.Match[str]) -> bool:
    """A line break that ends something, unlike those at which a PDF wraps its lines."""
    closed = _CLOSED.search(gap.string, gap.start() - 1, gap.start()) or _ITEM.match(gap.string, gap.end())
    return bool(closed) and _breaks(gap) > 0


def _sentence(gap: re.Match[str]) -> bool:
    before = gap.string[max(0, gap.start() - _LOOK_BACK) : gap.start()]
    if not _SENTENCE_END.search(before) or not _SENTENCE_START.match(gap.string, gap.end()):
        return False
    return not _ABBREVIATION.search(before) and not _ENUMERATOR.search(before)


def _line(gap: re.Match[str]) -> bool:
    return _breaks(gap) > 0


_LEVELS: tuple[Cut, ...] = (_paragraph, _closed_line, _sentence, _line)


def pieces(text: str, span: Span, fits: Fits, fits_small: Fits, level: int = 0) -> Iterator[Span]:
    """``span`` as trimmed spans in order that each fit, cut no finer than that needs.

    Args:
        fits: whether a span can be a chunk of its own.
        fits_small: the stricter test for words and characters, which are put together again: a
            piece of a long sentence should leave room for an overlap.
    """
    start, end = trim(text, span)
    if start == end:
        return
    if fits(start, end):
        yield (start, end)
        return
    if level == len(_LEVELS):
        yield from _words(text, (start, end), fits, fits_small)
        return
    at = start
    cuts_at = _LEVELS[level]
    for gap in _GAP.finditer(text, start, end):
        if not cuts_at(gap):
            continue
        yield from pieces(text, (at, gap.start()), fits, fits_small, level + 1)
        at = gap.end()
    yield from pieces(text, (at, end), fits, fits_small, level + 1)


def _words(text: str, span: Span, fits: Fits, fits_small: Fits) -> Iterator[Span]:
    words = [match.span() for match in _WORD.finditer(text, *span)]
    at = 0
    while at < len(words):
        start = words[at][0]
        count = _most(len(words) - at, lambda n: fits_small(start, words[at + n - 1][1]))  # noqa: B023
        if count:
            yield (start, words[at + count - 1][1])
        elif fits(*words[at]):
            yield words[at]
        else:
            yield from _characters(words[at], fits, fits_small)
        at += max(count, 1)


def _characters(span: Span, fits: Fits, fits_small: Fits) -> Iterator[Span]:
    start, end = span
    while start < end:
        count = _most(end - start, lambda n: fits_small(start, start + n))  # noqa: B023
        count = count or _most(end - start, lambda n: fits(start, start + n))  # noqa: B023
        if not count:
            raise InvalidChunkError("budget_tokens is too small for a single character of the text")
        yield (start, start + count)
        start += count


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n of 1..limit that fits, found by doubling and halving; 0 when none does.

    A tokenizer may count a longer text lower here and there; n fits in any case.
    """
    low, step = 0, 1
    while low + step <= limit and fits(low + step):
        low += step
        step *= 2
    high = min(low + step, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def trim(text: str, span: Span) -> Span:
    """``span`` without the whitespace at its ends; empty when there is nothing else."""
    body = text[slice(*span)]
    if not body.strip():
        return (span[0], span[0])
    return (span[1] - len(body.lstrip()), span[0] + len(body.rstrip()))


def overlap_start(text: str, span: Span, fits: Callable[[int], bool]) -> int:
    """Where the text that the next chunk repeats begins: the furthest back that ``fits``.

    Whole sentences when the last one fits, else whole words of it; ``span``'s end when nothing
    does. Never the start of ``span``: a chunk that held all of the one before would not be one.
    """
    start, end = span
    sentences = [
        gap.end()
        for gap in _GAP.finditer(text, start, end)
        if gap.end() < end and any(cuts_at(gap) for cuts_at in _LEVELS[:3])
    ]
    found = _first(sentences, fits)
    if found is None:
        last = sentences[-1] if sentences else start
        found = _first([gap.end() for gap in _GAP.finditer(text, last, end) if gap.end() < end], fits)
    return end if found is None else found


def _first(starts: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    at = bisect_left(starts, True, key=fits)
    return starts[at] if at < len(starts) else None
