"""What Claude.ai's export holds beside conversations: what Claude kept in mind, and projects."""

from collections.abc import Iterator, Mapping

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.json_helpers import as_object, first_text, instant
from orbiter.memory.transfer.formats.protocol import Complain, Found, SourceFile
from orbiter.memory.transfer.formats.threads import made

__all__ = ["kept_in_mind", "project"]

_LONGEST = 200

Record = Mapping[str, object]


def kept_in_mind(source: SourceFile, complain: Complain) -> Iterator[Found]:
    """Yield what Claude keeps in mind of all conversations, and of each project."""
    for value in source.elements():
        record = as_object(value)
        projects = as_object(record.get("project_memories"))
        for key, text in {"": record.get("conversations_memory"), **projects}.items():
            if isinstance(text, str) and text.strip():
                extra = {"kind": "memory", "project": key}
                yield from _memory(text, extra, {}, f"memory/{key}", source.name, complain)


def project(record: Record, place: str, complain: Complain) -> Iterator[Found]:
    """Yield a project's instructions, and each of its documents."""
    name = first_text(record, "name", "uuid")
    key = f"project/{first_text(record, 'uuid') or name}"
    instructions = first_text(record, "prompt_template")
    if instructions:
        extra = {"kind": "custom_instructions", "project": name}
        yield from _memory(instructions, extra, record, key, place, complain)
    listed = record.get("docs")
    for number, each in enumerate(listed if isinstance(listed, list) else [], 1):
        document = as_object(each)
        title, text = first_text(document, "filename"), first_text(document, "content")
        here = f"{place}, document {number}"
        if not text:
            complain(here, f"`{title[:_LONGEST]}` is empty; not read")
            continue
        extra = {"kind": "document", "project": name, "title": title}
        own = first_text(document, "uuid") or title or str(number)
        yield from _memory(text, extra, document, f"{key}/{own}", here, complain)


def _memory(
    text: str, extra: dict[str, str], dated: Record, key: str, place: str, complain: Complain
) -> Iterator[Found]:
    about = MemoryMetadata.model_construct(
        extra={name: each[:_LONGEST] for name, each in extra.items() if each}
    )
    at = instant(dated.get("created_at"))
    times = {} if at is None else {"created_at": at, "updated_at": at}
    item = made(MemoryItem, complain, place, content=text, metadata=about, **times)
    if item is not None:
        yield Found(item, key)
