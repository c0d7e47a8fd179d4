"""Measured by hand, by ir-measures and by the command: the same values, and errors that name the line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.chunks import Chunk, ChunkMetadata
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.errors import EvaluationError, InvalidQueryError, MissingExtraError
from fiscal_rag_plugin.evaluation import (
    MEASURES,
    Configuration,
    Question,
    QuestionSet,
    configurations,
    evaluate,
    interval,
    load_questions,
    paired,
)
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder
from tests.processes import run_python

TEXTS = {
    "liva:a90": "El tipo general del impuesto es el 21 por ciento",
    "liva:a91": "El tipo reducido es el 10 por ciento",
    "lirpf:a7": "Rentas exentas: las indemnizaciones por despido",
    "lirpf:a30": "Gastos deducibles de los autónomos en estimación directa",
}


def chunk(doc_id: str, text: str, index: int = 0, session: str | None = None) -> Chunk:
    scope: Any = "public" if session is None else "private"
    metadata = ChunkMetadata(doc_id, "law", scope, chunk_index=index, session_id=session)
    return Chunk(text, text, metadata, 0, len(text))


@pytest.fixture
def view(tmp_path: Path) -> Any:
    corpus = Corpus.open(str(tmp_path / "db"), "fiscal", create=True, embedder=HashEmbedder())
    found = View(corpus, None)
    # A document of two chunks counts once, at the rank of its best.
    found.add_chunks([chunk(doc, text, i) for doc, text in TEXTS.items() for i in range(2)])
    yield found
    found.close()


def questions(**relevant: dict[str, int]) -> QuestionSet:
    texts = {"q1": "indemnizaciones por despido", "q2": "tipo reducido", "q3": "nada de esto"}
    return QuestionSet(tuple(Question(id, texts[id]) for id in relevant), dict(relevant))


def test_values_are_those_computed_by_hand(view: View) -> None:
    asked = questions(q1={"lirpf:a7": 1}, q2={"liva:a90": 1, "liva:a91": 2})
    found = evaluate(view, asked, [Configuration("sparse")])
    (scores,) = found.scores
    assert scores.found == [["lirpf:a7"], ["liva:a91", "liva:a90"]]
    assert scores.values == {measure: [1.0, 1.0] for measure in MEASURES}
    asked = questions(q1={"lirpf:a30": 1}, q2={"liva:a90": 1, "lirpf:a30": 1})
    values = evaluate(view, asked, [Configuration("sparse")]).scores[0].values
    # One of two relevant documents, at rank 2.
    ideal = 1 + 1 / math.log2(3)
    assert values["nDCG@10"] == pytest.approx([0.0, (1 / math.log2(3)) / ideal])
    assert values["Recall@8"] == [0.0, 0.5]
    assert values["MRR@10"] == [0.0, 0.5]
    assert values["Hit@1"] == [0.0, 0.0]
    assert values["Hit@8"] == [0.0, 1.0]


def test_a_question_without_any_hit_scores_zero(view: View) -> None:
    found = evaluate(view, questions(q3={"liva:a90": 1}), [Configuration("sparse")])
    assert found.scores[0].values == {measure: [0.0] for measure in MEASURES}


def test_ten_documents_are_ranked_even_when_one_has_hundreds_of_chunks(view: View) -> None:
    view.add_chunks([chunk("big", f"tipo reducido {i}", i) for i in range(300)])
    found = evaluate(view, questions(q2={"liva:a91": 1}), [Configuration("sparse"), Configuration("dense")])
    assert "liva:a91" in found.scores[0].found[0]
    assert sorted(found.scores[1].found[0]) == sorted(["big", *TEXTS])


def test_a_view_measures_what_its_access_permits(view: View) -> None:
    view.add_chunks([chunk("mine", "tipo reducido tipo reducido", session="A")])
    asked = questions(q2={"mine": 1, "liva:a91": 1})
    assert evaluate(view, asked, [Configuration("sparse")]).absent == ["mine"]
    own = evaluate(view.for_access(Access.session("A")), asked, [Configuration("sparse")])
    assert own.absent == []
    assert "mine" in own.scores[0].found[0]


def test_judgements_of_another_corpus_are_an_error_that_shows_both(view: View) -> None:
    with pytest.raises(EvaluationError, match=r"lis:a1.*lirpf:a30"):
        evaluate(view, questions(q1={"lis:a1": 1}), [Configuration()])


def test_configurations_are_every_combination_once() -> None:
    assert [c.name for c in configurations()] == ["dense", "sparse", "hybrid"]
    found = configurations(["mode=dense,hybrid", "hybrid_weight=0.3, 0.7", "score_threshold=none,0.8"])
    assert [c.name for c in found] == [
        "dense", "dense ≥ 0.8", "hybrid 0.3", "hybrid 0.3 ≥ 0.8", "hybrid 0.7", "hybrid 0.7 ≥ 0.8",
    ]  # fmt: skip
    assert [c.mode for c in configurations(["hybrid_weight=0.2,0.4"])] == ["hybrid", "hybrid"]


@pytest.mark.parametrize(
    "setting",
    ["mode", "mode=", "mode=best", "hybrid_weight=2", "hybrid_weight=x", "top=3", "score_threshold=9"],
)
def test_what_cannot_be_compared_is_refused(setting: str) -> None:
    with pytest.raises(InvalidQueryError):
        configurations([setting])


def written(tmp_path: Path, queries: str, qrels: str) -> tuple[Path, Path]:
    (tmp_path / "q.jsonl").write_text(queries, encoding="utf-8")
    (tmp_path / "r.tsv").write_text(qrels, encoding="utf-8")
    return tmp_path / "q.jsonl", tmp_path / "r.tsv"


def test_files_are_read_as_beir_and_trec_write_them(tmp_path: Path) -> None:
    asked = '{"_id": "a", "text": "¿uno?"}\n\n{"_id": "b", "text": "dos"}\n{"_id": "c", "text": "tres"}\n'
    judged = "query-id\tcorpus-id\tscore\na\tx:1\t2\na\tx:2\t0\r\nb\t0\ty\t1\nz\ty\t1\n"
    found = load_questions(*written(tmp_path, asked, judged))
    assert found.questions == (Question("a", "¿uno?"), Question("b", "dos"))
    assert found.relevant == {"a": {"x:1": 2}, "b": {"y": 1}}
    assert [problem.split(" ", 2)[1] for problem in found.problems] == ["judged", "questions"]


@pytest.mark.parametrize(
    ("queries", "qrels", "said"),
    [
        ("no json", "a\tx\t1", r"q\.jsonl:1: not a line of JSON"),
        ('{"_id": "a"}', "a\tx\t1", r"q\.jsonl:1: a question needs"),
        ('{"_id": "a", "text": "t"}\n{"_id": "a", "text": "t"}', "a\tx\t1", r"q\.jsonl:2: .*twice"),
        ('{"_id": "a", "text": "t"}', "a\tx\t1\na x 1", r"r\.tsv:2: a judgement"),
        ('{"_id": "a", "text": "t"}', "b\tx\t1", "no question"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(
    tmp_path: Path, queries: str, qrels: str, said: str
) -> None:
    with pytest.raises(EvaluationError, match=said):
        load_questions(*written(tmp_path, queries, qrels))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="none"):
        load_questions(tmp_path / "none.jsonl", tmp_path / "none.tsv")


def test_an_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.75, 0.5]
    found = interval(values)
    assert found.low < found.mean == 0.5 < found.high
    assert interval(values) == found
    assert interval([0.5, 0.5]).low == interval([0.5]).high == 0.5


def test_a_difference_that_chance_makes_has_a_large_p_and_a_steady_one_a_small_one() -> None:
    worse = [0.1 * (i % 5) for i in range(40)]
    assert paired([v + 0.2 for v in worse], worse).p < 0.001
    assert paired([v + (0.2 if i % 2 else -0.2) for i, v in enumerate(worse)], worse).p > 0.5
    assert paired(worse, worse) == type(paired(worse, worse))(0.0, 1.0)


def command(*arguments: str) -> Any:
    return run_python(
        "import sys; from fiscal_rag_plugin.cli import main; sys.argv = ['fiscal-rag', "
        f"*{list(arguments)!r}]; main()"
    )


def test_the_command_prints_a_table_and_the_same_as_json(tmp_path: Path) -> None:
    corpus, index = tmp_path / "leyes.jsonl", str(tmp_path / "db")
    lines = [{"doc_id": doc_id, "text": text, "doc_type": "law"} for doc_id, text in TEXTS.items()]
    corpus.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    done = command("ingest", str(corpus), "--dir", index)
    assert done.returncode == 0, done.stderr
    queries, qrels = written(
        tmp_path,
        '{"_id": "q1", "text": "indemnizaciones por despido"}\n{"_id": "q2", "text": "tipo reducido"}',
        "q1\tlirpf:a7\t1\nq2\tliva:a91\t1\nq2\tlis:a1\t1\n",
    )
    asked = ["evaluate", "--dir", index, "--queries", str(queries), "--qrels", str(qrels)]
    table = command(*asked)
    assert table.returncode == 0, table.stderr
    assert "nDCG@10" in table.stdout
    assert " against dense: nDCG@10" in table.stdout or " against sparse: nDCG@10" in table.stdout
    assert "1 relevant documents are not in the index" in table.stderr
    printed = json.loads(command(*asked, "--json").stdout)
    assert [c["name"] for c in printed["configurations"]] == ["dense", "sparse", "hybrid"]
    assert printed["configurations"][1]["measures"]["Hit@1"]["mean"] == 1.0
    assert printed["questions"][1]["values"]["sparse"]["Recall@8"] == 0.5
    assert printed["absent"] == ["lis:a1"]
    assert command(*asked, "--compare", "mode=best").returncode == 64
    absent = command(*asked[:-1], str(tmp_path / "absent"))
    assert (absent.returncode, "absent is no file" in absent.stderr) == (64, True)


def test_without_the_extra_the_error_names_it(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ir_measures", None)
    with pytest.raises(MissingExtraError, match=r"\[evaluation\]"):
        evaluate(view, questions(q1={"lirpf:a7": 1}), [Configuration("sparse")])
