"""The same vectors in other libraries; each finds the ten nearest and returns their texts.

They need `pip install chromadb lancedb langgraph`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import chromadb
import lancedb
from chromadb.config import Settings
from langgraph.store.memory import InMemoryStore

from orbiter.memory.model.protocols import Embeddings

Vectors = dict[str, Any]
Search = Callable[[str], Sequence[str]]


class Lookup(Embeddings):
    """Vectors made beforehand, so that only the search is measured."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    @property
    def dimension(self) -> int:
        return len(next(iter(self.vectors.values())))

    def embed(self, text: str) -> list[float]:
        made: list[float] = self.vectors[text]
        return made

    async def aembed(self, text: str) -> list[float]:
        return self.embed(text)


def in_chroma(texts: Sequence[str], vectors: Vectors) -> Search:
    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    found: Any = client.create_collection(
        "memories", embedding_function=None, metadata={"hnsw:space": "cosine"}
    )
    for start in range(0, len(texts), 5_000):
        some = list(texts[start : start + 5_000])
        made = [vectors[text] for text in some]
        found.add(ids=some, documents=some, embeddings=made)

    def search(query: str) -> Sequence[str]:
        answer = found.query(query_embeddings=[vectors[query]], n_results=10, include=["documents"])
        return list(answer["documents"][0])

    return search


def in_lancedb(texts: Sequence[str], vectors: Vectors, where: str) -> Search:
    rows = [{"text": text, "vector": vectors[text]} for text in texts]
    table = lancedb.connect(where).create_table("memories", rows)

    def search(query: str) -> Sequence[str]:
        asked = (
            table.search(vectors[query])
            .distance_type("cosine")
            .select(["text", "_distance"])
            .limit(10)
        )
        return [row["text"] for row in asked.to_list()]

    return search


def in_langgraph(texts: Sequence[str], vectors: Vectors) -> Search:
    dimension = len(next(iter(vectors.values())))

    def embed(some: Sequence[str]) -> list[list[float]]:
        return [vectors[text] for text in some]

    store = InMemoryStore(index={"dims": dimension, "embed": embed, "fields": ["text"]})
    for number, text in enumerate(texts):
        store.put(("ann",), str(number), {"text": text})

    def search(query: str) -> Sequence[str]:
        return [each.value["text"] for each in store.search(("ann",), query=query, limit=10)]

    return search


def in_python(texts: Sequence[str], vectors: Vectors) -> Search:
    lengths = {text: math.hypot(*vectors[text]) for text in texts}

    def search(query: str) -> Sequence[str]:
        towards = vectors[query]

        def cosine(text: str) -> float:
            return sum(map(float.__mul__, vectors[text], towards)) / lengths[text]

        return sorted(texts, key=cosine, reverse=True)[:10]

    return search
