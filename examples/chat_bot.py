"""A chat bot that remembers: `python examples/chat_bot.py`, then talk; an empty line ends it.

Each run is a conversation of its own. What was said in one is known in the next. With
`OPENAI_API_KEY` it asks a real model, at `OPENAI_BASE_URL` if that is set (any server that speaks
OpenAI's API: Ollama, vLLM, OpenRouter); without, a script answers.
"""

import os
import uuid
from typing import Any

from openai import OpenAI

from orbiter.memory import sync


def ask_model(messages: list[dict[str, Any]]) -> str:
    model = os.environ.get("MODEL", "gpt-5-mini")
    call: Any = OpenAI().chat.completions.create  # the key and the URL are in the environment
    return str(call(model=model, messages=messages).choices[0].message.content)


def ask_script(messages: list[dict[str, Any]]) -> str:
    if "?" not in messages[-1]["content"]:
        return "I will remember that."
    return "\n".join(["I was sent:", *(str(each["content"]) for each in messages)])


def main() -> None:
    answer = ask_model if "OPENAI_API_KEY" in os.environ else ask_script
    with sync.AgentMemory(os.environ.get("ORBITER_MEMORY_URL", "agent.db")) as memory:
        ann = memory.scope(user_id="ann")
        chat = ann.chat(uuid.uuid4().hex)
        while text := input("> ").strip():
            chat.add(text)
            context = chat.context(budget=4000)
            reply = answer(list(context.messages()))
            chat.add({"role": "assistant", "content": reply})
            print(reply)


if __name__ == "__main__":
    main()
