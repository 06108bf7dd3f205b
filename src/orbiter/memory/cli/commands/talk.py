"""Talking to a model that has this memory, in the terminal: `chat talk`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import CommandContext, command
from orbiter.memory.cli._completion import complete_chats
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting
from orbiter.memory.cli._error_messages import ERROR, INTERRUPTED, UsageError, say
from orbiter.memory.cli._openai_stream import ChatEndpoint, EndpointError, Usage
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import clean, counted, one_line, shortened
from orbiter.memory.cli._views import entry, hit_lines
from orbiter.memory.cli.commands.chat import app, chat, print_context, token_bar

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, Chat, ScopedMemory
    from orbiter.memory.context import Context
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.recall import Hit

__all__ = ["app"]

_OPENAI = "https://api.openai.com/v1"
_LLM = "gpt-5-mini"
_RELEVANT = 0.1
"""The least relevance of what a script answers with; what does not answer has hardly any."""
_TRY = "try `I am allergic to peanuts`, then `What am I allergic to?`"
_HELP = {
    "/why": "what was recalled for the last question, with its relevance",
    "/context": "what was sent to the model, and its cost in tokens",
    "/forget": "forget the last question and its answer; `/forget 2` row 2 of `/why`",
    "/retry": "ask the last question again",
    "/quit": "end; so does Ctrl-D",
}


@command(chat, "talk", everyone=False, json=False)
async def talk(
    run: CommandContext,
    chat_id: Annotated[
        str,
        typer.Argument(
            metavar="CHAT",
            help="Conversation to continue, or to begin.",
            autocompletion=complete_chats,
        ),
    ] = "terminal",
    *,
    llm: Annotated[
        str | None, typer.Option("--llm", help=f"The model. [env: OPENAI_MODEL; default: {_LLM}]")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(help="Any server with OpenAI's API. [env: OPENAI_BASE_URL]"),
    ] = None,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="No model: answer with what was recalled.")
    ] = False,
    budget: Annotated[int, typer.Option(min=1, help="At most this many tokens.")] = 4_000,
    memories: Annotated[int, typer.Option(min=0, help="At most this many memories.")] = 5,
    persona: Annotated[Path | None, typer.Option(help="A SOUL.md.")] = None,
) -> int:
    """Talk to a model that remembers."""
    model, origin = run.target.setting("model")
    if model not in (None, "auto", "none") and origin == "--model":
        raise UsageError(
            "`--model` is `auto` or `none`, for embeddings; name the model that talks with "
            f"`--llm {model}`"
        )
    endpoint = None if scripted else _endpoint(llm, base_url)
    async with run.both(creates=True, persona=persona) as (store, memory):
        talked = _Talk(run, store, memory, memory.chat(chat_id), endpoint, budget, memories)
        said = len(await talked.chat.items())
        who = "a script" if endpoint is None else f"{one_line(endpoint.model)}"
        history = f", {counted(said, 'message', 'messages')} so far" if said else ""
        run.out.note(
            f"talking to {who} as {run.target.describe()}, in `{chat_id}`{history}; "
            "`/help` lists commands, `/quit` ends"
        )
        if endpoint is None and not said:
            run.out.note(_TRY)
        return await talked.loop()


def _endpoint(llm: str | None, base_url: str | None) -> ChatEndpoint:
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY", "").strip() or None
    if not url and not key:
        raise UsageError(
            "there is no model: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own "
            "such as `http://localhost:11434/v1`; `--scripted` needs none"
        )
    endpoint = ChatEndpoint(
        url or _OPENAI, llm or os.environ.get("OPENAI_MODEL") or _LLM, key, _timeout()
    )
    endpoint.check()
    return endpoint


def _timeout() -> float:
    seconds = os.environ.get("OPENAI_TIMEOUT", "60")
    try:
        return max(float(seconds), 0.1)
    except ValueError:
        raise UsageError(f"OPENAI_TIMEOUT must be a number of seconds, not `{seconds}`") from None


@dataclass
class _Talk:
    """One run of `chat talk`, and its last turn."""

    run: CommandContext
    store: "AgentMemory"
    memory: "ScopedMemory"
    chat: "Chat"
    endpoint: ChatEndpoint | None
    budget: int
    memories: int
    question: str = ""
    hits: "Sequence[Hit]" = ()
    context: "Context | None" = None
    usage: Usage | None = None
    turn_ids: list[str] = field(default_factory=list)
    total: int = 0
    """Tokens of all turns, sent and answered."""
    has_failed: bool = False

    async def loop(self) -> int:
        """Read, answer and repeat; return the exit code."""
        calls = {
            "/why": self._why,
            "/context": self._show_context,
            "/retry": self._retry,
            "/help": self._help,
        }
        while True:
            try:
                line = _read_line(is_terminal=self.run.out.is_terminal)
            except KeyboardInterrupt:
                self.run.out.text("")
                return INTERRUPTED
            if line is None or line in ("/quit", "/exit"):
                is_piped = not sys.stdin.isatty()  # a script wants to know
                return ERROR if self.has_failed and is_piped else 0
            word = line.split(" ")[0]
            if not line:
                continue
            if word == "/forget":
                await self._forget(line.removeprefix("/forget").strip())
            elif word in calls:
                await calls[word]()
            elif line.startswith("/"):
                say(f"there is no `{word}`; `/help` lists the commands", kind="note")
            else:
                await self._turn(line)

    async def _turn(self, text: str) -> None:
        """Store a question, and answer it."""
        self.turn_ids = []
        self.question = text
        self.hits = await self._recall(text)
        self.turn_ids += [item.id for item in await self.chat.add(text)]
        await self._answer()

    async def _retry(self) -> None:
        if not self.question:
            say("there is no question yet", kind="note")
            return
        if len(self.turn_ids) > 1:
            await self._forget_ids(self.turn_ids[1:])
            del self.turn_ids[1:]
        await self._answer()

    async def _recall(self, text: str) -> "Sequence[Hit]":
        """Return what is recalled for *text* from elsewhere than this conversation.

        A script reads no conversation: it has what was said here recalled, too.
        """
        if not self.memories:
            return ()
        await embed_waiting(self.run.out, self.store, within=PATIENCE)
        hits = await self.memory.recall(text, k=4 * self.memories)
        if self.endpoint is None:
            return [hit for hit in hits if self._tells(hit)][: self.memories]
        return [hit for hit in hits if not self._is_from_here(hit)][: self.memories]

    def _is_from_here(self, hit: "Hit") -> bool:
        own, place = self.chat.scope, hit.item.metadata
        return (place.session_id, place.task_id) == (own.session_id, own.task_id)

    def _tells(self, hit: "Hit") -> bool:
        """Tell whether a script may answer with *hit*: it is relevant, no question, and not its."""
        from orbiter.memory.model.items import SCRIPTED  # noqa: PLC0415 - `--help` needs it not

        is_said = "?" not in hit.item.content and not hit.item.metadata.extra.get(SCRIPTED)
        return is_said and hit.relevance >= _RELEVANT

    async def _answer(self) -> None:
        self.context = await self.chat.context(budget=self.budget, memory_limit=self.memories)
        self.usage = None
        said: list[str] = []
        label = styled(("model> ", "bold cyan"))
        self.run.out.console.print(label, end="")
        try:
            is_stopped = await _until_ctrl_c(self._stream(said))
        except EndpointError as exc:
            self.has_failed = True
            self.run.out.text("")
            say(f"{exc}{'' if said else '; `/retry` asks again'}")
        else:
            self.run.out.text("")
            if is_stopped:
                say("stopped; what was said is kept" if said else "stopped", kind="note")
        text = _storable("".join(said))
        if text.strip():
            await self._keep(text)
        self.total += sum(self._cost(text))
        if self.endpoint is None:
            self._show_cost(text)

    def _show_cost(self, answer: str) -> None:
        """Show what an answer without a model stands on, and what one would have been sent."""
        sent, answered = self._cost(answer)
        basis = f"recalled {counted(len(self.hits))}"
        if self.hits:
            basis += f", relevance {self.hits[0].relevance:.2f}"
        cost = f"a model would have read {sent:,} tokens, and written {answered:,}"
        line = styled((f"{basis} · {cost} · /why /context", "dim"))
        self.run.out.show(entry(styled("      "), [line]))

    async def _keep(self, text: str) -> None:
        """Store an answer; one that no store takes does not end the talk."""
        from orbiter.memory.errors import MessageError  # noqa: PLC0415 - `--help` needs it not

        try:
            stored = await self.chat.add(self._as_message(text))
        except MessageError as exc:
            self.has_failed = True
            say(f"the answer was not kept: {exc}")
        else:
            self.turn_ids += [item.id for item in stored]

    def _as_message(self, text: str) -> "MemoryItem | dict[str, str]":
        """Return an answer as it is stored; one without a model is marked, as it tells nothing."""
        from orbiter.memory.model.items import (  # noqa: PLC0415 - `--help` needs it not
            SCRIPTED,
            AIMemory,
            MemoryMetadata,
        )

        if self.endpoint is None:
            return AIMemory(content=text, metadata=MemoryMetadata(extra={SCRIPTED: True}))
        return {"role": "assistant", "content": text}

    async def _stream(self, said: list[str]) -> None:
        """Print an answer as it comes; *said* has what came, whatever becomes of the rest."""
        assert self.context is not None  # noqa: S101 - it was made for this
        pieces = self._scripted()
        if self.endpoint is not None:
            pieces = self.endpoint.stream(list(self.context.messages()))
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Usage):
                    self.usage = piece
                    continue
                said.append(piece)
                sys.stdout.write(clean(piece.replace("\r", "")))
                sys.stdout.flush()

    async def _scripted(self) -> AsyncGenerator[str | Usage, None]:
        answer = "I will remember that."
        if "?" in self.question:
            answer = "I do not know that yet."
            if self.hits:
                known = one_line(self.hits[0].passage) or one_line(self.hits[0].item.content)
                is_here = self._is_from_here(self.hits[0])
                answer = f"You told me here: {known}" if is_here else f"I remember: {known}"
        first, *others = answer.split(" ")
        yield first
        for word in others:
            yield f" {word}"

    def _cost(self, answer: str) -> tuple[int, int]:
        """Return the tokens that were sent and answered, by the server's count or by ours."""
        from orbiter.memory.conversation.tokens import estimate_tokens  # noqa: PLC0415

        if self.usage is not None:
            return self.usage.prompt, self.usage.completion
        return (self.context.tokens if self.context else 0), estimate_tokens(answer)

    # Commands

    async def _why(self) -> None:
        """Show what was recalled for the last question, and whether it was sent."""
        if not self.hits:
            say(
                "nothing was recalled" if self.question else "there is no question yet", kind="note"
            )
            return
        sections = self.context.sections if self.context else ()
        sent = " ".join(one_line(each.text) for each in sections if each.name == "memories")
        for rank, hit in enumerate(self.hits, 1):
            is_sent = (
                shortened(one_line(hit.passage) or one_line(hit.item.content), 60)[:-1] in sent
            )
            state = styled(
                ("in this conversation", "green")
                if self._is_from_here(hit)
                else ("sent", "green")
                if is_sent
                else ("not sent: not relevant enough", "dim")
            )
            lines = [*hit_lines(hit, self.run.out.console.width, full=False), state]
            self.run.out.show(entry(styled((f"{rank:>2}", "bold green")), lines))

    async def _show_context(self) -> None:
        if self.context is None:
            say("nothing was sent yet", kind="note")
            return
        print_context(self.run, self.context)
        out = self.run.out
        out.show(*token_bar(self.context, width=min(out.console.width, 100)))
        if self.usage is not None:
            cost = f"{self.usage.prompt:,} tokens sent, {self.usage.completion:,} answered"
            out.show(styled((f" {cost}, by the server's count", "dim")))
        out.show(styled((f" {self.total:,} tokens since the start", "dim")))

    async def _forget(self, row: str) -> None:
        """Forget a row of `/why`, or the last question and its answer."""
        if not row:
            gone = await self._forget_ids(self.turn_ids)
            self.turn_ids, self.question, self.hits = [], "", ()
        elif row.lstrip("@").isdigit() and 0 < int(row.lstrip("@")) <= len(self.hits):
            gone = await self._forget_ids([self.hits[int(row.lstrip("@")) - 1].item.id])
        else:
            say(f"there is no row `{row}`; `/why` shows {len(self.hits)}", kind="note")
            return
        say(f"{counted(gone)} forgotten; `orbiter-memory restore ID` undoes it", kind="note")

    async def _forget_ids(self, ids: Sequence[str]) -> int:
        return sum([len((await self.memory.forget(each)).items) for each in ids])

    async def _help(self) -> None:
        for name, text in _HELP.items():
            self.run.out.show(styled((f"{name:<10}", "bold"), text))


def _storable(text: str) -> str:
    """Return *text* without what no store keeps; a letter that came in two halves is whole."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "")


def _read_line(*, is_terminal: bool) -> str | None:
    """Return a line that someone typed, without blanks around it; `None` at the end.

    The main thread waits here, and with it the loop: only so has a line an editor.
    """
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.strip() if line else None
    is_plain = bool(os.environ.get("NO_COLOR")) or not is_terminal
    # The marks tell readline what takes no room on the line.
    prompt = "you> " if is_plain else "\001\033[1;32m\002you> \001\033[0m\002"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _load_line_editor()
        return input(prompt).strip()
    except EOFError:
        sys.stdout.write("\n")
        return None
    finally:
        signal.signal(signal.SIGINT, before)


def _load_line_editor() -> None:
    with suppress(ImportError):  # Windows has its own
        import readline  # noqa: F401, PLC0415 - to load it is all: `input` uses it then


async def _until_ctrl_c(work: Coroutine[Any, Any, None]) -> bool:
    """Run *work*; tell whether Ctrl-C stopped it."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)

    def stop(*_: object) -> None:
        loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGINT, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():  # somebody else wants this to end
            task.cancel()
            raise
        return True
    finally:
        signal.signal(signal.SIGINT, before)
    return False
