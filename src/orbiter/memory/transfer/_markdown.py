"""Notes in Markdown, one file each, with optional YAML front matter; a folder of them, or a zip."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time

from orbiter.memory.errors import TransferError
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer._formats import Complain, Found, SourceFile
from orbiter.memory.transfer._shapes import instant

__all__ = ["MarkdownNotes", "front_matter"]

_ENDINGS = (".md", ".markdown")
_DATES = ("created_at", "created", "date")
_MAX_FRONT = 64 * 1024


class MarkdownNotes:
    """Each note is a memory; its front matter goes to `metadata.extra`."""

    name = "markdown"

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell by the names: the file's, or that of the first one inside."""
        if source.name.lower().endswith(_ENDINGS):
            return True
        return any(member.name.lower().endswith(_ENDINGS) for member in source.members())

    def read(self, source: SourceFile, complain: Complain) -> Iterator[Found]:
        """Yield the notes by their names."""
        for member in source.members():
            if not member.name.lower().endswith(_ENDINGS):
                continue
            try:
                found = _note(member)
            except (TransferError, ValueError) as exc:
                complain(f"`{member.name}`", f"{exc}")
                continue
            if found is not None:
                yield found


def _note(source: SourceFile) -> Found | None:
    fields, body = front_matter(source.text())
    if not body.strip():
        return None
    extra = {name: _plain(value) for name, value in fields.items() if name not in _DATES}
    own_id = extra.pop("id", None)
    session = extra.pop("session_id", None)
    for name in ("source", "trust", "user_id"):
        extra.pop(name, None)
    tags = extra.get("tags")
    if isinstance(tags, str):
        extra["tags"] = [tag.strip().lstrip("#") for tag in tags.split(",") if tag.strip()]
    extra["note"] = source.name
    at = next((found for name in _DATES if (found := _moment(fields.get(name)))), None)
    times = {} if at is None else {"created_at": at, "updated_at": at}
    metadata = MemoryMetadata(session_id=session if isinstance(session, str) else None, extra=extra)
    item = MemoryItem(content=body.strip("\n"), metadata=metadata, **times)
    return Found(item, own_id if isinstance(own_id, str) and own_id else source.name)


def front_matter(text: str) -> tuple[Mapping[str, object], str]:
    """Return the fields before the text, and the text; a bare `---` is a rule, not a beginning."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return {}, "".join(lines)
    close = next((n for n, line in enumerate(lines[1:], 1) if line.strip() in ("---", "...")), None)
    if close is None:
        return {}, "".join(lines)
    import yaml  # noqa: PLC0415 - few notes are imported

    head = "".join(lines[1:close])
    if len(head) > _MAX_FRONT:
        raise TransferError(f"its front matter has {len(head):,} characters; {_MAX_FRONT:,} may be")
    if "&" in head and "*" in head and any(_is_anchor(line) for line in lines[1:close]):
        raise TransferError("its front matter has YAML anchors, which are not read; write it out")
    try:
        found = yaml.safe_load(head)
    except (yaml.YAMLError, RecursionError) as exc:
        raise TransferError(f"its front matter is no YAML: {str(exc).splitlines()[0]}") from exc
    body = "".join(lines[close + 1 :])
    if not isinstance(found, Mapping):
        return {}, body
    return {str(name): value for name, value in found.items()}, body


def _is_anchor(line: str) -> bool:
    return any(word.startswith(("&", "*")) and len(word) > 1 for word in line.split())


def _plain(value: object) -> object:
    """Return a YAML value as JSON has it."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _moment(value: object) -> datetime | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return instant(value)
