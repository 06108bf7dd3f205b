"""The command line, `orbiter-memory`. Nothing is imported until a command needs it.

Data goes to stdout; notes and progress go to stderr, and only to a terminal.
"""

import sys

__all__ = ["main"]

_SERVES = ("serve", "keys", "mcp", "install")
"""Commands that need more than the others, which is said at once."""


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    try:
        from orbiter.memory.cli._root import run  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("typer", "rich", "click"):
            raise
        serves = any(word in _SERVES for word in sys.argv[1:2])
        extra = "server" if serves else "cli"
        sys.stderr.write(f"the command line needs: pip install 'orbiter-memory[{extra}]'\n")
        sys.exit(1)
    except KeyboardInterrupt:  # loading takes long enough for it
        sys.exit(130)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
