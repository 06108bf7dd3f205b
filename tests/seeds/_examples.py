"""Runs an example as a reader would: as a program of its own, and looks at what it prints."""

import subprocess
import sys


def printed_by(example: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
