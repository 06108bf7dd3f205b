"""LangGraph: its own conformance suite for checkpointers, and graphs that are cut off."""

import asyncio
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from tests.servers.databases import PostgresServer
from tests.timing import HANG

from orbiter.memory import AgentMemory, sync
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.integrations.langgraph import OrbiterSaver, acopy_checkpoints, copy_checkpoints

DISTRIBUTION = "langgraph"

ROOT = Path(__file__).parents[2]

Record = Callable[[str, int, int], None]


class State(TypedDict):
    steps: Annotated[list[str], add]


def thread(name: str, **more: str) -> Any:
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


def graph(saver: BaseCheckpointSaver[Any], *names: str) -> Any:
    """Return a graph of nodes in a row, each of which notes its name."""
    builder = StateGraph(State)
    for before, name in zip([START, *names], names, strict=False):
        builder.add_node(name, lambda _, name=name: {"steps": [name]})
        builder.add_edge(before, name)
    builder.add_edge(names[-1], END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis", "memory"], indirect=True)
async def test_the_conformance_suite_of_checkpointers(url: str, record_suite: Record) -> None:
    async with AgentMemory(url) as memory:

        @checkpointer_test(name="OrbiterSaver")
        async def checkpointer() -> AsyncGenerator[OrbiterSaver, None]:
            yield OrbiterSaver(memory.scope(user_id=secrets.token_hex()))

        results = (await validate(checkpointer)).results

    assert {name: result.failures for name, result in results.items()} == {
        name: [] for name in results
    }
    assert [result.passed for result in results.values()] == [True] * 8
    passed = sum(result.tests_passed for result in results.values())
    failed = sum(result.tests_failed for result in results.values())
    kind = url.partition(":")[0]
    record_suite(f"langgraph-checkpoint-conformance on {kind}", passed, passed + failed)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_graph_goes_on_after_a_restart_and_is_nobody_elses(url: str) -> None:
    async with AgentMemory(url) as memory:
        await graph(OrbiterSaver(memory.scope(user_id="ann")), "a", "b").ainvoke(
            {"steps": ["first"]}, thread("t")
        )

    async with AgentMemory(url) as memory:
        again = graph(OrbiterSaver(memory.scope(user_id="ann")), "a", "b")
        others = graph(OrbiterSaver(memory.scope(user_id="bob")), "a", "b")
        state = await again.ainvoke({"steps": ["second"]}, thread("t"))

        assert state["steps"] == ["first", "a", "b", "second", "a", "b"]
        assert (await others.aget_state(thread("t"))).values == {}


def test_blocking_and_async_calls_of_one_saver(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "m.db") as memory:
        made = graph(OrbiterSaver(memory.scope(user_id="ann")), "a")

        made.invoke({"steps": ["blocking"]}, thread("t"))
        state = asyncio.run(made.ainvoke({"steps": ["async"]}, thread("t")))

        assert state["steps"] == ["blocking", "a", "async", "a"]
        history = [each.values.get("steps") for each in made.get_state_history(thread("t"))]
        assert history[0] == state["steps"]
        assert len(history) == 6


async def test_an_async_handle_is_called_from_threads_but_not_in_its_loop(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "m.db") as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))

        state = await asyncio.to_thread(graph(saver, "a").invoke, {"steps": []}, thread("t"))

        assert state["steps"] == ["a"]
        with pytest.raises(UnsupportedError, match="await the async form"):
            saver.get_tuple(thread("t"))


async def test_a_memory_of_nobody_is_refused(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "m.db") as memory:
        with pytest.raises(QueryError, match="the handle of a scope"):
            OrbiterSaver(memory)  # type: ignore[arg-type]  # what a reader may try


async def test_a_state_of_many_megabytes(url: str) -> None:
    async with AgentMemory(url) as memory:
        made = graph(OrbiterSaver(memory.scope(user_id="ann")), "a")
        large = "x" * 20_000_000

        await made.ainvoke({"steps": [large]}, thread("t"))

        assert (await made.aget_state(thread("t"))).values["steps"] == [large, "a"]


async def test_a_chain_of_parents_that_bites_its_tail_ends(url: str) -> None:
    async with AgentMemory(url) as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))
        first, second = empty_checkpoint(), empty_checkpoint()
        await saver.aput(thread("t", checkpoint_id=second["id"]), first, {}, {})
        await saver.aput(thread("t", checkpoint_id=first["id"]), second, {}, {})
        await saver.aput_writes(thread("t", checkpoint_id=first["id"]), [("log", 1)], "task")

        found = await saver.aget_delta_channel_history(config=thread("t"), channels=["log", "no"])

        assert found == {"log": {"writes": [("task", "log", 1)]}, "no": {"writes": []}}


def _joined(before: list[str], writes: list[list[str]]) -> list[str]:
    return before + [word for write in writes for word in write]


class DeltaState(TypedDict):
    log: Annotated[list[str], DeltaChannel(_joined, snapshot_frequency=3)]


async def test_pruning_keeps_what_delta_channels_are_rebuilt_from(url: str) -> None:
    builder = StateGraph(DeltaState)
    builder.add_node("a", lambda state: {"log": [str(len(state["log"]))]})
    builder.add_edge(START, "a")
    builder.add_edge("a", END)
    async with AgentMemory(url) as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))
        made: Any = builder.compile(checkpointer=saver)
        for _ in range(4):
            await made.ainvoke({"log": ["in"]}, thread("t"))
        before = (await made.aget_state(thread("t"))).values["log"]
        count = len([each async for each in saver.alist(thread("t"))])

        await saver.aprune(["t"])

        assert len(before) == 8
        assert (await made.aget_state(thread("t"))).values["log"] == before
        assert len([each async for each in saver.alist(thread("t"))]) < count


async def test_a_checkpoint_that_is_made_while_others_are_pruned_stays(url: str) -> None:
    async with AgentMemory(url) as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))
        made = graph(saver, "a", "b", "c")
        await made.ainvoke({"steps": []}, thread("t"))

        await asyncio.gather(
            made.ainvoke({"steps": ["new"]}, thread("t")), saver.aprune(["t"]), saver.aprune(["t"])
        )

        assert (await made.aget_state(thread("t"))).values["steps"][-4:] == ["new", "a", "b", "c"]


async def test_cancelled_in_the_middle_nothing_stays_locked(url: str) -> None:
    async with AgentMemory(url) as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))
        made = graph(saver, *"abcdefgh")

        for pause in range(20):
            task = asyncio.create_task(made.ainvoke({"steps": []}, thread(f"t{pause}")))
            for _ in range(pause * 13):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        async with asyncio.timeout(HANG):
            for pause in range(20):
                state = await made.ainvoke({"steps": ["again"]}, thread(f"t{pause}"))
                assert state["steps"][-8:] == list("abcdefgh")


PROGRAM = """
import os, signal, sys
from tests.integrations.test_langgraph import OrbiterSaver, State, StateGraph, START, sync, thread

builder = StateGraph(State)
builder.add_node("first", lambda _: {"steps": ["first"]})
builder.add_node("second", lambda _: os.kill(os.getpid(), signal.SIGKILL))
builder.add_edge(START, "first")
builder.add_edge("first", "second")
with sync.AgentMemory(sys.argv[1]) as memory:
    graph = builder.compile(checkpointer=OrbiterSaver(memory.scope(user_id="ann")))
    graph.invoke({"steps": ["begin"]}, thread("t"), durability="sync")
"""


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_graph_that_is_killed_goes_on_from_its_last_step(url: str) -> None:
    killed = subprocess.run([sys.executable, "-c", PROGRAM, url], cwd=ROOT, check=False)

    with sync.AgentMemory(url) as memory:
        made = graph(OrbiterSaver(memory.scope(user_id="ann")), "first", "second")
        state = made.invoke(None, thread("t"))

    assert killed.returncode == -signal.SIGKILL
    assert state["steps"] == ["begin", "first", "second"]


def test_checkpoints_of_a_sqlite_saver_are_copied_and_go_on(tmp_path: Path) -> None:
    with (
        sync.AgentMemory(tmp_path / "m.db") as memory,
        SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs,
    ):
        ours = OrbiterSaver(memory.scope(user_id="ann"))
        graph(theirs, "a", "b").invoke({"steps": ["begin"]}, thread("t"), interrupt_after=["a"])
        graph(theirs, "a", "b").invoke({"steps": ["begin"]}, thread("u"))

        assert copy_checkpoints(theirs, ours) == len(list(theirs.list(None)))
        assert asyncio.run(acopy_checkpoints(ours, ours)) == len(list(theirs.list(None)))

        copied = [(each.config, each.checkpoint, each.pending_writes) for each in ours.list(None)]
        originals = [
            (each.config, each.checkpoint, each.pending_writes) for each in theirs.list(None)
        ]
        assert copied == originals
        state = graph(ours, "a", "b").invoke(None, thread("t"))
        assert state["steps"] == ["begin", "a", "b"]


def test_checkpoints_of_a_postgres_saver_are_copied_and_go_on(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    dsn = postgres_server.create_database()
    with (
        sync.AgentMemory(tmp_path / "m.db") as memory,
        PostgresSaver.from_conn_string(dsn) as theirs,
    ):
        theirs.setup()
        ours = OrbiterSaver(memory.scope(user_id="ann"))
        graph(theirs, "a", "b").invoke({"steps": ["begin"]}, thread("t"), interrupt_after=["a"])
        graph(theirs, "a", "b").invoke({"steps": ["begin"]}, thread("u"))
        originals = {
            each.config["configurable"]["checkpoint_id"]: each for each in theirs.list(None)
        }

        assert copy_checkpoints(theirs, ours) == len(originals)

        copied = {each.config["configurable"]["checkpoint_id"]: each for each in ours.list(None)}
        assert copied.keys() == originals.keys()
        for name, each in copied.items():
            assert each.checkpoint == originals[name].checkpoint
            assert each.parent_config == originals[name].parent_config
            assert sorted(map(str, each.pending_writes or ())) == sorted(
                map(str, originals[name].pending_writes or ())
            )
        state = graph(ours, "a", "b").invoke(None, thread("t"))
    postgres_server.drop_database(dsn)
    assert state["steps"] == ["begin", "a", "b"]


async def test_more_writes_than_fit_into_one_step_are_stored_and_copied(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        saver = OrbiterSaver(memory.scope(user_id="ann"))
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        made = await saver.aput(config, empty_checkpoint(), {"step": 1}, {})
        await saver.aput_writes(made, [("c", number) for number in range(10_500)], "task")

        await saver.acopy_thread("t", "copy")

        copied: Any = {"configurable": {"thread_id": "copy", "checkpoint_ns": ""}}
        for each in (config, copied):
            stored = await saver.aget_tuple(each)
            assert stored is not None
            assert len(stored.pending_writes or ()) == 10_500
