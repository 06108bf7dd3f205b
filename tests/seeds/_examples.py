"""Runs an example as a reader would: as a program of its own, and looks at what it prints."""

import subprocess
import sys

STRICT = ["-W", "error"]
if (3, 12) <= sys.version_info < (3, 12, 4):
    # Python's false alarm about `?1` (python/cpython#117995); see the filters in pyproject.toml.
    STRICT += ["-W", "ignore:Binding:DeprecationWarning"]


def printed_by(example: str) -> list[str]:
    command = [sys.executable, *STRICT, "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
