"""Runs an example as a reader would: as a program of its own, and looks at what it prints."""

import subprocess
import sys


def printed_by(example: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
