"""BM25 in process has the values that tantivy has, and a text's value depends on no other private text."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.lexical import Bag, Statistics, analyse, scores
from fiscal_rag_plugin.lexical.bm25 import quantised
from fiscal_rag_plugin.lexical.index import LexicalIndex, Row

WORDS = st.sampled_from(["iva", "renta", "cuota", "tipo", "base", "bien"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=60), min_size=1, max_size=12)


def by_tantivy(texts: list[list[str]], question: list[str]) -> dict[int, float]:
    """What tantivy itself gives each text."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field("number", stored=True)
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    for i, tokens in enumerate(texts):
        document = tantivy.Document()
        document.add_text("body", " ".join(tokens))
        document.add_unsigned("number", i)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    terms = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "body", t, "freq")) for t in question]
    searcher = index.searcher()
    hits = searcher.search(tantivy.Query.boolean_query(terms), len(texts)).hits
    return {searcher.doc(address).get_first("number"): score for score, address in hits}  # type: ignore[misc]


def statistics_of(texts: list[list[str]], question: list[str]) -> Statistics:
    average = sum(map(len, texts)) / len(texts)
    return Statistics(len(texts), average, {t: sum(t in text for text in texts) for t in question})


def ours(texts: list[list[str]], question: list[str]) -> dict[int, float]:
    values = scores(question, [Bag.of(text) for text in texts], statistics_of(texts, question))
    return {i: value for i, value in enumerate(values.tolist()) if value}


@given(TEXTS, WORDS)
@settings(max_examples=60, deadline=None)
def test_one_word_has_tantivys_value_to_the_last_bit_or_the_one_before(
    texts: list[list[str]], word: str
) -> None:
    theirs, found = by_tantivy(texts, [word]), ours(texts, [word])
    assert found.keys() == theirs.keys()
    for i, value in found.items():
        assert np.float32(value) == pytest.approx(theirs[i], rel=2.5e-7)  # logf of two libraries


@given(TEXTS, st.lists(WORDS, unique=True, min_size=1))
@settings(max_examples=60, deadline=None)
def test_several_words_have_tantivys_value_but_for_the_order_of_the_sum(
    texts: list[list[str]], question: list[str]
) -> None:
    assert ours(texts, question) == pytest.approx(by_tantivy(texts, question), rel=1e-6)


@settings(deadline=None)
@given(TEXTS, st.lists(WORDS, unique=True, min_size=1))
def test_values_are_the_published_formula(texts: list[list[str]], question: list[str]) -> None:
    n, average = len(texts), sum(map(len, texts)) / len(texts)
    for i, value in ours(texts, question).items():
        expected = 0.0
        for word in question:
            df, tf = sum(word in text for text in texts), texts[i].count(word)
            norm = 1.2 * (0.25 + 0.75 * quantised(len(texts[i])) / average)
            expected += math.log(1 + (n - df + 0.5) / (df + 0.5)) * 2.2 * tf / (tf + norm)
        assert value == pytest.approx(expected, rel=1e-5)


def test_lengths_are_remembered_as_one_byte() -> None:
    lengths = [0, 1, 39, 40, 41, 42, 43, 63, 64, 151, 152, 167, 1_000, 100_000]
    assert [quantised(n) for n in lengths] == [0, 1, 39, 40, 40, 42, 42, 60, 64, 144, 152, 152, 984, 98_328]
    assert quantised(2**32) == 2_013_265_944


def test_the_same_text_has_the_same_bits_public_and_private(tmp_path: Path) -> None:
    texts = {f"p{i}": f"La cuota del IVA {'y la base ' * i} artículo {i}" for i in range(1, 60)}
    index = LexicalIndex(tmp_path)
    index.add(Row(id, text) for id, text in texts.items())
    index.add([Row("p7", texts["p7"])])  # a replacement, whose old version tantivy still counts
    index.commit("1")
    question = analyse("cuota y base del artículo 7")
    own = scores(question, [Bag.of(analyse(text)) for text in texts.values()], index.statistics(question))
    public = dict(index.search(question, 100))
    assert public == dict(zip(texts, own.tolist(), strict=True)) == index.scores(question, list(texts))
    index.close()


def test_a_token_that_only_the_session_has_counts_as_in_one_text() -> None:
    bag = [Bag.of(["raro", "iva"])]
    seen_once = Statistics(1_000, 80.0, {"raro": 1})
    assert scores(["raro"], bag, Statistics(1_000, 80.0, {"raro": 0})) == scores(["raro"], bag, seen_once)
    assert scores(["raro"], bag, Statistics(1_000, 80.0, {})) == scores(["raro"], bag, seen_once)


def test_without_public_texts_a_session_is_scored_all_the_same() -> None:
    nothing = Statistics(0, 0.0, {"iva": 0})
    values = scores(
        ["iva"], [Bag.of(["iva", "iva", "x"]), Bag.of(["iva", "x", "x"]), Bag.of(["x"])], nothing
    )
    assert values[0] > values[1] > 0 == values[2]


@settings(deadline=None)
@given(TEXTS, TEXTS, st.lists(WORDS, min_size=1))
def test_a_value_does_not_depend_on_what_is_scored_with_it(
    mine: list[list[str]], others: list[list[str]], question: list[str]
) -> None:
    statistics = statistics_of(others, question)
    alone = scores(question, [Bag.of(text) for text in mine], statistics)
    together = scores(question, [Bag.of(text) for text in others + mine + others], statistics)
    assert together[len(others) : len(others) + len(mine)].tobytes() == alone.tobytes()


def test_a_repeated_word_of_a_question_counts_once_in_any_order() -> None:
    bags, statistics = (
        [Bag.of(["iva", "base", "tipo"])],
        Statistics(9, 3.0, {"iva": 2, "base": 5, "tipo": 1}),
    )
    once = scores(["base", "iva", "tipo"], bags, statistics)
    assert scores(["tipo", "iva", "base", "iva", "tipo"], bags, statistics).tobytes() == once.tobytes()


def test_no_question_and_no_texts_are_no_error() -> None:
    assert scores([], [Bag.of(["iva"])], Statistics(1, 1.0, {})).tolist() == [0.0]
    assert scores(["iva"], [], Statistics(1, 1.0, {"iva": 1})).tolist() == []


@given(st.lists(st.sampled_from(["iva", "iv", "va", "a", "art90", "ñ"]), max_size=12))
def test_a_joined_text_is_the_bag_of_its_tokens(tokens: list[str]) -> None:
    whole, joined = Bag.of(tokens), Bag.of_joined(" ".join(tokens), ["iva", "a", "ñ", "absent"])
    assert joined.length == whole.length
    assert joined.counts == {token: whole.counts[token] for token in ("iva", "a", "ñ", "absent")}
