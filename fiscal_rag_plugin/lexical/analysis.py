"""One analysis for texts and questions: from Spanish prose to exact tokens.

There is no query language: a question is a bag of tokens, in which quotes, ``+``, ``-``, ``AND``
and ``field:value`` have no meaning. Every pattern reads its input once, so time is linear.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version

from .references import (
    CONNECTORS,
    KEYWORDS,
    LATIN,
    PERCENT,
    SUFFIX,
    Keyword,
    acronym,
    percentage,
    reference,
)
from .words import MAX_TOKEN_CHARS, STOP_WORDS, fold, stem

ANALYSIS_VERSION = f"3/snowball-{version('PyStemmer')}"
"""Stored with an index; tokens of another version, or of other parts of a chunk, do not match, and the
index is rebuilt."""
MAX_QUESTION_TOKENS = 256
"""A question's tokens beyond the first 256 different ones are not searched."""

_RUN = re.compile(r"(?:articulos?|arts?|modelos?|mod|casillas?)(?=[.\-]?[0-9])|[^\W_]+(?:[./,\-][^\W_]+)*")
_ALONE = re.compile(r"[\W_]*([^\W_]*)[\W_]*")
_WITH_NUMBER = frozenset([*LATIN.split(), "ciento", "cien"])
"""Words that belong to the number before them: 90 bis, 21 por ciento."""
_MAX_REMEMBERED = 200_000
_SENTENCE, _INNER = re.compile("[.,]"), re.compile("[/-]")
_BEFORE_FIRST = frozenset(" \t\r\n.:-[(")
_BEFORE_NEXT = frozenset(" \t\r\n,-/[]")
_MAX_GAP_CHARS = 4


def analyse(text: str) -> list[str]:
    """The tokens of a text in order, repeats included.

    Words are folded and stemmed, function words dropped. ``art. 90`` and ``artículos 89 y 90``
    both have ``art:90``; ``modelo 303`` has ``modelo:303`` and ``303``, ``casilla [0505]`` has
    ``casilla:505`` and ``0505``, ``21 por ciento`` has ``21%``, ``art. 20.Uno.9º`` has ``art:20``,
    ``art:20.uno``, ``art:20.uno.9`` and ``20.uno.9``. Numbers, rulings (``v1234-21``), laws
    (``37/1992``) and tax ids are tokens as they are.
    """
    words = text.split()
    values = list(map(_WORDS.__getitem__, words))
    if None not in values:
        return list(filter(None, values))
    tokens: list[str] = []
    at = 0
    while at < len(values):
        special = _index(values, at)
        tokens += filter(None, values[at:special])
        at = special
        # Nothing that is said in between ends a reference.
        while at < len(values) and not values[at]:
            at += 1
        end = at
        while values[end - 1] == "":
            end -= 1
        tokens += _reference(" ".join(words[special:end]))
    return tokens


@lru_cache(maxsize=65_536)
def _reference(written: str) -> list[str]:
    """The tokens of words that are read together."""
    return _Reader(fold(written)).tokens()


def question_tokens(text: str) -> list[str]:
    """The different tokens of a question, in order, at most 256."""
    return list(dict.fromkeys(analyse(text)))[:MAX_QUESTION_TOKENS]


def _plain(run: str) -> str | None:
    """The stem of a word, "" for one that says nothing, None for what has to be read closer."""
    if not run.isalpha() or run in KEYWORDS:
        return None
    return "" if run in STOP_WORDS else stem(run)


class _Words(dict[str, "str | None"]):
    """What :func:`_plain` says of a word as it is written, with the marks around it."""

    def __missing__(self, written: str) -> str | None:
        alone = _ALONE.fullmatch(fold(written))
        token: str | None = None
        if alone is not None and (alone[1] or "%" not in written):
            run = alone[1]
            whole = len(run) <= MAX_TOKEN_CHARS and run not in _WITH_NUMBER
            token = _plain(run) if whole else None
        if len(written) <= MAX_TOKEN_CHARS:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[written] = token
        return token


_WORDS = _Words()


def _index(values: list[str | None], start: int) -> int:
    """Where the next word is that has to be read closer; the end when there is none."""
    try:
        return values.index(None, start)
    except ValueError:
        return len(values)


class _Reader:
    """One pass over a folded text. ``_keyword`` is in force until something else than its numbers."""

    def __init__(self, folded: str) -> None:
        self._folded = folded
        self._tokens: list[str] = []
        self._end = 0
        self._keyword: Keyword | None = None
        self._unsaid = ""  # the keyword's own token, should no number follow
        self._read = 0

    def tokens(self) -> list[str]:
        add = self._tokens.append
        read_to = 0
        for match in _RUN.finditer(self._folded):
            run = match.group()
            if read_to:  # by what came before
                if match.start() < read_to:
                    continue
                read_to = 0
            token = _plain(run) if len(run) <= MAX_TOKEN_CHARS else None
            if token is None or self._keyword is not None:
                self._closer(run, match.start(), match.end())
                read_to = self._end
            elif token:
                add(token)
        self._drop_keyword()
        return self._tokens

    def _closer(self, run: str, start: int, end: int) -> None:
        """A run that is no plain word, or any run after a keyword."""
        if run in KEYWORDS:
            self._drop_keyword()
            self._take_keyword(run)
        elif self._keyword is not None and self._continues(run, start, end):
            return
        elif not self._whole(run, start, end):
            separator = _SENTENCE if _SENTENCE.search(run) else _INNER
            for piece in separator.split(run):
                self._closer(piece, start, start + len(piece))
                start += len(piece) + 1
        self._end = max(self._end, end)

    def _take_keyword(self, run: str) -> None:
        self._keyword, self._read = KEYWORDS[run], 0
        self._unsaid = "" if run in STOP_WORDS else stem(run)
        if self._keyword.kept:
            self._say()

    def _say(self) -> None:
        if self._unsaid:
            self._tokens.append(self._unsaid)
        self._unsaid = ""

    def _drop_keyword(self) -> None:
        self._say()
        self._keyword = None

    def _continues(self, run: str, start: int, end: int) -> bool:
        """Read ``run`` as the keyword's next number, or as a word between two of them."""
        keyword = self._keyword
        assert keyword is not None
        gap = self._folded[self._end : start]
        allowed = _BEFORE_NEXT if self._read else _BEFORE_FIRST
        if len(gap) > _MAX_GAP_CHARS or not allowed.issuperset(gap):
            return False
        if run in CONNECTORS and self._read:
            self._end = end
            return True
        if len(run) > MAX_TOKEN_CHARS or PERCENT.match(self._folded, end):
            return False
        suffix = SUFFIX.match(self._folded, end)
        whole = run + (suffix.group().strip() if suffix else "")
        parts = whole.split(",") if keyword.plural else [whole]
        found = [keyword.read(part) for part in parts]
        if not all(found):
            return False
        self._tokens += [token for tokens in found for token in tokens]
        self._unsaid, self._read = "", self._read + 1
        # In "artículo 90.1 y 2" the 2 is a paragraph; in "art. 90 y 91" it is an article.
        if not (keyword.plural or (keyword.lists and "." not in whole)):
            self._keyword = None
        self._end = suffix.end() if suffix else end
        return True

    def _whole(self, run: str, start: int, end: int) -> bool:
        """Add the tokens of a run that is not several runs, whatever keyword came before."""
        tokens = self._tokens_of(run, start, end)
        if tokens is None:
            return False
        self._drop_keyword()
        self._tokens += tokens
        return True

    def _tokens_of(self, run: str, start: int, end: int) -> list[str] | None:
        if len(run) > MAX_TOKEN_CHARS:
            return [run[:MAX_TOKEN_CHARS]] if run.isalnum() else None
        token = _plain(run)
        if token is not None:
            return [token] if token else []
        sign = PERCENT.match(self._folded, end)
        if sign and (percent := percentage(run)):
            self._end = sign.end()
            return [percent]
        if run.isdigit() and len(run) == 4 and self._folded[start - 1 : start] == "[":
            return KEYWORDS["casilla"].read(run)  # [0505] in the tax agency's manuals
        if (short := acronym(run)) is not None:
            return [stem(short)]
        return reference(run)
