"""An agent's turn, killed at every point of it: nothing acknowledged is lost, and it can go on."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent._turns import (
    SAVED,
    STEPS,
    WRITES,
    Death,
    Turn,
    _memory,
    prepare,
    serve,
)
from tests.crash._children import Child

pytestmark = pytest.mark.slow

MOMENTS = 2
"""How many moments of each write are tried, spread evenly over all that it has."""
BEFORE = ["Which is the capital?", "Paris."]


class Server:
    """What runs turns in processes of their own."""

    def __init__(self) -> None:
        self._child = Child(serve)
        self._child.receive()

    def run(self, *job: object) -> tuple[list[dict[str, Any]], int]:
        """Return what the process said, and how it ended."""
        self._child.pipe.send(job)
        answer: tuple[list[dict[str, Any]], int] = self._child.receive()
        return answer

    def end(self) -> None:
        self._child.pipe.send(None)
        self._child.end()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store that nobody else uses, so that all of it can be verified."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


async def test_a_turn_that_is_not_interrupted(url: str, who: str) -> None:
    said: list[dict[str, Any]] = []
    memory = _memory(url)
    await prepare(memory, who)
    turn = Turn(memory, who, said.append)

    await turn.run()

    assert [word.get("done", word) for word in said] == list(STEPS)
    async with _memory(url) as again:
        chat = again.scope(user_id=who).chat("dinner")
        assert [item.content for item in await chat.items()] == BEFORE + SAVED
        asked = await chat.messages()
        assert [entry["role"] for entry in asked.messages[2:]] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]


def during(*turns: list[dict[str, Any]]) -> list[Death]:
    """Return moments of each write, from how many each of them had in whole turns."""
    counts = [{word["done"]: word["moments"] for word in said} for said in turns]
    fewest = {step: min(count[step] for count in counts) for step in WRITES}
    return [
        Death(step, moment)
        for step, count in fewest.items()
        for moment in sorted({count * part // MOMENTS for part in range(MOMENTS)})
    ]


async def test_a_turn_killed_anywhere_loses_nothing_and_goes_on(
    url: str, who: str, server: Server
) -> None:
    async with _memory(url) as memory:
        await asyncio.gather(*(prepare(memory, f"{who} {number}") for number in range(2)))
    whole = [server.run("interrupted", url, f"{who} {number}", None) for number in range(2)]
    deaths = [*map(Death, STEPS), *during(*(said for said, _ in whole))]
    users = {death: f"{who} {death.name}" for death in deaths}
    async with _memory(url) as memory:
        await asyncio.gather(*(prepare(memory, user) for user in users.values()))

    acknowledged: dict[Death, list[str]] = {}
    killed = 0
    for death, user in users.items():
        said, code = server.run("interrupted", url, user, death)
        assert [word for word in said if "done" not in word] == [], death
        acknowledged[death] = [word["done"] for word in said if word["done"] in WRITES]
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
    said, code = server.run("gone on", url, list(users.values()))

    assert code == 0, said[-1]
    assert [word for word in said if "problems" in word or "error" in word] == []
    assert [word["verified"][1] for word in said if "verified" in word] == [[]]
    left = {word["user"]: word["left"] for word in said if "left" in word}
    ends = {word["user"]: word["end"] for word in said if "end" in word}
    for death, user in users.items():
        was_done = acknowledged[death]
        kept = [kind for kind in left[user] if kind in WRITES]
        # What was under way may have got there without being acknowledged; it is the next one.
        assert kept == list(WRITES[: len(kept)]), death
        assert 0 <= len(kept) - len(was_done) <= (death.moment is not None), death
        assert ends[user] == BEFORE + SAVED, death
    # Threads and sockets are never twice alike, so a few may have got away.
    assert killed >= len(STEPS) + len(WRITES)
