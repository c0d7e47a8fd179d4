"""Ingest: files to sources, sections and chunks. Nothing here embeds or stores."""

from .files import SUPPORTED_SUFFIXES, iter_source_files
from .read import read_source_file
from .source import ReadResult, Section, Source

__all__ = [
    "SUPPORTED_SUFFIXES",
    "ReadResult",
    "Section",
    "Source",
    "iter_source_files",
    "read_source_file",
]
