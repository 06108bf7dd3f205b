"""Counts which tests of which suite an adapter passes, for docs/integrations/index.md.

A test module names the `DISTRIBUTION` whose version is reported. Its tests count as our own; those
of a class with a `SUITE` count as that one's, and `record_suite` adds what a test ran elsewhere.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.servers.databases import PostgresServer, RedisServer, postgres_server, redis_server

__all__ = ["postgres_server", "redis_server"]

FRAMEWORKS = [path.stem for path in (Path(__file__).parent / "frameworks").glob("*.in")]
OURS = "our tests"

_counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
_versions: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Let in the marks of langchain-tests, whose plugins are not loaded."""
    for name in ("benchmark", "vcr", "codspeed"):
        config.addinivalue_line("markers", f"{name}: of a suite that tests import")


@pytest.fixture
def record_suite(request: pytest.FixtureRequest) -> Callable[[str, int, int], None]:
    """Take note of how many tests of a suite passed, of how many."""

    def record(suite: str, passed: int, total: int) -> None:
        request.node.user_properties.append(("suite", (suite, passed, total)))

    return record


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """End a run whose results are kept if the framework is not there: nothing was tested."""
    if report.skipped and "ORBITER_INTEGRATION_RESULTS" in os.environ:
        pytest.exit(f"{report.nodeid} cannot be tested here: {report.longrepr}", returncode=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note of each test which suite it belongs to."""
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item.module, "DISTRIBUTION"):
            continue
        module = item.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
        name = next(each for each in FRAMEWORKS if module.startswith(each))
        _versions[name] = f"{item.module.DISTRIBUTION} {version(item.module.DISTRIBUTION)}"
        item.user_properties.append(("belongs", (name, getattr(item.cls, "SUITE", OURS))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test when it is over."""
    known: dict[str, Any] = dict(report.user_properties)
    if "belongs" not in known or report.when == "setup":
        return
    name, suite = known["belongs"]
    counts = _counts[name]
    if report.when == "call":
        counts[suite][0] += report.passed
        counts[suite][1] += 1
    elif report.when == "teardown":
        suites: list[Any] = [value for key, value in report.user_properties if key == "suite"]
        for other, passed, total in suites:
            counts[other][0] += passed
            counts[other][1] += total


def pytest_sessionfinish() -> None:
    """Write the counts beside those of other frameworks, if somebody wants them."""
    if path := os.environ.get("ORBITER_INTEGRATION_RESULTS"):
        file = Path(path)
        results = json.loads(file.read_text()) if file.exists() else {}
        for name, counts in _counts.items():
            results[name] = {"version": _versions[name], "suites": counts}
        file.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/memory.db"
    elif request.param == "memory":
        yield "memory://"
    elif request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        yield redis.url()
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn = server.create_database()
        yield dsn
        server.drop_database(dsn)
