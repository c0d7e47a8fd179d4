"""Ingest: files to sources, sections and chunks. Nothing here embeds or stores."""

from .chunking import chunk_source
from .documents import LoadedDocument, chunks_from_documents
from .embedding_text import EMBEDDING_RECIPE, CountTokens, embedding_recipe
from .files import SUPPORTED_SUFFIXES, iter_source_files
from .read import read_source_file
from .source import ReadResult, Section, Source

__all__ = [
    "EMBEDDING_RECIPE",
    "SUPPORTED_SUFFIXES",
    "CountTokens",
    "LoadedDocument",
    "ReadResult",
    "Section",
    "Source",
    "chunk_source",
    "chunks_from_documents",
    "embedding_recipe",
    "iter_source_files",
    "read_source_file",
]
