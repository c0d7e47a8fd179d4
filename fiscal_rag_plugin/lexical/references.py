"""Numbers of tax law that stay whole: articles, forms, boxes, laws, rulings, tax ids, percentages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

LATIN = (
    "bis ter quater quinquies sexies septies octies nonies decies undecies unodecies duodecies terdecies "
    "quaterdecies quindecies quinquiesdecies sexdecies septendecies octodecies vicies"
)
_LATIN = LATIN.replace(" ", "|")
_ORDINALS = "uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince"
_PART = f"(?:[0-9]+|[a-z]|{_ORDINALS}|{_LATIN})"

SUFFIX = re.compile(rf"\s{{1,3}}({_LATIN})(?![^\W_])(?:\.{_PART}(?![^\W_]))?")
"""What may follow an article's number: 163 quaterdecies, 108 quater.2."""
PERCENT = re.compile(r"\s{0,3}%|\s{1,3}por\s{1,3}(?:ciento|cien|100)(?![^\W_])")

_DIGITS = re.compile("[0-9]+")
_DECIMAL = re.compile("[0-9]+[.,][0-9]+")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)?")
_DOTTED = re.compile(rf"[0-9]+(?:{_LATIN})?(?:\.{_PART})+")
_ARTICLE = re.compile(rf"0*([0-9]{{1,4}}(?:{_LATIN})?)((?:\.{_PART})*)")
_RULING = re.compile("[0-9]{4}-[0-9]{2}")
_TAX_ID = re.compile(
    r"[0-9]{1,2}\.?[0-9]{3}\.?[0-9]{3}-?[a-z]|[a-z]-?[0-9]{7}-?[0-9a-z]|[a-z]-?[0-9]{2}\.?[0-9]{3}\.?[0-9]{3}"
)
_SHORT_YEAR = re.compile("([0-9]+)/([0-9]{2})")
_SLASHED = re.compile("(?:[a-z]{1,6}/)?([0-9]+/[0-9]+)(?:/[0-9a-z]{1,4})?")
_HYPHENATED = re.compile("v?[0-9]+(?:-[0-9]+)+")
_ACRONYM = re.compile(r"[a-z](?:\.[a-z])+")


def reference(run: str) -> list[str] | None:
    """The tokens of a folded run with digits or separators; None when it is several runs.

    ``20.uno.9``, ``v1234-21`` and ``b12345678`` are one token. Dots that only help the eye go:
    1.500 is 1500, 12.345.678-z is 12345678z.
    """
    if run.isalnum():
        return [run]
    if _TAX_ID.fullmatch(run):
        return [run.replace(".", "").replace("-", "")]
    if _THOUSANDS.fullmatch(run):
        return [run.replace(".", "")]
    if _DECIMAL.fullmatch(run) or _DOTTED.fullmatch(run):
        return [run]
    if slashed := _SLASHED.fullmatch(run):
        return [run] if slashed[1] == run else [run, slashed[1]]
    if _HYPHENATED.fullmatch(run):
        return [run] if run.startswith("v") else [run, *run.split("-")]
    return None


def acronym(run: str) -> str | None:
    """``iva`` for ``i.v.a``, whose last dot is no part of the run."""
    return run.replace(".", "") if _ACRONYM.fullmatch(run) else None


def percentage(run: str) -> str | None:
    """``21%`` for the number 21 or 21,00 before a percent sign; ``0.5%`` for 0,50."""
    if _DECIMAL.fullmatch(run):
        whole, _, fraction = run.replace(",", ".").partition(".")
        fraction = fraction.rstrip("0")
        return f"{whole.lstrip('0') or '0'}{'.' if fraction else ''}{fraction}%"
    return f"{run.lstrip('0') or '0'}%" if _DIGITS.fullmatch(run) else None


def article(run: str) -> list[str]:
    """``art:20``, ``art:20.uno``, ``art:20.uno.9`` and the bare ``20.uno.9``; [] when it is none."""
    if _THOUSANDS.fullmatch(run) and "," not in run:
        run = run.replace(".", "")
    found = _ARTICLE.fullmatch(run)
    if found is None:
        return []
    parts = [found[1], *found[2].split(".")[1:]]
    levels = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return [f"art:{level}" for level in levels] + ([levels[-1]] if len(levels) > 1 else [])


def numbered(name: str) -> Callable[[str], list[str]]:
    """A reader of numbers that a name makes exact: ``modelo:36`` and the bare ``036``."""

    def read(run: str) -> list[str]:
        return [f"{name}:{run.lstrip('0') or '0'}", run] if _DIGITS.fullmatch(run) else []

    return read


def law(run: str) -> list[str]:
    """``37/1992`` for 37/92 after the word "ley"; other numbers of laws are exact by themselves."""
    short = _SHORT_YEAR.fullmatch(run)
    if short is None:
        return []
    century = "19" if int(short[2]) >= 30 else "20"
    return [f"{short[1]}/{century}{short[2]}"]


def ruling(run: str) -> list[str]:
    """``v1234-21`` for "V 1234-21"."""
    return [f"v{run}"] if _RULING.fullmatch(run) else []


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word that gives the numbers after it a meaning: how to read one, and whether a list may follow.

    A word that is ``kept`` is a token itself; the others say nothing beside their number.
    """

    read: Callable[[str], list[str]]
    lists: bool = False
    plural: bool = False
    kept: bool = False


_ARTICLE_WORD, _ARTICLES = Keyword(article, lists=True), Keyword(article, lists=True, plural=True)
_FORM = Keyword(numbered("modelo"), lists=True, plural=True)
_BOX = Keyword(numbered("casilla"), lists=True, plural=True)
_LAW = Keyword(law, kept=True)
KEYWORDS = {
    "articulo": _ARTICLE_WORD, "art": _ARTICLE_WORD, "articulos": _ARTICLES, "arts": _ARTICLES,
    "modelo": _FORM, "modelos": _FORM, "mod": _FORM, "casilla": _BOX, "casillas": _BOX,
    "ley": _LAW, "decreto": _LAW, "legislativo": _LAW, "organica": _LAW, "rd": _LAW, "rdl": _LAW,
    "lo": _LAW, "orden": _LAW, "v": Keyword(ruling),
}  # fmt: skip
CONNECTORS = frozenset(["y", "e", "o", "u", "a", "al"])
"""Words inside a list: artículos 90, 91 y 93 a 95."""
