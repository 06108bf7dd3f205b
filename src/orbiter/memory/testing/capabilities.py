"""What differs between stores, declared. The kit runs what a store declares, and checks that."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar

from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, ScopeField

__all__ = ["Capabilities", "Recipe", "needs"]

_Test = TypeVar("_Test", bound=Callable[..., Any])

_SWITCHES = (
    "conversation", "batch", "lifecycle", "durable", "shared", "versions", "paging", "where",
    "bulk_delete", "insert", "insertion_order", "expiry", "key_value", "facets",
    "erase",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond `add`, `get`, `search` and `clear`, and how it answers.

    `order`: which end of time `search` returns first. `text`: what a query means. `conversation`:
    `search` without a type returns a legal conversation. `scope`: the metadata fields that filter.
    `batch`: it has `add_many`. `lifecycle`: it has `init` and `close`. `durable`: what it
    acknowledged survives `kill -9`; the test class must then have a `recipe`. `shared`: several
    stores may use the same data at once. `versions`: it is a `HistoryStore`. `paging`: its
    `search` takes `before`, `after`, `since` and `until`. `where`: its `search` takes `where`.
    `bulk_delete`: it has `delete_many`. `insert`: it has `insert` and `used_ids`.
    `insertion_order`: its `search` takes `order`. `expiry`: it knows
    `expires_at`; whose clock counts is the store's affair, and how finely: SQLite and Redis know
    milliseconds, and end an item up to two of them early, never late. `key_value`: it has a
    `KeyValueStore` by that name. `facets`: it is a `FacetStore`, so that it counts users and
    values. `erase`: it has `erase` of a scope and of ids. A declaration that contradicts itself is
    a `ValueError`.
    """

    order: Literal["newest", "oldest"] = "newest"
    text: Literal["substring", "meaning"] = "substring"
    conversation: bool = False
    scope: tuple[ScopeField, ...] = SCOPE_FIELDS
    batch: bool = True
    lifecycle: bool = True
    durable: bool = True
    shared: bool = True
    versions: bool = False
    paging: bool = False
    where: bool = False
    bulk_delete: bool = False
    insert: bool = False
    insertion_order: bool = False
    expiry: bool = True
    key_value: bool = False
    facets: bool = False
    erase: bool = False

    @classmethod
    def for_agent_memory(cls, **declared: Any) -> "Capabilities":
        """Return those of a store that `AgentMemory` needs no help of another kind for.

        Such a store removes single items, by `delete_many`; all else is `AgentMemory`'s to do, and
        faster where the store declares it.
        """
        return cls(**{"bulk_delete": True, **declared})

    def __post_init__(self) -> None:
        allowed: dict[str, tuple[object, ...]] = {
            "order": ("newest", "oldest"),
            "text": ("substring", "meaning"),
            **dict.fromkeys(_SWITCHES, (True, False)),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"`{name}` must be one of {values}, not {getattr(self, name)!r}")
        if not {"user_id"} <= set(self.scope) <= set(SCOPE_FIELDS):
            raise ValueError(
                f"`scope` must name fields of {SCOPE_FIELDS}, `user_id` among them, "
                f"not {self.scope}"
            )
        for name in ("durable", "shared"):
            if getattr(self, name) and not self.lifecycle:
                raise ValueError(
                    f"`{name}=True` contradicts `lifecycle=False`: its contracts open and close "
                    f"stores; give the store `init` and `close`, or declare `{name}=False`"
                )
        if self.conversation and self.order != "oldest":
            raise ValueError(
                "`conversation=True` contradicts `order='newest'`: a model reads from the oldest "
                "message on; declare `order='oldest'`, or `conversation=False`"
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make another, unopened store on the same data, in this process or another.

    `target` is `package.module:callable`; `args` are JSON values.
    """

    target: str
    args: tuple[Any, ...] = ()

    def make(self) -> MemoryStore:
        """Return a new store."""
        module, _, name = self.target.partition(":")
        made: MemoryStore = getattr(import_module(module), name)(*self.args)
        return made


def needs(**declared: object) -> Callable[[_Test], _Test]:
    """Mark a contract as one for stores that declare just these capabilities."""

    def mark(test: _Test) -> _Test:
        test.needs = declared  # type: ignore[attr-defined]  # read by `StoreConformance`
        return test

    return mark
