"""Error messages of the command line, one line each, and the exit code of each kind."""

import os
import re
import sys
import traceback
from typing import Any

import click
from click import UsageError

from orbiter.memory.cli._text import clean

__all__ = [
    "CONFLICT",
    "ERROR",
    "INTERRUPTED",
    "NOT_FOUND",
    "PIPE",
    "USAGE",
    "NotThereError",
    "error_text",
    "in_shell_words",
    "report",
    "say",
    "say_in_json",
    "without_passwords",
]

ERROR, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4
INTERRUPTED, PIPE = 130, 141
"""What a shell reports for a process that Ctrl-C, or a reader who left, has ended."""

_ADDRESS = re.compile(r"\b([a-z][a-z0-9+]*://)([^\s/@]*):[^\s@]*@", re.IGNORECASE)
_NAMES = {
    "content": "the text",
    "created_at": "`--at`",
    "extra": "`--extra`",
    "key": "KEY",
    "value": "VALUE",
    "valid_from": "`--valid-from`",
    "valid_to": "`--valid-to`",
} | {f"{name}_id": f"`--{name}`" for name in ("user", "session", "task", "agent")}
"""What the fields of a memory are called here."""
_SHELL_WORDS = (
    ("`verify(repair=True)`, in a shell ", ""),
    (" and give it `LocalEmbeddings()`", ""),
    (": the store has no `embeddings`", ": there is no model"),
    (", or raise `busy_timeout`", ""),
    ("list() shows", "`orbiter-memory list` shows"),
    ("history() shows", "`orbiter-memory show ID --history` shows"),
    ('as `AgentMemory("sqlite:///file.db")` or', "with `--url` or"),
    ("with `owner=…`", "with `--owner`"),
    ("leave out `owner=…`", "leave out `--owner`"),
    ("`text=…`", "`--text`"),
    ("`at=…`", "`--at`"),
    ("`user_column=…`", "`--user-column`"),
    ("`day_first=…`", "`--day-first` or `--month-first`"),
    ('`text="content"`', "`--text content`"),
    ('`export_file(handle, "FILE.jsonl")`', "`orbiter-memory export FILE.jsonl`"),
    ('such as `format="mem0"`', "such as `--format mem0`"),
    ('`format="markdown"`', "`--format markdown`"),
    ("choose it as well, one of", "choose it with `--format`, one of"),
    ("give that name as its format", "give that name with `--format`"),
    ("other formats are read by `import_file`", "`--format auto` reads other formats"),
    ("records of others are not imported", "they stay their owner's: give `--all`"),
    ("`history(key)` and `drafts()` show", "`facts history KEY` and `review` show"),
    ("use `discard` for a draft", "use `orbiter-memory review ID --discard` for a draft"),
    ("is accepted; `retract` it", "is accepted; `orbiter-memory facts retract` withdraws it"),
    (
        "`import_records(…, overwrite=True)` replaces it",
        "`orbiter-memory restore` brings back what was forgotten",
    ),
    ("`valid_from`", "`--valid-from`"),
    ("`valid_to`", "`--valid-to`"),
    ("`facts.put(key, value)` records", "`orbiter-memory facts put KEY VALUE` records"),
    (
        "`facts.retract(id)` withdraws this one",
        "`orbiter-memory facts retract ID` withdraws this one",
    ),
    (
        "`facts.accept(id)` or `facts.discard(id)` for a draft, `facts.retract(id)` for",
        "`review ID --accept` or `review ID --discard` for a draft, `facts retract ID` for",
    ),
    ("`source` must be", "`--source` must be"),
    ("the `idempotency_key` `", "the `--key` `"),
    ("was given as `head`", "was given as `--head`"),
    (', or open it with `audit="writes"`', ""),
    ('open it with `audit="writes"`', "`orbiter-memory audit begin` starts one"),
    ("import it with `memory.scope(user_id=…)` to say whose they are", "say whose with `--user`"),
    ("`unscoped()` names no user", "`--all` names no user"),
    ("see `verify_audit()`", "`orbiter-memory audit verify` shows more"),
    ("; call `verify`", "; see `orbiter-memory doctor`"),
)
"""What an error advises a programmer to do, and what that is in a shell."""
_LIMIT = re.compile(r"(, or|; if you trust the file,) raise the limit with `Limits\(\w+=…\)`")
_HANDLE = re.compile(r"; the handle with `(\w+)_id=([^`]*)` takes them")
_OWNER = re.compile(r', and `owner="([^`]*)"` copies them for the user of this one')
_STORE = re.compile(r"\b(?:Postgres|Redis|SQLite)MemoryStore\('([^']*)'\)")
_SECRET = re.compile(r"(?i)\b((?:ssl)?password|passwd|pwd)=[^\s&'\"`]+")


class NotThereError(Exception):
    """There is no such memory or conversation in the scope that was looked in."""


def without_passwords(text: str) -> str:
    """Return *text* with the passwords of addresses in it left out."""
    return _SECRET.sub(r"\1=***", _ADDRESS.sub(r"\1\2:***@", text))


_LEVELS = {"error": "error", "warning": "warning"}
_json_lines = False


def say_in_json(is_wanted: bool) -> None:  # noqa: FBT001 - the only thing there is to say
    """Have `say` write lines of JSON, as the log of a server has, or text."""
    global _json_lines  # noqa: PLW0603 - of the process, as stderr is
    _json_lines = is_wanted


def say(text: str, *, kind: str = "error") -> None:
    """Write one line about what happened to stderr."""
    try:
        message = clean(without_passwords(text))
        if _json_lines:
            sys.stderr.write(f"{_json_line(message, kind)}\n")
            sys.stderr.flush()
            return
        sys.stderr.write(f"{kind}: {message}\n")
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):  # whoever read it has gone, and nobody else can be told
        pass


def _json_line(message: str, kind: str) -> str:
    import json  # noqa: PLC0415 - for servers only
    from datetime import UTC, datetime  # noqa: PLC0415

    line = {
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "level": _LEVELS.get(kind, "info"),
        "logger": "orbiter.memory.server.command",
        "message": message,
    }
    return json.dumps(line, ensure_ascii=False)


def is_debugging() -> bool:
    """Return whether tracebacks are wanted."""
    return os.environ.get("ORBITER_DEBUG", "") not in ("", "0")


def report(error: BaseException) -> int:
    """Tell what went wrong and return the exit code for it."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException) and type(error) is not UsageError:
        _say_misuse(error)
        return USAGE
    if isinstance(error, BrokenPipeError) and not _is_ours(error):
        _leave_stdout()
        return PIPE
    if is_debugging():
        lines = "".join(traceback.format_exception(error))
        sys.stderr.write(clean(without_passwords(lines)))
    else:
        say(error_text(error))
        for note in getattr(error, "__notes__", ()):
            say(note, kind="note")
    return _code(error)


def _say_misuse(error: click.ClickException) -> None:
    """Print what click says of the arguments, and which help has them."""
    text = error.format_message()
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if isinstance(error, click.BadParameter) and context is not None and param is not None:
        source = getattr(context.get_parameter_source(param.name), "name", "")
        places = {"ENVIRONMENT": param.envvar, "DEFAULT_MAP": "the settings file"}
        text += f" {places[source]} sets it." if source in places else ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(f"{text}\n")
        return
    if isinstance(error, click.NoSuchOption) and context is not None and context.parent is None:
        text += " Options come after the command, as in `orbiter-memory list --user ann`."
    say(text[:1].lower() + text[1:])
    if context is not None:
        say(f"{context.command_path} --help", kind="see")


def in_shell_words(text: str) -> str:
    """Return *text* with the calls it advises as commands."""
    for call, words in _SHELL_WORDS:
        text = text.replace(call, words)
    text = _STORE.sub(r"`\1`", text)
    text = _HANDLE.sub(r", or `--\1 \2`", text)
    text = _OWNER.sub(r"; `--owner \1` copies them for this user", text)
    return _LIMIT.sub("; if you trust it, unpack or split it, and import the parts", text)


def _is_ours(error: BaseException) -> bool:
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - only when it went wrong

    return isinstance(error, MemoryError)


def _code(error: BaseException) -> int:
    from orbiter.memory.errors import (  # noqa: PLC0415 - only when something went wrong
        InvalidItemError,
        ItemNotFoundError,
        QueryError,
        VersionConflict,
    )

    if isinstance(error, ItemNotFoundError | NotThereError):
        return NOT_FOUND
    if isinstance(error, VersionConflict):
        return CONFLICT
    is_wrong = isinstance(error, UsageError | QueryError | InvalidItemError)
    return USAGE if is_wrong or _is_refused(error) else ERROR


def _is_refused(error: BaseException) -> bool:
    """Return whether a value was given that no memory can have."""
    return type(error).__module__.startswith("pydantic")  # it is not imported for this


def _fault(fault: Any) -> str:
    names = [str(each) for each in fault["loc"] if each != "metadata"]
    where = _NAMES.get(names[0], names[0]) if names else ""
    inner = f", `{'.'.join(names[1:])}`" if names[1:] else ""
    text = fault["msg"].removeprefix("Value error, ")
    return f"{where}{inner}: {text}" if where else text


def error_text(error: BaseException) -> str:
    """Return what went wrong, in one line for a person."""
    if _is_refused(error):
        return in_shell_words("; ".join(map(_fault, error.errors())))  # type: ignore[attr-defined]  # pydantic's
    text = in_shell_words(str(error)) or type(error).__name__
    if type(error).__name__ == "VersionConflict":
        return _conflict(error)
    if type(error).__name__ == "EmbeddingsMismatchError":
        text = (
            f"{text.partition(';')[0]}; `orbiter-memory reindex` embeds everything again, "
            "`--model none` uses words only"
        )
    is_expected = _is_ours(error) or isinstance(
        error, UsageError | NotThereError | OSError | ValueError | ModuleNotFoundError
    )
    return text if is_expected else f"{type(error).__name__}: {text} (ORBITER_DEBUG=1 shows where)"


def _conflict(error: Any) -> str:
    """Return who was late, in the words of a shell; *error* is a `VersionConflict`."""
    if not error.found:
        return (
            f"the memory `{error.item_id}` was forgotten meanwhile; "
            f"`orbiter-memory restore {error.item_id}` brings it back"
        )
    return (
        f"the memory `{error.item_id}` has version {error.found} by now, not {error.expected}; "
        f"nothing was changed. `orbiter-memory show {error.item_id} --history` shows why; "
        f"then edit it again, with `--expect {error.found}`"
    )


def _leave_stdout() -> None:
    """Give up stdout, so that its end is not flushed into a closed pipe."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, sys.stdout.fileno())
        os.close(quiet)
    except (OSError, ValueError):  # stdout is no file: there is nothing to flush
        pass
