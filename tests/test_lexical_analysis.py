"""What becomes a token: Spanish words that meet in their stem, references of tax law that stay whole."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.lexical import analyse, analysis, question_tokens
from fiscal_rag_plugin.lexical.words import MAX_TOKEN_CHARS, fold, stem


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("deducciones inversion", "deducción de inversiones"),
        ("ENERGIA", "energías"),
        ("préstamos", "el préstamo"),
        ("entidad", "entidades"),
        ("regimenes", "régimen"),
        ("sociedad", "las sociedades"),
        ("intereses", "interés"),
        ("alquileres", "alquiler"),
        ("máximo", "maximos"),
        ("actos", "un acto"),
        ("paises", "País"),
        ("IVA", "I.V.A."),
        ("arrendar", "arrendamientos"),
    ],
)
def test_forms_of_a_word_find_each_other(question: str, text: str) -> None:
    assert analyse(question) == [t for t in analyse(text) if t not in ("las", "el", "un")]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("20.Uno.9º", ["20.uno.9"]),
        ("20.Uno.9.º,", ["20.uno.9"]),
        ("7.3.2", ["7.3.2"]),
        ("artículo 20.Uno.9º", ["art:20", "art:20.uno", "art:20.uno.9", "20.uno.9"]),
        ("art. 90", ["art:90"]),
        ("Art.90", ["art:90"]),
        ("ARTÍCULO 90.", ["art:90"]),
        ("Artículo 90.Tipo", ["art:90", "tip"]),
        ("artículos 90 y 91", ["art:90", "art:91"]),
        ("arts. 90, 91 y 93 a 95", ["art:90", "art:91", "art:93", "art:95"]),
        ("arts. 90,91", ["art:90", "art:91"]),
        ("artículo 90 bis", ["art:90bis"]),
        ("art. 163 quaterdecies y el bis", ["art:163quaterdecies", "bis"]),
        ("artículo 108 quáter.2", ["art:108quater", "art:108quater.2", "108quater.2"]),
        ("artículo 90.1 y 2", ["art:90", "art:90.1", "90.1", "2"]),
        ("artículo 1.255 del Código Civil", ["art:1255", "codig", "civil"]),
        ("el artículo primero", ["articul", "primer"]),
        ("modelo 303", ["modelo:303", "303"]),
        ("modelos 036 y 037", ["modelo:36", "036", "modelo:37", "037"]),
        ("modelo de negocio", ["model", "negoci"]),
        ("casilla 0505", ["casilla:505", "0505"]),
        ("Casilla [0505]", ["casilla:505", "0505"]),
        ("[0505]", ["casilla:505", "0505"]),
        ("V1234-21", ["v1234-21"]),
        ("consulta V 1234–21", ["consult", "v1234-21"]),
        ("12345678Z", ["12345678z"]),
        ("12.345.678-Z", ["12345678z"]),
        ("B12345678", ["b12345678"]),
        ("B-12345678", ["b12345678"]),
        ("X1234567L", ["x1234567l"]),
        ("Ley 37/1992", ["ley", "37/1992"]),
        ("ley 37/92", ["ley", "37/1992"]),
        ("Real Decreto 1624/1992", ["real", "decret", "1624/1992"]),
        ("Orden HAC/1234/2023", ["orden", "hac/1234/2023", "1234/2023"]),
        ("Directiva 2006/112/CE", ["direct", "2006/112/ce", "2006/112"]),
        ("21 %", ["21%"]),
        ("21%", ["21%"]),
        ("21,00 por ciento", ["21%"]),
        ("0,50 por 100", ["0.5%"]),
        ("1.500,25 euros", ["1500,25", "eur"]),
        ("2024-05-01", ["2024-05-01", "2024", "05", "01"]),
        ("deduc\u00adción", ["deduccion"]),
        ("n.º 5", ["n", "5"]),
    ],
)
def test_references_stay_whole(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens


def test_a_question_is_no_query_language() -> None:
    assert analyse('session_id:A +iva -"renta" AND (NOT is) OR body:* facet:x^2 ~[a TO b]') == [
        "session", "id", "iva", "rent", "and", "not", "is", "or", "body", "facet", "x", "2", "to", "b",
    ]  # fmt: skip


def test_nothing_comes_of_function_words_and_signs() -> None:
    assert analyse("¿Y qué hay de lo de la...? «—» \0\n") == []
    assert analyse("") == []


def test_words_that_decide_a_case_are_kept() -> None:
    assert analyse("no sujeto sin uno") == ["no", "sujet", "sin", "uno"]


def test_the_tokens_of_a_question_are_different_and_not_too_many() -> None:
    assert question_tokens("IVA iva, el I.V.A. y la renta") == ["iva", "rent"]
    assert question_tokens(" ".join(map(str, range(10_000)))) == [str(i) for i in range(256)]


def test_a_long_run_is_cut_alike_on_both_sides() -> None:
    assert analyse("A" * 1_000) == ["a" * MAX_TOKEN_CHARS]
    assert analyse("x1" * 1_000 + "." + "y" * 100) == [
        ("x1" * 1_000)[:MAX_TOKEN_CHARS],
        "y" * MAX_TOKEN_CHARS,
    ]


def test_stems_are_the_same_in_every_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    words = [f"{a}{b}ciones" for a in ("tribut", "liquid", "declar", "amortiz") for b in "abcdefghij"] * 5
    expected = [stem.__wrapped__(word) for word in words]
    stem.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem, words)) == expected


_PIECES = (
    "artículo art. arts. Artículos 90 90. 90.1 20.Uno.9º 9.º 163 quaterdecies bis, y e a al 91, 21 % %. por ciento "
    "cien modelo modelos 303 casilla [0505] [ 0505 ] ley 37/1992 37/92 rd V 1234-21 V1234-21 n.º - / ( ) gastos, "
    "(deducibles) el uno no I.V.A. y/o 1.500,50 12.345.678-Z á"
)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(_PIECES.split()), max_size=30), st.sampled_from([" ", "\n", "\u00a0", " \t "])
)
@example(["artículo", "y", "su", "90"], " ")
@example(["21", "(", "%", "gastos,", "%"], " ")
def test_a_text_read_word_by_word_has_the_tokens_of_one_read_whole(pieces: list[str], space: str) -> None:
    whole = analysis._Reader(fold(" ".join(pieces))).tokens()
    assert analyse(space.join(pieces)) == whole


@settings(deadline=None)
@given(st.text() | st.text("aá.ñº9 21%[]/-,bisartículodeyVZ", max_size=200))
@example("\ud800art. \udfff9º")
@example("e\u0301\u0301 ﬁ ½ １２３ \u212a ß İ")
def test_any_text_has_tokens_that_an_index_takes(text: str) -> None:
    for token in analyse(text):
        token.encode("utf-8")
        assert token
        assert token.split() == [token]
        assert token == token.lower()


@settings(deadline=None)
@given(st.text("abcdeñáéíóúü ,.()\n", max_size=200))
def test_case_and_accents_do_not_matter(text: str) -> None:
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    assert analyse(text) == analyse(text.upper()) == analyse(plain)
    assert analyse(text) == analyse(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize(
    "piece",
    [
        "a.", "1", "1.111.", "1,", "9º.", "90 y ", "art. 1 bis.", "art.1", "21 por ", "v1-1", " ", "e\u0301\u0301",
        "\ufdfa", "1   ", "20.uno.",
    ],
)  # fmt: skip
def test_hostile_text_of_one_megabyte_takes_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = "arts. " + piece * (size // len(piece))
        started = time.process_time()
        analyse(text)
        return time.process_time() - started

    seconds(10_000)
    assert seconds(1_000_000) < 30 * seconds(100_000) + 1.0
