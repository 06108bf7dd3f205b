import gc
import os

import pytest

pytest_plugins = ["pytester"]

# Plugins of a peer and of a tool that take seconds to load; also in the runs that tests start.
os.environ["PYTEST_ADDOPTS"] = "-p no:langsmith_plugin -p no:schemathesis"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from looking through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()
