"""Where the browser is; without one, its tests are not run, and under `CI=true` they fail."""

import os
import shutil

import pytest

__all__ = ["HOW", "program"]

HOW = "no Chromium: `apt-get install chromium`, or name one in `ORBITER_CHROMIUM`"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def program() -> str:
    """Return the path of the browser; where there is none, skip the test, or fail it."""
    named = os.environ.get("ORBITER_CHROMIUM")
    found = next(filter(None, map(shutil.which, [named] if named else _NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(HOW)
    pytest.skip(HOW)
