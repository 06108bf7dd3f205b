"""An agent of LangGraph that remembers: `python examples/langgraph_agent.py "a question"`.

Each run is a thread of its own. What was said in one is known in the next, as both are of one user.
With `OPENAI_API_KEY` and langchain-openai it asks a real model; without, a script answers.
"""

import os
import sys
import uuid
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, SimpleChatModel
from langchain_core.messages import BaseMessage

from orbiter.memory import sync
from orbiter.memory.integrations.langchain import OrbiterMiddleware
from orbiter.memory.integrations.langgraph import OrbiterSaver


class Script(SimpleChatModel):
    """Answers a question with what the agent remembers, and anything else with a promise."""

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        if not messages[-1].text.endswith("?"):
            return "I will remember that."
        return f"I was sent:\n{messages[0].text}"

    @property
    def _llm_type(self) -> str:
        return "script"


def main() -> None:
    model: BaseChatModel = Script()
    if "OPENAI_API_KEY" in os.environ:
        model = init_chat_model(os.environ.get("MODEL", "openai:gpt-5-mini"))
    with sync.AgentMemory(os.environ.get("ORBITER_MEMORY_URL", "agent.db")) as memory:
        ann = memory.scope(user_id="ann")
        agent: Any = create_agent(
            model, [], middleware=[OrbiterMiddleware(ann)], checkpointer=OrbiterSaver(ann)
        )
        thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
        state = agent.invoke({"messages": [("user", " ".join(sys.argv[1:]))]}, thread)
        print(state["messages"][-1].text)


if __name__ == "__main__":
    main()
