"""Options that commands share, as decorators, and how their text is read.

`store_options` and `memory_options` say what is opened, `output_options` how it is printed. A
`Command` takes what these add out of its parameters and calls its function with a
`CommandContext` instead. What `filter_options` and `label_options` add, it gets as `Filters` and
`Labels`; every other option as it is.
"""

import asyncio
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import click
from click import UsageError

from orbiter.memory.cli._command_context import (
    ENV_PREFIX,
    SCOPES,
    CommandContext,
    Target,
    note_idle_key,
)
from orbiter.memory.cli._error_messages import report
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._settings_file import shared_settings

__all__ = [
    "Command",
    "Filters",
    "Group",
    "Labels",
    "as_of_option",
    "check_past",
    "command",
    "dry_run_option",
    "filter_options",
    "label_options",
    "limit_option",
    "memory_options",
    "min_relevance_option",
    "output_options",
    "read_end",
    "read_json",
    "read_stdin",
    "read_when",
    "read_where",
    "read_words",
    "setting_option",
    "store_options",
    "tag_option",
    "yes_option",
]

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])
_Decorator = Callable[[_FunctionT], _FunctionT]


class Command(click.Command):
    """A command whose function may be async, and which is called with a `CommandContext`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> click.Context:
        """Read the arguments; what they and the environment leave open, the settings file says."""
        names = {each.name for each in self.params}
        settings = {name: value for name, value in shared_settings().items() if name in names}
        return super().make_context(info_name, args, parent, **{"default_map": settings, **extra})

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function, and run what it returns if that is a coroutine."""
        for kind in (Filters, Labels):
            names = kind.__dataclass_fields__
            if ctx.params.keys() >= names.keys():
                made = kind(**{name: ctx.params.pop(name) for name in names})
                ctx.params[kind.__name__.lower()] = made
        run = CommandContext(
            _target(ctx), Output(is_json=bool(ctx.params.pop("as_json", False))), ctx.command_path
        )
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            if run.target.model == "none":  # chosen, so nobody needs to be told
                warnings.filterwarnings("ignore", "recall uses words")
            # Commands tell it themselves, in words of a shell.
            warnings.filterwarnings("ignore", "[0-9,]+ memories are not embedded yet")
            warnings.showwarning = lambda message, *_, **__: run.out.note(str(message))
            try:
                result = ctx.invoke(self.callback, run, **ctx.params)  # type: ignore[arg-type]  # it is there
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
                run.out.flush()
            except (BrokenPipeError, KeyboardInterrupt) as exc:  # click would exit with 1
                ctx.exit(report(exc))
        return result


def _target(ctx: click.Context) -> Target:
    """Take the options that name the memory out of the parameters, with where each comes from."""
    names = [each for each in Target.__dataclass_fields__ if each in ctx.params]
    origins = {}
    for param in ctx.command.params:
        source = getattr(ctx.get_parameter_source(str(param.name)), "name", "")
        if param.name in names and source in ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP"):
            origins[str(param.name)] = {
                "COMMANDLINE": param.opts[0],
                "ENVIRONMENT": str(param.envvar),
                "DEFAULT_MAP": "the settings file",
            }[source]
    target = Target(**{name: ctx.params.pop(name) for name in names}, origins=origins)
    if "user" in names:
        target.check_scope()
    if "url" in names and not target.is_remote():
        note_idle_key(target.pii)
    return target


@dataclass(frozen=True, slots=True)
class Filters:
    """What `filter_options` say: which memories are meant."""

    kind: str | None
    since: str | None
    until: str | None
    where: str | None
    tags: tuple[str, ...]

    def past(self) -> dict[str, Any]:
        """Return the arguments of calls on the past, which take no bounds of time."""
        return {"memory_type": self.kind, "where": read_where(self.where, self.tags)}

    def bounds(self) -> dict[str, Any]:
        """Return the bounds of time."""
        since, until = read_when("since", self.since), read_when("until", self.until)
        return {"since": since, "until": until}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `list`, `recall` and the others."""
        return self.past() | self.bounds()

    def texts(self) -> tuple[str, ...]:
        """Return what may hold personal data."""
        return (self.where or "", *self.tags)


@dataclass(frozen=True, slots=True)
class Labels:
    """What `label_options` say: what is kept with a memory."""

    tags: tuple[str, ...]
    importance: float | None
    source: str | None
    extra: str | None
    expires: str | None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `remember` and `update`; an end of `never` as it is."""
        is_never = (self.expires or "").strip().lower() == "never"
        return {
            "tags": list(self.tags) or None,
            "importance": self.importance,
            "source": self.source,
            "extra": read_json("extra", self.extra),
            "expires": "never" if is_never else read_end("expires", self.expires),
        }


class Group(click.Group):
    """Commands under one name, such as those of `facts`."""

    command_class = Command


command = partial(click.command, cls=Command)


def setting_option(*names: str, **more: Any) -> Callable[[_FunctionT], _FunctionT]:
    """Return an option that a variable of its name sets, too: `--port`, `ORBITER_MEMORY_PORT`."""
    variable = f"{ENV_PREFIX}{names[0].removeprefix('--').upper().replace('-', '_')}"
    return click.option(*names, envvar=variable, **more)


def _all_of(options: Sequence[_Decorator[Any]]) -> _Decorator[Any]:
    def decorate(function: _FunctionT) -> _FunctionT:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


store_options = _all_of(
    [
        setting_option("--url", help="URL or path of the store, or of a server."),
        setting_option(
            "--model",
            type=click.Choice(["auto", "none"]),
            help="`none` finds by words only.",
        ),
        setting_option("--token", help="Key of the server; better as a variable."),
        setting_option(
            "--redact",
            type=click.Choice(["secrets", "none"]),
            help="Redact tokens and passwords.",
        ),
        setting_option("--pii", help="`tokens` replaces personal data."),
    ]
)
"""Options that open a store: for commands on all of it."""


def memory_options(*, everyone: bool = True, writes: bool = False) -> _Decorator[Any]:
    """Options that open the memory of somebody: the store's, and whose memories in it.

    *everyone* adds `--all`, and *writes* adds `--by`, which signs what is written.
    """
    options: list[_Decorator[Any]] = [
        setting_option("--user", help="User; by default the default user."),
        click.option("--no-user", is_flag=True, help="No user: only what these options name."),
        *(setting_option(f"--{name}", help=f"Only this {name}.") for name in SCOPES[1:]),
        setting_option("--user-name", help="What people call the user."),
    ]
    if everyone:
        options.append(click.option("--all", "everyone", is_flag=True, help="Everyone's memories."))
    if writes:
        options.append(setting_option("--by", help="Who acts, for the history; else you."))
    return _all_of([store_options, *options])


output_options = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""How a command prints: for people, or with `--json` one document for a program."""

_WHERE = '\'{"price": {"$lt": 5}}\''
tag_option = click.option("--tag", "tags", multiple=True, help="With this tag; may be repeated.")
_type_option = click.option("--type", "kind", help="Only this kind: item (a note), human, fact, …")
_since_option = click.option("--since", help="From this time: `2026-11-01`, `3d`, `last week`.")
filter_options = _all_of(
    [
        _type_option,
        _since_option,
        click.option("--until", help="Until this time is over."),
        click.option("--where", help=f"Only with these fields: `topic=backup`, or {_WHERE}."),
        tag_option,
    ]
)
"""Options that narrow which memories are meant."""
label_options = _all_of(
    [
        click.option("--tag", "tags", multiple=True, help="A tag; may be repeated."),
        click.option("--importance", type=float, help="From 0 to 1."),
        click.option("--source", help="Where it comes from: `user`, `web:example.com`, …"),
        click.option("--extra", help="Extra fields: a JSON object."),
        click.option("--expires", help="When it expires: `30d` from now, or a date."),
    ]
)
"""Options that say what is kept with a memory."""
min_relevance_option = click.option(
    "--min-relevance", type=click.FloatRange(0, 1), help="Only what answers so probably: 0 to 1."
)
as_of_option = click.option("--as-of", help="As it was at this time: `2026-11-01`, `3d`.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def limit_option(default: int | None, text: str = "At most this many.") -> _Decorator[Any]:
    """Return `--limit`, which is called so by every command."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=default is not None,
        help=text,
    )


_EXAMPLES = {"where": _WHERE, "extra": "'{\"price\": 5}'"}


def _parse_time(text: str, *, is_end: bool = False, now: datetime | None = None) -> datetime:
    from orbiter.memory.recall.time_bounds import parse_time  # noqa: PLC0415 - not for `--help`

    return parse_time(text, is_end=is_end, now=now, is_local=True)


def read_when(name: str, text: str | None) -> datetime | None:
    """Return the instant that an option names: of a day or a phrase its begin, for `until` its end.

    Times without a zone are this computer's.
    """
    if text is None:
        return None
    try:
        return _parse_time(text, is_end=name == "until")
    except ValueError as exc:
        raise UsageError(f"`--{name}`: {exc}") from None


def read_end(name: str, text: str | None) -> datetime | None:
    """Return the instant to come that an option names: a date, or how long from now (`30d`)."""
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        end = _parse_time(text, now=now)
        if text.strip()[-1:] in tuple("smhdwSMHDW"):  # no date ends so
            end = now + (now - end)
    except (ValueError, OverflowError):
        raise UsageError(
            f"`--{name}`: `{text}` is not a valid time; write `30d`, `12h` or `2w` from now, "
            "or `2027-01-31`"
        ) from None
    if end <= now:
        raise UsageError(
            f"`--{name}`: `{text}` is in the past; write `30d`, or a date in the future"
        )
    return end


def read_json(name: str, text: str | None) -> dict[str, object] | None:
    """Return the JSON object that an option holds."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise UsageError(
            f"`--{name}` is not valid JSON: {exc}; write it such as {_EXAMPLES[name]}"
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f"`--{name}` must be a JSON object such as {_EXAMPLES[name]}")
    return value


def _read_pair(where: str | None) -> dict[str, object] | None:
    """Return the filter that `topic=backup` is; `None` for what is written as JSON.

    What may be a number, `true` or `false` finds the text as well: a shell cannot tell them apart.
    """
    name, sign, text = (where or "").partition("=")
    name, text = name.strip(), text.strip()
    if not sign or not name or name[0] in "{[":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict | list):
        raise UsageError(f"`--where` is `field=value`, or JSON such as {_WHERE}")
    return {name: value if value == text or text[:1] == '"' else {"$in": [value, text]}}


def read_where(where: str | None, tags: Sequence[str] = ()) -> dict[str, object] | None:
    """Return the filter that `--where` and every `--tag` make together; `None` for none."""
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.filters import parse_where  # noqa: PLC0415

    if any(not tag.strip() for tag in tags):
        raise UsageError("`--tag` is empty; name a tag")
    parts: list[dict[str, object]] = [{"tags": {"$contains": tag}} for tag in tags]
    condition = _read_pair(where) or read_json("where", where)
    if condition:
        try:
            parse_where(condition)
        except QueryError as exc:
            raise UsageError(f"`--where`: {exc}; write it such as {_WHERE}") from None
        parts.append(condition)
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else condition


def read_words(words: Sequence[str]) -> str:
    """Return the words as one text; for `-`, what stdin holds."""
    if list(words) == ["-"]:
        return read_stdin().strip()
    if "-" in (words[0], words[-1]):  # between words it is a dash
        raise UsageError("`-` reads stdin, and takes no words beside it")
    return " ".join(words)


def read_stdin() -> str:
    """Return all of stdin as text."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"stdin is not UTF-8 text: {exc.reason} at byte {exc.start}") from None


def check_past(**options: object) -> None:
    """Raise `UsageError` for options that the past does not take."""
    for name, value in options.items():
        if value not in (None, False):
            raise UsageError(
                f"`--as-of` and `--{name.replace('_', '-')}` exclude each other; the past can be "
                "searched by words, `--type`, `--tag` and `--where`"
            )
