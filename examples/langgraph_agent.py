"""An agent of LangGraph that remembers: `python examples/langgraph_agent.py "a question"`.

    pip install ./models/minilm '.[local,langchain]'          # and `langchain-openai`, for a model

Each run is a thread of its own. What was said in one is known in the next, as both are of one user:
it is kept in `examples/langgraph_agent.db`, or where `ORBITER_MEMORY_URL` says. With
`OPENAI_API_KEY` it asks a real model; without, a script answers.
"""

import os
import sys
import uuid
from pathlib import Path
from typing import Any

from orbiter.memory import sync

try:
    from langchain.agents import create_agent
    from langchain.chat_models import init_chat_model
    from langchain_core.language_models import BaseChatModel, SimpleChatModel
    from langchain_core.messages import BaseMessage

    from orbiter.memory.integrations.langchain import OrbiterMiddleware
    from orbiter.memory.integrations.langgraph import OrbiterSaver
except ModuleNotFoundError as exc:
    sys.exit(f"`{exc.name}` is missing: pip install langchain")


class Script(SimpleChatModel):
    """Answers a question with what the user said before, and anything else with a promise."""

    user: Any

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        question = messages[-1].text
        if "?" not in question:
            return "I will remember that."
        for hit in self.user.recall(question, memory_type="human", min_relevance=0.05):
            if "?" not in hit.item.content:
                return f"You told me: {hit.item.content}"
        return "You have not told me yet."

    @property
    def _llm_type(self) -> str:
        return "script"


def real_model() -> BaseChatModel:
    try:
        return init_chat_model(os.environ.get("MODEL", "openai:gpt-5-mini"))
    except ImportError as exc:
        sys.exit(str(exc))  # names the package


def main() -> None:
    if not (question := " ".join(sys.argv[1:])):
        sys.exit('usage: python examples/langgraph_agent.py "a question"')
    file = Path(__file__).with_suffix(".db")
    with sync.AgentMemory(os.environ.get("ORBITER_MEMORY_URL", file)) as memory:
        ann = memory.scope(user_id="ann")
        model: BaseChatModel = Script(user=ann)
        if "OPENAI_API_KEY" in os.environ:
            model = real_model()
        agent: Any = create_agent(
            model, [], middleware=[OrbiterMiddleware(ann)], checkpointer=OrbiterSaver(ann)
        )
        thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
        state = agent.invoke({"messages": [("user", question)]}, thread)
        print(state["messages"][-1].text)


if __name__ == "__main__":
    main()
