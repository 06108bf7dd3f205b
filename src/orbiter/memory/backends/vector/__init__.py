"""`VectorMemoryStore`: items in this process, found by their vectors."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.vector.store import VectorMemoryStore
    from orbiter.memory.embeddings.openai import OpenAIEmbeddings
    from orbiter.memory.model.protocols import Embeddings

__all__ = ["Embeddings", "OpenAIEmbeddings", "VectorMemoryStore"]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "Embeddings": "orbiter.memory.model.protocols",
        "OpenAIEmbeddings": "orbiter.memory.embeddings.openai",
        "VectorMemoryStore": "store",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
