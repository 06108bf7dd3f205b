"""Notes in Markdown, one file each, with optional YAML front matter; a folder of them, or a zip."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import TYPE_CHECKING

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.foreign_items import Say, note, read_each
from orbiter.memory.transfer.formats.foreign_values import instant
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

if TYPE_CHECKING:
    import yaml

__all__ = ["MarkdownNotes", "front_matter"]

_ENDINGS = (".md", ".markdown")
_DATES = ("created_at", "created", "date")
_MAX_FRONT = 64 * 1024
_MAX_DEPTH = 32


class MarkdownNotes:
    """Each note is a memory; its front matter goes to `metadata.extra`."""

    name = "markdown"
    label = "Notes, a file or a .zip of a folder"

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell by the names: the file's, or that of the first one inside."""
        if source.name.lower().endswith(_ENDINGS):
            return True
        return any(member.name.lower().endswith(_ENDINGS) for member in source.members())

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the notes by their names."""
        notes = (each for each in source.members() if each.name.lower().endswith(_ENDINGS))
        yield from read_each(((f"`{each.name}`", each) for each in notes), _note, complain)


def _note(source: SourceFile, say: Say) -> Iterator[SourceMemory]:
    text = source.text()
    fields: Mapping[str, object] = {}
    try:
        fields, body = front_matter(text)
    except TransferError as exc:
        body = text.removeprefix("\ufeff")
        say(f"{exc}; the note was taken whole, as text")
    if not body.strip():
        raise ValueError("it has only front matter, no text" if fields else "it is empty")
    extra = {name: _plain(value) for name, value in fields.items() if name not in _DATES}
    own_id, session = extra.pop("id", None), extra.pop("session_id", None)
    extra.pop("user_id", None)
    tags = extra.get("tags")
    if isinstance(tags, list) and all(isinstance(tag, str | int | float) for tag in tags):
        extra["tags"] = [str(tag) for tag in tags]  # YAML reads `2024` as a number
    elif tags is None:
        extra.pop("tags", None)
    extra["note"] = source.name
    at = next((moment for name in _DATES if (moment := _moment(fields.get(name)))), None)
    own_session = session if isinstance(session, str) and session else None
    item = note(say, body.strip("\n"), at=at, extra=extra, session=own_session)
    yield SourceMemory(item, own_id if isinstance(own_id, str) and own_id else source.name)


def front_matter(text: str) -> tuple[Mapping[str, object], str]:
    """Return the fields before the text, and the text; a bare `---` is a rule, not a beginning.

    What stands between two rules and is no list of fields belongs to the text.
    """
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return {}, "".join(lines)
    close = next((n for n, line in enumerate(lines[1:], 1) if line.strip() in ("---", "...")), None)
    if close is None:
        return {}, "".join(lines)
    import yaml  # noqa: PLC0415 - few notes are imported

    head = "".join(lines[1:close])
    if len(head) > _MAX_FRONT:
        raise TransferError(
            f"its front matter has {len(head):,} characters, at most {_MAX_FRONT:,} are allowed"
        )
    try:
        _check_front(yaml.parse(head, Loader=yaml.SafeLoader))
        fields = yaml.safe_load(head)
    except TransferError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        # YAML has dates, so a month of 13 is a `ValueError`.
        raise TransferError(
            f"its front matter is not valid YAML: {str(exc).splitlines()[0]}"
        ) from exc
    if fields is None:
        return {}, "".join(lines[close + 1 :])
    if not isinstance(fields, Mapping):
        return {}, "".join(lines)
    return {str(name): value for name, value in fields.items()}, "".join(lines[close + 1 :])


def _check_front(events: "Iterator[yaml.Event]") -> None:
    """Raise `TransferError` for what would grow, or never end, before anything is made of it."""
    depth = 0
    for event in events:
        if getattr(event, "anchor", None) is not None:
            raise TransferError("its front matter has YAML anchors, which are not read")
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > _MAX_DEPTH:
            raise TransferError(f"its front matter is nested deeper than {_MAX_DEPTH} levels")


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
