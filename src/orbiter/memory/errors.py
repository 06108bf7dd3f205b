"""The one family of errors: each is a `MemoryError` and also the builtin a caller would catch.

    MemoryError                                    anything this library raises on purpose
    ├── ScopeError             (ValueError)        a scope name that does not exist
    ├── StatusError            (ValueError)        a status move that is not allowed
    ├── InvalidItemError       (ValueError)        an item no store may hold
    ├── ItemTypeError          (TypeError)         two classes claim one `memory_type`
    ├── QueryError             (ValueError)        a filter or limit that means nothing
    ├── EmptyFilterError       (ValueError)        a filter that would mean every user
    ├── EmbeddingsMismatchError (ValueError)       vectors are of another model
    ├── MessageError           (ValueError)        a provider message that cannot be read
    ├── FenceError             (ValueError)        a block of remembered text that is none
    ├── TransferError          (ValueError)        a file that cannot be read in, or written
    ├── SoulError              (ValueError)        a persona file that cannot be read
    ├── SoulNotFoundError      (FileNotFoundError) a persona file that is not there
    ├── ToolCallNotFoundError  (LookupError)       a response has no call of that name
    ├── ItemNotFoundError      (LookupError)       there is no such memory here
    ├── UnsupportedError       (RuntimeError)      this kind of store cannot do that
    ├── SummaryError           (RuntimeError)      a summarizer failed; nothing was lost
    ├── ExtractionError        (RuntimeError)      an extractor gave nothing that can be used
    ├── EmbeddingError         (RuntimeError)      a model gave no usable vector
    ├── RerankError            (RuntimeError)      a reranker gave no usable scores
    ├── NotInitializedError    (RuntimeError)      a store was used before `init()`
    ├── EventLoopError         (RuntimeError)      a memory is in use in another event loop
    ├── VersionConflict        (RuntimeError)      an item has moved on since it was read
    ├── AccessError            (PermissionError)   a database refuses: it is another user's
    ├── StorageError           (OSError)           a file or database cannot hold or give data
    ├── MemoryConnectionError  (ConnectionError)   a service cannot be reached or refuses
    └── MemoryTimeoutError     (TimeoutError)      a service did not answer in time

A field that is wrong when an item is *made* raises pydantic's `ValidationError`, itself a
`ValueError`, which names the field.
"""

from collections.abc import Sequence
from typing import Literal

__all__ = [
    "AccessError",
    "EmbeddingError",
    "EmbeddingsMismatchError",
    "EmptyFilterError",
    "EventLoopError",
    "ExtractionError",
    "FenceError",
    "InvalidItemError",
    "ItemNotFoundError",
    "ItemTypeError",
    "MemoryConnectionError",
    "MemoryError",
    "MemoryTimeoutError",
    "MessageError",
    "NotInitializedError",
    "QueryError",
    "RerankError",
    "ScopeError",
    "SoulError",
    "SoulNotFoundError",
    "StatusError",
    "StorageError",
    "SummaryError",
    "ToolCallNotFoundError",
    "TransferError",
    "UnsupportedError",
    "VersionConflict",
]


class MemoryError(Exception):
    """Base of every error this library raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Say how it is made again, in another process or as a copy: with the same words."""
        return _remade, (type(self), self.args), self.__dict__ or None


class ScopeError(MemoryError, ValueError):
    """A scope name is not one of `user`, `session`, `task`."""

    def __init__(self, scope: object) -> None:
        super().__init__(f"Invalid scope `{scope}`; use `user`, `session` or `task`")
        self.scope = scope


class StatusError(MemoryError, ValueError):
    """A status move is not one of draft→accepted, draft→discard, accepted→discard."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(
            f"Cannot transition from `{old}` to `{new}`; "
            "allowed: draft→accepted, draft→discard, accepted→discard"
        )
        self.old = old
        self.new = new


class InvalidItemError(MemoryError, ValueError):
    """An item or a text is something no store may hold; nothing was stored."""


class ItemTypeError(MemoryError, TypeError):
    """An item class has no `memory_type` of its own, or claims one that is taken."""


class QueryError(MemoryError, ValueError):
    """A filter, limit or budget means nothing."""


class EmptyFilterError(MemoryError, ValueError):
    """A filter names nobody that the store looks at; it would find or remove everyone's items."""

    def __init__(
        self,
        fields: Sequence[str] = ("user_id", "session_id", "task_id", "agent_id"),
        *,
        verb: Literal["find", "remove"] = "remove",
    ) -> None:
        names = "`, `".join(fields)
        ways = {"find": "search without `metadata` to find", "remove": "call clear() to remove"}
        super().__init__(
            f"this filter names none of `{names}` and would {verb} everyone's items; "
            f"set one of them, or {ways[verb]} all"
        )
        self.fields = tuple(fields)


class EmbeddingsMismatchError(MemoryError, ValueError):
    """A store's vectors are of another model than its `embeddings`; nothing was changed."""

    def __init__(
        self, store: str, *, stored: tuple[str, int] | None, given: tuple[str, int]
    ) -> None:
        has, wants = (
            f"`{one[0]}` ({one[1]} dimensions)" if one else "none" for one in (stored, given)
        )
        super().__init__(
            f"the vectors of {store} were made by the model {has}, its `embeddings` are {wants}; "
            "open it with the embeddings it was made with, or call `await store.reindex()` "
            "instead of `init()` to embed everything again"
        )
        self.stored = stored
        self.given = given


class MessageError(MemoryError, ValueError):
    """A provider message cannot be read as a conversation."""


class FenceError(MemoryError, ValueError):
    """A mark is not one of ours, or a text holds no sound block with it."""


class TransferError(MemoryError, ValueError):
    """A file cannot be read in, or written: it is damaged, hostile, too large or unknown."""


class SoulError(MemoryError, ValueError):
    """A persona file cannot be read as one; the message names the line."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"`{path}`, line {line}: {problem}")
        self.path = path
        self.line = line


class SoulNotFoundError(MemoryError, FileNotFoundError):
    """There is no persona file."""


class ToolCallNotFoundError(MemoryError, LookupError):
    """A response holds no tool call of the asked name."""


class ItemNotFoundError(MemoryError, LookupError):
    """There is no such memory in the scope it was looked for; perhaps it is another's."""

    def __init__(
        self,
        item_id: str,
        *,
        version: int | None = None,
        way: str = "list() shows the memories here",
    ) -> None:
        what = f"memory `{item_id}`" if version is None else f"version {version} of `{item_id}`"
        super().__init__(f"there is no {what} here; {way}")
        self.item_id = item_id


class UnsupportedError(MemoryError, RuntimeError):
    """A store of this kind cannot do what was asked; the message says which one can."""


class SummaryError(MemoryError, RuntimeError):
    """A summarizer failed; the items are untouched."""

    def __init__(self, template: str, cause: BaseException) -> None:
        super().__init__(
            f"the summarizer failed on template `{template}`: {cause}; no item was changed"
        )
        self.template = template


class ExtractionError(MemoryError, RuntimeError):
    """An extractor failed, or proposed what cannot be used; no fact was proposed."""


class EmbeddingError(MemoryError, RuntimeError):
    """A model refused a text, or answered with something that is no vector of its dimension."""


class RerankError(MemoryError, RuntimeError):
    """A reranker cannot be loaded, refused the texts, or answered with no score for each."""


class NotInitializedError(MemoryError, RuntimeError):
    """A store was used before `init()`, or after `close()`."""

    def __init__(self, store: object) -> None:
        super().__init__(
            f"{store!r} is not initialized; use `async with store:` or call `await store.init()`"
        )


class EventLoopError(MemoryError, RuntimeError):
    """A memory was used in an event loop while another loop, still running, uses it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is in use in another event loop that is still running; make one "
            "`AgentMemory` for each event loop, or use `orbiter.memory.sync`, which every thread "
            "may share"
        )


class VersionConflict(MemoryError, RuntimeError):  # noqa: N818 - it is no error of the store's
    """The stored item is not the version the caller saw; nothing was written."""

    def __init__(self, item_id: str, *, expected: int, found: int) -> None:
        has, way = f"version {found}", "get it again, repeat the change, and add that"
        if not found:
            has, way = "no such item", "restore it, or expect version 0 to create it again"
        super().__init__(
            f"item `{item_id}` was expected at version {expected}, the store has {has}; {way}"
        )
        self.item_id = item_id
        self.expected = expected
        self.found = found


class AccessError(MemoryError, PermissionError):
    """Row-level security, or a missing right, keeps the caller from an item; nothing changed."""


class StorageError(MemoryError, OSError):
    """A file or database is missing, damaged, full, foreign, read-only or too new."""


class MemoryConnectionError(MemoryError, ConnectionError):
    """A service cannot be reached, or refused the request."""


class MemoryTimeoutError(MemoryError, TimeoutError):
    """A service did not answer within the deadline."""


def _remade(kind: type[MemoryError], args: tuple[object, ...]) -> MemoryError:
    # Past the constructor, which would make other words of them.
    error = kind.__new__(kind, *args)
    error.args = args
    return error
