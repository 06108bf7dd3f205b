"""Conversations, and what a model is shown of one: `chat`, `context`."""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from uuid import uuid4

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import NotThereError
from orbiter.memory.cli._lookup import note_nothing
from orbiter.memory.cli._options import (
    command,
    limit_option,
    memory_options,
    min_relevance_option,
    output_options,
    read_words,
)
from orbiter.memory.cli._output import console_for, styled
from orbiter.memory.cli._text import clean, moment, one_line
from orbiter.memory.cli._views import as_json, entry, scope_label
from orbiter.memory.messages.codec import Format

if TYPE_CHECKING:
    from rich.text import Text

    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.context import Context, Dropped
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ConversationInfo

__all__ = ["chat", "context", "spoken", "token_bar"]

_SCREEN = 20
"""Conversations that are listed where nobody said how many."""
_NAMES = 500
"""Conversations among which one with a name like an unknown one is looked for."""
_WHO = {
    "human": ("user", "bold green"),
    "ai": ("assistant", "bold cyan"),
    "tool": ("tool", "bold yellow"),
    "system": ("system", "bold magenta"),
}

_FORMATS = click.Choice(get_args(Format))


@command("chat")
@click.argument("chat_id", metavar="[CHAT]", required=False)
@click.option("--query", default="", help="Conversations whose title or name contains this text.")
@limit_option(None, "At most this many conversations (20), or rounds of one (all).")
@click.option("--format", type=_FORMATS, help="CHAT as the messages of a provider, in JSON.")
@memory_options()
@output_options
async def chat(
    run: CommandContext,
    chat_id: str | None,
    *,
    query: str,
    limit: int | None,
    format: Format | None,
) -> None:
    """List conversations, or show one.

    The most recent comes first; of CHAT, the oldest message.
    """
    if chat_id is None:
        if format is not None:
            raise UsageError("`--format` is of one conversation; name it: `chat CHAT --format …`")
        await _list_chats(run, query, limit or _SCREEN)
    elif run.target.everyone or query:
        # Without a user, sessions of the same name would be shown as one conversation.
        raise UsageError("`--all` and `--query` list conversations; leave them out to show one")
    else:
        await _show_chat(run, chat_id, limit, format)


async def _list_chats(run: CommandContext, query: str, limit: int) -> None:
    async with run.both(meaning=False) as (store, memory):
        chats = await memory.chats(query=query, limit=limit)
        if not chats:
            wanted = f" with `{query}` in its title or name" if query else " here"
            text = f"no conversation{wanted}{run.target.or_all('shows')}"
            await note_nothing(run, store, text)
    if run.out.is_json:
        run.out.data([_chat_json(each) for each in chats])
    else:
        rows = [
            (
                _name(each),
                each.items,
                moment(each.last_at),
                scope_label(each.metadata),
                each.title or "",
            )
            for each in chats
        ]
        run.out.table(rows, ("chat", "messages", "last", "scope", "title"))


def _name(info: "ConversationInfo") -> str:
    scope = info.metadata
    return scope.task_id or scope.session_id or scope.user_id or ""


def _chat_json(info: "ConversationInfo") -> dict[str, object]:
    fields = asdict(info)
    fields["metadata"] = info.metadata.model_dump(mode="json")
    return {"chat": _name(info), **fields}


async def _show_chat(
    run: CommandContext, chat_id: str, rounds: int | None, format: Format | None
) -> None:
    async with run.scoped(meaning=False) as memory:
        conversation = memory.chat(chat_id)
        items = await conversation.items(rounds=rounds)
        sent = await conversation.messages(rounds=rounds, format=format) if format else None
        if not items:
            raise await _no_chat(run, memory, chat_id)
    if sent is not None:
        run.out.data(sent.as_kwargs())
    elif run.out.is_json:
        run.out.data([as_json(item) for item in items])
    else:
        tools: dict[str, str] = {}
        for item in items:
            run.out.show(entry(*spoken(item, tools)))


async def _no_chat(run: CommandContext, memory: "ScopedMemory", chat_id: str) -> NotThereError:
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    names = [_name(each) for each in await memory.chats(limit=_NAMES)]
    begun = [name for name in names if name.startswith(chat_id)]
    near = (begun or get_close_matches(chat_id, names, n=1))[:1]
    meant = f"did you mean `{one_line(near[0])}`? " if near else ""
    return NotThereError(
        f"there is no conversation `{chat_id}` of {run.target.describe()}; {meant}`orbiter-memory "
        "chat` lists them, `--user` chooses another user"
    )


def spoken(item: "MemoryItem", tools: dict[str, str]) -> "tuple[Text, list[Text]]":
    """Return who says something and what, calls and tools' answers included.

    *tools* are the names of the calls so far, by id; those of this item are added.
    """
    from orbiter.memory.model.items import AIMemory, ToolMemory, role_of  # noqa: PLC0415

    who, style = _WHO[role_of(item) or "system"]
    lines = [styled(item.content)] if item.content else []
    if isinstance(item, AIMemory):
        tools |= {call.id: call.name for call in item.calls if call.id}
        lines += [
            styled(("→ ", "yellow"), one_line(call.name), (f"({_arguments(call.args)})", "dim"))
            for call in item.calls
        ]
    if isinstance(item, ToolMemory):
        name = item.tool_name or tools.get(item.tool_call_id, item.tool_call_id)
        lines = [styled((f"{one_line(name)}: ", "yellow"), one_line(item.content))]
    return styled((f"{who:>9} ", style)), lines or [styled("")]


def _arguments(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return one_line(arguments)
    pairs = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return one_line(", ".join(pairs))


@command("context")
@click.argument("chat_id", metavar="CHAT")
@click.argument("words", nargs=-1, metavar="[TASK]...")
@click.option("--budget", type=click.IntRange(min=1), help="At most this many tokens.")
@click.option("--format", type=_FORMATS, default="openai", show_default=True)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="At most this many memories.",
)
@min_relevance_option
@click.option("--persona", type=click.Path(path_type=Path), help="A SOUL.md.")
@memory_options(everyone=False)
@output_options
async def context(
    run: CommandContext,
    chat_id: str,
    words: tuple[str, ...],
    *,
    budget: int | None,
    format: Format,
    limit: int,
    min_relevance: float | None,
    persona: Path | None,
) -> None:
    """Print the context for a model, within a token budget.

    It is for TASK, or for the last question of CHAT. A question in place of CHAT gets a context of
    memories alone.
    """
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - `--help` needs it not

    waiting = 0
    task = read_words(words) if words else None
    async with run.both(persona=persona) as (store, memory):
        conversation = memory.chat(chat_id)
        has_messages = bool(await conversation.items(rounds=1))
        if not has_messages and _is_question(chat_id, words):
            task = read_words([chat_id, *words])
            conversation = memory.chat(uuid4().hex)
            run.out.note(
                "no conversation is named: the context is of memories alone; `orbiter-memory "
                'context CHAT "…"` adds a conversation'
            )
        elif not has_messages:
            if task is None:
                raise await _no_chat(run, memory, chat_id)
            run.out.note(
                f"the conversation `{chat_id}` of {run.target.describe()} has no messages yet"
            )
        if limit:
            waiting = await embed_waiting(run.out, store, within=PATIENCE)
        try:
            made = await conversation.context(
                task, budget=budget, format=format, memory_limit=limit, min_relevance=min_relevance
            )
        except QueryError as exc:
            problem, _, way = str(exc).partition(";")
            if task is not None or "chat.context(" not in way:
                raise
            raise UsageError(
                f'{problem}; give the task: `orbiter-memory context {chat_id} "…"`'
            ) from None
        if not has_messages and not any(each.name == "memories" for each in made.sections):
            await note_nothing(run, store, f"no memory of {run.target.describe()} answers")
    note_waiting(waiting)
    if run.out.is_json:
        run.out.data(_context_json(made))
        return
    _print_context(run, made)
    if run.out.is_watched:
        run.out.draw(*token_bar(made, width=min(console_for(sys.stderr).width, 100)))


def _is_question(first: str, others: Sequence[str]) -> bool:
    """Return whether words that begin with no conversation are a question alone.

    One that stands before a single text in quotes is meant for a new conversation.
    """
    is_text = " " in first.strip() or first.endswith(("?", "？"))
    return is_text or len(others) > 1


def _context_json(made: "Context") -> dict[str, object]:
    return {
        **made.messages().as_kwargs(),
        "tokens": made.tokens,
        "budget": made.budget,
        "prefix_tokens": made.prefix_tokens,
        "sections": [{"name": each.name, "tokens": each.tokens} for each in made.sections],
        "dropped": [asdict(each) for each in made.dropped],
    }


def _print_context(run: CommandContext, made: "Context") -> None:
    """Print the messages of a context."""
    sent = made.messages()
    if sent.system:
        _print_message(run, "system", sent.system)
    for message in sent.messages:
        _print_message(run, str(message.get("role") or message.get("type")), _content(message))


def _print_message(run: CommandContext, role: str, text: str) -> None:
    run.out.show(styled((f"── {role} ", "bold")), styled(clean(text)), "")


def _content(message: Mapping[str, Any]) -> str:
    """Return what a provider's message says: its text, or its parts as JSON."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str) and set(message) <= {"role", "content", "type"}:
        return content
    if isinstance(content, Sequence) and not isinstance(content, str) and len(content) == 1:
        only = content[0]
        if isinstance(only, Mapping) and set(only) <= {"type", "text"}:
            return str(only.get("text", ""))
    rest = {key: value for key, value in message.items() if key not in ("role", "type")}
    return json.dumps(rest, ensure_ascii=False)


_COLORS = {
    "persona": "magenta",
    "summary": "blue",
    "conversation": "cyan",
    "recent": "yellow",
    "memories": "green",
    "task": "red",
}


def token_bar(context: "Context", *, width: int) -> "list[Text]":
    """Return lines of at most *width* columns: a bar, a legend, and what was left out."""
    inner = max(width - 2, 20)
    whole = max(context.budget or 0, context.tokens, 1)
    parts = [(each.name, each.tokens) for each in context.sections if each.tokens]
    bar = styled(" ")
    used = 0
    for name, tokens in parts:
        # A part that is there is seen, however small; together they never exceed the bar.
        cells = min(max(round(tokens * inner / whole), 1), inner - used)
        bar.append_text(styled(("█" * cells, _COLORS.get(name, "white"))))
        used += cells
    bar.append_text(styled(("░" * (inner - used), "bright_black")))
    legend = styled(" ")
    for name, tokens in parts:
        legend.append_text(styled(("■", _COLORS.get(name, "white")), f" {name} {tokens:,}  "))
    return [_head(context), bar, legend, *_left_out(context.dropped)]


def _head(context: "Context") -> "Text":
    of = "" if context.budget is None else f" of {context.budget:,}"
    cached = f", the first {context.prefix_tokens:,} cacheable" if context.prefix_tokens else ""
    return styled((f" {context.tokens:,}{of} tokens", "bold"), (cached, "dim"))


def _left_out(dropped: Sequence["Dropped"]) -> "list[Text]":
    """Return a line for each reason why something was left out, the costliest first."""
    tokens: Counter[tuple[str, str]] = Counter()
    for each in dropped:
        tokens[each.section, each.reason] += each.tokens
    return [
        styled((" left out  ", "dim"), f"{section}: {cost:,} tokens", (f"  {reason}", "yellow"))
        for (section, reason), cost in tokens.most_common()
    ]
