"""LlamaIndex components over the store."""
