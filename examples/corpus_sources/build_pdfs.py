"""Build the PDFs of the sample corpus from their Markdown sources.

    pip install fpdf2 pyyaml
    python examples/corpus_sources/build_pdfs.py

Each Markdown file beside this script becomes ``examples/corpus/<tax>/<name>.pdf`` plus a
sidecar ``<name>.pdf.yaml`` holding its front matter; headings become the PDF's outline.
The creation date is fixed, so that the same sources always give the same bytes.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import yaml
from fpdf import FPDF

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "corpus"
CREATED = dt.datetime(2026, 11, 30, tzinfo=dt.timezone.utc)
TARGETS = {
    "iva-modificacion-base.md": "iva/modificacion-base.pdf",
    "irpf-escala-y-minimos.md": "irpf/escala-y-minimos.pdf",
    "lgt-prescripcion.md": "lgt/prescripcion.pdf",
}
INK, ACCENT, GREY = (33, 37, 41), (23, 62, 110), (110, 116, 122)


class Guide(FPDF):
    """A4 page with a running header and a page number in the footer."""

    def __init__(self, title: str) -> None:
        super().__init__(format="A4")
        self.guide_title = title
        self.alias_nb_pages()
        self.set_margins(28, 26, 28)
        self.set_auto_page_break(True, margin=28)
        self.set_title(title)
        self.set_lang("es-ES")
        self.set_creation_date(CREATED)
        self.set_producer("fpdf2")
        self.add_page()

    def header(self) -> None:
        if self.page_no() > 1:
            self.set_font("Helvetica", "I", 9)
            self.set_text_color(*GREY)
            self.cell(0, 5, self.guide_title, align="R")
            self.ln(10)

    def footer(self) -> None:
        self.set_y(-18)
        self.set_font("Helvetica", "", 9)
        self.set_text_color(*GREY)
        self.cell(0, 5, f"Página {self.page_no()} de {{nb}}", align="C")

    def block(
        self,
        text: str,
        size: float,
        style: str = "",
        gap: float = 3.0,
        indent: float = 0.0,
        colour: tuple[int, int, int] = INK,
    ) -> None:
        self.set_font("Helvetica", style, size)
        self.set_text_color(*colour)
        self.set_x(self.l_margin + indent)
        self.multi_cell(0, size * 0.52, text, align="L", new_x="LMARGIN", new_y="NEXT")
        self.ln(gap)


def read_source(path: Path) -> tuple[str, str]:
    """Split a source into its front matter and its body."""
    _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
    return front, body


def render(title: str, body: str) -> FPDF:
    """Lay out headings, paragraphs and bullet lists."""
    pdf = Guide(title)
    for part in body.strip().split("\n\n"):
        if part.startswith("## "):
            if pdf.get_y() > pdf.h - 60:
                pdf.add_page()
            pdf.ln(2.5)
            pdf.start_section(part[3:], level=1)
            pdf.block(part[3:], 13.5, "B", gap=2, colour=ACCENT)
        elif part.startswith("# "):
            pdf.start_section(part[2:], level=0)
            pdf.block(part[2:], 17, "B", gap=3, colour=ACCENT)
            pdf.set_draw_color(*ACCENT)
            pdf.line(pdf.l_margin, pdf.get_y(), pdf.w - pdf.r_margin, pdf.get_y())
            pdf.ln(5)
        elif part.startswith("- "):
            for item in part.split("\n"):
                pdf.block("- " + item[2:], 11.5, gap=1, indent=4)
            pdf.ln(2)
        else:
            pdf.block(" ".join(part.split("\n")), 11.5)
    return pdf


def main() -> None:
    for source, target in TARGETS.items():
        front, body = read_source(HERE / source)
        out = CORPUS / target
        render(yaml.safe_load(front)["title"], body).output(str(out))
        out.with_name(out.name + ".yaml").write_text(front, encoding="utf-8")


if __name__ == "__main__":
    main()
