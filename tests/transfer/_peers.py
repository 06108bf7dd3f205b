"""Makes files with the libraries themselves: `python _peers.py FOLDER`. None of them calls out."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any


def langgraph(folder: Path) -> None:
    from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415 - slow, and each needs its settings first

    with SqliteStore.from_conn_string(str(folder / "langgraph.db")) as store:
        store.setup()
        store.put(("memories", "alice"), "tea", {"text": "Alice likes oolong"})
        store.put(("memories", "alice"), "tea", {"text": "Alice likes green tea"})
        langmem = {"kind": "Memory", "content": {"content": "Alice is a vegan"}}
        store.put(("memories", "alice", "diet"), "vegan", langmem)
        store.put(("memories", "alice"), "code", {"door": 4711, "tags": ["home"]})
        store.put(("memories", "alice"), "soon", {"text": "Gone in a year"}, ttl=60 * 24 * 365)
        store.put(("memories", "bob"), "secret", {"text": "Bob has a canary"})


async def _sessions(folder: Path) -> None:
    from agents import SQLiteSession  # noqa: PLC0415 - slow, and each needs its settings first

    first = SQLiteSession("holiday", folder / "agents.db")
    turn: list[Any] = [
        {"role": "user", "content": "What is the weather in Rome and Oslo?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"at":"Rome"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"at":"Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": "snow"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sunny, and snow.", "annotations": []}],
        },
        {"role": "user", "content": "Then Rome it is."},
    ]
    await first.add_items(turn)
    second = SQLiteSession("work", folder / "agents.db")
    await second.add_items([{"role": "user", "content": "Draft the report"}])
    first.close()
    second.close()


def mem0(folder: Path) -> None:
    os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none", "MEM0_DIR": str(folder)}
    from mem0 import Memory  # noqa: PLC0415 - slow, and each needs its settings first
    from mem0.embeddings.mock import MockEmbeddings  # noqa: PLC0415

    place = {"path": str(folder / "qdrant"), "embedding_model_dims": 10, "collection_name": "made"}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": place},
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = MockEmbeddings()
    about = {"topic": "tea", "nested": {"a": [1, 2.5, None]}}
    memory.add("Alice likes green tea", user_id="alice", infer=False, metadata=about)
    memory.add("Alice flies on Monday", user_id="alice", run_id="trip", infer=False)
    memory.add("Bob has a canary", user_id="bob", infer=False)
    ours = memory.get_all(filters={"user_id": "alice"})
    both = {"results": [*ours["results"], *memory.get_all(filters={"user_id": "bob"})["results"]]}
    (folder / "mem0.json").write_text(json.dumps(both, default=str), encoding="utf-8")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    langgraph(where)
    asyncio.run(_sessions(where))
    mem0(where)
