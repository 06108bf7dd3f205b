"""Resent history: which messages of a call a chat does not have yet.

Programs send the whole conversation with every call. The rule, by which it is stored once:

1. Messages up to the model's last one are history. They are aligned with the chat's newest
   messages: what stands in both, in the same order, is known. Other messages may stand between.
   Each message of the chat stands for one of the history, so what is said twice is stored twice.
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
from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from math import isqrt
from typing import Any
from weakref import WeakValueDictionary

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.errors import MemoryError, UnsupportedError, VersionConflict
from orbiter.memory.messages import Format, codec_for
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, calls_of, result_id, role_of
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.tool_calls import call_id, call_input, call_name
from orbiter.memory.tasks.offload import MANY, apart

__all__ = ["Items", "brings_history", "find_new", "lease", "one_at_a_time", "read_stored"]

Items = Sequence[MemoryItem]
Atom = tuple[str, ...]
"""What is compared: a text, one tool call or one result; who speaks stands first."""

_OF_MODEL = ("ai", "call")
_MORE, _FAR = 32, 1_000
"""Stored messages that are read beyond as many as a call has, and how far back at most."""
_QUESTION_WEIGHT, _TRIES = 4, 4
"""What a question counts beside an answer, and how often the alignment is tried without turns
that turned out to be new."""


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


def has_all(pieces: Sequence[Items], stored: Items, format: Format) -> bool:
    """Tell whether *stored* has all of the history of a call."""
    said = [atom for items in pieces for atom in _atoms(items, format)]
    there = _atoms(stored, format)
    return not any(_mark(said, there)[: _history(said)])


def _mark(said: Sequence[Atom], there: Sequence[Atom]) -> list[bool]:
    """Return for each atom of a call whether it is new."""
    end = _history(said)
    pairs = _align(said[:end], there)
    used = set(pairs.values())
    new, is_new_turn = list[bool](), False
    for place, atom in enumerate(said[:end]):
        if atom[0] == "human":
            is_new_turn = place not in pairs
        elif is_new_turn:
            pairs.pop(place, None)
        elif place not in pairs:
            other = _changed(place, atom, pairs, used, there)
            if other is not None:
                pairs[place] = other
                used.add(other)
        new.append(place not in pairs)
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


def _align(said: Sequence[Atom], there: Sequence[Atom]) -> dict[int, int]:
    """Return the place in *there* of each atom that the chat has.

    What both have in the same order is known. What an earlier call brought along stands behind
    messages that it came before: within the history it is looked for in all that is left, at its
    end it is not, as what was said after the rest cannot have been stored before it.
    """
    questions = {atom for atom in there if atom[0] == "human"}
    left = _of_turns(said, range(len(said)), lambda place: said[place] in questions)
    pairs, tried, last = dict[int, int](), left, 0
    for _ in range(_TRIES):
        some = common_atoms([said[place] for place in tried], there)
        pairs = {tried[place]: other for place, other in some.items()}
        last = max(pairs, default=last) if tried is left else last
        tried = _of_turns(said, tried, pairs.__contains__)
        if pairs.keys() <= set(tried):  # no answer took the place of another turn's
            break
    used, free = set(pairs.values()), defaultdict[Atom, list[int]](list)
    for place, atom in enumerate(there):
        if place not in used:
            free[atom].append(place)
    for place in reversed(left):
        if place <= last and place not in pairs and free[said[place]]:
            pairs[place] = free[said[place]].pop()
    return pairs


def _of_turns(
    said: Sequence[Atom], places: Iterable[int], is_known: Callable[[int], bool]
) -> list[int]:
    """Return those of *places* that are of turns whose question is known, or that have none."""
    kept, is_kept = list[int](), True
    for place in places:
        is_kept = is_known(place) if said[place][0] == "human" else is_kept
        if is_kept:
            kept.append(place)
    return kept


def common_atoms(said: Sequence[Atom], there: Sequence[Atom]) -> dict[int, int]:
    """Return the pairs of places of the heaviest common subsequence, the last one of several.

    It is computed a row at a time, in numbers that have a bit for each atom of *there* (Hyyrö,
    "Bit-parallel LCS-length computation revisited", 2004), from the end: as many steps as the call
    has atoms, however often these repeat. Few rows are kept; the others are computed again.
    """
    rows, columns = _weighed(said), _weighed(there)
    wanted, bits = {key for key, _ in rows}, dict[tuple[Atom, int], int]()
    for column, (key, _) in enumerate(columns):
        if key in wanted:
            bits[key] = bits.get(key, 0) | 1 << column
    step, mask = isqrt(len(rows)) + 1, (1 << len(columns)) - 1

    def compute(start: int, vector: int) -> list[int]:
        made = [vector]
        for key, _ in rows[start : start + step]:
            held = vector & bits.get(key, 0)
            vector = (vector + held | vector - held) & mask
            made.append(vector)
        return made

    kept = [mask]
    for start in range(0, len(rows), step):
        kept.append(compute(start, kept[-1])[-1])
    pairs, row, column, first, block = dict[int, int](), len(rows), len(columns), 0, list[int]()
    while row and column:
        if not block or row - 1 < first:
            first = (row - 1) // step * step
            block = compute(first, kept[first // step])
        bit = 1 << column - 1
        if block[row - first] & bit:  # this one of the chat is not needed
            column -= 1
        elif not block[row - first - 1] & bit:  # nor this one of the call
            row -= 1
        else:
            row, column = row - 1, column - 1
            pairs[rows[row][1]] = columns[column][1]
    return pairs


def _weighed(atoms: Sequence[Atom]) -> list[tuple[tuple[Atom, int], int]]:
    """Return atoms from the end with their places, each as often as it counts.

    A question counts more than an answer: the model says "ok" everywhere.
    """
    return [
        ((atom, copy), place)
        for place, atom in reversed(list(enumerate(atoms)))
        for copy in range(_QUESTION_WEIGHT if atom[0] == "human" else 1)
    ]


def _changed(
    place: int, atom: Atom, pairs: Mapping[int, int], used: Container[int], there: Sequence[Atom]
) -> int | None:
    """Return where the chat has the answer that a program changed before it sent it again."""
    before = pairs.get(place - 1)
    if atom[0] != "ai" or before is None or before + 1 >= len(there):
        return None
    return before + 1 if there[before + 1][0] == "ai" and before + 1 not in used else None


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
        is_long = len(messages) + count > MANY
        if (
            cursor is None
            or is_far
            or await apart(is_long, has_all, pieces, messages[::-1], format)
        ):
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
