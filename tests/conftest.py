import gc
import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none
from tests.servers.processes import ServerProcess, memory_disk

pytest_plugins = ["pytester"]

# What tests write lies in memory where it can. They kill processes, never the machine, so a commit
# to a disk is no safer: it takes 6 ms instead of 0.04 ms. Some of it are programs that are run.
_DISK = memory_disk(gigabytes=4)
if _DISK is not None and not os.statvfs(_DISK).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_DISK))

# No test touches the memory of whoever runs it, which is where no store is named.
_DATA = tempfile.mkdtemp(prefix="orbiter-data-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
os.environ["XDG_DATA_HOME"] = _DATA

# No framework reports to its maker what a test made it do.
os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}

# Plugins of a peer and of a tool that take seconds to load; also in the runs that tests start.
os.environ["PYTEST_ADDOPTS"] = (
    "-p no:langsmith_plugin -p no:schemathesis -p no:benchmark -p no:codspeed -p no:recording "
    "-p no:socket -p no:syrupy"
)

TESTS = Path(__file__).parent

# On a busy machine an example takes as long as it takes; what hangs, the timeout of a test ends.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SERVER_FIXTURES = {
    "browser": "browser",
    "mortal": "redis",
    "mortal_server": "postgres",
    "postgres_replicas": "postgres",
    "postgres_server": "postgres",
    "redis_cluster": "redis",
    "redis_sentinel": "redis",
    "redis_server": "redis",
    "usual_redis": "redis",
}
"""Fixtures that start a program of somebody else's, and the marker of the tests that need it."""

QUICK = (
    "agent", "context", "extraction", "messages", "recall", "seeds", "typing", "unit",
    "test_records", "test_short_term", "test_sqlite_conformance", "test_vector_conformance",
)  # fmt: skip
"""Folders and modules for `make quick`; what is slow among them is marked by hand."""


def pytest_configure() -> None:
    """Let tests interrupt programs also in a run that a shell started in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # which programs would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Remove what was stored where no store is named."""
    shutil.rmtree(_DATA, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker begin with other files.

    In a new checkout, pytest rewrites the assertions of a file when it is first imported, which
    takes longer than all else before the first test. Workers that read the files in one order
    all do all of this work; so each does a part, and finds what the others did.
    """
    gc.disable()  # nothing of what is collected goes away; see below
    worker: dict[str, int] = getattr(session.config, "workerinput", {})
    if worker and session.config.args == session.config.getini("testpaths"):
        number, count = int(str(worker["workerid"]).removeprefix("gw")), worker["workercount"]
        # Those of frameworks need what their own conftest sets up, or skip themselves.
        files = sorted({*TESTS.glob("*/test_*.py")} - {*TESTS.glob("integrations/*")})
        share = -(-len(files) // count)
        for path in files[number * share : (number + 1) * share]:
            importlib.import_module(f"tests.{path.parent.name}.{path.stem}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from looking through thousands of collected tests again and again."""
    gc.enable()
    gc.collect()
    # Hypothesis asks the collector who holds its dice, which knows nothing of what is frozen.
    _throw_dice_once()
    gc.freeze()


@settings(max_examples=1, database=None)
@given(none())
def _throw_dice_once(_: None) -> None:
    pass


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the servers it needs, as its fixtures and parameters name them."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        named = {str(value) for value in parameters.params.values()} if parameters else set()
        needed = {
            SERVER_FIXTURES[name]
            for name in SERVER_FIXTURES.keys() & set(getattr(item, "fixturenames", ()))
        }
        if not {item.path.parent.name, item.path.stem} & set(QUICK) or "http" in named:
            needed.add("slow")
        for marker in sorted(needed | named & {"postgres", "redis"}):
            item.add_marker(marker)


@pytest.fixture(autouse=True, scope="session")
def _no_server_unless_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a run without servers, fail a test that starts one and is not marked with it."""
    with pytest.MonkeyPatch.context() as patch:
        if "postgres or" in request.config.getoption("markexpr"):
            told = "this run has no servers: mark the test with `postgres` or `redis`"
            patch.setattr(ServerProcess, "start", lambda _: pytest.fail(told))
        yield
