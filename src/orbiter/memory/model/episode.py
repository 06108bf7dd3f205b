"""Episodes: one interaction of an agent each, remembered for some hours.

An episode names itself by its time and some dice, so a write that is repeated is the same write.
"""

import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    field_serializer,
    model_validator,
)

from orbiter.memory.model.copying import SLOT_SETTERS
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.validation import Json, check_json, check_tag, check_text, to_utc

__all__ = [
    "DEFAULT_TTL_HOURS",
    "OURS",
    "STAMP_LENGTH",
    "EpisodicMemory",
    "activity_name",
    "check_agent_id",
    "own_name",
    "part_of",
    "pattern_of",
    "stamp",
    "stored_episode",
]

DEFAULT_TTL_HOURS = 2.0
"""How long an interaction is remembered."""

STAMP_LENGTH = len("2026-01-31T23:59:59.123456+00:00")
"""Characters of the time that an id begins with."""

_MAX_TEXT = 2**20
_MAX_JSON = 2**20
_LAST_YEAR = 2200  # beyond, Redis's scores are too coarse for microseconds
_ID = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00-[0-9A-Za-z_-]{1,64}")
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def stamp(instant: datetime) -> str:
    """Return *instant* as ISO-8601 of one width, so that text order is time order."""
    return instant.isoformat(timespec="microseconds")


def check_agent_id(value: str) -> str:
    """Return *value* if keys can be made of it, else raise `ValueError`."""
    return check_tag("agent_id", value)


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None and value.replace(tzinfo=UTC) > datetime.now(UTC):
        # Taken as UTC it has not come yet: nearly always a local time that lost its zone.
        raise ValueError(
            f"{value.isoformat()} has no time zone and lies in the future as UTC; "
            "use `datetime.now(UTC)`, or give it its zone"
        )
    if value.year > _LAST_YEAR:
        raise ValueError(f"{value.isoformat()} is later than the year {_LAST_YEAR}")
    return to_utc(value)


def _one_line(value: str) -> str:
    return _BREAKS.sub(" ", value)


def _json(value: object) -> Json:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a dict, not {value!r}")  # noqa: TRY004 - pydantic reports it
    return check_json(dict(value), max_bytes=_MAX_JSON) if value else {}


_LONGEST_NAME, _LONGEST_LIFE = 256, 24 * 36525
_Name = Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST_NAME)]


class EpisodicMemory(BaseModel):
    """What an agent did or was told, where and when. It cannot be changed, only replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: StrictStr = ""
    """Its time and a random mark; unique within the agent, and in order of time."""
    agent_id: Annotated[StrictStr, AfterValidator(check_agent_id)] = "nova"
    interaction_type: _Name
    content: StrictStr
    platform: _Name | None = None
    metadata: Annotated[dict[str, Any], BeforeValidator(_json)] = Field(default_factory=dict)
    timestamp: Annotated[datetime, AfterValidator(_instant)] = Field(
        default_factory=lambda: datetime.now(UTC)
    )
    """When it happened, in UTC; a time without a zone is taken as UTC."""
    ttl_hours: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False, le=_LONGEST_LIFE)] = (
        DEFAULT_TTL_HOURS
    )
    """How long it is remembered, from its time on."""

    # One check for all texts: each that pydantic calls by itself costs as much as all of them.
    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("content", "interaction_type", "platform"):
            text = getattr(self, name)
            if text and not (text.isascii() and len(text) <= _MAX_TEXT and "\0" not in text):
                try:
                    check_text(text, max_bytes=_MAX_TEXT)
                except ValueError as exc:
                    raise ValueError(f"`{name}`: {exc}") from None
        if not self.id:
            object.__setattr__(self, "id", f"{stamp(self.timestamp)}-{secrets.token_hex(8)}")
        elif not _ID.fullmatch(self.id) or not self._is_its_time(self.id[:STAMP_LENGTH]):
            raise ValueError(
                f"`id` {self.id!r} is not its time `{stamp(self.timestamp)}`, a dash and 1 to 64 "
                "letters, digits, `-` or `_`; leave it out to get one"
            )
        return self

    def _is_its_time(self, moment: str) -> bool:
        try:
            return datetime.fromisoformat(moment) == self.timestamp
        except ValueError:
            return False

    @field_serializer("timestamp", when_used="json")
    def _write_timestamp(self, _: datetime) -> str:
        return self.id[:STAMP_LENGTH]  # in front of the id it has been written out already

    @property
    def expires_at(self) -> datetime:
        """When it is forgotten."""
        return self.timestamp + timedelta(hours=self.ttl_hours)

    def summary(self) -> str:
        """Return it as one line, `[HH:MM] type on platform: content`; the time is UTC.

        Line breaks become blanks, so that no content can pass for a second line.
        """
        where = f" on {_one_line(self.platform)}" if self.platform else ""
        kind, content = _one_line(self.interaction_type), _one_line(self.content)
        return f"[{self.timestamp:%H:%M}] {kind}{where}: {content}"


_FIELDS = set(EpisodicMemory.model_fields)
_set_dict, _set_fields_set, _set_extra, _set_private = SLOT_SETTERS


def stored_episode(record: Any) -> EpisodicMemory | None:
    """Return the memory of a *record* that we wrote; `None` if it looks unlike one.

    It accepts nothing that `EpisodicMemory` would not, in a fifth of the time.
    """
    if type(record) is not dict or record.keys() != _FIELDS:
        return None
    id, platform, metadata = record["id"], record["platform"], record["metadata"]
    life = record["ttl_hours"]
    if (
        type(id) is not str
        or not _ID.fullmatch(id)
        or record["timestamp"] != id[:STAMP_LENGTH]
        or type(record["agent_id"]) is not str
        or not _is_agent_id(record["agent_id"])
        or not _is_plain(record["content"], 0, _MAX_TEXT)
        or not _is_plain(record["interaction_type"], 1, _LONGEST_NAME)
        or not (platform is None or _is_plain(platform, 1, _LONGEST_NAME))
        or type(metadata) is not dict
        or type(life) is not float
        or not 0 < life <= _LONGEST_LIFE
    ):
        return None
    try:
        timestamp = datetime.fromisoformat(id[:STAMP_LENGTH])
        record["metadata"] = _json(metadata)
    except ValueError:
        return None
    if timestamp.year > _LAST_YEAR:
        return None
    memory = object.__new__(EpisodicMemory)
    _set_dict(memory, {**record, "timestamp": timestamp})
    _set_fields_set(memory, _FIELDS)
    _set_extra(memory, None)
    _set_private(memory, None)
    return memory


def _is_plain(text: object, least: int, most: int) -> bool:
    """Tell whether *text* is of ASCII, as most are, and so long."""
    return type(text) is str and least <= len(text) <= most and text.isascii() and "\0" not in text


@lru_cache(maxsize=256)
def _is_agent_id(value: str) -> bool:
    try:
        return check_agent_id(value) == value
    except ValueError:
        return False


# Keys of recent activity, made of a scope, so that all of one user's is found by them

OURS = "scope-"
"""How the names begin that are made of scopes."""


def part_of(name: str, value: str | None) -> str:
    """Return the part of a name that stands for one field of a scope."""
    return "0" if value is None else blake2b(f"{name}:{value}".encode(), digest_size=12).hexdigest()


def pattern_of(wanted: Mapping[Any, str]) -> str:
    """Return the pattern of all names of a scope and below it."""
    parts = (part_of(name, wanted[name]) if name in wanted else "*" for name in SCOPE_FIELDS)
    return OURS + "-".join(parts)


def own_name(wanted: Mapping[Any, str]) -> str | None:
    """Return the agent's own name if an agent is all that a scope names: that is kept under it."""
    return wanted["agent_id"] if set(wanted) == {"agent_id"} else None


def activity_name(scope: MemoryMetadata) -> str:
    """Return the agent id under which the activity of *scope* is kept.

    An agent that is all a scope names keeps its own. Else each field has a part, a digest of its
    value: whatever a scope names, the ids below it are known by these parts.
    """
    wanted = Query(metadata=scope).wanted
    if set(wanted) == {"agent_id"} and not wanted["agent_id"].startswith(OURS):
        return wanted["agent_id"]
    return OURS + "-".join(part_of(name, wanted.get(name)) for name in SCOPE_FIELDS)
