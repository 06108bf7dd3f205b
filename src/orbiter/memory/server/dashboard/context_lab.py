"""The context lab: what a model would be shown for a task, what it costs, and what was left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from orbiter.memory.agent import Chat
from orbiter.memory.errors import MessageError, QueryError, UnsupportedError
from orbiter.memory.messages import Format, codecs, to_messages, validate
from orbiter.memory.model.items import calls_of, new_id, role_of
from orbiter.memory.model.trust import SOURCE_KINDS, read_trust
from orbiter.memory.server.dashboard.chat_address import Watched, chat_of
from orbiter.memory.server.dashboard.page import Answer, Ask, Data, Pages, as_number
from orbiter.memory.text.ranking import for_prompt

if TYPE_CHECKING:
    from orbiter.memory.context import Context, Dropped
    from orbiter.memory.recall import RecallResult

__all__ = ["Task", "pages", "result_of"]

pages = Pages()

_USUAL = {
    "q": "",
    "chat": "",
    "budget": "1000",
    "format": "openai",
    "memory_limit": "5",
    "min_trust": "",
    "user_id": "",
    "agent_id": "",
}
"""The form, unless the address says otherwise."""
_MAX_BUDGET = 1_000_000
_MAX_MEMORIES = 50
_LISTED = 20
"""Ids of what was left out that are listed for one reason."""

PROVIDERS: dict[Format, str] = {name: codec.LABEL for name, codec in codecs().items()}
COLOURS = {
    "persona": "c4",
    "summary": "c1",
    "conversation": "c6",
    "recent": "c3",
    "memories": "c0",
    "task": "c2",
}
_REASON_TEXTS = {
    "budget": "no room in the budget",
    "shortened": "only a part fits",
    "status": "draft or discarded",
    "scope": "belongs to somebody else",
    "relevance": "does not answer",
    "limit": "better ones have all the places for memories",
    "duplicate": "already in the conversation",
    "kind": "not a message",
    "incomplete": "a tool call without its result, or a result without its call",
}


@dataclass(frozen=True)
class Task:
    """What is asked of the lab."""

    query: str
    chat: str
    budget: int
    format: Format
    memory_limit: int
    min_trust: str


@pages.page("/context", "context.html", title="Context lab")
async def lab(ask: Ask) -> Data | Answer:
    """Show what a model would be shown."""
    asked = ask.texts(**_USUAL)
    data: Data = {
        "asked": asked,
        "providers": PROVIDERS,
        "trusts": SOURCE_KINDS,
        "held": ask.principal.scope,
        "error": None,
        "next": None,
        "result": None,
    }
    try:
        task = _task(asked)
        if task.query or task.chat:
            watched = Watched(ask.handle, ask.handle.scope)
            chat = chat_of(watched, task.chat or f"lab-{new_id()}")
            data["next"] = await _missing(chat, task)
            if data["next"] is None:
                data["result"] = await result_of(watched, chat, task)
    except (QueryError, UnsupportedError, MessageError) as exc:
        # What was typed is still there, with what to do about it.
        return Answer({**data, "error": str(exc)}, 422)
    return data


def _task(asked: Mapping[str, str]) -> Task:
    format = asked["format"]
    if format not in get_args(Format):
        to_messages([], format)  # type: ignore[arg-type]  # raises what says which there are
    if asked["min_trust"]:
        read_trust(asked["min_trust"])
    budget, limit = asked["budget"], asked["memory_limit"]
    return Task(
        query=asked["q"].strip(),
        chat=asked["chat"].strip(),
        budget=as_number("budget", budget, 0, least=1, most=_MAX_BUDGET),
        format=format,  # type: ignore[arg-type]  # checked above
        memory_limit=as_number("memory_limit", limit, 0, least=0, most=_MAX_MEMORIES),
        min_trust=asked["min_trust"],
    )


async def _missing(chat: Chat, task: Task) -> str | None:
    """Return what is to be typed before anything can be assembled; raise if there is no chat."""
    if not task.chat:
        return None
    said = await chat.items(rounds=1)
    if not said:
        raise QueryError(
            f"there is no chat `{task.chat}` here; leave it empty, or name the user and the agent "
            "it belongs to"
        )
    if task.query:
        return None
    if role_of(said[-1]) == "ai" and not calls_of(said[-1]):
        return "This chat ends with an answer. Type what comes next."
    window = await chat.items(budget=task.budget)
    if not any(role_of(item) == "human" and item.content.strip() for item in window):
        return "This chat has no open question. Type a task for the model."
    return None


async def result_of(watched: Watched, chat: Chat, task: Task) -> Data:
    """Return what a model would be shown for *task*, and what was left out."""
    context = await chat.context(
        task.query or None,
        budget=task.budget,
        format=task.format,
        memory_limit=task.memory_limit,
        min_trust=task.min_trust or None,
    )
    recalled = watched.recalled
    memories = [] if recalled is None else _offered(context, recalled, task.memory_limit)
    return {
        "tokens": context.tokens,
        "budget": task.budget,
        "prefix_tokens": context.prefix_tokens,
        "format": task.format,
        "parts": _parts(context),
        "memories": memories,
        "question": "" if recalled is None else recalled.question,
        "considered": 0 if recalled is None else recalled.considered,
        "left_out": () if recalled is None else recalled.left_out,
        "dropped": _grouped(context.dropped),
        "messages": {name: _sent(context, name) for name in PROVIDERS},
        "text": context.text,
    }


def _offered(context: "Context", recalled: "RecallResult", limit: int) -> list[Data]:
    """Return the hits that wanted a place, with what became of each.

    What the conversation shows itself wants none. What does not answer has none.
    """
    said = {item.id for item in context._items}  # noqa: SLF001 - what it holds, by id
    answers = for_prompt(recalled)
    hits = [hit for hit in answers if hit.item.id not in said][:limit]
    known = said.union(hit.item.id for hit in answers)
    others = [hit for hit in recalled if hit.item.id not in known][:limit]
    lost = {each.id: each.reason for each in context.dropped if each.section == "memories"}
    states = [(hit, lost.get(hit.item.id, "shown")) for hit in hits]
    states += [(hit, "relevance") for hit in others]
    return [
        {"hit": hit, "state": state, "told": _REASON_TEXTS.get(state, "")} for hit, state in states
    ]


def _parts(context: "Context") -> list[tuple[str, int, str]]:
    """Return the sections with their tokens and colours, and what all messages cost beside."""
    parts = [(name, tokens, COLOURS.get(name, "c7")) for name, tokens in context.parts.items()]
    rest = context.tokens - sum(tokens for _, tokens, _ in parts)
    return [*parts, ("around messages", rest, "ink")] if rest > 0 else parts


def _grouped(dropped: "Sequence[Dropped]") -> list[Data]:
    """Return what was left out, by section and reason: a long chat drops hundreds for one."""
    groups: dict[tuple[str, str], list[Dropped]] = {}
    for each in dropped:
        if each.reason == "relevance":  # which is listed among the memories
            continue
        groups.setdefault((each.section, each.reason), []).append(each)
    return [
        {
            "section": section,
            "reason": reason,
            "told": _REASON_TEXTS.get(reason, reason),
            "count": len(group),
            "tokens": sum(each.tokens for each in group),
            "some": group[:_LISTED],
        }
        for (section, reason), group in groups.items()
    ]


def _sent(context: "Context", format: Format) -> Data:
    sent = context.messages(format)
    return {
        "sent": sent.as_kwargs(),
        "count": len(sent.messages),
        "problems": [str(each) for each in validate(sent.messages, format)],
    }
