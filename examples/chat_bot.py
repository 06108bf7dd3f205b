"""A chat bot that remembers: `python examples/chat_bot.py`, then talk; an empty line ends it.

    pip install ./models/minilm '.[local]'          # and `openai`, for a real model

Each run is a conversation of its own. What was said in one is known in the next: it is kept in
`examples/chat_bot.db`, or where `ORBITER_MEMORY_URL` says. With `OPENAI_API_KEY` it asks a real
model, at `OPENAI_BASE_URL` if that is set (any server that speaks OpenAI's API: Ollama, vLLM,
OpenRouter); without, a script answers.
"""

import os
import sys
import uuid
from pathlib import Path
from typing import Any

from orbiter.memory import sync

HAS_MODEL = "OPENAI_API_KEY" in os.environ
if HAS_MODEL:
    try:
        from openai import OpenAI
    except ModuleNotFoundError:
        sys.exit("With `OPENAI_API_KEY`, this needs: pip install openai")


def ask_model(chat: sync.Chat) -> str:
    model = os.environ.get("MODEL", "gpt-5-mini")
    call: Any = OpenAI().chat.completions.create  # the key and the URL are in the environment
    messages = list(chat.context(budget=4000).messages())
    return str(call(model=model, messages=messages).choices[0].message.content)


def ask_script(ann: sync.ScopedMemory, text: str) -> str:
    if "?" not in text:
        return "I will remember that."
    for hit in ann.recall(text, memory_type="human", min_relevance=0.05):
        if "?" not in hit.item.content:
            return f"You told me: {hit.item.content}"
    return "You have not told me yet."


def next_line() -> str:
    try:
        return input("> ").strip()
    except EOFError:  # Ctrl-D
        print()
        return ""


def main() -> None:
    file = Path(__file__).with_suffix(".db")
    with sync.AgentMemory(os.environ.get("ORBITER_MEMORY_URL", file)) as memory:
        ann = memory.scope(user_id="ann")
        chat = ann.chat(uuid.uuid4().hex)
        while text := next_line():
            chat.add(text)
            reply = ask_model(chat) if HAS_MODEL else ask_script(ann, text)
            chat.add({"role": "assistant", "content": reply})
            print(reply)


if __name__ == "__main__":
    main()
