"""Resent history: which messages of a call a chat does not have yet.

Programs send the whole conversation with every call. The rule, by which it is stored once:

1. Messages up to the model's last one are history. What it has in common with the end of the chat
   is known. Of the rest, each is known for which the chat has one more of the same: what is said
   twice is stored twice, and other messages may stand between.
2. A turn begins with what a person says. If that is not known, its answers are not either, though
   the model may have said the same elsewhere. If it is known, an answer that the program changed
   is not new: the chat has what the model said.
3. What follows the history is the new turn. It is known only where the chat has it right behind
   that history, or last and unanswered: the call is then one that is tried again. So a question
   that is asked again later is stored again.

Texts are the same but for white space, tool calls and results by the id of the call, or by name
and content in formats without ids. Pure functions but for `read_stored` and locks.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.errors import MemoryError, UnsupportedError, VersionConflict
from orbiter.memory.messages import Format, codec_for
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, calls_of, result_id, role_of
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

__all__ = ["Items", "brings_history", "find_new", "lease", "one_at_a_time", "read_stored"]

Items = Sequence[MemoryItem]
Atom = tuple[str, ...]
"""What is compared: a text, one tool call or one result; who speaks stands first."""

_OF_MODEL = ("ai", "call")
_MORE, _FAR = 32, 1_000
"""Stored messages that are read beyond as many as a call has, and how far back at most."""
_ENOUGH = 64
"""How many messages in a row tell where the end of a chat stands in a call."""


def find_new(pieces: Sequence[Items], stored: Items, format: Format) -> list[bool]:
    """Return for each message of a call, given as its items, whether the chat lacks it.

    *stored* are the chat's newest messages, oldest first, open tool calls included.
    """
    said = [(atom, place) for place, items in enumerate(pieces) for atom in _atoms(items, format)]
    marks = _mark([atom for atom, _ in said], _atoms(stored, format))
    new: list[bool | None] = [None] * len(pieces)
    for (_, place), is_new in zip(said, marks, strict=True):
        new[place] = is_new or bool(new[place])
    # A thought alone says nothing that could be compared: it is of the message that it led to.
    following: bool | None = None
    for place in range(len(new) - 1, -1, -1):
        following = new[place] = following if new[place] is None else new[place]
    return [is_new is not False for is_new in new]


def brings_history(pieces: Sequence[Items], new: Sequence[bool]) -> bool:
    """Tell whether something that is new stands before a message of the model."""
    first = new.index(True) if True in new else len(new)
    return any(role_of(item) == "ai" for items in pieces[first:] for item in items)


def _has_all(pieces: Sequence[Items], stored: Items, format: Format) -> bool:
    """Tell whether *stored* has all of the history of a call."""
    said = [atom for items in pieces for atom in _atoms(items, format)]
    there = _atoms(stored, format)
    return not any(_mark(said, there)[: _history(said)])


def _mark(said: Sequence[Atom], there: Sequence[Atom]) -> list[bool]:
    """Return for each atom of a call whether it is new."""
    end = _history(said)
    pairs = _common_tail(said[:end], there[: _history(there)])
    used = set(pairs.values())
    free = defaultdict[Atom, list[int]](list)
    for place, atom in enumerate(there):
        if place not in used:
            free[atom].append(place)
    new, is_new_turn = list[bool](), False
    for place, atom in enumerate(said[:end]):
        is_open = place not in pairs and (atom[0] == "human" or not is_new_turn)
        if is_open and free[atom]:
            pairs[place] = free[atom].pop()
        elif is_open and (other := _changed(atom, pairs.get(place - 1), there, free)) is not None:
            pairs[place] = other
        new.append(place not in pairs)
        if atom[0] == "human":
            is_new_turn = new[-1]
    if end and new[-1]:
        return [*new, *[True] * (len(said) - end)]
    behind = pairs[end - 1] + 1 if end else len(there)
    until = next((n for n in range(behind, len(there)) if there[n][0] in _OF_MODEL), len(there))
    tail = said[end:]
    tries = (_mark_tail(tail, there[behind:until]), _mark_tail(tail, there[_history(there) :]))
    return [*new, *min(tries, key=sum)]


def _history(atoms: Sequence[Atom]) -> int:
    """Return how many atoms there are up to the model's last one."""
    of_model = (place for place, atom in enumerate(atoms, start=1) if atom[0] in _OF_MODEL)
    return max(of_model, default=0)


def _common_tail(said: Sequence[Atom], there: Sequence[Atom]) -> dict[int, int]:
    """Return the places in *there* of the longest run in *said* that is the end of *there*.

    It begins with what a person said: an answer alone, such as "ok", may be of another turn.
    """
    length = end = 0
    for place in range(len(said), 0, -1):
        run = 0
        while run < min(place, len(there), _ENOUGH) and said[place - run - 1] == there[-run - 1]:
            run += 1
        if run > length:
            length, end = run, place
    while length < min(end, len(there)) and said[end - length - 1] == there[-length - 1]:
        length += 1
    while length and said[end - length][0] != "human":
        length -= 1
    return {end - back: len(there) - back for back in range(1, length + 1)}


def _changed(
    atom: Atom, before: int | None, there: Sequence[Atom], free: Mapping[Atom, list[int]]
) -> int | None:
    """Take the answer that the chat has where a program changed it before it sent it again."""
    if atom[0] != "ai" or before is None or before + 1 >= len(there):
        return None
    other = before + 1
    if there[other][0] != "ai" or other not in free[there[other]]:
        return None
    free[there[other]].remove(other)
    return other


def _mark_tail(tail: Sequence[Atom], block: Sequence[Atom]) -> list[bool]:
    """Return what is new of a turn where the chat has *block*; results may be in any order."""
    new, place, held = list[bool](), 0, set(block)
    for atom in tail:
        if atom[0] == "tool":
            new.append(atom not in held)
            continue
        place = next((n for n in range(place, len(block)) if block[n] == atom), len(block)) + 1
        new.append(place > len(block))
    return new


def _atoms(items: Items, format: Format) -> list[Atom]:
    has_ids = codec_for(format).HAS_CALL_IDS
    return [atom for item in items for atom in _atoms_of(item, has_ids=has_ids)]


def _atoms_of(item: MemoryItem, *, has_ids: bool) -> Iterator[Atom]:
    role, text = role_of(item), " ".join(item.content.split())
    if role == "human":
        yield "human", text, *_files(item)
    elif role == "tool":
        name = str(getattr(item, "tool_name", ""))
        yield ("tool", result_id(item)) if has_ids else ("tool", name, text)
    elif role == "ai":
        if text:
            yield "ai", text
        for call in calls_of(item):
            input = json.dumps(call_input(call), sort_keys=True, default=str)
            yield ("call", call_id(call)) if has_ids else ("call", call_name(call), input)


def _files(item: MemoryItem) -> Iterator[str]:
    """Yield what a person's message holds beside text; marks for a cache may move."""
    for format in sorted(item.native):
        held: Any = item.native[format]
        for block in held if isinstance(held, list) else ():
            if isinstance(block, Mapping) and not isinstance(block.get("text"), str):
                rest = {key: value for key, value in block.items() if key != "cache_control"}
                yield json.dumps(rest, sort_keys=True, default=str)


async def read_stored(
    handle: ScopedMemory, chat_id: str, pieces: Sequence[Items], format: Format
) -> list[MemoryItem]:
    """Return the chat's newest messages, oldest first, back to the history of a call.

    They are as stored, with calls that wait for results; at most some thousand are read.
    """
    scope = handle.chat(chat_id).scope
    where: dict[str, object] = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    where["memory_type"] = {"$in": ["human", "ai", "tool"]}
    count = sum(map(len, pieces))
    messages: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await handle.list(where=where, limit=count + _MORE, cursor=cursor)
        messages += page
        cursor = page.next
        is_far = len(messages) >= max(_FAR, 4 * count)
        if cursor is None or is_far or _has_all(pieces, messages[::-1], format):
            return messages[::-1]


_LOCKS: WeakValueDictionary[tuple[int, object], asyncio.Lock] = WeakValueDictionary()


@asynccontextmanager
async def one_at_a_time(scope: MemoryMetadata) -> AsyncIterator[None]:
    """Keep other calls of this process from adding to a conversation meanwhile."""
    key = (id(asyncio.get_running_loop()), *(getattr(scope, name) for name in SCOPE_FIELDS))
    lock = _LOCKS.setdefault(key, asyncio.Lock())
    async with lock:
        yield


_LEASE_PATH, _LEASE_KEY = ("orbiter.wrap",), "history"
_LEASE_SECONDS, _LEASE_WAIT = 30.0, 0.02
"""After how long the lease of a killed process is over, and how often others look meanwhile."""


@asynccontextmanager
async def lease(chat: Chat) -> AsyncIterator[None]:
    """Keep other processes from bringing a history along meanwhile, however long it takes.

    It is an entry of the chat, put on condition that there is none, and renewed until the end.
    That of a process that was killed is over by itself. A store that keeps no entries has no lease.
    """
    version = await _take(chat)
    is_over = asyncio.Event()
    renewal = asyncio.create_task(_renew(chat, version, is_over))
    try:
        yield
    finally:
        is_over.set()  # not cancelled: a version that nobody knows could not be deleted
        if version := await renewal:
            with suppress(VersionConflict):  # nothing ran here for so long that another has it
                await chat.kv.delete(_LEASE_PATH, _LEASE_KEY, expected_version=version)


async def _take(chat: Chat) -> int:
    while True:
        try:
            return await _put(chat, 0)
        except VersionConflict:
            await asyncio.sleep(_LEASE_WAIT)
        except UnsupportedError:
            return 0


async def _renew(chat: Chat, version: int, is_over: asyncio.Event) -> int:
    """Renew a lease until *is_over*; return its version, 0 if it is not ours any more."""
    while version:
        try:
            async with asyncio.timeout(_LEASE_SECONDS / 3):
                await is_over.wait()
            break
        except TimeoutError:
            try:
                version = await _put(chat, version)
            except VersionConflict:
                version = 0
            except (MemoryError, OSError):
                continue  # it holds for two more thirds
    return version


async def _put(chat: Chat, version: int) -> int:
    return await chat.kv.put(
        _LEASE_PATH, _LEASE_KEY, b"", ttl=_LEASE_SECONDS, expected_version=version
    )
