"""How much memory a large import takes: `python benchmarks/import_memory.py --megabytes 1024`.

Makes a ChatGPT export and a file of OpenAI's messages with one bad line in the middle, imports
each in a process of its own, and exits 1 if one took more than 300 MB, or lost a message.
"""

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from orbiter.memory import AgentMemory  # noqa: E402 - found by the line above
from orbiter.memory.transfer import import_file  # noqa: E402

MOST = 300
MB = 2**20
WORDS = Path(__file__).read_text().split()


def _said(dice: random.Random) -> str:
    # No word stands in two messages often enough to be worth nothing; sizes are as in real chats.
    size = dice.choice((200, 800, 2_000, 6_000, 12_000))
    text = " ".join(dice.choices(WORDS, k=size // 12))
    return f"{dice.getrandbits(64):x} {text} äöü 🍵"


def chatgpt(path: Path, size: int) -> int:
    """Write one array on one line."""
    dice, messages, number = random.Random(1), 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        while file.tell() < size:
            nodes: dict[str, object] = {}
            parent = None
            for turn in range(dice.choice((2, 10, 60))):
                content = {"content_type": "text", "parts": [_said(dice)]}
                role = "assistant" if turn % 2 else "user"
                message = {
                    "id": f"{number}-{turn}",
                    "author": {"role": role, "name": None, "metadata": {}},
                    "create_time": 1_700_000_000.5 + number * 100 + turn,
                    "content": content,
                    "metadata": {"model_slug": "gpt-4o"},
                    "weight": 1.0,
                }
                node: dict[str, object] = {"message": message, "parent": parent, "children": []}
                nodes[f"{number}-{turn}"] = node
                parent = f"{number}-{turn}"
                messages += 1
            record = {"id": f"c{number}", "title": "T", "mapping": nodes, "current_node": parent}
            file.write(("," if number else "") + json.dumps(record, ensure_ascii=False))
            number += 1
        file.write("]")
    return messages


def openai(path: Path, size: int) -> int:
    """Write a message to a line; one in the middle is none."""
    dice, lines, is_bad = random.Random(2), 0, False
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            role = "assistant" if lines % 2 else "user"
            file.write(json.dumps({"role": role, "content": _said(dice)}) + "\n")
            lines += 1
            if not is_bad and file.tell() > size // 2:
                file.write('{"role": "user", "content": "cut\n')
                is_bad = True
    return lines


async def _import(path: Path, database: Path) -> None:
    begin = time.perf_counter()
    async with AgentMemory(f"sqlite:///{database}", embeddings=None, summaries=None) as memory:
        report = await import_file(memory.scope(user_id="alice"), path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps([peak, time.perf_counter() - begin, report.stored, str(report)]))


def _measure(kind: str, megabytes: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="import-memory-") as folder:
        path = Path(folder, "conversations.json" if kind == "chatgpt" else "messages.jsonl")
        expected = {"chatgpt": chatgpt, "openai": openai}[kind](path, megabytes * MB)
        size = path.stat().st_size / MB
        run = [sys.executable, __file__, "--import", str(path)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        peak, seconds, stored, text = json.loads(done.stdout.splitlines()[-1])
    print(f"{kind}: {size:,.0f} MB, {stored:,} messages in {seconds:,.0f} s, peak {peak} MB")
    print(text)
    return bool(stored == expected and peak <= MOST)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--megabytes", type=int, default=1024)
    asked.add_argument("--kind", choices=("chatgpt", "openai", "both"), default="both")
    asked.add_argument("--import", dest="path", type=Path, help="used by itself")
    given = asked.parse_args()
    if given.path is not None:
        asyncio.run(_import(given.path, given.path.parent / "memories.db"))
        return
    kinds = ("chatgpt", "openai") if given.kind == "both" else (given.kind,)
    passed = [_measure(kind, given.megabytes) for kind in kinds]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
