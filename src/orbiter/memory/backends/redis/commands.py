"""What is asked of a Redis: plain commands, and runs of scripts, which may serve several calls."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "Command",
    "Run",
    "Script",
    "Word",
    "is_write",
    "key_of",
    "together",
    "weight",
    "words",
]

Word = str | bytes | int


class Script(NamedTuple):
    """A Lua script that the server knows by its digest once it has seen it."""

    source: str
    digest: str
    is_write: bool
    """Whether what it changes is what its caller wants; a read may tidy up on its way."""

    @classmethod
    def of(cls, source: str, *, is_write: bool = False) -> "Script":
        digest = hashlib.sha1(source.encode()).hexdigest()  # noqa: S324 - Redis's own
        return cls(source, digest, is_write)

    def call(self, keys: Sequence[str], args: Sequence[Word], *, is_shared: bool = False) -> "Run":
        """Return a call of it.

        A run that *is_shared* serves all calls on the same keys that come together: it gets the
        arguments of one after the other, and its answer goes to all.
        """
        return Run(self, tuple(keys), tuple(args), is_shared)


class Run(NamedTuple):
    """A call of a script; see `Script.call`."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Word, ...]
    is_shared: bool

    def words(self, *, spelled_out: bool) -> tuple[Word, ...]:
        """Return the command."""
        script = ("EVAL", self.script.source) if spelled_out else ("EVALSHA", self.script.digest)
        return (*script, len(self.keys), *self.keys, *self.args)


Command = tuple[Word, ...] | Run


def together(commands: Sequence[Command]) -> list[tuple[Command, list[int]]]:
    """Return the commands to send, and for whom: runs that may be one are one."""
    groups: list[tuple[Command, list[int]]] = []
    shared: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, command in enumerate(commands):
        if isinstance(command, Run) and command.is_shared:
            kind = command.script.digest, command.keys
            if kind in shared:
                shared[kind].append(place)
                continue
            places = shared[kind] = [place]
            groups.append((command, places))
        else:
            groups.append((command, [place]))
    return [(_merged([commands[place] for place in places]), places) for _, places in groups]


def _merged(commands: Sequence[Command]) -> Command:
    if len(commands) == 1:
        return commands[0]
    runs = [command for command in commands if isinstance(command, Run)]
    return runs[0]._replace(args=tuple(arg for run in runs for arg in run.args))


def is_write(command: Command) -> bool:
    """Tell whether *command* is there to change something."""
    return command.script.is_write if isinstance(command, Run) else command[0] == "UNLINK"


def key_of(command: Command) -> str:
    """Return a key of *command*; all of its keys lie in one slot of a cluster."""
    return command.keys[0] if isinstance(command, Run) else str(command[1])


def weight(command: Command) -> int:
    """Return about how many bytes *command* takes on the wire."""
    words = command.args if isinstance(command, Run) else command
    return sum(len(word) for word in words if not isinstance(word, int))


def words(command: Command, unknown: set[str]) -> tuple[Word, ...]:
    """Return what is sent; a script whose digest is *unknown* to the server is spelled out."""
    if isinstance(command, Run):
        return command.words(spelled_out=command.script.digest in unknown)
    return command
