"""The kit is tested in runs of pytest that tests start: they load what a test names, no more."""

import pytest


@pytest.fixture(autouse=True)
def _only_named_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of peers and tools in our environment take longer to load than such a run takes.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
