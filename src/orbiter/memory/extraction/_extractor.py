"""The `Extractor` protocol, and the facts that an extractor proposes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from inspect import iscoroutinefunction, unwrap

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.errors import ExtractionError, QueryError
from orbiter.memory.model.facts import MAX_VALUE, FactMemory, FactOp, check_key
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import check_instant
from orbiter.memory.model.validation import Json, StructuralMeta, check_json

__all__ = ["Extractor", "ProposedFact", "check_extractor", "check_proposals"]

MAX_PROPOSALS = 200
"""Most facts that one extraction may propose: more are no facts, but a transcript."""


@dataclass(frozen=True, slots=True)
class ProposedFact:
    """What messages seem to say; a value that is checked when it is made."""

    key: str
    value: Json
    message_ids: tuple[str, ...]
    """The messages that say so, at least one."""
    valid_from: datetime | None = None
    """Since when it is true; `None` if that is not said, so since it was said."""
    valid_to: datetime | None = None
    confidence: float | None = None
    """How sure the extractor is, from 0 to 1."""
    op: FactOp = "set"
    """Whether the value takes the place of the one before, is added to others, or removed; or
    whether the fact has ended. A value of `None` is an end, too."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise ExtractionError(f"a proposed key must be a string, not {self.key!r}")
        if self.op not in ("set", "add", "remove", "end"):
            raise ExtractionError(
                f"the `op` of `{self.key[:40]}` must be `set`, `add`, `remove` or `end`, not "
                f"{self.op!r}"
            )
        if self.value is None or self.op == "end":
            object.__setattr__(self, "op", "end")
            object.__setattr__(self, "value", None)
        try:
            check_key(self.key)
            object.__setattr__(self, "value", check_json(self.value, max_bytes=MAX_VALUE))
            for name in ("valid_from", "valid_to"):
                moment = getattr(self, name)
                if moment is not None:
                    object.__setattr__(self, name, check_instant(name, moment))
        except ValueError as exc:
            raise ExtractionError(
                f"the proposed fact `{self.key[:40]}` is not valid: {exc}"
            ) from exc
        self._check_span()
        ids: object = self.message_ids
        if isinstance(ids, str) or not isinstance(ids, Sequence) or not ids:
            raise ExtractionError(f"the proposed fact `{self.key}` names no message that says it")
        object.__setattr__(self, "message_ids", tuple(dict.fromkeys(ids)))
        sure: object = self.confidence
        if sure is not None and (
            isinstance(sure, bool) or not isinstance(sure, int | float) or not 0 <= sure <= 1
        ):
            raise ExtractionError(
                f"the confidence in `{self.key}` must be a number from 0 to 1, not {sure!r}"
            )

    def _check_span(self) -> None:
        start, end = self.valid_from, self.valid_to
        if start is not None and end is not None and end <= start:
            raise ExtractionError(
                f"the proposed fact `{self.key}` ends ({end.isoformat()}) before it begins"
            )


@runtime_checkable
class Extractor(Protocol, metaclass=StructuralMeta):
    """Finds facts in messages."""

    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> Sequence[ProposedFact]:
        """Return the facts that *messages* state, other than what is *known*, by key."""
        ...


def check_extractor(extractor: object) -> None:
    """Raise `QueryError` for what has no `async def extract`: else every job would fail."""
    method = getattr(extractor, "extract", None)
    if isinstance(extractor, type) or not _is_async(method):
        what = extractor.__name__ if isinstance(extractor, type) else type(extractor).__name__
        way = f"; make one: `{what}(…)`" if isinstance(extractor, type) else ""
        raise QueryError(
            f"`{what}` is not an extractor, which has "
            f"`async def extract(self, messages, known)`{way}"
        )


def _is_async(method: object) -> bool:
    if not callable(method):
        return False
    call = getattr(method, "__call__", None)  # noqa: B004 - an object may be called, too
    return iscoroutinefunction(unwrap(method)) or iscoroutinefunction(call)


def check_proposals(proposals: object, messages: Sequence[MemoryItem]) -> list[ProposedFact]:
    """Return what an extractor found, or raise `ExtractionError` if that is not usable."""
    if isinstance(proposals, str) or not isinstance(proposals, Sequence):
        raise ExtractionError(
            f"the extractor must return a list of facts, not {type(proposals).__name__}"
        )
    if len(proposals) > MAX_PROPOSALS:
        raise ExtractionError(
            f"the extractor proposed {len(proposals)} facts at once, at most {MAX_PROPOSALS} are "
            "taken; give it fewer messages"
        )
    ids = {message.id for message in messages}
    for each in proposals:
        if not isinstance(each, ProposedFact):
            raise ExtractionError(f"the extractor gave {each!r} in place of a `ProposedFact`")
        unknown = [name for name in each.message_ids if name not in ids]
        if unknown:
            raise ExtractionError(
                f"the proposed fact `{each.key}` names the message {unknown[0]!r}, which was not "
                "among the messages given"
            )
    return list(proposals)
