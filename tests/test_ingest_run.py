"""Files into a view: what is read again, what is replaced, what fails and what a failure leaves."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.engines.base import Condition
from fiscal_rag_plugin.errors import (
    AccessDeniedError,
    EmbeddingError,
    IngestError,
    SettingsError,
    TextTooLongError,
)
from fiscal_rag_plugin.ingest import run
from fiscal_rag_plugin.ingest.run import FileReport, IngestOptions, Progress, ingest_file, ingest_path
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder

TIPOS = "---\ntax: IVA\n---\n# Tipos\n\n## Artículo 90\n\nEl tipo general es el 21 por ciento.\n\n## Artículo 91\n\nEl tipo reducido es el 10 por ciento.\n"
PLAZOS = "# Plazos\n\nEl modelo 303 se presenta en veinte días.\n"


class FailingEmbedder(HashEmbedder):
    """Fails from the nth text on, as a model does that is gone, or for texts with a given word."""

    batch_size = 1

    def __init__(self, after: int = 10**6, too_long: str = "nothing") -> None:
        super().__init__(64)
        self.after, self.too_long = after, too_long

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if len(self.documents) >= self.after:
            raise EmbeddingError("the model is gone")
        if any(self.too_long in text for text in texts):
            raise TextTooLongError("a chunk has 900 tokens")
        return super().embed_documents(texts)


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(64)


@pytest.fixture
def store(tmp_path: Path, embedder: HashEmbedder) -> Iterator[View]:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=embedder))
    yield view
    view.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", {"iva/tipos.md": TIPOS, "plazos.md": PLAZOS})


def rows(view: View, doc_id: str | None = None) -> list[dict[str, Any]]:
    condition = Condition(doc_ids=None if doc_id is None else frozenset([doc_id]))
    return [{**record.flat(), "text": record.text, "id": record.id} for record in view.scan(condition)]


def texts(view: View, doc_id: str | None = None) -> str:
    return " ".join(sorted(row["text"] for row in rows(view, doc_id)))


def by_path(report: run.IngestReport) -> dict[str, FileReport]:
    return {file.path: file for file in report.files}


def found(view: View, question: str) -> list[str]:
    return [h.record.text for h in view.search(SearchQuery(text=question, top_k=50)).hits]


# --- a folder, again and again ------------------------------------------------------------------


def test_a_folder_is_stored_under_its_posix_paths(store: View, folder: Path) -> None:
    report = ingest_path(store, folder)
    assert [(f.path, f.status, f.doc_ids) for f in report.files] == [
        ("iva/tipos.md", "ingested", ("iva/tipos.md",)),
        ("plazos.md", "ingested", ("plazos.md",)),
    ]
    assert report.total("chunks") == report.total("embedded") == len(rows(store)) >= 3
    assert {row["doc_id"] for row in rows(store)} == {"iva/tipos.md", "plazos.md"}
    labels = {row.get("section_label"): row["text"] for row in rows(store, "iva/tipos.md")}
    assert "21 por ciento" in labels["Artículo 90"]
    assert all(row["tax"] == "IVA" for row in rows(store, "iva/tipos.md"))


def test_a_second_run_reads_and_embeds_nothing_and_keeps_the_date(
    store: View, folder: Path, embedder: HashEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ingest_path(store, folder)
    before, calls = rows(store), embedder.calls
    monkeypatch.setattr(run, "read_source_file", lambda *_, **__: pytest.fail("the file was read"))
    monkeypatch.setattr(run, "chunk_source", lambda *_, **__: pytest.fail("the file was cut"))
    again = ingest_path(store, folder)
    assert {f.status for f in again.files} == {"unchanged"}
    assert (again.total("embedded"), again.total("kept")) == (0, first.total("chunks"))
    assert by_path(again)["iva/tipos.md"].doc_ids == ("iva/tipos.md",)
    assert embedder.calls == calls
    assert rows(store) == before
    assert all(row["retrieved_at"] for row in before)


def test_a_changed_file_replaces_its_own_chunks_only(
    store: View, folder: Path, embedder: HashEmbedder
) -> None:
    ingest_path(store, folder)
    others, embedded = rows(store, "plazos.md"), len(embedder.documents)
    write(folder, {"iva/tipos.md": TIPOS.replace("reducido es el 10", "reducido es el 11")})
    report = by_path(ingest_path(store, folder))
    tipos = report["iva/tipos.md"]
    assert (report["plazos.md"].status, tipos.status) == ("unchanged", "ingested")
    assert (tipos.embedded, tipos.removed, tipos.kept + tipos.updated) == (1, 1, tipos.chunks - 1)
    assert len(embedder.documents) == embedded + 1
    assert "11 por ciento" in texts(store, "iva/tipos.md")
    assert " 10 por ciento" not in texts(store)
    assert rows(store, "plazos.md") == others


def test_a_file_that_lost_a_section_loses_its_chunk(store: View, folder: Path) -> None:
    ingest_path(store, folder)
    write(folder, {"iva/tipos.md": TIPOS.partition("## Artículo 91")[0]})
    assert by_path(ingest_path(store, folder))["iva/tipos.md"].removed == 1
    assert "reducido" not in texts(store)


def test_a_changed_sidecar_is_read_and_embeds_nothing(
    store: View, folder: Path, embedder: HashEmbedder
) -> None:
    write(folder, {"nota.txt": "El recargo es del 5 por ciento.\n", "nota.txt.yaml": "tax: IVA\n"})
    ingest_path(store, folder)
    embedded = len(embedder.documents)
    write(folder, {"nota.txt.yaml": "tax: LGT\n"})
    report = by_path(ingest_path(store, folder))["nota.txt"]
    assert (report.status, report.embedded, report.updated) == ("ingested", 0, 1)
    assert [row["tax"] for row in rows(store, "nota.txt")] == ["LGT"]
    assert len(embedder.documents) == embedded
    (folder / "nota.txt.yaml").unlink()
    assert by_path(ingest_path(store, folder))["nota.txt"].status == "ingested"
    assert [row["tax"] for row in rows(store, "nota.txt")] == ["GENERAL"]


@pytest.mark.parametrize(
    "options",
    [
        {"tax": "IRPF"}, {"doc_type": "law"}, {"fiscal_year": 2024}, {"headings": False},
        {"chunk_tokens": 64, "chunk_overlap": 8}, {"chunk_overlap": 8},
    ],
)  # fmt: skip
def test_other_options_read_the_file_again(store: View, folder: Path, options: dict[str, Any]) -> None:
    ingest_path(store, folder)
    report = ingest_path(store, folder, IngestOptions(**options))
    assert {f.status for f in report.files} == {"ingested"}
    assert {f.status for f in ingest_path(store, folder, IngestOptions(**options)).files} == {"unchanged"}


def test_another_model_reads_the_file_again(tmp_path: Path, folder: Path) -> None:
    for name in ("one", "two"):
        embedder = HashEmbedder(64)
        embedder.model_id = name
        view = View(Corpus.open(str(tmp_path / "db"), name, embedder=embedder))
        assert ingest_path(view, folder).count("ingested") == 2
        view.close()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunk_tokens": 15}, "chunk_tokens"), ({"chunk_tokens": True}, "chunk_tokens"),
        ({"chunk_overlap": -1}, "chunk_overlap"), ({"chunk_tokens": 32}, "chunk_overlap"),
        ({"expires_at": dt.datetime(2030, 1, 1)}, "time zone"), ({"expires_at": "2030-01-01"}, "time zone"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_before_any_file(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        IngestOptions(**options)


def test_a_deleted_document_makes_its_file_be_read_again(store: View, folder: Path) -> None:
    ingest_path(store, folder)
    assert store.delete(Condition(doc_ids=frozenset(["plazos.md"]))) == 1
    report = by_path(ingest_path(store, folder))
    assert (report["plazos.md"].status, report["iva/tipos.md"].status) == ("ingested", "unchanged")
    assert "303" in texts(store, "plazos.md")


def test_a_document_deleted_chunk_by_chunk_makes_its_file_be_read_again(store: View, folder: Path) -> None:
    ingest_path(store, folder)
    one = rows(store, "iva/tipos.md")[0]["id"]
    store.delete(Condition(ids=frozenset([one])))
    report = by_path(ingest_path(store, folder))["iva/tipos.md"]
    assert (report.status, report.embedded, report.removed) == ("ingested", 1, 0)


# --- files that cannot be read ------------------------------------------------------------------


def pdf(*, text: str = "", encrypted: bool = False) -> bytes:
    """One page, without a text layer unless ``text``."""
    stream = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode() if text else b""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]  # fmt: skip
    data, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    key = b"<" + b"5a" * 32 + b">"
    security = b" /ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O %s /U %s >>" % (key, key)
    table = b"".join(b"%010d 00000 n \n" % at for at in offsets)
    return (
        b"%sxref\n0 6\n0000000000 65535 f \n%strailer << /Size 6 /Root 1 0 R%s >>\nstartxref\n%d\n%%%%EOF\n"
        % (data, table, security if encrypted else b"", len(data))
    )


LINES = [json.dumps({"doc_id": f"l{n}", "text": f"Línea {n}."}) for n in range(1, 10)]
BROKEN: dict[str, tuple[str, str | bytes, str | bytes, str]] = {
    "empty": ("a.md", TIPOS, "", "a.md: the file is empty"),
    "blank": ("a.md", TIPOS, " \n\u2003\n", "a.md: the file is blank"),
    "latin-1": ("a.md", TIPOS, "# Año\n".encode("latin-1"), "a.md: not utf-8 at byte 3"),
    "line 7": ("a.jsonl", "\n".join(LINES), "\n".join([*LINES[:6], "{oops", *LINES[7:]]), "a.jsonl: line 7"),
    "scanned": ("a.pdf", pdf(text="Tipo general"), pdf(), "a.pdf: the PDF has 1 pages and no text layer"),
    "encrypted": ("a.pdf", pdf(text="Tipo general"), pdf(text="x", encrypted=True), "a.pdf: the PDF is encr"),
    "no pdf": ("a.pdf", pdf(text="Tipo general"), b"hola", "a.pdf: not a PDF"),
    "claims private": ("a.md", TIPOS, "---\nsource_scope: private\nsession_id: B\n---\nHola\n", "a.md"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_writes_nothing_and_its_old_version_answers(
    store: View, tmp_path: Path, case: str, embedder: HashEmbedder
) -> None:
    name, whole, broken, message = BROKEN[case]
    root = write(tmp_path / "docs", {f"dir/{name}": whole, "dir/z.md": PLAZOS})
    assert not ingest_path(store, root).problems
    before, embedded = rows(store), len(embedder.documents)
    write(root, {f"dir/{name}": broken, "dir/z.md": PLAZOS.replace("veinte", "treinta")})
    report = ingest_path(store, root)
    assert [f.status for f in report.files] == ["failed", "ingested"]
    [problem] = report.problems
    assert problem.startswith(f"dir/{message}")
    assert rows(store) != before
    assert [r for r in rows(store) if r["doc_id"] != "dir/z.md"] == [
        r for r in before if r["doc_id"] != "dir/z.md"
    ]
    assert "treinta" in texts(store, "dir/z.md")
    assert len(embedder.documents) == embedded + 1
    # Not remembered as done: it is read again, and once mended it is ingested.
    assert ingest_path(store, root).count("failed") == 1
    write(root, {f"dir/{name}": whole})
    assert ingest_path(store, root).count("failed") == 0


def test_every_broken_line_of_a_jsonl_is_named(store: View, tmp_path: Path) -> None:
    root = write(tmp_path / "docs", {"a.jsonl": "\n".join([LINES[0], "{", LINES[1], "[]"])})
    report = ingest_path(store, root)
    assert [p.split(":")[:2] for p in report.problems] == [["a.jsonl", " line 2"], ["a.jsonl", " line 4"]]
    assert rows(store) == []


def test_a_name_that_is_not_utf_8_is_reported_and_the_rest_goes_on(store: View, folder: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/a\xf1o.md")).write_text("Hola.")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    report = ingest_path(store, folder)
    assert (report.count("failed"), report.count("ingested")) == (1, 2)
    assert "surrogate" in report.problems[0]


def test_a_path_that_is_not_there_is_an_error(store: View, tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="no such file or folder"):
        ingest_path(store, tmp_path / "nada")
    with pytest.raises(IngestError, match=r"nada\.md: no such file"):
        ingest_file(store, tmp_path / "nada.md")


# --- an embedder that fails ---------------------------------------------------------------------


def test_a_model_that_dies_midway_stops_the_run_and_leaves_whole_files(
    tmp_path: Path, folder: Path
) -> None:
    embedder = FailingEmbedder()
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=embedder))
    ingest_path(view, folder)
    old = rows(view, "iva/tipos.md")
    write(folder, {"a.md": "Un texto nuevo.\n", "iva/tipos.md": TIPOS.replace("por ciento", "%")})
    embedder.after = len(embedder.documents) + 2  # a.md, and one of two changed articles
    with pytest.raises(EmbeddingError, match="the model is gone"):
        ingest_path(view, folder)
    assert "Un texto nuevo." in texts(view, "a.md")
    assert rows(view, "iva/tipos.md") == old
    assert "21 por ciento" in found(view, "tipo general")[0]
    embedder.after = 10**6
    report = by_path(ingest_path(view, folder))
    assert (report["a.md"].status, report["iva/tipos.md"].status) == ("unchanged", "ingested")
    assert "21 %" in texts(view, "iva/tipos.md")
    view.close()


def test_a_text_too_long_for_the_model_is_its_files_fault_alone(tmp_path: Path, folder: Path) -> None:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=FailingEmbedder(too_long="general")))
    report = ingest_path(view, folder)
    assert [f.status for f in report.files] == ["failed", "ingested"]
    assert report.problems == ["iva/tipos.md: a chunk has 900 tokens"]
    assert {row["doc_id"] for row in rows(view)} == {"plazos.md"}
    view.close()


# --- doc_ids that meet --------------------------------------------------------------------------


def test_two_files_of_a_folder_cannot_give_the_same_document(store: View, tmp_path: Path) -> None:
    line = {"doc_id": "ley", "text": "Uno."}
    root = write(
        tmp_path / "docs",
        {"a.jsonl": json.dumps(line), "b.jsonl": json.dumps({**line, "text": "Dos."})},
    )
    for status in ("ingested", "unchanged"):
        report = ingest_path(store, root)
        assert [f.status for f in report.files] == [status, "failed"]
        assert report.problems == ["b.jsonl: doc_id 'ley' was given by a.jsonl already"]
        assert texts(store) == "Uno."


def test_a_document_may_move_from_one_file_to_another(store: View, tmp_path: Path) -> None:
    first, second = (json.dumps({"doc_id": d, "text": f"Texto {d}."}) for d in "xy")
    root = write(tmp_path / "docs", {"a.jsonl": f"{first}\n{second}", "b.md": PLAZOS})
    ingest_path(store, root)
    write(root, {"a.jsonl": second, "c.jsonl": first})
    report = ingest_path(store, root)
    assert not report.problems
    assert {row["doc_id"] for row in rows(store)} == {"x", "y", "b.md"}
    assert ingest_path(store, root).count("unchanged") == 3


def test_the_same_path_under_two_roots_is_one_document_whose_last_ingest_counts(
    store: View, tmp_path: Path
) -> None:
    one = write(tmp_path / "one", {"ley.md": "# Ley\n\nTexto uno.\n"})
    two = write(tmp_path / "two", {"ley.md": "# Ley\n\nTexto dos.\n"})
    ingest_path(store, one)
    assert ingest_path(store, two).total("removed") == 1
    assert "uno" not in texts(store)
    assert "dos" in texts(store)
    assert ingest_path(store, one).count("ingested") == 1


# --- private uploads ----------------------------------------------------------------------------


def test_a_bound_view_uploads_for_its_session_alone(store: View, folder: Path) -> None:
    mine, other = store.for_session("A"), store.for_session("B")
    assert ingest_path(mine, folder).count("ingested") == 2
    assert {row["session_id"] for row in rows(mine)} == {"A"}
    assert rows(store) == rows(other) == []
    # The same folder in another scope is another matter: no session learns that A has it.
    assert ingest_path(other, folder).count("ingested") == 2
    assert ingest_path(store, folder).count("ingested") == 2
    assert ingest_path(mine, folder).count("unchanged") == 2
    assert {row["source_scope"] for row in rows(store)} == {"public"}


def test_a_view_that_writes_no_session_uploads_nothing(store: View, folder: Path) -> None:
    with pytest.raises(AccessDeniedError):
        ingest_path(store.for_access(Access(read=frozenset({"A"}))), folder)
    assert store.list_sessions() == []


def now(seconds: float = 0.0) -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds)


def test_an_expired_upload_is_never_returned_and_can_be_uploaded_again(
    store: View, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = store.for_session("A")
    options = IngestOptions(expires_at=now(600))
    ingest_path(mine, folder, options)
    assert "21" in found(mine, "tipo general")[0]
    assert ingest_path(mine, folder, options).count("unchanged") == 2
    later = time.time() + 601
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: later)
        assert found(mine, "tipo general") == rows(mine) == mine.list_documents() == []
        assert store.list_sessions() == []
        again = ingest_path(mine, folder, replace(options, expires_at=now(1200)))
        assert (again.count("ingested"), again.total("embedded")) == (2, again.total("chunks"))
        assert "21" in found(mine, "tipo general")[0]


def test_an_upload_whose_time_changes_keeps_its_vectors(
    store: View, folder: Path, embedder: HashEmbedder
) -> None:
    mine = store.for_session("A")
    ingest_path(mine, folder, IngestOptions(expires_at=now(600)))
    embedded = len(embedder.documents)
    report = ingest_path(mine, folder)
    assert (report.count("ingested"), report.total("embedded")) == (2, 0)
    assert {d.expires_at for d in mine.list_documents()} == {None}
    assert len(embedder.documents) == embedded


def test_public_chunks_never_expire(store: View, folder: Path) -> None:
    with pytest.raises(SettingsError, match="for_session"):
        ingest_path(store, folder, IngestOptions(expires_at=now(60)))
    with pytest.raises(SettingsError, match="for_session"):
        ingest_file(store, folder / "plazos.md", IngestOptions(expires_at=now(60)))
    assert rows(store) == []


def test_erasing_a_session_erases_what_was_known_of_its_files(
    store: View, folder: Path, tmp_path: Path
) -> None:
    write(folder, {"secreto-de-ana.md": "Nota.\n"})
    for session in ("A", "B"):
        ingest_path(store.for_session(session), folder)
    assert store.delete_session("A") == len(rows(store.for_session("B")))

    def remembered() -> list[tuple[str, str]]:
        with sqlite3.connect(tmp_path / "db" / "fiscal.sqlite3") as connection:
            found = connection.execute("SELECT session_id, path FROM files ORDER BY 1, 2").fetchall()
        connection.close()
        return found

    assert {session for session, _ in remembered()} == {"B"}
    store.delete_session("B")
    assert remembered() == []
    store.close()
    left = [p for p in (tmp_path / "db").rglob("*") if p.is_file() and b"secreto-de-ana" in p.read_bytes()]
    assert left == []


UPLOADER = """
import sys
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.ingest.run import ingest_path
from fiscal_rag_plugin.view import View
from tests.embedders import HashEmbedder

_, directory, folder, session = sys.argv
store = View(Corpus.open(directory, "fiscal", embedder=HashEmbedder(64), lock_timeout=0.0))
mine = store.for_session(session)
input()  # until both are here
for _ in range(3):
    print(*(f.status for f in ingest_path(mine, folder).files), sep=",")
store.close()
"""


def test_two_processes_upload_at_once_while_a_third_is_the_public_writer(
    store: View, folder: Path, tmp_path: Path
) -> None:
    ingest_path(store, folder)  # this process is the writer until it closes
    uploads = {
        session: subprocess.Popen(
            [sys.executable, "-c", UPLOADER, str(tmp_path / "db"), str(folder), session],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
        )
        for session in ("A", "B")
    }  # fmt: skip
    write(folder, {"plazos.md": PLAZOS.replace("veinte", "treinta")})
    for upload in uploads.values():
        assert upload.stdin is not None
        upload.stdin.write("\n")
        upload.stdin.flush()
    assert by_path(ingest_path(store, folder))["plazos.md"].status == "ingested"
    for session, upload in uploads.items():
        printed, error = upload.communicate(timeout=120)
        assert upload.returncode == 0, error
        assert printed.split() == ["ingested,ingested", *["unchanged,unchanged"] * 2]
        private = [row for row in rows(store.for_session(session)) if row["source_scope"] == "private"]
        assert {row["session_id"] for row in private} == {session}
        assert len(private) == len(rows(store))
    assert "treinta" in texts(store, "plazos.md")
    assert store.check() == []


# --- one file -----------------------------------------------------------------------------------


def test_one_file_returns_what_was_stored(store: View, folder: Path) -> None:
    mine = store.for_session("A")
    report = ingest_file(mine, folder / "iva" / "tipos.md", name="subida/mi ley.md")
    assert (report.path, report.doc_ids) == ("subida/mi ley.md", ("subida/mi ley.md",))
    assert report.ids
    assert sorted(report.ids) == sorted(row["id"] for row in rows(mine))
    assert [r.text for r in mine.get(report.ids)]
    again = ingest_file(mine, folder / "iva" / "tipos.md", name="subida/mi ley.md")
    assert (again.status, again.embedded, again.ids) == ("unchanged", 0, report.ids)
    assert ingest_file(mine, folder / "plazos.md").doc_ids == ("plazos.md",)


def test_one_file_that_cannot_be_read_is_raised_and_leaves_the_old_version(
    store: View, folder: Path
) -> None:
    ingest_file(store, folder / "plazos.md")
    before = rows(store)
    write(folder, {"plazos.md": ""})
    with pytest.raises(IngestError, match=r"^plazos\.md: the file is empty"):
        ingest_file(store, folder / "plazos.md")
    with pytest.raises(IngestError, match=r"^otro\.md: the file is empty"):
        ingest_file(store, folder / "plazos.md", name="otro.md")
    assert rows(store) == before


def test_one_jsonl_upload_returns_the_ids_of_all_its_documents(store: View, tmp_path: Path) -> None:
    root = write(tmp_path / "docs", {"a.jsonl": "\n".join(LINES)})
    report = ingest_file(store, root / "a.jsonl")
    assert len(report.ids) == len(report.doc_ids) == len(LINES)


# --- progress -----------------------------------------------------------------------------------


def test_progress_only_grows_and_ends_at_the_total(tmp_path: Path, folder: Path) -> None:
    view = View(Corpus.open(str(tmp_path / "db"), "fiscal", embedder=FailingEmbedder()))
    write(folder, {"b.md": "", "c.md": "# C\n\n" + "\n\n".join(f"## S{i}\n\nTexto {i}." for i in range(9))})
    for expected in (True, False):
        told: list[Progress] = []
        report = ingest_path(view, folder, on_progress=told.append)
        numbers = [(p.done_bytes, p.embedded) for p in told]
        assert numbers == sorted(numbers)
        assert [p.embedded for p in told] == sorted(p.embedded for p in told)
        assert {p.total_bytes for p in told} == {sum(p.stat().st_size for p in folder.rglob("*.md"))}
        assert (told[0].done_bytes, told[-1].done_bytes) == (0, told[-1].total_bytes)
        assert told[-1].embedded == report.total("embedded")
        assert bool(report.total("embedded")) is expected
        assert [f.path for f in report.files] == list(dict.fromkeys(p.path for p in told))
    view.close()


def test_progress_of_one_file_ends_at_its_size(store: View, folder: Path) -> None:
    told: list[Progress] = []
    ingest_file(store, folder / "plazos.md", name="x.md", on_progress=told.append)
    assert told[-1] == Progress("x.md", len(PLAZOS.encode()), len(PLAZOS.encode()), 1)
