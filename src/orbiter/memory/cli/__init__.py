"""The command line, `orbiter-memory`. Nothing is imported until a command needs it.

Data goes to stdout; notes and progress go to stderr, and only to a terminal.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    try:
        from orbiter.memory.cli._root import run  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write("the command line needs: pip install 'orbiter-memory[cli]'\n")
        sys.exit(1)
    except KeyboardInterrupt:  # loading takes long enough for it
        sys.exit(130)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
