import gc
import os

import pytest

pytest_plugins = ["pytester"]

# The plugin of a peer, which takes seconds to load; also in the runs that tests start.
os.environ["PYTEST_ADDOPTS"] = "-p no:langsmith_plugin"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from looking through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()
