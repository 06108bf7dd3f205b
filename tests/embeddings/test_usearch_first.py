"""usearch and ONNX Runtime in one process, in either order, each order in a child of its own.

A clash of the two ends the interpreter, so nothing here may load them into the tests' process.
"""

import subprocess
import sys

import pytest
from tests.rows import each_row

pytestmark = pytest.mark.slow

pytest.importorskip("usearch")

EMBED = """
from orbiter.memory.embeddings import LocalEmbeddings
print(len(LocalEmbeddings().embed("a red bicycle")))
"""
APPROXIMATE = """
import numpy as np
from orbiter.memory.backends.vector.approximate import Candidates
graph = Candidates(2, np.array([7, 8]), np.eye(2, dtype=np.float32))
print(sorted(graph.nearest(np.array([1, 0], dtype=np.float32), 1).tolist()))
"""
STORE = """
import asyncio
from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.embeddings import LocalEmbeddings
from orbiter.memory.recall import recall

async def main():
    ann = MemoryMetadata(user_id="ann")
    async with SQLiteMemoryStore(embeddings=LocalEmbeddings(), approximate_from=1) as store:
        await store.add(HumanMemory(content="She rides a bike to work.", metadata=ann))
        await store.add(HumanMemory(content="The oven is at 220 degrees.", metadata=ann))
        await store.catch_up()
        hits = await recall(store, "cycling", scope=ann)
        print(hits[0].item.content)

asyncio.run(main())
"""
SYNC = """
from orbiter.memory.sync import AgentMemory

with AgentMemory("memory://") as memory:
    ann = memory.scope(user_id="ann")
    ann.remember("She rides a bike to work.")
    print(ann.recall("cycling")[0].item.content)
"""
VECTORS = """
import asyncio
from orbiter.memory import HumanMemory
from orbiter.memory.backends.vector.store import VectorMemoryStore
from orbiter.memory.embeddings import LocalEmbeddings

async def main():
    store = VectorMemoryStore(LocalEmbeddings(), approximate_from=1)
    await store.add(HumanMemory(content="She rides a bike to work."))
    print((await store.search(query="cycling"))[0].content)

asyncio.run(main())
"""
BIKE = "She rides a bike to work."


@each_row(
    ("program", "printed"),
    [
        (EMBED + APPROXIMATE, ["384", "[7, 8]"]),
        (APPROXIMATE + EMBED, ["[7, 8]", "384"]),
        ("import usearch.index" + EMBED + APPROXIMATE, ["384", "[7, 8]"]),
        ("import onnxruntime, usearch.index" + APPROXIMATE + EMBED, ["[7, 8]", "384"]),
        (STORE, [BIKE]),
        ("import usearch.index" + STORE, [BIKE]),
        ("import onnxruntime" + STORE, [BIKE]),
        (SYNC + APPROXIMATE, [BIKE, "[7, 8]"]),
        (APPROXIMATE + SYNC, ["[7, 8]", BIKE]),
        ("import usearch.index" + SYNC, [BIKE]),
        (VECTORS, [BIKE]),
        ("import usearch.index" + VECTORS, [BIKE]),
    ],
    ids=[
        "model, graph",
        "graph, model",
        "usearch, model, graph",
        "onnxruntime, usearch, graph, model",
        "store",
        "usearch, store",
        "onnxruntime, store",
        "sync, graph",
        "graph, sync",
        "usearch, sync",
        "vector store",
        "usearch, vector store",
    ],
)
def test_usearch_and_onnxruntime_share_a_process_in_either_order(
    program: str, printed: list[str]
) -> None:
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        check=False,
        capture_output=True,
        text=True,
    )

    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == printed
