"""fiscal_rag_plugin: Spanish tax retrieval that never shows anybody what they may not see."""
