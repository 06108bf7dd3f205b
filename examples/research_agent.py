"""An agent that reads files: `python examples/research_agent.py FOLDER "a question"`.

    pip install ./models/minilm '.[local]'          # and `openai`, for a real model

It has tools of its own, for the files of a folder, beside those of its memory: what it found in one
run, it recalls in the next instead of reading again. It remembers in `examples/research_agent.db`,
or where `ORBITER_MEMORY_URL` says. With `OPENAI_API_KEY` it asks a real model, at `OPENAI_BASE_URL`
if that is set; without, a script decides.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from orbiter.memory import sync
from orbiter.memory.integrations.tools import memory_tools

HAS_MODEL = "OPENAI_API_KEY" in os.environ
if HAS_MODEL:
    try:
        from openai import OpenAI
    except ModuleNotFoundError:
        sys.exit("With `OPENAI_API_KEY`, this needs: pip install openai")

PROMPT = """Answer the question from the files. Call `recall` first: you may have found it before.
Else list and read files, and `remember` each finding with the name of its file."""


FILE_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "list_files", "description": "Return the names of all files."},
    },
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Return the text of a file.",
            "parameters": {
                "type": "object",
                "properties": {"file": {"type": "string"}},
                "required": ["file"],
            },
        },
    },
]


def call_file_tool(folder: Path, name: str, arguments: str) -> str:
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    if name == "list_files":
        return "\n".join(files)
    wanted = json.loads(arguments).get("file")
    return (
        files[wanted].read_text(errors="replace")
        if wanted in files
        else f"Error: there is no file `{wanted}`."
    )


def ask_model(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    model = os.environ.get("MODEL", "gpt-5-mini")
    create: Any = OpenAI().chat.completions.create
    message = create(model=model, messages=messages, tools=tools).choices[0].message
    return dict(message.model_dump(exclude_none=True))


def ask_script(messages: list[dict[str, Any]], _: list[dict[str, Any]]) -> dict[str, Any]:
    """Recall; if nothing is found, read each file, and remember the line that fits best."""
    question = next(each["content"] for each in messages if each["role"] == "user")
    results = [each["content"] for each in messages if each["role"] == "tool"]
    if not results:
        return tool_calls(("recall", {"query": question}))
    # Each line of memory is fenced: `[time | source | trust: …] text`.
    known = [line.partition("] ")[2] for line in results[0].splitlines() if line.startswith("[")]
    if known and shared_words(question, known[0]) > 1:
        return {"role": "assistant", "content": f"I remember: {known[0]}"}
    if len(results) == 1:
        return tool_calls(("list_files", {}))
    names = results[1].split("\n")
    if len(results) == 2:
        return tool_calls(*(("read_file", {"file": name}) for name in names))
    lines = [
        (line, name)
        for name, text in zip(names, results[2:], strict=False)
        for line in text.splitlines()
    ]
    line, name = max(lines, key=lambda pair: shared_words(question, pair[0]))
    if len(results) == 2 + len(names):
        return tool_calls(("remember", {"text": f"{line} (found in {name})"}))
    return {"role": "assistant", "content": f"I found in {name}: {line}"}


def shared_words(question: str, line: str) -> int:
    return len(set(question.lower().strip("?").split()) & set(line.lower().split()))


def tool_calls(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {
            "id": f"call-{os.urandom(6).hex()}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def main() -> None:
    if len(sys.argv) < 3 or not Path(sys.argv[1]).is_dir():
        sys.exit('usage: python examples/research_agent.py FOLDER "a question"')
    folder, question = Path(sys.argv[1]), " ".join(sys.argv[2:])
    ask = ask_model if HAS_MODEL else ask_script
    file = Path(__file__).with_suffix(".db")
    with sync.AgentMemory(os.environ.get("ORBITER_MEMORY_URL", file)) as memory:
        tools = memory_tools(memory.scope(user_id="ann", agent_id="researcher"))
        names = [function.__name__ for function in tools]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": question},
        ]
        while True:
            message = ask(messages, [*tools.openai(), *FILE_TOOLS])
            messages.append(message)
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                print("-", name, arguments)
                result = (
                    tools.call(name, arguments)
                    if name in names
                    else call_file_tool(folder, name, arguments)
                )
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        print(messages[-1]["content"])


if __name__ == "__main__":
    main()
