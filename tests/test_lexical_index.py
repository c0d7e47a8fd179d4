"""The lexical index on a real directory: exact answers, one writer, crashes, and nothing private."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    CollectionNotFoundError,
    LockTimeoutError,
    StorageError,
    StoreClosedError,
)
from fiscal_rag_plugin.filters import parse_filter
from fiscal_rag_plugin.lexical import Bag, Statistics, analyse, facet_query, question_tokens, scores
from fiscal_rag_plugin.lexical.index import LexicalIndex, Row
from tests.processes import run_python

TEXTS = [
    "Deducción de inversiones en el IVA",
    "Los rendimientos del trabajo en el IRPF",
    "Tipo general del IVA: 21 por ciento, artículo 90",
    "El tipo reducido del artículo 91.Uno es del 10 %",
    "Inversión del sujeto pasivo, artículo 84 de la Ley 37/1992",
]


def record(id: str, text: str, **metadata: Any) -> Record:
    return Record(id, "public", None, f"doc{id[:1]}", text, metadata)


def ids(found: Sequence[tuple[str, float]]) -> list[str]:
    return [id for id, _ in found]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    index = LexicalIndex(tmp_path / "lexical")
    index.add(Row(str(i), text) for i, text in enumerate(TEXTS))
    index.commit("1")
    yield index
    index.close()


# Exact answers


class Oracle:
    """The live texts in a dict; every question is put to each of them."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def search(
        self, tokens: list[str], k: int, condition: Condition, refused: set[str]
    ) -> list[tuple[str, float]]:
        bags = {id: Bag.of(analyse(one.text)) for id, one in self.records.items()}
        average = sum(bag.length for bag in bags.values()) / max(len(bags), 1)
        frequencies = {t: sum(t in bag.counts for bag in bags.values()) for t in tokens}
        values = scores(tokens, list(bags.values()), Statistics(len(bags), average, frequencies)).tolist()
        hits = [
            (id, value)
            for id, value in zip(bags, values, strict=True)
            if value > 0 and id not in refused and condition.matches(self.records[id])
        ]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


WORDS = ["iva", "renta", "cuota", "tipo", "base", "bienes", "de", "artículo 90"]
BODIES = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
IDS = st.integers(0, 30).map(str)
WRITES = st.lists(
    st.tuples(
        st.just("add"), st.lists(st.tuples(IDS, BODIES, st.sampled_from(["IVA", "IS"]), st.integers(0, 3)), max_size=12)
    )
    | st.tuples(st.just("delete"), st.lists(IDS, max_size=6))
    | st.tuples(st.just("commit"), st.just([]))
    | st.tuples(st.just("rollback"), st.just([])),
    max_size=8,
)  # fmt: skip
CONDITIONS = st.sampled_from(
    [
        None, {"tax": "IVA"}, {"tax": {"$in": ["IVA", "IS"]}}, {"n": 2}, {"n": {"$gt": 1}}, {"n": {"$in": []}},
        {"$or": [{"tax": "IS"}, {"n": 0}]}, {"tax": {"$ne": "IVA"}}, {"tax": "IVA", "n": 1},
    ]
)  # fmt: skip
ASKED = st.tuples(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.integers(1, 40), CONDITIONS, st.frozensets(IDS, max_size=25),
)  # fmt: skip


@given(WRITES, st.lists(ASKED, min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_the_texts_that_are_there_whatever_happened_before(
    writes: list[tuple[str, list[Any]]],
    questions: list[tuple[str, int, dict[str, Any] | None, frozenset[str]]],
) -> None:
    committed, pending = Oracle(), Oracle()
    with tempfile.TemporaryDirectory() as directory:
        index = LexicalIndex(directory)
        for number, (verb, values) in enumerate([*writes, ("commit", [])]):
            if verb == "add":
                rows = [record(id, text, tax=tax, n=n) for id, text, tax, n in values]
                index.add(Row.of(row) for row in rows)
                pending.records.update({row.id: row for row in rows})
            elif verb == "delete":
                index.delete(values)
                for id in values:
                    pending.records.pop(id, None)
            elif verb == "commit":
                index.commit(str(number))
                committed.records = dict(pending.records)
            else:
                index.rollback()
                pending.records = dict(committed.records)
        assert index.ids() == sorted(committed.records)
        assert index.count() == len(committed.records)
        for text, k, where, refused in questions:
            condition = Condition(filter=parse_filter(where))
            tokens = question_tokens(text)

            def keep(
                some: Sequence[str], condition: Condition = condition, refused: frozenset[str] = refused
            ) -> list[str]:
                return [id for id in some if id not in refused and condition.matches(committed.records[id])]

            expected = committed.search(tokens, k, condition, set(refused))
            assert index.search(tokens, k, facet_query(condition), keep) == expected
            assert index.search(tokens, k, (), keep) == expected
            if not refused and where in (None, {"tax": "IVA"}, {"n": 2}):
                assert index.search(tokens, k, facet_query(condition)) == expected
        index.close()


def test_a_question_without_accents_or_endings_finds_the_text(index: LexicalIndex) -> None:
    assert ids(index.search(question_tokens("deducciones inversion"), 1)) == ["0"]
    assert ids(index.search(question_tokens("art.90"), 5)) == ["2"]
    assert ids(index.search(question_tokens("arts. 84 y 91.Uno"), 1)) == ["3"]


def test_a_text_that_has_none_of_the_words_is_no_hit_however_large_k_is(index: LexicalIndex) -> None:
    assert set(ids(index.search(question_tokens("IVA"), 1_000))) == {"0", "2"}
    assert index.search(question_tokens("catastro"), 1_000) == []
    assert index.search([], 10) == []
    assert index.search(question_tokens("IVA"), 0) == []


def test_a_refused_text_does_not_come_back_with_a_large_k(index: LexicalIndex) -> None:
    found = index.search(question_tokens("IVA"), 4, (), lambda some: {"2"} & set(some))
    assert ids(found) == ["2"]


def test_syntax_of_other_search_engines_finds_words_only(index: LexicalIndex) -> None:
    plain = index.search(question_tokens("IVA tipo"), 10)
    for hostile in (
        '+IVA -tipo"',
        "body:IVA OR tipo~",
        "(IVA) && tipo*",
        "IVA^9 tipo",
        "facet:\x1fmark IVA tipo",
    ):
        assert {id for id, _ in index.search(question_tokens(hostile), 10)} >= set(ids(plain))
    assert index.search(question_tokens("*:*"), 10) == []
    assert index.search(["\x1fmark", "*", "iva OR tip", ""], 10) == []


def test_a_place_tied_beyond_k_goes_to_the_smaller_id(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path)
    index.add(Row(f"{i:04}", "IVA general") for i in reversed(range(500)))
    index.add([Row("z", "IVA IVA general")])
    index.commit("1")
    assert ids(index.search(["iva"], 4)) == ["z", "0000", "0001", "0002"]
    assert ids(index.search(["iva"], 2, (), lambda some: [id for id in some if id > "0400"])) == [
        "z",
        "0401",
    ]
    index.close()


def test_a_filter_applies_before_the_top_k(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path)
    index.add(Row.of(record(f"{i:03}", "IVA IVA", tax="IS")) for i in range(200))
    index.add([Row.of(record("one", "IVA y otras cosas más", tax="IVA", tags=["a", "b"]))])
    index.commit("1")
    for where in ({"tax": "IVA"}, {"tags": {"$contains": "a"}}):
        condition = Condition(filter=parse_filter(where))
        assert ids(index.search(["iva"], 3, facet_query(condition))) == ["one"]
    assert ids(index.search(["iva"], 3, facet_query(Condition(ids=frozenset({"one"}))))) == ["one"]
    assert ids(index.search(["iva"], 3, facet_query(Condition(doc_ids=frozenset({"doco"}))))) == ["one"]
    assert index.search(["iva"], 3, facet_query(Condition(ids=frozenset()))) == []
    index.close()


def test_scores_of_given_texts_are_those_of_a_search(index: LexicalIndex) -> None:
    tokens = question_tokens("tipo del IVA")
    found = dict(index.search(tokens, 10))
    everything = index.scores(tokens, ["0", "1", "2", "3", "4", "absent"])
    assert everything == {**{str(i): 0.0 for i in range(5)}, **found}
    assert index.scores(tokens, []) == {}


def test_a_rebuilt_index_gives_the_values_of_the_one_that_was_written_over(tmp_path: Path) -> None:
    worn, fresh = LexicalIndex(tmp_path / "worn"), LexicalIndex(tmp_path / "fresh")
    for turn in range(12):
        worn.add(Row(str(i), text * (turn + 1)) for i, text in enumerate(TEXTS))
        worn.delete([str(turn % 5)])
        worn.commit(str(turn))
    last = [Row(str(i), text) for i, text in enumerate(TEXTS)]
    for index in (worn, fresh):
        index.add(last)
        index.commit("last")
    for question in ("tipo IVA", "artículo 90", "inversiones del sujeto"):
        tokens = question_tokens(question)
        assert worn.statistics(tokens) == fresh.statistics(tokens)
        assert worn.search(tokens, 3) == fresh.search(tokens, 3)
    worn.close()
    fresh.close()


def test_an_error_of_the_caller_comes_out_as_it_is(index: LexicalIndex) -> None:
    def fails(error: Exception) -> Any:
        def keep(_: Sequence[str]) -> set[str]:
            raise error

        return keep

    for error in (ValueError("mine"), CollectionNotFoundError("gone"), RuntimeError("mine")):
        with pytest.raises(type(error), match=str(error)):
            index.search(["iva"], 3, (), fails(error))
    assert index.search(["iva"], 3)


# Nothing private


def test_a_private_record_is_refused() -> None:
    private = Record("1", "private", "A", "d", "secreto", {})
    with pytest.raises(AccessDeniedError):
        Row.of(private)


# Writing, reading, crashing


def test_what_is_written_is_seen_after_the_commit_and_after_reopening(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path)
    assert (index.mark, index.count(), index.ids(), index.is_current) == (None, 0, [], True)
    index.add([Row("1", "IVA")])
    assert index.count() == 0
    index.commit("generation 7")
    index.add([Row("2", "IVA"), Row("1", "renta"), Row("1", "cuota")])
    assert ids(index.search(["iva"], 5)) == ["1"]
    index.close()
    again = LexicalIndex(tmp_path, create=False)
    assert (again.mark, again.ids(), again.is_current) == ("generation 7", ["1"], True)
    again.add([Row("2", "IVA"), Row("1", "renta"), Row("1", "cuota")])
    again.commit("8")
    assert (again.mark, again.ids()) == ("8", ["1", "2"])
    assert ids(again.search(["cuot"], 5)) == ["1"]
    assert again.search(["rent"], 5) == []
    again.clear()
    again.commit("9")
    assert (again.mark, again.ids(), again.search(["iva"], 5)) == ("9", [], [])
    again.close()


def test_an_index_of_another_analysis_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fiscal_rag_plugin.lexical import index as module

    index = LexicalIndex(tmp_path)
    index.commit("1")
    monkeypatch.setattr(module, "ANALYSIS_VERSION", "2/other")
    assert not index.is_current
    index.commit("2")
    assert index.is_current
    index.close()


def test_texts_without_a_token_are_counted_and_never_found(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path)
    index.add([Row("1", "¿y de la?"), Row("2", "")])
    index.commit("1")
    assert (index.count(), index.ids(), index.search(["iva"], 5)) == (2, ["1", "2"], [])
    assert index.scores(["iva"], ["1"]) == {"1": 0.0}
    index.close()


def test_absence_is_an_error_when_nothing_may_be_created(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="repair"):
        LexicalIndex(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_a_closed_index_says_so(index: LexicalIndex) -> None:
    index.close()
    for use in (
        index.ids,
        index.count,
        index.reload,
        lambda: index.search(["iva"], 1),
        lambda: index.add([]),
    ):
        with pytest.raises(StoreClosedError):
            use()
    index.close()


def test_a_second_writer_is_refused_until_the_first_one_closes(index: LexicalIndex, tmp_path: Path) -> None:
    second = LexicalIndex(tmp_path / "lexical")
    index.add([Row("9", "IVA")])
    with pytest.raises(LockTimeoutError):
        second.add([Row("8", "IVA")])
    assert second.search(["iva"], 5)
    index.close()
    second.add([Row("8", "IVA")])
    second.commit("2")
    assert "8" in second.ids()
    assert "9" not in second.ids()
    second.close()


def test_a_reader_sees_another_process_after_a_reload(index: LexicalIndex, tmp_path: Path) -> None:
    index.close()
    reader = LexicalIndex(tmp_path / "lexical", create=False)
    before = reader.snapshot()
    written = run_python(
        f"""
        from fiscal_rag_plugin.lexical.index import LexicalIndex, Row
        index = LexicalIndex({str(tmp_path / "lexical")!r})
        index.add([Row("9", "IVA del comercio")])
        index.delete(["0"])
        index.commit("2")
        index.close()
        """
    )
    assert written.returncode == 0, written.stderr
    assert (reader.mark, set(ids(reader.search(["iva"], 5)))) == ("1", {"0", "2"})
    reader.reload()
    assert (reader.mark, set(ids(reader.search(["iva"], 5)))) == ("2", {"9", "2"})
    assert set(ids(before.search(["iva"], 5))) == {"0", "2"}
    reader.close()


def killed_while_writing(directory: Path) -> None:
    """A process that commits 50 texts, writes 5,000 more, and is killed before their commit."""
    code = f"""
    from fiscal_rag_plugin.lexical.index import LexicalIndex, Row
    index = LexicalIndex({str(directory)!r})
    index.add(Row(f"a{{i}}", "IVA acknowledged") for i in range(50))
    index.commit("acknowledged")
    index.add(Row(f"b{{i}}", f"IVA lost {{i}} " * 30) for i in range(5_000))
    print("ready", flush=True)
    import time
    while True:
        index.add(Row(f"c{{i}}", "IVA lost") for i in range(100))
        time.sleep(0.001)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()


def test_a_killed_writer_leaves_its_last_commit_and_no_lock(tmp_path: Path) -> None:
    killed_while_writing(tmp_path)
    index = LexicalIndex(tmp_path, create=False)
    assert (index.mark, index.count()) == ("acknowledged", 50)
    index.add([Row("a0", "renta")])
    index.commit("after")
    assert (index.mark, index.count(), len(index.search(["iva"], 100))) == ("after", 50, 49)
    index.close()


@pytest.mark.parametrize("name", ["meta.json", "*.term", "*.store", "*.idx", "*.fieldnorm", "*.fast"])
@pytest.mark.parametrize("data", [b"", b"\0" * 40], ids=["empty", "zeros"])
def test_a_damaged_file_is_a_storage_error_that_names_the_remedy(
    index: LexicalIndex, tmp_path: Path, name: str, data: bytes
) -> None:
    index.close()
    for path in (tmp_path / "lexical").glob(name):
        path.write_bytes(data)

    def ask() -> object:
        return LexicalIndex(tmp_path / "lexical").search(["iva"], 5)

    with pytest.raises(StorageError, match="repair"):
        ask()


def test_a_file_in_the_place_of_the_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "lexical").write_text("x", encoding="utf-8")
    with pytest.raises(StorageError, match="repair"):
        LexicalIndex(tmp_path / "lexical")


def test_an_index_of_another_schema_is_a_storage_error(tmp_path: Path) -> None:
    import tantivy

    tantivy.Index(tantivy.SchemaBuilder().build(), str(tmp_path))
    with pytest.raises(StorageError, match="schema"):
        LexicalIndex(tmp_path)
