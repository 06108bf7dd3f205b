import gc

import pytest

pytest_plugins = ["pytester"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from looking through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()
