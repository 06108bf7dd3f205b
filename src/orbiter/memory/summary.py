"""When to summarise a conversation, and how: triggers, templates and generation.

A summary is derived and can be made again; the items it sums up are never touched here.
"""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orbiter.memory.conversation.windows import newest_first
from orbiter.memory.errors import QueryError, SummaryError
from orbiter.memory.model.fences import without_fences
from orbiter.memory.model.items import MemoryItem, calls_of, is_own_output, result_id, role_of
from orbiter.memory.model.own_output import is_own_tool
from orbiter.memory.model.protocols import Summarizer
from orbiter.memory.model.query import check_size
from orbiter.memory.model.tool_calls import are_answerable, call_arguments, call_id, call_name

__all__ = [
    "Summarizer",
    "SummaryConfig",
    "SummaryResult",
    "SummaryTemplate",
    "TriggerResult",
    "check_trigger",
    "conversation_text",
    "estimated_tokens",
    "generate_summary",
    "roll_summary",
    "without_thoughts",
]

_THOUGHT = re.compile(
    r"(?<![`'\"])<(think|thinking)>.*?(?<![`'\"])</\1>|^[ \t]*<(?:think|thinking)>.*\Z",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_OPENED_ELSEWHERE = re.compile(r"\A.*(?<![`'\"])</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


class SummaryTemplate(StrEnum):
    """What a summary is about."""

    CONVERSATION = "conversation"
    FACTS = "facts"
    PROFILES = "profiles"


_PROMPTS = {
    SummaryTemplate.CONVERSATION: (
        "Summarise the conversation below. Keep the key decisions, the action items and the "
        "important context; leave out small talk. If it begins with an earlier summary, return "
        "one summary that covers both.\n\n{content}"
    ),
    SummaryTemplate.FACTS: (
        "List the factual statements and verified information in the conversation below, one per "
        "line, with names, numbers and dates exactly as given. If it begins with an earlier list, "
        "keep what still holds.\n\n{content}"
    ),
    SummaryTemplate.PROFILES: (
        "Describe the user of the conversation below: preferences, personality traits and "
        "background, only as far as they were said or shown. If it begins with an earlier "
        "profile, update it.\n\n{content}"
    ),
}


@dataclass(frozen=True, slots=True)
class SummaryConfig:
    """When to summarise, with which templates, and how much to leave as it is."""

    message_threshold: int = 20
    token_threshold: int = 4000
    templates: tuple[SummaryTemplate, ...] = (SummaryTemplate.CONVERSATION,)
    prompts: dict[SummaryTemplate, str] = field(default_factory=dict)
    keep_recent: int = 4
    token_estimate_ratio: float = 4.0

    def __post_init__(self) -> None:
        for name in ("message_threshold", "token_threshold", "keep_recent"):
            check_size(name, getattr(self, name))
        ratio = self.token_estimate_ratio
        if not (math.isfinite(ratio) and ratio > 0):
            raise QueryError(f"`token_estimate_ratio` must be greater than 0, not {ratio}")
        object.__setattr__(self, "templates", tuple(map(_template, self.templates)))
        object.__setattr__(self, "prompts", {_template(t): p for t, p in self.prompts.items()})

    def get_prompt(self, template: SummaryTemplate) -> str:
        """Return the prompt for *template*: your own, or the built-in one.

        `{content}` in it is replaced by the conversation; a prompt without it gets the
        conversation at its end.
        """
        known = _template(template)
        return self.prompts.get(known, _PROMPTS[known])


def _template(name: str) -> SummaryTemplate:
    try:
        return SummaryTemplate(name)
    except ValueError:
        known = "`, `".join(SummaryTemplate)
        raise QueryError(f"unknown summary template `{name}`; use `{known}`") from None


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """Whether to summarise now, and why."""

    triggered: bool
    reason: str
    message_count: int
    estimated_tokens: int


@dataclass(slots=True)
class SummaryResult:
    """Summaries by template name, and the items that stay as they are."""

    summaries: dict[str, str] = field(default_factory=dict)
    compressed_items: list[MemoryItem] = field(kw_only=True)
    original_count: int = field(kw_only=True)


def estimated_tokens(items: Sequence[MemoryItem], config: SummaryConfig) -> int:
    """Return about how many tokens *items* have, by their characters."""
    characters = 0
    for item in items:
        characters += len(item.content)
        for call in calls_of(item):
            characters += len(call_name(call)) + len(call_arguments(call))
    return int(characters / config.token_estimate_ratio)


def check_trigger(items: Sequence[MemoryItem], config: SummaryConfig) -> TriggerResult:
    """Tell whether there are more messages or more estimated tokens than *config* allows."""
    count, tokens = len(items), estimated_tokens(items, config)
    reasons = []
    if count > config.message_threshold:
        reasons.append(f"message count {count} exceeds {config.message_threshold}")
    if tokens > config.token_threshold:
        reasons.append(f"estimated token count {tokens} exceeds {config.token_threshold}")
    reason = "; ".join(reasons)
    return TriggerResult(bool(reasons), reason[:1].upper() + reason[1:], count, tokens)


def conversation_text(items: Sequence[MemoryItem]) -> str:
    """Return one line per message, `[HUMAN]: …`, tool calls included.

    What memories said is left out: the answers of our own tools, calls of them, and fences.
    """
    said = [item for item in items if not is_own_output(item)]
    lines = ((_speaker(item), _line(item)) for item in said)
    return "\n".join(f"[{speaker}]: {line}" for speaker, line in lines if line is not None)


def _speaker(item: MemoryItem) -> str:
    return re.sub(r"[^\w .-]", "_", item.memory_type.upper())


def _line(item: MemoryItem) -> str | None:
    """Return what a message says; `None` if it does nothing but call tools of ours."""
    calls = calls_of(item)
    others = [call for call in calls if not is_own_tool(call_name(call))]
    content = without_fences(item.content)
    if calls and not others and not content:
        return None
    said = [content] if content or not others else []
    called = (f"→ {call_name(call)}({call_arguments(call)})" for call in others)
    # One line per message: a line break inside one could pass for another speaker.
    return " ".join(" ".join([*said, *called]).split())


async def generate_summary(
    items: Sequence[MemoryItem],
    config: SummaryConfig,
    summarizer: Any,  # the seed's word; a `Summarizer`
) -> SummaryResult:
    """Summarise all but the newest `keep_recent` items, once per template.

    The kept tail grows rather than split a tool group. With nothing to compress the summarizer
    is not called. `SummaryError` names the template that failed; no item is ever changed.
    """
    return await roll_summary({}, items, config, summarizer)


async def roll_summary(
    previous: Mapping[str, str],
    items: Sequence[MemoryItem],
    config: SummaryConfig,
    summarizer: Summarizer,
) -> SummaryResult:
    """Summarise *previous* summaries together with the *items* that came after them.

    Pass the last result's `summaries`, and its `compressed_items` with whatever was added since:
    each call then costs one summary and the new items, however long the conversation has grown.
    A template with nothing new keeps its previous summary. So do facts and profiles of which the
    summarizer says nothing, as there may be none; a conversation without a summary is an error.
    """
    cut = _cut_between_groups(items, max(0, len(items) - config.keep_recent))
    if not cut or not config.templates:
        return SummaryResult(
            dict(previous), compressed_items=list(items), original_count=len(items)
        )
    text = conversation_text(items[:cut])
    if not text:  # our own tools alone have spoken
        return SummaryResult(
            dict(previous), compressed_items=list(items[cut:]), original_count=len(items)
        )
    tasks: dict[SummaryTemplate, asyncio.Task[str]] = {}
    try:
        async with asyncio.TaskGroup() as group:
            for template in config.templates:
                prompt = _prompt(config.get_prompt(template), previous.get(template, ""), text)
                tasks[template] = group.create_task(_summarize(summarizer, template, prompt))
    except BaseExceptionGroup as failures:  # who asked for a summary expects the failure itself
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    made = {template.value: task.result() for template, task in tasks.items()}
    kept = {name: text or previous.get(name, "") for name, text in made.items()}
    if not any(kept.values()):
        raise _nothing_said(config.templates[0])
    return SummaryResult(
        {**previous, **kept},
        compressed_items=list(items[cut:]),
        original_count=len(items),
    )


def _cut_between_groups(items: Sequence[MemoryItem], index: int) -> int:
    """Return the last place at or before *index* where a cut parts no call from its results.

    Calls of the open last turn still wait for theirs, so they belong to what is yet to come.
    """
    call_places: dict[str, int] = {}
    ends: dict[int, int] = {}
    for place, item in enumerate(items):
        call_places |= dict.fromkeys(map(call_id, calls_of(item)), place)
        if role_of(item) == "tool" and result_id(item) in call_places:
            ends[call_places[result_id(item)]] = place + 1
    last = next((p for p, item in newest_first(items) if role_of(item) != "tool"), None)
    if last is not None and are_answerable(calls_of(items[last])):
        answered = {result_id(item) for item in items[last + 1 :]}
        if any(call_id(call) not in answered for call in calls_of(items[last])):
            ends[last] = len(items) + 1
    for start in sorted(ends, reverse=True):
        if start < index < ends[start]:
            index = start
    return index


def _prompt(template: str, previous: str, text: str) -> str:
    before = (f"[SUMMARY]: {line.strip()}" for line in previous.splitlines() if line.strip())
    content = "\n".join([*before, text])
    if "{content}" not in template:
        return f"{template}\n\n{content}"
    return template.replace("{content}", content)


async def _summarize(summarizer: Summarizer, template: SummaryTemplate, prompt: str) -> str:
    """Return what the summarizer says, "" if that is nothing and may be."""
    try:
        summary: object = await summarizer.summarize(prompt)
        if not isinstance(summary, str):
            raise TypeError(f"it returned {summary!r}, not a summary")  # noqa: TRY301 - told like any failure
    except Exception as exc:  # any summarizer's own error, told with the template's name
        raise SummaryError(template, exc) from exc
    text = without_thoughts(summary)
    if text.strip():
        return text
    if template is SummaryTemplate.CONVERSATION:
        raise _nothing_said(template)
    return ""


def _nothing_said(template: SummaryTemplate) -> SummaryError:
    # Taking it would replace messages by nothing.
    cause = TypeError("it returned an empty text, not a summary")
    error = SummaryError(template, cause)
    error.__cause__ = cause
    return error


def without_thoughts(text: str) -> str:
    """Return an answer without what a model thought aloud before it: `<think>…</think>`.

    A block that never ends was cut off, and is dropped to the end; it begins a line, as a tag
    elsewhere, or in quotes, is only spoken of. Where only the end is there, the server has
    swallowed the beginning.
    """
    if "think" not in text.lower():
        return text
    rest = _OPENED_ELSEWHERE.sub("", _THOUGHT.sub("", text))
    return text if rest == text else rest.strip()
