"""The command line, `orbiter-memory`. Nothing is imported until a command needs it.

Data goes to stdout; notes and progress go to stderr, and only to a terminal.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    try:
        from orbiter.memory.cli._root import run  # noqa: PLC0415 - so that its loading can be ended

        run()
    except KeyboardInterrupt:
        sys.exit(130)
