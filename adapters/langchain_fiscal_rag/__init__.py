"""LangChain components over the same store."""
