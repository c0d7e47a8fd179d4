"""The text that makes a chunk's vector: a heading line, then the chunk."""

from __future__ import annotations

from collections.abc import Callable

from .source import Section, Source

CountTokens = Callable[[str], int]

# Stored with an index, so that it can be embedded again the same way. Raise the version with
# any change of what the functions below return.
EMBEDDING_RECIPE: dict[str, str | int] = {"template": "{title}. {path} > {label}\n{text}", "version": 1}
PLAIN_RECIPE: dict[str, str | int] = {"template": "{text}", "version": 1}


def embedding_recipe(headings: bool = True) -> dict[str, str | int]:
    """The recipe as a new dict: with the heading line, or the bare text."""
    return dict(EMBEDDING_RECIPE if headings else PLAIN_RECIPE)


def embedding_text(header: str, text: str) -> str:
    return f"{header}\n{text}" if header else text


def heading_line(
    source: Source, section: Section, count_tokens: CountTokens | None = None, budget_tokens: int = 0
) -> str:
    """ "Document. TITLE > CHAPTER > Article 90. Its title" for a section; "" when nothing is known.

    With a counter the line takes at most half the budget: the document's title is cut to a
    quarter of it, then the titles furthest above are left out, then the document's, and at last
    the label. A regulation's title alone can have 150 tokens.
    """
    title = _document_title(source)
    label = ". ".join(part for part in (section.label, section.title) if part)
    path = section.path
    if path and path[0] == title:
        path = path[1:]
    names = [*path, label] if label else list(path)
    if count_tokens is None:
        return _line(title, names)
    if title:
        title = shorten(title, count_tokens, budget_tokens // 4)
    candidates = [_line(title, names[i:]) for i in range(max(len(names), 1))] + [_line("", names[-1:])]
    return next((c for c in candidates if count_tokens(c) <= budget_tokens // 2), "")


def _line(title: str, names: list[str]) -> str:
    below = " > ".join(names)
    if title and below:
        return f"{title.rstrip('.')}. {below}"
    return title or below


def _document_title(source: Source) -> str:
    title = source.extra.get("title")
    return " ".join(title.split()) if isinstance(title, str) else ""


def shorten(text: str, count_tokens: CountTokens, budget_tokens: int) -> str:
    """As many whole words from the start of ``text`` as the budget takes, then "…"; "" if none fits."""
    if count_tokens(text) <= budget_tokens:
        return text
    words = text.split()
    low, high = 0, len(words)
    while high - low > 1:
        middle = (low + high) // 2
        if count_tokens(" ".join(words[:middle]) + "…") <= budget_tokens:
            low = middle
        else:
            high = middle
    return " ".join(words[:low]) + "…" if low else ""
