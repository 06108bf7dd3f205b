"""The file of the MCP reference memory server: entities with observations, and relations.

Each line is an object; the server loses a line end when two of its writes meet, so two objects may
share a line.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    as_object,
    compact,
    instant,
    plain_text,
    safely,
)

__all__ = ["McpMemory", "observation_of", "relation_of"]


class McpMemory:
    """`memory.jsonl`: every observation and every relation is a memory."""

    name = "mcp"
    label = "memory.jsonl of the reference MCP memory server"

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell by the first object: an entity or a relation."""
        return b'"entityType"' in head or b'"relationType"' in head

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the memories in the order of the file."""
        for line, value in source.values():
            record = as_object(value)
            kind = _entity if "name" in record else _relation
            memories = safely(partial(_listed, kind, record), complain, f"line {line}")
            if memories is not None and not memories:
                complain(f"line {line}", "neither an entity nor a relation")
            yield from memories or ()


def _listed(
    kind: Callable[..., Iterator[SourceMemory]], record: Mapping[str, object]
) -> list[SourceMemory]:
    return list(kind(record))


def _entity(record: Mapping[str, object]) -> Iterator[SourceMemory]:
    name, kind = record.get("name"), record.get("entityType")
    if not isinstance(name, str) or not name:
        return
    about = {"entity": name, "entity_type": kind if isinstance(kind, str) else ""}
    noted = record.get("observations")
    observations = noted if isinstance(noted, list) else []
    if not observations:
        content = f"{name} ({about['entity_type']})" if kind else name
        yield _source_memory(content, {**about, "observation": ""}, ["entity", name], record)
    for observation in observations:
        text = plain_text(observation)
        if text.strip():
            yield _source_memory(f"{name}: {text}", about, ["observation", name, text], record)


def _relation(record: Mapping[str, object]) -> Iterator[SourceMemory]:
    ends = [record.get(name) for name in ("from", "relationType", "to")]
    if all(isinstance(end, str) and end for end in ends):
        words = [str(end) for end in ends]
        said, extra = relation_of(words[0], words[1], words[2])
        yield _source_memory(said, extra, ["relation", *words], record)


def relation_of(begin: str, kind: str, end: str) -> tuple[str, dict[str, object]]:
    """Return what a relation says, and what `metadata.extra` holds of it."""
    relation = {"from": begin, "relationType": kind, "to": end}
    return f"{begin} {kind.replace('_', ' ')} {end}", {"relation": relation}


def _source_memory(
    content: str, extra: Mapping[str, object], key: list[str], record: Mapping[str, object]
) -> SourceMemory:
    at = instant(record.get("timestamp") or record.get("createdAt"))
    dated = {} if at is None else {"created_at": at, "updated_at": at}
    metadata = MemoryMetadata(extra=dict(extra))
    return SourceMemory(MemoryItem(content=content, metadata=metadata, **dated), compact(key))


def observation_of(item: MemoryItem) -> tuple[str, str, str]:
    """Return the entity, its type and the observation that *item* is in such a file."""
    extra = item.metadata.extra
    name = extra.get("entity")
    if not isinstance(name, str) or not name:
        return item.metadata.user_id or "memory", "user", item.content
    kind = extra.get("entity_type")
    text = "" if extra.get("observation") == "" else item.content.removeprefix(f"{name}: ")
    return name, kind if isinstance(kind, str) else "", text
