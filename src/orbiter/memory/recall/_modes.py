"""Recall modes, and what a store must be able to do for each."""

from typing import Literal, get_args

from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.protocols import LexicalStore, MemoryStore, VectorStore

__all__ = ["RecallMode", "check_mode", "check_store", "no_meaning"]

RecallMode = Literal["hybrid", "words", "meaning", "recent"]
"""How to recall: by all there is, without a model, by vectors alone, or by time alone."""


def check_mode(mode: object) -> RecallMode:
    """Return *mode* if there is such a mode, else raise `QueryError`."""
    if mode in get_args(RecallMode):
        return mode  # type: ignore[return-value]  # narrowed by the line above
    raise QueryError(f"unknown mode {mode!r}; use `hybrid`, `words`, `meaning` or `recent`")


def check_store(store: MemoryStore, mode: RecallMode) -> None:
    """Raise `QueryError` or `UnsupportedError` if *store* cannot find in this way."""
    if not isinstance(store, LexicalStore | VectorStore):
        raise QueryError(
            f"a `{type(store).__name__}` can neither find by words nor by meaning; recall from a "
            "`SQLiteMemoryStore` or a `PostgresMemoryStore`, or from an `InMemoryIndex` of it"
        )
    if mode == "words" and not isinstance(store, LexicalStore):
        raise UnsupportedError(
            f"a `{type(store).__name__}` cannot find by words; use mode `meaning`, or a "
            "`SQLiteMemoryStore` or a `PostgresMemoryStore`"
        )
    if mode == "meaning" and (not isinstance(store, VectorStore) or store.embeddings is None):
        raise no_meaning(store)


def no_meaning(store: MemoryStore) -> UnsupportedError:
    """Return the error of a store without vectors that is asked for meaning."""
    return UnsupportedError(
        f"mode `meaning` needs a model, and this `{type(store).__name__}` has no `embeddings`; "
        "pip install 'orbiter-memory[local]' and give it `LocalEmbeddings()`, or use mode `words`"
    )
