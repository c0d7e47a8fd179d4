"""Which collection holds which record type: the same name in every process, and one name a type."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Z0-9]+(?:[_-][A-Z0-9]+)*")
_DIGESTED = re.compile(r"[A-Z0-9_]+\.[0-9a-f]{12}")
_MAX_SLUG = 60


def collection_name_for_doc_type(doc_type: str, prefix: str = "processed") -> str:
    """``processed_CR`` for CR. ``doc_type`` is as ``record_type`` gives it.

    A type that Chroma's names cannot spell gets a digest behind a dot, which no plain type has:
    "A/B" and "A_B" are two collections.
    """
    if len(doc_type) <= _MAX_SLUG and _PLAIN.fullmatch(doc_type):
        return f"{prefix}_{doc_type}"
    slug = re.sub(r"[^A-Z0-9]+", "_", doc_type)[:_MAX_SLUG].strip("_") or "X"
    digest = hashlib.sha256(doc_type.encode("utf-8")).hexdigest()[:12]
    return f"{prefix}_{slug}.{digest}"


def is_default_name(name: str, prefix: str = "processed") -> bool:
    """Whether ``collection_name_for_doc_type`` gives this name to some type."""
    slug = name.removeprefix(f"{prefix}_")
    if slug == name:
        return False
    return _DIGESTED.fullmatch(slug) is not None or collection_name_for_doc_type(slug, prefix) == name
