"""A known sequence of changes, and every state a store may be in after part of it.

Each writer has a name, which is the `user_id` of its items, and changes nobody else's.
"""

from typing import Literal, NamedTuple

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, SQLiteMemoryStore

State = dict[str, tuple[str, int, int]]
"""By id: content, number of the change that wrote it, version."""


class Change(NamedTuple):
    kind: Literal["add", "add_many", "delete"]
    ids: tuple[str, ...]
    number: int
    writer: str

    @property
    def items(self) -> list[MemoryItem]:
        who = MemoryMetadata(user_id=self.writer, extra={"n": self.number})
        return [
            HumanMemory(id=item_id, content=text(item_id, self.number), metadata=who)
            for item_id in self.ids
        ]

    async def carry_out(self, store: SQLiteMemoryStore) -> None:
        if self.kind == "add":
            await store.add(self.items[0])
        elif self.kind == "add_many":
            await store.add_many(self.items)
        else:
            await store.delete(self.ids[0])

    def applied(self, state: State) -> State:
        after = dict(state)
        for item_id in self.ids:
            if self.kind == "delete":
                after.pop(item_id, None)
            else:
                version = after[item_id][2] if item_id in after else 0
                after[item_id] = (text(item_id, self.number), self.number, version + 1)
        return after


def text(item_id: str, number: int) -> str:
    return f"{item_id} says {number} " + "and so on " * (number % 40)


def change(writer: str, number: int) -> Change:
    """Return the *number*th change of a writer: adds, batches, updates and deletes in turn."""
    counter, fresh = f"{writer}-counter", f"{writer}-{number}"
    match number % 5:
        case 0:
            return Change("add", (fresh,), number, writer)
        case 1:
            return Change("add_many", tuple(f"{fresh}.{n}" for n in range(4)), number, writer)
        case 2:
            return Change("add", (counter,), number, writer)
        case 3:
            return Change("add_many", (counter, fresh), number, writer)
        case _:
            return Change("delete", (f"{writer}-{number - 4}",), number, writer)


class Possible:
    """The states in which one writer's items may be found."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]

    def happened(self, made: Change) -> None:
        self.states = [made.applied(state) for state in self.states]

    def may_have_happened(self, made: Change) -> None:
        self.states += [made.applied(state) for state in self.states]

    def judge(self, found: State) -> "Verdict":
        if found in self.states:
            return Verdict()
        wanted = self.states[0]
        lost = sum(item_id not in found for item_id in wanted)
        return Verdict(lost=lost, torn=int(not lost))


class Verdict(NamedTuple):
    """What is wrong with what was found: acknowledged items gone, or changes half done."""

    lost: int = 0
    torn: int = 0


async def read(store: SQLiteMemoryStore, writer: str) -> State:
    """Return what the store holds of a writer, by the index and by id."""
    found = await store.search(metadata=MemoryMetadata(user_id=writer), limit=1_000_000)
    for item in found[:3]:
        assert await store.get(item.id) == item
    return {item.id: (item.content, item.metadata.extra["n"], item.version) for item in found}
