"""OpenTelemetry hears how often, how long and how much; never what, and never unasked."""

import contextlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.databases import RedisServer, redis_server

from orbiter.memory import AgentMemory, MemoryItem, SummaryConfig
from orbiter.memory.agent import Chat, ScopedMemory, telemetry
from orbiter.memory.errors import ItemNotFoundError
from orbiter.memory.sync import AgentMemory as BlockingMemory
from orbiter.memory.testing import HashEmbeddings, ScriptedSummarizer

__all__ = ["redis_server"]

pytestmark = pytest.mark.slow

CANARY = "canary-7f3a"


class Heard:
    """What an application was told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        (span,) = (each for each in self.spans if each.name == f"orbiter.memory.{name}")
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        found = [metric for scope in scopes for metric in scope.metrics]
        return [point for each in found if each.name == name for point in each.data.data_points]

    def everything(self) -> str:
        data = self.reader.get_metrics_data()
        return "\n".join([*(span.to_json() for span in self.spans), data.to_json() if data else ""])


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """Set providers for one test: an application can set them once, and we are many tests."""
    heard = Heard()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: heard.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: heard.meters)
    yield heard
    heard.tracers.shutdown()
    heard.meters.shutdown()


def _about(span: ReadableSpan) -> dict[str, Any]:
    return {
        key.removeprefix("orbiter.memory."): each for key, each in (span.attributes or {}).items()
    }


async def test_a_span_says_how_much_on_every_store(
    heard: Heard, any_local_alice: ScopedMemory
) -> None:
    system = {"SQLiteMemoryStore": "sqlite", "PostgresMemoryStore": "postgresql"}
    store = type(any_local_alice._core.store).__name__

    await any_local_alice.remember("I love hiking")
    await any_local_alice.recall("hiking", k=3)

    assert _about(heard.one("remember")) == {
        "operation": "remember",
        "db.system": system.get(store, "redis"),
        "items": 1,
    }
    about = _about(heard.one("recall"))
    assert (about["k"], about["hits"], about["mode"]) == (3, 1, "hybrid")
    assert heard.one("recall").status.is_ok or heard.one("recall").status.is_unset


async def test_a_context_says_its_tokens_and_recall_stands_within_it(
    heard: Heard, open_memory: Any
) -> None:
    chat = open_memory("memory://").scope(user_id="a").chat("c")
    await chat.add(["hello", "and more"])

    context = await chat.context("tea", budget=900)

    span = heard.one("chat.context")
    about = _about(span)
    assert (about["tokens"], about["budget"], about["format"]) == (context.tokens, 900, "openai")
    recall = heard.one("recall")
    assert recall.parent is not None
    assert span.context is not None
    assert recall.parent.span_id == span.context.span_id
    assert _about(heard.one("chat.add"))["items"] == 2


async def test_calls_are_counted_timed_and_errors_told_by_type(
    heard: Heard, open_memory: Any
) -> None:
    alice = open_memory("memory://").scope(user_id="a")

    began = perf_counter()
    await alice.remember("one")
    await alice.remember("two")
    took = perf_counter() - began
    with pytest.raises(ItemNotFoundError):
        await alice.update("nothing", "new")

    counted = {
        point.attributes["orbiter.memory.operation"]: point.value
        for point in heard.points("orbiter.memory.operations")
    }
    assert counted == {"remember": 2, "update": 1}
    (timed,) = (
        point
        for point in heard.points("orbiter.memory.duration")
        if point.attributes["orbiter.memory.operation"] == "remember"
    )
    assert timed.count == 2
    assert 0 < timed.sum <= took
    assert max(timed.explicit_bounds) == 10  # in seconds
    (error,) = heard.points("orbiter.memory.errors")
    assert (error.value, error.attributes["error.type"]) == (1, "ItemNotFoundError")
    span = heard.one("update")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert _about(span)["error.type"] == "ItemNotFoundError"
    assert list(span.events) == []


async def test_no_span_and_no_metric_holds_what_was_said_or_by_whom(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a nonsense path is a file, too
    folder = tmp_path / CANARY
    folder.mkdir()
    memory = AgentMemory(
        folder / "agent.db",
        embeddings=HashEmbeddings(),
        summarizer=ScriptedSummarizer(CANARY),
        summaries=SummaryConfig(message_threshold=2, keep_recent=1),
    )
    async with memory:
        handle = memory.scope(user_id=CANARY, agent_id=CANARY)
        chat = handle.chat(CANARY)
        for owner in (memory, handle, chat):
            for name, member in vars(type(owner)).items():
                if not name.startswith("_") and inspect.iscoroutinefunction(member):
                    await _call_with_canaries(getattr(owner, name))

    told = heard.everything()
    assert CANARY not in told
    assert {span.name for span in heard.spans} >= {
        f"orbiter.memory.{name}" for name in _operations()
    }


async def _call_with_canaries(method: Any) -> None:
    """Call *method* as it is meant, and once more with nonsense for every argument."""
    meant: dict[str, Any] = {
        "path": f"/{CANARY}/copy.db",
        "things": [CANARY],
        "item": MemoryItem(content=CANARY, id=CANARY),
        "where": {CANARY: CANARY},
        "extra": {CANARY: CANARY},
        "tags": [CANARY],
    }
    parameters = inspect.signature(method).parameters.values()
    needed = {p.name: meant.get(p.name, CANARY) for p in parameters if p.default is p.empty}
    known = {p.name: meant[p.name] for p in parameters if p.name in meant}
    nonsense = {p.name: CANARY for p in parameters if p.name != "progress"}
    for arguments in (needed, {**needed, **known}, nonsense):
        with contextlib.suppress(Exception):
            await method(**arguments)


ALIASES = {
    ScopedMemory: {"add", "search", "get_all", "delete", "evaluate"},
    AgentMemory: {"settle", "remember", "recall", "list", "update", "forget"}
    | {"add", "remember_many", "count_by", "get_all", "search"},
}


def _operations() -> Iterator[str]:
    for owner, prefix in ((AgentMemory, "store."), (ScopedMemory, ""), (Chat, "chat.")):
        for name, member in vars(owner).items():
            is_alias = name in ALIASES.get(owner, ())  # of what is told of itself
            if inspect.iscoroutinefunction(member) and not name.startswith("_") and not is_alias:
                yield prefix + name


async def test_a_blocking_call_stands_within_the_span_of_its_caller(heard: Heard) -> None:
    request = heard.tracers.get_tracer("app").start_as_current_span("request")
    with BlockingMemory("memory://", embeddings=None) as memory, request as outer:
        memory.scope(user_id="a").remember("tea")

    parent = heard.one("remember").parent
    assert parent is not None
    assert parent.span_id == outer.get_span_context().span_id


async def test_what_watches_and_fails_breaks_nothing(
    heard: Heard, open_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise ZeroDivisionError

        def on_end(self, span: Any) -> None:
            raise ZeroDivisionError

    heard.tracers.add_span_processor(Broken())
    monkeypatch.setattr(telemetry._Meters, "record", lambda *_, **__: 1 / 0)
    alice = open_memory("memory://").scope(user_id="a")

    kept = await alice.remember("tea")
    with pytest.raises(ItemNotFoundError):
        await alice.update("nothing", "new")

    assert await alice.get(kept.id) == kept


async def test_connection_pools_are_told_of_by_their_engines(
    heard: Heard, redis_server: RedisServer
) -> None:
    async with AgentMemory(redis_server.url(), embeddings=None, summaries=None) as memory:
        await memory.scope(user_id=CANARY).remember("tea")
        pool, state = "db.client.connection.pool.name", "db.client.connection.state"

        def read(name: str) -> list[Any]:
            return [each for each in heard.points(name) if each.attributes[pool] == "redis"]

        points = read("db.client.connection.count")
        found = {
            name: [each.value for each in read(name)]
            for name in (
                "db.client.connection.max",
                "db.client.connection.pending_requests",
                "db.client.connection.timeouts",
                "orbiter.memory.pool.wait_time",
            )
        }

    by_state = {each.attributes[state]: each.value for each in points}
    assert by_state["used"] + by_state["idle"] >= 1
    assert found["db.client.connection.max"][0] >= 16
    assert found["db.client.connection.pending_requests"] == [0]
    assert found["db.client.connection.timeouts"] == [0]
    assert found["orbiter.memory.pool.wait_time"][0] > 0


def test_the_page_lists_what_is_exported() -> None:
    page = (Path(__file__).parents[2] / "docs/observability.md").read_text()
    source = Path(telemetry.__file__).read_text()

    told = {f".{name}" for name in re.findall(r"\{_NAME\}\.([a-z_.]+)", source)}
    told |= {f".{name}" for name in (*telemetry._COUNTS, *telemetry._FLAGS, "mode", "format")}
    listed = re.findall(r"`(?:orbiter\.memory)?(\.[a-z_.]+)`", page.partition("| attribute |")[2])

    assert told == set(listed)


async def test_an_application_without_providers_hears_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)

    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert telemetry._tracer() is None
    assert telemetry._meters() is None


def test_a_method_keeps_its_signature_and_is_still_a_coroutine_function() -> None:
    assert list(inspect.signature(ScopedMemory.recall).parameters)[:3] == ["self", "query", "k"]
    assert inspect.iscoroutinefunction(ScopedMemory.recall)
    assert ScopedMemory.recall.__doc__
    assert ScopedMemory.recall.__qualname__ == "ScopedMemory.recall"


ALONE = """
import asyncio, json, sys
seen = []
def watch(event, args):
    if event.startswith("socket.") and event != "socket.__new__":  # a loop wakes itself with a pair
        seen.append(event)
sys.addaudithook(watch)
from orbiter.memory import AgentMemory
async def main():
    async with AgentMemory("agent.db", summaries=None) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("I love hiking")
        await alice.recall("outdoor activities")
        await alice.chat("c").add("hello")
        await alice.chat("c").context(budget=500)
asyncio.run(main())
print(json.dumps([seen, [name for name in sys.modules if name.startswith("opentelemetry")]]))
"""


def test_unasked_nothing_is_imported_and_nothing_is_sent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout) == [[], []]


BEFORE = """
from opentelemetry import metrics, trace
from orbiter.memory.sync import AgentMemory
early = AgentMemory("memory://", embeddings=None)
early.scope(user_id="alice").remember("heard by nobody")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
"""
AFTER = """
(scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(scope.scope.name, sorted(metric.name for metric in scope.metrics))
"""


def test_the_program_of_the_page_hears_what_it_says_from_when_it_sets_providers(
    tmp_path: Path,
) -> None:
    # It sets providers for good, so the page marks it `py`, and it runs here, alone.
    page = Path(__file__).parents[2] / "docs/observability.md"
    found = re.search(r"```py\n(.*?)```\n\n```text\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    program = BEFORE + found[1] + AFTER

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    counted = "orbiter.memory ['orbiter.memory.duration', 'orbiter.memory.operations']\n"
    assert done.stdout == found[2] + counted
    assert done.stderr == ""


async def test_without_opentelemetry_watching_costs_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(self: object) -> None:
        pass

    for name in ("opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.delitem(sys.modules, name)
    watched = telemetry.traced("work")(work)

    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        await watched(None)
    finally:
        sys.setprofile(None)

    # The wrapper, its look at who acts, and what it wraps: nothing else but the end of this.
    assert called[:-1] == ["call", "call", "work"]
