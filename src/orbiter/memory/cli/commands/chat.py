"""Conversations, and what a model is shown of one: `chat list`, `chat show`, `context`."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app, without_a_name
from orbiter.memory.cli._completion import complete_chats
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import NotThereError, UsageError
from orbiter.memory.cli._item_ids import note_nothing
from orbiter.memory.cli._options import MinRelevance, Spread, read_words
from orbiter.memory.cli._output import console_for, styled
from orbiter.memory.cli._text import ago, clean, counted, moment, one_line
from orbiter.memory.cli._views import as_json, entry, scope_label
from orbiter.memory.messages.codec import Format

if TYPE_CHECKING:
    from rich.text import Text

    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.context import Context, Dropped
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ConversationInfo
__all__ = ["app", "spoken", "token_bar"]

app = new_app()
chat = new_app()
app.add_typer(
    chat,
    name="chat",
    cls=without_a_name(lambda: "list"),
    help="List and show conversations.\n\nWithout a command, it lists them.",
)

_NAMES = 500
"""Conversations among which one with a name like an unknown one is looked for."""
_WHO = {
    "human": ("user", "bold green"),
    "ai": ("assistant", "bold cyan"),
    "tool": ("tool", "bold yellow"),
    "system": ("system", "bold magenta"),
}

Name = Annotated[
    str,
    typer.Argument(metavar="CHAT", help="Id of the conversation.", autocompletion=complete_chats),
]


@command(chat, "list", reads=True)
async def list_chats(
    run: CommandContext,
    *,
    query: Annotated[
        str, typer.Option("--query", help="Text that the title or the name contains.")
    ] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many.")] = 20,
) -> None:
    """List conversations, most recent first."""
    async with run.both(meaning=False) as (store, memory):
        chats = await memory.chats(query=query, limit=limit)
        if not chats:
            wanted = f" with `{query}` in its title or name"
            if not query:
                wanted = " here"
            text = f"no conversation{wanted}{run.target.or_all('shows')}"
            await note_nothing(run, store, text)
    if run.out.is_json:
        run.out.data([_chat_json(each) for each in chats])
    elif run.out.is_plain():
        has_titles = any(each.title for each in chats)
        run.out.rows(
            (
                *(_name(each), each.items, moment(each.last_at), scope_label(each.metadata)),
                *([each.title or ""] if has_titles else ()),
            )
            for each in chats
        )
    else:
        for each in chats:
            count = counted(each.items, "message", "messages")
            summary = f"{count} · {ago(each.last_at)}"
            if run.target.everyone:  # else it is known, and would say the name twice
                summary += f" · {scope_label(each.metadata)}"
            name = one_line(_name(each))
            if each.title:
                run.out.show(styled((one_line(each.title), "bold")))
                name = f"  {name}"
            run.out.show(
                styled((name, "" if each.title else "bold"), (f"  {one_line(summary)}", "dim"))
            )


def _name(info: "ConversationInfo") -> str:
    scope = info.metadata
    return scope.task_id or scope.session_id or scope.user_id or ""


def _chat_json(info: "ConversationInfo") -> dict[str, object]:
    fields = asdict(info)
    fields["metadata"] = info.metadata.model_dump(mode="json")
    return {"chat": _name(info), **fields}


# Without a user, sessions of the same name would be shown as one conversation.
@command(chat, "show", everyone=False, reads=True)
async def show_chat(
    run: CommandContext,
    chat_id: Name,
    *,
    rounds: Annotated[int | None, typer.Option(min=1, help="Only the newest rounds.")] = None,
    format: Annotated[
        Format | None,
        typer.Option("--format", help="As this provider's messages, in JSON."),
    ] = None,
) -> None:
    """Show a conversation, oldest message first."""
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
        "chat list` lists them, `--user` chooses another user"
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


@command(app, "context", everyone=False, reads=True)
async def context(  # noqa: PLR0913 - the options of a command
    run: CommandContext,
    chat_id: Annotated[
        str,
        typer.Argument(
            metavar="CHAT",
            help="Id of the conversation; a question instead gets a context of memories alone.",
            autocompletion=complete_chats,
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK",
            help="The task for the model, with or without quotes; else the newest question.",
        ),
    ] = None,
    *,
    budget: Annotated[int | None, typer.Option(min=1, help="At most this many tokens.")] = None,
    format: Annotated[Format, typer.Option("--format", help="Message format.")] = "openai",
    memories: Annotated[int, typer.Option(min=0, help="At most this many memories.")] = 5,
    min_relevance: MinRelevance = None,
    spread: Spread = None,
    persona: Annotated[Path | None, typer.Option(help="A SOUL.md.")] = None,
) -> None:
    """Print the context for a model, within a token budget."""
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - `--help` needs it not

    waiting = 0
    task = read_words(words) if words else None
    async with run.both(persona=persona) as (store, memory):
        conversation = memory.chat(chat_id)
        has_messages = bool(await conversation.items(rounds=1))
        if not has_messages and _is_question(chat_id, words or []):
            task = read_words([chat_id, *(words or [])])
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
        if memories:
            waiting = await embed_waiting(run.out, store, within=PATIENCE)
        try:
            made = await conversation.context(
                task,
                budget=budget,
                format=format,
                memory_limit=memories,
                min_relevance=min_relevance,
                spread=spread,
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
        import sys  # noqa: PLC0415 - for its stream of now

        run.out.draw(*token_bar(made, width=min(console_for(sys.stderr).width, 100)))


def _is_question(first: str, others: Sequence[str]) -> bool:
    """Tell whether words that begin with no conversation are a question alone.

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
_WHY = {
    "budget": "over budget",
    "shortened": "shortened to fit",
    "status": "not accepted",
    "scope": "another scope",
    "relevance": "not relevant enough",
    "limit": "more than `--memories`",
    "duplicate": "shown already",
    "kind": "not a message",
    "incomplete": "its tool group is incomplete",
}
_MAX_DROPPED = 6


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
    return [_head(context), bar, *_legend(parts, width), *_left_out(context.dropped)]


def _head(context: "Context") -> "Text":
    of = "" if context.budget is None else f" of {context.budget:,}"
    cached = f", the first {context.prefix_tokens:,} cacheable" if context.prefix_tokens else ""
    return styled((f" {context.tokens:,}{of} tokens", "bold"), (cached, "dim"))


def _legend(parts: Sequence[tuple[str, int]], width: int) -> "list[Text]":
    lines, line, used = [], styled(" "), 1
    for name, tokens in parts:
        label = f" {name} {tokens:,}  "
        if used + len(label) + 1 > width and used > 1:
            lines.append(line)
            line, used = styled(" "), 1
        line.append_text(styled(("■", _COLORS.get(name, "white")), label))
        used += len(label) + 1
    return [*lines, line]


def _left_out(dropped: Sequence["Dropped"]) -> "list[Text]":
    """Return a line for each kind of thing that was left out, the costliest first."""
    tokens: Counter[tuple[str, str, str]] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    for each in dropped:
        key = (each.section, each.source, each.reason)
        tokens[key] += each.tokens
        count[key] += 1
    lines = [
        styled(
            (" left out  ", "dim"),
            f"{count[key]} × {key[0]}, {one_line(key[1])}: {cost:,} tokens",
            (f"  {_WHY.get(key[2], key[2])}", "yellow"),
        )
        for key, cost in tokens.most_common(_MAX_DROPPED)
    ]
    if len(tokens) > _MAX_DROPPED:
        lines.append(styled((f"           and {len(tokens) - _MAX_DROPPED} other kinds", "dim")))
    return lines
