import gc
import importlib
import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# Plugins of a peer and of a tool that take seconds to load; also in the runs that tests start.
os.environ["PYTEST_ADDOPTS"] = "-p no:langsmith_plugin -p no:schemathesis"

TESTS = Path(__file__).parent


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
        files = sorted(TESTS.glob("*/test_*.py"))
        share = -(-len(files) // count)
        for path in files[number * share : (number + 1) * share]:
            importlib.import_module(f"tests.{path.parent.name}.{path.stem}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from looking through thousands of collected tests again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()
