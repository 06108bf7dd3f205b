"""Conversations with questions and evidence, as memories in a store; see `recall_quality`."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orbiter.memory.agent import inputs
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata

_FORMATS = (
    *("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y-%m-%d %H:%M:%S"),
    *("%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y/%m/%d", "%d %B, %Y", "%d %B %Y", "%B %d, %Y", "%B-%d-%Y"),
)
_ROLES = frozenset(("user", "assistant"))


@dataclass(frozen=True)
class Asked:
    """One question; `evidence` only ever judges."""

    id: str
    text: str
    category: str
    evidence: frozenset[str]
    at: datetime | None


@dataclass(frozen=True)
class Conversation:
    name: str
    items: list[MemoryItem]
    questions: list[Asked]
    ids: dict[str, str] = field(repr=False)
    """The id that the file gives to each item, by the item's own."""

    @property
    def scope(self) -> MemoryMetadata:
        return MemoryMetadata(user_id=self.name)

    @property
    def end(self) -> datetime:
        return self.items[-1].created_at + timedelta(days=1)


TELLINGS = ("speaker", "text", "note", "name", "roles")
"""How who speaks may be told: by `extra["speaker"]`, before a colon in the text of a message or of
a note, by OpenAI's `name`, or before a colon with one person as the user and the others as the
assistant."""


def read(path: Path, *, telling: str = "speaker") -> tuple[str, list[Conversation]]:
    """Return the name of the data and its conversations, which say in one way who speaks."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    name = data.get("name", path.stem)
    return name, [_conversation(name, entry, telling) for entry in data["conversations"]]


def parse_date(text: object) -> datetime | None:
    """Return the instant that a date as text is, in any of the ways the files write one."""
    written = re.sub(r"\s+", " ", str(text or "")).strip()
    for form in _FORMATS:
        try:
            return datetime.strptime(written, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _conversation(name: str, entry: dict[str, Any], telling: str) -> Conversation:
    ids: dict[str, str] = {}
    items = []
    for item, turn in zip(
        _items(f"{name}/{entry['id']}", entry["items"], telling), entry["items"], strict=True
    ):
        ids[item.id] = turn["id"]
        items.append(item)
    known = set(ids.values())
    questions = [
        Asked(
            id=str(asked["id"]),
            text=asked["question"],
            category=str(asked.get("category", "all")),
            evidence=frozenset(asked["evidence"]) & known,
            at=parse_date(asked.get("date")),
        )
        for asked in entry["questions"]
    ]
    return Conversation(
        f"{name}/{entry['id']}", items, [each for each in questions if each.evidence], ids
    )


def _items(user: str, turns: list[dict[str, Any]], telling: str) -> Iterator[MemoryItem]:
    last = datetime(2000, 1, 1, tzinfo=UTC)
    said: Counter[str] = Counter()
    for turn in turns:
        session = str(turn.get("session", ""))
        moment = parse_date(turn.get("date")) or last
        # Turns of a session share its date: a second between them keeps their order.
        last = moment + timedelta(seconds=said[session])
        said[session] += 1
        speaker, role = str(turn.get("speaker", "")), turn.get("role", "user")
        kind: type[MemoryItem] = AIMemory if role == "assistant" else HumanMemory
        caption = turn.get("caption")
        content = f"{turn['text']} [{caption}]" if caption else turn["text"]
        is_named = bool(speaker) and speaker not in _ROLES
        if is_named and telling in ("text", "note", "roles"):
            content = f"{speaker}: {content}"
        if telling == "note":
            kind, session = MemoryItem, ""
        elif telling == "roles" and is_named:
            kind = HumanMemory if speaker == turns[0]["speaker"] else AIMemory
        place = MemoryMetadata(user_id=user, session_id=session or None)
        if telling == "name" and is_named:  # read as `chat.add` reads it
            message = {"role": "user", "name": speaker, "content": content}
            item = inputs.read(message, place, {}, None)
            yield item.model_copy(update={"created_at": last, "updated_at": last})
            continue
        if is_named and telling == "speaker":
            place = place.model_copy(update={"extra": {"speaker": speaker}})
        yield kind(content=content, metadata=place, created_at=last, updated_at=last)
