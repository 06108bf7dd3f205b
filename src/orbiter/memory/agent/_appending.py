"""How messages come into a conversation: whose they are, under which ids, in which order."""

from collections.abc import Sequence

from orbiter.memory.agent._idempotency import insert_many
from orbiter.memory.agent.chat_history import is_of
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.runtime import Store, as_stored, check_ids
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, role_of
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["append", "append_once", "check_messages", "copies_for"]


def check_messages(items: Sequence[MemoryItem], scope: MemoryMetadata) -> None:
    """Refuse what is no message, or one of another conversation."""
    for item in items:
        if role_of(item) is None:
            raise QueryError(
                f"a `{item.memory_type}` is no message; a conversation takes what has a role, "
                "such as `HumanMemory`; `remember` takes anything"
            )
        for name in SCOPE_FIELDS:
            if getattr(item.metadata, name) != getattr(scope, name):
                raise AccessError(
                    f"the message names `{name}` `{getattr(item.metadata, name)}`, which is "
                    "another conversation; leave it out"
                )


async def append(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], *, have_ids: bool
) -> list[MemoryItem]:
    """Store messages behind the last one, all or none; return them as stored."""
    if have_ids:
        await check_ids(store, items, scope)
        await store.add_many(items, within=scope)
        return await as_stored(store, items)
    if len(items) == 1:
        await store.add(items[0])
    else:
        await store.add_many(items)
    return list(items)


async def append_once(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store messages unless *key* stands for some already; return those, and whether it did."""
    stored, is_new = await insert_many(store, scope, "said", items, key)
    for item in stored:
        if not is_of(item, scope):
            raise AccessError(f"the id `{item.id}` is taken; use another `idempotency_key`")
    return stored, not is_new


def copies_for(scope: MemoryMetadata, items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return copies of messages for another conversation; each says what it was copied from.

    Their ids follow from their places alone, so that of two forks into one conversation a store
    takes one.
    """
    copies = []
    for place, item in enumerate(items):
        copy = copy_item(item)
        extra = {**item.metadata.extra, "forked_from": item.id}
        fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
        copy.__dict__["metadata"] = MemoryMetadata(**fields, extra=extra)
        copy.__dict__.update(id=derived_id(scope, "fork", place), version=1)
        copies.append(copy)
    return copies
