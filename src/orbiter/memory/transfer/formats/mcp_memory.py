"""The file of the MCP reference memory server: entities with observations, and relations.

Each line is an object; the server loses a line end when two of its writes meet, so two objects may
share a line.
"""

from collections.abc import Iterator, Mapping

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer.formats.foreign_items import Say, note, read_each
from orbiter.memory.transfer.formats.foreign_values import (
    Record,
    as_object,
    compact,
    first_text,
    instant,
    plain_text,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

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
        rows = ((f"line {line}", as_object(value)) for line, value in source.values())
        yield from read_each(rows, _memories, complain)


def _memories(record: Record, say: Say) -> Iterator[SourceMemory]:
    at = instant(record.get("timestamp") or record.get("createdAt"))
    if name := first_text(record, "name"):
        kind = record.get("entityType")
        about = {"entity": name, "entity_type": kind if isinstance(kind, str) else ""}
        noted = record.get("observations")
        if not noted or not isinstance(noted, list):
            text = f"{name} ({about['entity_type']})" if kind else name
            item = note(say, text, at=at, extra={**about, "observation": ""})
            yield SourceMemory(item, compact(["entity", name]))
            return
        for text in filter(str.strip, map(plain_text, noted)):
            item = note(say, f"{name}: {text}", at=at, extra=about)
            yield SourceMemory(item, compact(["observation", name, text]))
        return
    ends = [first_text(record, field) for field in ("from", "relationType", "to")]
    if not all(ends):
        raise ValueError("neither an entity nor a relation")
    text, extra = relation_of(*ends)
    yield SourceMemory(note(say, text, at=at, extra=extra), compact(["relation", *ends]))


def relation_of(begin: str, kind: str, end: str) -> tuple[str, dict[str, object]]:
    """Return what a relation says, and what `metadata.extra` holds of it."""
    relation = {"from": begin, "relationType": kind, "to": end}
    return f"{begin} {kind.replace('_', ' ')} {end}", {"relation": relation}


def observation_of(item: MemoryItem) -> tuple[str, str, str]:
    """Return the entity, its type and the observation that *item* is in such a file."""
    extra: Mapping[str, object] = item.metadata.extra
    name = extra.get("entity")
    if not isinstance(name, str) or not name:
        return item.metadata.user_id or "memory", "user", item.content
    kind = extra.get("entity_type")
    text = "" if extra.get("observation") == "" else item.content.removeprefix(f"{name}: ")
    return name, kind if isinstance(kind, str) else "", text
