"""Memories in the formats of others: a table, a folder of notes, conversations, a graph.

Only what is remembered now is written; the native format holds the past as well.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from orbiter.memory.agent.chat_history import read_back
from orbiter.memory.messages import to_messages
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer._csv import write_csv
from orbiter.memory.transfer._current_state import RecordStore, conversations, remembered
from orbiter.memory.transfer._markdown_export import write_markdown
from orbiter.memory.transfer.formats.mcp_memory import observation_of
from orbiter.memory.transfer.io.output_file import new_file

__all__ = ["WRITERS"]

_RELATION = ("from", "to", "relationType")


async def write_openai(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a line for each conversation, `{"messages": […]}`; memories that are none are left."""
    with new_file(path, may_pack=True) as file:
        for told in await conversations(store, scope):
            items, _ = await read_back(store, told.metadata)
            sent = to_messages(items, "openai").messages
            if not sent:
                continue
            file.write(_line({"messages": sent}))
            for _ in sent:
                tell()


async def write_mcp(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write an entity for whatever memories are about, with them as its observations."""
    with new_file(path, may_pack=True) as file:
        entities: dict[str, tuple[str, list[str]]] = {}
        relations: list[Mapping[str, object]] = []
        async for each in remembered(store, scope):
            if relation := _relation(each.item):
                relations.append(relation)
                tell()
                continue
            name, kind, text = observation_of(each.item)
            if not text and "entity" not in each.item.metadata.extra:  # a call without words
                continue
            _, observations = entities.setdefault(name, (kind, []))
            if text:
                observations.append(each.text if each.span else text)
            tell()
        for name, (kind, observations) in entities.items():
            told = {"name": name, "entityType": kind, "observations": observations}
            file.write(_line({"type": "entity", **told}))
        for one in relations:
            file.write(_line(one))


def _relation(item: MemoryItem) -> Mapping[str, object] | None:
    """Return the relation that *item* is, if it came from such a file."""
    found = item.metadata.extra.get("relation")
    ends = [found.get(name) for name in _RELATION] if isinstance(found, Mapping) else []
    if not ends or not all(isinstance(end, str) and end for end in ends):
        return None
    return {"type": "relation", **dict(zip(_RELATION, ends, strict=True))}


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


WRITERS = {
    "csv": write_csv,
    "markdown": write_markdown,
    "mcp": write_mcp,
    "openai": write_openai,
}
"""What writes each format."""
