"""Spanish words: what is folded away, what says nothing, and what the forms of a word share."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_TOKEN_CHARS = 64
"""Longer runs are cut there: they are encoded data, and an index limits its terms."""

_FUNCTION_WORDS = """
a al ante aquel aquella aquellas aquello aquellos asi aun aunque cada como con contra cual cuales cualquier
cuando cuanta cuantas cuanto cuantos cuya cuyas cuyo cuyos de del desde donde durante e el ella ellas ello
ellos en entre era eran es esa esas ese eso esos esta estaba estaban estan estar estas este esto estos fue
fueron ha haber habia habian han has hasta hay haya hayan he hemos la las le les lo los me mediante mi mis
mucho muy nos nosotros nuestra nuestras nuestro nuestros o os otra otras otro otros para pero por porque
pues que quien quienes se sea sean segun ser si sido siendo sino sobre son su sus suya suyas suyo suyos tal
tales tambien tan tanto te ti tu tus u un una unas unos usted ustedes y ya yo
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Function words, folded. ``no``, ``sin`` and ``uno`` stay: in a tax text they decide."""

_UNSTEMMED_CHARS = 3  # IVA, IAE and ISD are names
_LIKE_SINGULAR = {"intereses": "interes"}

_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"  # a soft hyphen among them: PDFs part words with it
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_ORDINAL_MARKS = "ºª°"  # a degree sign by mistake
_REPLACED = str.maketrans(
    _DASHES + _ORDINAL_MARKS, "-" * len(_DASHES) + " " * len(_ORDINAL_MARKS), _INVISIBLE
)
_TO_REPLACE = re.compile(f"[{_INVISIBLE}{_DASHES}{_ORDINAL_MARKS}]")
# 9.º and 9º are 9, also inside 20.Uno.9.º; 9.ºbis is two runs. Other marks, as in n.º, are spaces.
_ORDINAL_BEFORE_WORD = re.compile(rf"(?<=[0-9])\.?[{_ORDINAL_MARKS}](?=\w)")
_ORDINAL = re.compile(rf"(?<=[0-9])\.?[{_ORDINAL_MARKS}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")


def fold(text: str) -> str:
    """``text`` in lower case, without accents, compatibility forms, ordinal marks and soft hyphens.

    Folding comes before stemming: a question typed without accents has the stems of one with them.
    """
    if text.isascii():
        return text.lower()
    if _TO_REPLACE.search(text):  # most texts need it not, and translate() is the slowest step
        text = _ORDINAL.sub("", _ORDINAL_BEFORE_WORD.sub(" ", text)).translate(_REPLACED)
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold())


@lru_cache(maxsize=131_072)
def stem(word: str) -> str:
    """The Snowball stem of a folded word, the same for its plural; up to three letters stay.

    Snowball alone parts entidad from entidades, régimen from regímenes, préstamo from préstamos
    and acto from actos: 83 pairs in the tax laws of the BOE, 10 with what is added here.
    """
    if len(word) <= _UNSTEMMED_CHARS:
        return word
    word = _LIKE_SINGULAR.get(word, word)
    if word.endswith("mos"):
        word = word[:-1]  # taken for "we lend" otherwise
    # Here: most processes only read vectors.
    from Stemmer import Stemmer

    # A stemmer holds the word it works on: one for all threads would mix them.
    snowball = Stemmer("spanish", 0)
    found = str(snowball.stemWord(word))
    if found + "es" == word:
        found = str(snowball.stemWord(found))
    return found[:-1] if len(found) > _UNSTEMMED_CHARS + 1 and found.endswith("s") else found
