"""One turn of an agent, in processes that die in the middle of it.

A server process has imported everything and opened nothing. It forks a process for each turn,
which says on a pipe what was acknowledged, so that a turn costs milliseconds and starts clean.
"""

import asyncio
import json
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import asyncpg  # noqa: F401 - so that no forked process has to import it

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, SQLiteMemoryStore, ToolMemory
from orbiter.memory.agent import Chat
from orbiter.memory.backends.postgres import embedding
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile
from orbiter.memory.backends.sqlite.file_checks import Connection as SQLiteConnection
from orbiter.memory.messages import Format, validate
from orbiter.memory.model.items import calls_of
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings

BUDGET = 600
FORMATS: tuple[Format, ...] = ("openai", "anthropic")

QUESTION = "Which is warmer, Paris or Oslo?"
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": f"call_{city}",
            "type": "function",
            "function": {"name": "weather", "arguments": json.dumps({"city": city})},
        }
        for city in ("paris", "oslo")
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "call_oslo", "content": "4 degrees in Oslo"},
    {"role": "tool", "tool_call_id": "call_paris", "content": "21 degrees in Paris"},
]
ANSWER = {"role": "assistant", "content": "Paris is warmer."}
SAVED = [QUESTION, "", "4 degrees in Oslo", "21 degrees in Paris", "Paris is warmer."]
"""What a finished turn adds to the conversation."""

WRITES = ("question", "calls", "result 0", "result 1", "answer")
STEPS = (
    "open", "history", "question", "recall", "context", "calls", "result 0", "result 1",
    "second context", "answer", "last context", "close",
)  # fmt: skip
"""What a turn does, in order; all but the first and last with what was said before."""


@dataclass(frozen=True)
class Death:
    """Where a process is to die: before a step, or so many moments into it."""

    step: str
    moment: int | None = None

    @property
    def name(self) -> str:
        """Return what is added to the user's name: each death is another's."""
        return f"{self.step}/{self.moment}"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# What counts the moments of a write


class _MortalFile(SQLiteFile):
    """Dies by its own hand at a statement, or inside a long one."""

    moments: int | None = None
    seen = 0

    def _connect(self) -> SQLiteConnection:
        connection = super()._connect()
        connection.set_trace_callback(self.tick)
        connection.set_progress_handler(self.tick, 1000)
        return connection

    def tick(self, _: str = "") -> None:
        self.seen += 1
        if self.moments is not None:
            self.moments -= 1
            if self.moments < 0:
                die()


class _MortalLoop(asyncio.SelectorEventLoop):
    """Dies by its own hand when it comes back for more: before, between and after answers."""

    moments: int | None = None
    seen = 0

    def _run_once(self) -> None:
        self.seen += 1
        if self.moments is not None:
            self.moments -= 1
            if self.moments < 0:
                die()
        super()._run_once()  # type: ignore[misc]  # every loop has it


@contextmanager
def dying(memory: AgentMemory, moments: int | None) -> Iterator[Callable[[], int]]:
    """Let the process die so many moments into what is done inside; yield what counts them."""
    counter: Any = asyncio.get_running_loop()
    if isinstance(memory.store, SQLiteMemoryStore):
        counter = memory.store._file
    if not hasattr(counter, "moments"):  # in a process that is not to die
        yield lambda: 0
        return
    start, counter.moments = counter.seen, moments
    try:
        yield lambda: int(counter.seen - start)
    finally:
        counter.moments = None


# A turn


@dataclass
class Turn:
    """A turn of an agent whose model follows a script; what it says, it says on *tell*."""

    memory: AgentMemory
    user: str
    tell: Callable[[dict[str, Any]], None]
    death: Death | None = None

    @property
    def chat(self) -> Chat:
        return self.memory.scope(user_id=self.user).chat("dinner")

    async def run(self) -> None:
        for step in STEPS:
            is_mine = self.death is not None and self.death.step == step
            if is_mine and self.death is not None and self.death.moment is None:
                die()
            moments = self.death.moment if is_mine and self.death is not None else None
            with dying(self.memory, moments) as seen:
                await self._do(step)
                self.tell({"done": step, "moments": seen()})

    def _do(self, step: str) -> Awaitable[object]:
        chat = self.chat
        if step == "recall":
            return self.memory.scope(user_id=self.user).recall(QUESTION, k=3)
        if "context" in step:
            return self.check()
        whats: dict[str, Any] = {
            "question": QUESTION,
            "calls": CALLS,
            "result 0": RESULTS[0],
            "result 1": RESULTS[1],
            "answer": ANSWER,
        }
        if step in whats:
            return chat.add(whats[step], idempotency_key=f"turn 2/{step}")
        if step == "history":
            return chat.messages()
        return self.memory.init() if step == "open" else self.memory.close()

    async def check(self) -> None:
        """Tell what is wrong with what a model would be shown now."""
        said = await self.chat.items()
        is_answered = bool(said) and said[-1].memory_type == "ai" and not calls_of(said[-1])
        task = "Which is next?" if is_answered else None
        context = await self.chat.context(task, budget=BUDGET, format=FORMATS[0])
        for format in FORMATS:
            messages = context.messages(format).messages
            problems = [str(problem) for problem in validate(messages, format)]
            if context.tokens > BUDGET:
                problems.append(f"{context.tokens} tokens")
            if "Which is" not in str(messages):
                problems.append("the question is not asked")
            if problems:
                self.tell({"problems": [self.user, format, *problems]})


async def prepare(memory: AgentMemory, user: str) -> None:
    """Let the user have a turn behind, and something to remember."""
    alice = memory.scope(user_id=user)
    await alice.remember("I find Paris warmer than any other city")
    await alice.chat("dinner").add(
        [HumanMemory(content="Which is the capital?"), AIMemory(content="Paris.")]
    )


# What the forked processes do


async def _interrupted(tell: Callable[..., None], url: str, user: str, death: Death | None) -> None:
    await Turn(_memory(url), user, tell, death).run()


async def _gone_on(tell: Callable[..., None], url: str, users: list[str]) -> None:
    """Look at conversations as they were left, and take the turn again from its beginning."""
    memory = _memory(url)
    await memory.init()

    async def go_on(user: str) -> None:
        turn = Turn(memory, user, tell)
        stored = await memory.store.search(metadata=turn.chat.scope, limit=100)
        tell({"user": user, "left": [_kind(item) for item in stored[::-1]]})
        for format in FORMATS:
            seen = (await turn.chat.messages(format=format)).messages
            problems = [str(problem) for problem in validate(seen, format)]
            if problems or len(seen) < 2:
                tell({"problems": [user, format, *problems, f"{len(seen)} messages"]})
        await turn.check()
        for step in (*WRITES, "last context"):
            await turn._do(step)
        tell({"user": user, "end": [item.content for item in await turn.chat.items()]})

    for start in range(0, len(users), 8):
        await asyncio.gather(*map(go_on, users[start : start + 8]))
    verified = await memory.verify()
    tell({"verified": [verified.checked, list(verified.problems)]})
    await memory.close()


def _kind(item: object) -> str:
    if isinstance(item, ToolMemory):
        return f"result {0 if item.tool_call_id == 'call_oslo' else 1}"
    if isinstance(item, AIMemory) and item.tool_calls:
        return "calls"
    content = str(getattr(item, "content", ""))
    return {QUESTION: "question", ANSWER["content"]: "answer"}.get(content, content)


def _memory(url: str) -> AgentMemory:
    embedding.LEASE = 0.1  # what a dead process took is left alone for so long
    # Summaries are made meanwhile, so that a process also dies in the middle of one.
    summaries = SummaryConfig(message_threshold=3, keep_recent=2)
    memory = AgentMemory(url, embeddings=HashEmbeddings(), summaries=summaries)
    if isinstance(memory.store, SQLiteMemoryStore):
        memory.store._file.__class__ = _MortalFile
    return memory


async def _warm_up() -> None:
    """Import and build what the first use of everything would, and leave nothing open."""
    memory = _memory("memory://")
    await prepare(memory, "nobody")
    await Turn(memory, "nobody", lambda _: None).run()


def serve(pipe: Connection) -> None:
    """Fork a process for each job received, and send what it said and how it ended."""
    asyncio.run(_warm_up())
    pipe.send("ready")
    works: dict[str, Callable[..., Any]] = {"interrupted": _interrupted, "gone on": _gone_on}
    while (job := pipe.recv()) is not None:
        name, *arguments = job
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(ours)
            _work(works[name], arguments, theirs)
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8") as said:
            lines = [json.loads(line) for line in said]
        _, status = os.waitpid(pid, 0)
        pipe.send((lines, os.waitstatus_to_exitcode(status)))


def _work(work: Callable[..., Any], arguments: list[Any], out: int) -> None:
    """Do it in this process, which ends here."""

    def tell(word: dict[str, Any]) -> None:
        os.write(out, f"{json.dumps(word)}\n".encode())

    try:
        loop = _MortalLoop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(work(tell, *arguments))
        os._exit(0)
    except BaseException:  # noqa: BLE001 - told to the test
        tell({"error": traceback.format_exc()})
        os._exit(1)
