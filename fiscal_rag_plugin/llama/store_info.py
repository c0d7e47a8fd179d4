"""What a language model is told of the metadata, so that it can write filters."""

from __future__ import annotations

from llama_index.core.vector_stores.types import MetadataInfo, VectorStoreInfo

# The access keys are left out on purpose: a filter on them can only narrow, and would confuse.
STORE_INFO = VectorStoreInfo(
    content_info="Passages of Spanish tax law, official guidance and the caller's own tax documents",
    metadata_info=[
        MetadataInfo(name=name, type=type_, description=description)
        for name, type_, description in (
            ("doc_id", "str", "identifier of the source document"),
            ("doc_type", "str", "kind of source, such as law, manual or invoice"),
            ("tax", "str", "tax the passage is about, such as IVA, IRPF, RETA, LGT, or GENERAL"),
            ("fiscal_year", "int", "year the passage applies to; 0 when it is not tied to one"),
            ("valid_from", "str", "first day in force, YYYY-MM-DD; empty when unknown"),
            ("valid_to", "str", "last day in force, YYYY-MM-DD; empty while in force"),
            ("section_label", "str", "article or section, such as 'Artículo 90'"),
            ("section_path", "str", "titles above the passage, joined by ' > '"),
            ("page", "int", "first page, counted from 1; 0 when unknown"),
            ("page_end", "int", "last page; 0 when unknown"),
            ("source_url", "str", "address of the source"),
            ("retrieved_at", "str", "when the source was retrieved"),
            ("chunk_index", "int", "position of the passage in its document"),
        )
    ],
)
