"""Writes docs/tutorial.ipynb, and runs it: `python docs/build_tutorial.py`.

A test keeps it current. The cells stand here, so that they can be read and checked like other code.
Each is run as a notebook would run it, and what it prints is kept as its output. The tables that
some of them end with are not: they hold ids and times.
"""

import ast
import io
import json
import os
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")

CELLS = (
    """\
# A memory in a notebook

`orbiter.memory.sync` has the same names as `orbiter.memory`, without `await`. No key, no server:
everything is in one file.""",
    """\
from orbiter.memory.sync import AgentMemory

memory = AgentMemory("tutorial.db")
me = memory.default_user
me.remember("My daughter Mia is allergic to peanuts", tags=["family", "health"])
me.remember("We moved to Oslo in May", importance=0.8)
me.remember("I love hiking in the mountains")
memory.flush()""",
    """\
The default user is that of a program for one person. `recall` returns hits, each with the reasons
why; in a notebook, the result is shown as a table.""",
    """\
hits = me.recall("What should the kids not eat?", k=1)
print(hits[0].item.content)
hits""",
    "Named users are apart from each other, and from the default user.",
    """\
alice = memory.scope("alice")
alice.remember("I only drink green tea")
print([item.content for item in alice.list()])
print(me.recall("tea", mode="words"))""",
    "Rows for other tools: `to_dicts()`, and `to_pandas()` if pandas is installed.",
    """\
items = me.list()
for row in items.to_dicts():
    print(row["content"], row["extra"])
items""",
    "A hit can be changed and forgotten as it is.",
    """\
(hit,) = me.recall("Oslo", mode="words")
print(me.update(hit, "We moved to Bergen in May").content)
print(me.forget(hit))""",
    """\
A chat keeps messages. Its context is what a model should see, within a budget; in a notebook it is
shown as a bar of tokens and a table of its sections.""",
    """\
chat = alice.chat("dinner")
chat.add("What shall we drink tonight?")
context = chat.context(budget=500)
print(list(context.parts), context.tokens <= 500)
context""",
    "Facts have dates, and what held before stays known.",
    """\
alice.facts.put("home_city", "Oslo", valid_from="2020-01-01")
alice.facts.put("home_city", "Bergen", valid_from="2026-05-01")
print(alice.facts.get("home_city").value)
print(alice.facts.get("home_city", as_of="2024-01-01").value, "before")""",
    "What takes long takes `progress=`, and `ProgressBar` draws it.",
    """\
from pathlib import Path

from orbiter.memory import ProgressBar
from orbiter.memory.sync import export_file

Path("alice.jsonl").unlink(missing_ok=True)  # of an earlier run: a file is never overwritten
print(export_file(alice, "alice.jsonl", progress=ProgressBar("export")).records, "memories written")
memory.close()""",
)
"""Texts and code in turn, beginning with a text."""


def run(cells: tuple[str, ...], names: dict[str, Any] | None = None) -> list[str]:
    """Return what each of the code cells prints, run in order in a folder of their own.

    With *names*, what they define is there afterwards.
    """
    names = {} if names is None else names
    outputs = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for code in cells:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(ast.parse(code), "<cell>", "exec"), names)  # noqa: S102 - ours
            outputs.append(printed.getvalue())
    return outputs


def notebook() -> str:
    """Return the text of the notebook, with the outputs of its cells."""
    outputs = run(CELLS[1::2])
    made: list[dict[str, Any]] = []
    for index, source in enumerate(CELLS):
        cell: dict[str, Any] = {"id": f"cell-{index}", "metadata": {}, "source": source}
        if index % 2 == 0:
            made.append({"cell_type": "markdown", **cell})
            continue
        text = outputs[index // 2]
        stream = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        made.append(
            {"cell_type": "code", **cell, "execution_count": index // 2 + 1, "outputs": stream}
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    os.environ.pop("ORBITER_MEMORY_URL", None)
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
