"""`KeyValue`: bytes under a path and a key, for what a program must find again exactly.

Memories are recalled; entries are looked up. Frameworks keep their state here, and a log is a path
whose keys count up. Entries are of exactly the handle's scope, as facts are, and `erase` removes
them with everything else of it.
"""

import builtins
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.agent_store import store_name
from orbiter.memory.model.key_value import Delete, Entry, EntryPath, Put, check_ttl
from orbiter.memory.model.query import Query

if TYPE_CHECKING:
    from orbiter.memory.model.key_value import KeyValueStore

__all__ = ["KeyValue"]


class KeyValue(ScopedHandle):
    """The entries of one scope; `ScopedMemory.kv` makes it."""

    def _address(self) -> tuple[str, dict[str, object]]:
        return "kv", {}

    def __repr__(self) -> str:
        named = Query(metadata=self._scope).wanted.items()
        return f"KeyValue({', '.join(f'{name}={value!r}' for name, value in named)})"

    async def _entries(self) -> "KeyValueStore":
        if self._filter is None:
            raise QueryError(
                "entries belong to somebody; name whose: `memory.scope(user_id=…).kv`, or "
                "`agent_id=` for what all users of a program share"
            )
        store = await self._store()
        entries: KeyValueStore | None = getattr(store, "key_value", None)
        if entries is None:
            raise UnsupportedError(
                f"`{store_name(store)}` keeps no entries of key and value; SQLite, Postgres and "
                "Redis do"
            )
        return entries

    # One entry

    async def put(
        self,
        path: EntryPath,
        key: str,
        value: bytes,
        *,
        ttl: timedelta | float | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Store a value under a path and a key, over the one that is there; return its version.

        With a *ttl*, in seconds or as a `timedelta`, it is gone so long after it was put or
        touched last. With an *expected_version* it is stored only over that one, 0 meaning that
        there is none; else `VersionConflict` is raised, and nothing is stored.
        """
        return (await self.write([Put(path, key, value, ttl, expected_version)]))[0]

    async def get(self, path: EntryPath, key: str) -> Entry | None:
        """Return the entry of a path and a key, or `None`."""
        return (await self.get_many([(path, key)]))[0]

    async def delete(
        self, path: EntryPath, key: str, *, expected_version: int | None = None
    ) -> bool:
        """Remove an entry for good; tell whether it was there.

        *expected_version* is as for `put`.
        """
        return bool((await self.write([Delete(path, key, expected_version)]))[0])

    # Several

    @operation(
        "kv.write", "POST kv/write", role="write", answer="versions", is_safe_to_repeat=False
    )
    async def write(self, changes: Sequence[Put | Delete]) -> builtins.list[int]:
        """Make all changes in one step, or none; return the version that each put or deleted.

        That is 0 for a `Delete` of nothing. Of several changes of one entry the last one counts.
        """
        return await (await self._entries()).write(changes, scope=self._scope)

    @operation("kv.get_many", "POST kv/get", answer="entries")
    async def get_many(self, names: Sequence[tuple[EntryPath, str]]) -> builtins.list[Entry | None]:
        """Return the entries of these paths and keys, in the order given."""
        return await (await self._entries()).get(names, scope=self._scope)

    @operation("kv.touch", "POST kv/touch", role="write", answer="count")
    async def touch(self, names: Sequence[tuple[EntryPath, str]]) -> int:
        """Have the `ttl` of entries begin again; return how many of them have one.

        Their versions stay as they are.
        """
        return await (await self._entries()).touch(names, scope=self._scope)

    @operation("kv.list", "POST kv/list", answer="entries")
    async def list(
        self,
        path: EntryPath = (),
        *,
        deep: bool = True,
        reverse: bool = False,
        newest: bool = False,
        after: Entry | tuple[EntryPath, str] | None = None,
        contains: str = "",
        limit: int = 100,
    ) -> builtins.list[Entry]:
        """Return entries at a path, and below it unless *deep* is false, by path and key.

        *after* is the last one of the page before, or its path and key. With *contains*, only
        those whose key, or a part of whose path, holds that text to the letter. With *newest*
        those that were put last come first, wherever they are.
        """
        last = (after.path, after.key) if isinstance(after, Entry) else after
        return await (await self._entries()).entries(
            path,
            scope=self._scope,
            is_deep=deep,
            reverse=reverse,
            newest=newest,
            after=last,
            contains=contains,
            limit=limit,
        )

    @operation("kv.paths", "POST kv/paths", answer="paths")
    async def paths(
        self,
        path: EntryPath = (),
        *,
        after: EntryPath | None = None,
        limit: int = 100,
    ) -> builtins.list[EntryPath]:
        """Return the different paths of entries at and below a path, in order."""
        return await (await self._entries()).paths(
            path, scope=self._scope, after=after, limit=limit
        )

    # A log

    @operation("kv.append", "POST kv/append", role="write", answer="keys", is_safe_to_repeat=False)
    async def append(
        self,
        path: EntryPath,
        values: Sequence[bytes],
        *,
        ttl: timedelta | float | None = None,
    ) -> builtins.list[str]:
        """Put values at the end of a log, in order, all or none; return their keys.

        A log is a path that nothing else is put at. Its keys count up, so `list` returns it as it
        was written, by whomever.
        """
        return await (await self._entries()).append(
            path, values, scope=self._scope, ttl=check_ttl(ttl)
        )

    @operation("kv.pop", "POST kv/pop", role="write", answer="entry", is_safe_to_repeat=False)
    async def pop(self, path: EntryPath) -> Entry | None:
        """Remove the last entry of a path for good, and return it."""
        return await (await self._entries()).pop(path, scope=self._scope)

    @operation("kv.clear", "POST kv/clear", role="write", answer="count")
    async def clear(self, path: EntryPath = ()) -> int:
        """Remove all entries at and below a path for good; return how many."""
        return await (await self._entries()).clear(path, scope=self._scope)
