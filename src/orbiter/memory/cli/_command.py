"""The frame of every command: its options, the store it opens, its exit code.

A command is a function whose first parameter is a `CommandContext`. `command` replaces that
parameter by the options it stands for, runs the function, async or not, and turns what it raises
into an exit code.
"""

import asyncio
import inspect
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from orbiter.memory.cli._error_messages import UsageError, no_command, report, say
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._settings_file import (
    SHARED,
    file_setting,
    note_idle_key,
    pii_hook,
    redact_words,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.model.protocols import Reranker
__all__ = [
    "SCOPES",
    "CommandContext",
    "Target",
    "command",
    "is_missing",
    "is_served",
    "name_completers",
    "new_app",
    "without_a_name",
]

SCOPES = ("user", "session", "task", "agent")
_ENV = "ORBITER_MEMORY_"
_NOT_SET = "not set"
_OS_USER = "the name of the computer's user"
_DEFAULT = "the default user"
_MAKERS = ("remember", "import")


@dataclass(frozen=True, slots=True)
class Target:
    """The store, and whose memories in it, as the options say."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    model: str | None = None
    redact: str | None = None
    pii: str | None = None
    user: str | None = None
    session: str | None = None
    task: str | None = None
    agent: str | None = None
    user_name: str | None = None
    default_user: str | None = None
    """Whom the store at hand means where nobody is named, once it is open."""
    by: str | None = None
    everyone: bool = False
    no_user: bool = False

    def setting(self, name: str) -> tuple[str | None, str]:
        """Return what *name* is set to, and where that comes from; an empty value sets nothing.

        An empty name of a scope is not for this to tell: `check_names` refuses it.
        """
        if name == "user" and self.no_user:
            return None, "--no-user"
        option = getattr(self, name)
        if option is not None:
            return option or None, f"--{name.replace('_', '-')}"
        variable = f"{_ENV}{name.upper()}"
        if os.environ.get(variable) or (variable in os.environ and name not in SHARED):
            return os.environ[variable] or None, variable
        from_file, place = file_setting(name)
        if from_file is not None:
            return from_file, place
        return self._default(name) if name in ("user", "by") else (None, _NOT_SET)

    def _default(self, name: str) -> tuple[str | None, str]:
        """Return the user, or who acts, where nobody is named."""
        from orbiter.memory.agent.default_user import (  # noqa: PLC0415 - `--help` needs none of it
            DEFAULT_USER,
            os_user,
        )

        if name == "user":
            return self.default_user or DEFAULT_USER, _DEFAULT
        user = os_user()
        if user is None or (reason := self._why_unsigned(user)):
            return None, _NOT_SET if user is None else reason
        return user, _OS_USER

    def _why_unsigned(self, user: str) -> str:
        """Return why what a command does is not signed with the name of the computer's *user*.

        The log refuses names of the library. It is never shortened, so those who change what is
        theirs are not named in it.
        """
        names = [] if self.everyone else [self.setting(name)[0] for name in SCOPES]
        from orbiter.memory.agent import DEFAULT_USER  # noqa: PLC0415 - `--help` needs none of it

        is_own = user in names or DEFAULT_USER in names
        own = "what you change of your own is not signed" if is_own else ""
        own = _NOT_SET if user.startswith("~") else own
        return "the server's key says who acts" if self.is_remote() else own

    def is_remote(self) -> bool:
        """Tell whether the store is a server's."""
        return (self.setting("url")[0] or "").lower().startswith(("http://", "https://"))

    def has_model(self) -> bool:
        """Tell whether the local model may be used."""
        chosen, origin = self.setting("model")
        if chosen not in (None, "auto", "none"):
            raise UsageError(f"{origin} must be `auto` or `none`, not `{chosen}`")
        return chosen != "none"

    def check_names(self) -> None:
        """Raise `UsageError` for a scope that is named, but empty: it would widen what is meant."""
        if self.no_user and self.user is not None:
            raise UsageError("`--no-user` and `--user` exclude each other; leave one out")
        for name in SCOPES:
            value, origin = self.setting(name)
            if value is None and origin not in (_NOT_SET, "--no-user"):
                way = "use `--no-user`" if name == "user" else "leave it out"
                raise UsageError(f"`{origin}` is empty; give a name, or {way}")

    def check_reads(self) -> None:
        """Raise `UsageError` for `--by` of what only reads: it looks like a filter, and is none."""
        if self.by is not None:
            raise UsageError(
                "`--by` names who changes something, and this only reads; leave it out. "
                "`history` shows who changed what, and `audit --by NAME` what somebody did"
            )

    def scope_options(self) -> list[str]:
        """Return the options given that say whose memories; the environment's do not count."""
        options = [f"--{name}" for name in SCOPES if getattr(self, name) is not None]
        options += ["--no-user"] if self.no_user else []
        return options + (["--all"] if self.everyone else [])

    def scope(self) -> dict[str, str] | None:
        """Return what `AgentMemory.scope` takes, or `None` for everyone's memories."""
        if self.everyone:
            named = [option for option in self.scope_options() if option != "--all"]
            if named:
                raise UsageError(f"`--all` and `{named[0]}` exclude each other; leave one out")
            return None
        self.check_names()
        fields = {f"{name}_id": value for name in SCOPES if (value := self.setting(name)[0])}
        if not fields:
            raise UsageError(
                "no scope is given; use `--user`, `--session`, `--task` or `--agent`, or `--all` "
                "for everyone's memories"
            )
        return fields

    def or_all(self, verb: str) -> str:
        """Return what adds the way to everyone's memories, unless these were asked for."""
        return "" if self.everyone else f"; `--all` {verb} everyone's"

    def describe(self) -> str:
        """Return whose memories these are, in words."""
        scope = self.scope()
        if scope is None:
            return "anyone"
        return ", ".join(f"{name.removesuffix('_id')} `{value}`" for name, value in scope.items())


@dataclass(slots=True)
class CommandContext:
    """One call of a command: its target and its output."""

    target: Target
    out: Output
    makers: tuple[str, ...] = _MAKERS
    """Commands that make a store, for those who look into one that is not there."""

    @asynccontextmanager
    async def memory(
        self, *, meaning: bool = True, creates: bool = False, persona: Path | None = None
    ) -> AsyncIterator["AgentMemory"]:
        """Open the store; without *meaning*, no model is looked for.

        A file that is not there is made only with *creates*: neither a typing mistake nor a look
        around must leave an empty store behind.
        """
        from orbiter.memory.agent.default_user import (  # noqa: PLC0415 - `--help` needs none of it
            default_user_of,
        )
        from orbiter.memory.model.audit import acting_as  # noqa: PLC0415

        memory = self.unopened(meaning=meaning, persona=persona)
        if not creates:
            self.check_there(memory)
        by = self.target.setting("by")[0]
        memory.unscoped(by=by)  # refuses a name that is none, before a file is made
        # Around everything, and not in the handle: whoever acts signs what is imported, too.
        with nullcontext() if by is None else acting_as(by):
            async with memory:
                self.check_key(memory)
                if self.target.setting("user")[1] == _DEFAULT and not self.target.everyone:
                    found = await default_user_of(memory)
                    self.target = replace(self.target, default_user=found)
                yield memory

    async def note_default_user(self, memory: "AgentMemory") -> None:
        """Say so if programs that name no user have memories here, and no user was named."""
        from orbiter.memory.agent import DEFAULT_USER  # noqa: PLC0415 - `--help` needs none of it

        if self.target.default_user in (None, DEFAULT_USER) or is_served(memory):
            return
        if await memory.default_user.list(limit=1):
            self.out.note(
                "programs that name no user have memories here; "
                f"`--user '{DEFAULT_USER}'` is for these"
            )

    def check_key(self, memory: "AgentMemory") -> None:
        """Raise `UsageError` if the key of a server is for another scope than the options name.

        The default and the environment do not count: what the key names is meant.
        """
        memory._engine.leaves_scope_to_key = True  # noqa: SLF001 - of this library
        for name, value in memory._engine.held.items():  # noqa: SLF001 - of this library
            option = name.removesuffix("_id")
            chosen, origin = self.target.setting(option)
            if self.target.everyone:
                say(f"the key is for {option} `{value}`; `--all` is nothing more", kind="note")
            elif chosen not in (None, value) and origin != _DEFAULT:
                other = f"the key is for {option} `{value}`, and {origin} is `{chosen}`"
                if origin == f"--{option}":
                    raise UsageError(f"{other}; leave `{origin}` out, or use another key")
                say(f"{other}, which is not used", kind="note")

    def check_there(self, memory: "AgentMemory") -> None:
        """Raise `FileNotFoundError` if *memory* is a file that does not exist yet."""
        if is_missing(memory):
            ways = " or ".join(f"`orbiter-memory {each}`" for each in self.makers)
            raise FileNotFoundError(f"there is no store at `{memory.url}` yet; {ways} makes one")

    def unopened(
        self,
        *,
        meaning: bool = True,
        persona: Path | None = None,
        audit: "AuditMode | None" = None,
        reranker: str | None = None,
        is_worker: bool = False,
    ) -> "AgentMemory":
        """Return the memory that the options name, not yet opened."""
        from orbiter.memory.agent import AgentMemory  # noqa: PLC0415
        from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415
        from orbiter.memory.backends.urls import for_several_processes  # noqa: PLC0415

        url = self.target.setting("url")[0]
        is_wanted = self.target.has_model() and meaning
        if url is not None and is_http_url(url):  # which has its own model
            for name in ("pii", "redact"):
                chosen, origin = self.target.setting(name)
                if getattr(self.target, name):
                    way = "what a server replaces, it was told"
                    raise UsageError(f"`--{name}` is for a store; {way}")
                if chosen not in (None, "none"):
                    way = "what a server replaces, it was told when it started"
                    say(f"{origin} is `{chosen}`, which is not used here; {way}", kind="note")
            token = self.target.setting("token")[0]
            return AgentMemory(url, token=token, persona=persona, audit=audit)
        if self.target.token:
            raise UsageError("`--token` is the key of a server; leave it out, or give its `--url`")
        hook = pii_hook(*self.target.setting("pii"))
        if url is not None and is_worker:
            url = for_several_processes(url)
        return AgentMemory(
            url,
            embeddings="auto" if is_wanted else None,
            reranker=_reranker(reranker) if meaning else None,
            persona=persona,
            audit=audit,
            redact=redact_words(*self.target.setting("redact")),
            pii=hook,
        )

    @asynccontextmanager
    async def scoped(
        self, *, meaning: bool = True, creates: bool = False, persona: Path | None = None
    ) -> AsyncIterator["ScopedMemory"]:
        """Open the store for the scope that the options name."""
        async with self.both(meaning=meaning, creates=creates, persona=persona) as (_, handle):
            yield handle

    @asynccontextmanager
    async def both(
        self, *, meaning: bool = True, creates: bool = False, persona: Path | None = None
    ) -> AsyncIterator[tuple["AgentMemory", "ScopedMemory"]]:
        """Open the store; with it comes the scope that the options name."""
        self.target.scope()  # first: a mistake in it must not make a file
        async with self.memory(meaning=meaning, creates=creates, persona=persona) as memory:
            scope = self.target.scope()
            name = self.target.setting("user_name")[0]
            yield memory, memory.unscoped() if scope is None else memory.scope(**scope, name=name)


def _reranker(place: str | None) -> "Reranker | None":
    """Return the reranker at *place*, or else where the environment says; most have none."""
    place = place or os.environ.get(f"{_ENV}RERANKER")
    if not place:
        return None
    from orbiter.memory.rerankers import open_reranker  # noqa: PLC0415 - few have one

    return open_reranker(place, api_key=os.environ.get(f"{_ENV}RERANKER_KEY"))


def is_missing(memory: "AgentMemory") -> bool:
    """Tell whether *memory* is a file that does not exist yet."""
    if is_served(memory):
        return False
    path = getattr(memory.store, "db_path", ":memory:")
    return path != ":memory:" and not Path(path).exists()


def is_served(memory: "AgentMemory") -> bool:
    """Tell whether *memory* is behind a server, which has a store and a model of its own."""
    from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415

    return is_http_url(memory.url)


def new_app() -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


name_completers: list[Callable[[typer.Context, str, str], list[tuple[str, str]]]] = []
"""What returns names for a shell; `_completion`, which stands above this module, adds itself."""


def _option(
    *names: str, text: str, kind: Any = str | None, completed: str = "", hidden: bool = False
) -> Any:
    """Return an option; *completed* is the part of a scope whose names a shell offers for it."""
    complete = _names_of(completed) if completed else None
    option = typer.Option(
        *names, help=text, show_default=False, autocompletion=complete, hidden=hidden
    )
    return Annotated[kind, option]


def _names_of(name: str) -> Callable[..., Any]:
    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return [each for names in name_completers for each in names(ctx, incomplete, name)]

    return complete


_URL = {
    "url": _option("--url", text=f"URL or path of the store, or of a server. [env: {_ENV}URL]"),
    "token": _option("--token", text=f"Key of the server. [env: {_ENV}TOKEN]"),
    "model": _option("--model", text=f"`auto`, or `none` for words only. [env: {_ENV}MODEL]"),
    "redact": _option(
        "--redact", text=f"`secrets` for tokens and passwords, or `none`. [env: {_ENV}REDACT]"
    ),
    "pii": _option("--pii", text=f"`tokens` for personal data, or `none`. [env: {_ENV}PII]"),
}
_SCOPE = {
    "user": _option("--user", text=f"User. [env: {_ENV}USER]", completed="user"),
    "no_user": _option("--no-user", text="No user: only what the other options name.", kind=bool),
    "session": _option(
        "--session", text=f"Only this session. [env: {_ENV}SESSION]", completed="session"
    ),
    "task": _option("--task", text=f"Only this task. [env: {_ENV}TASK]", completed="task"),
    "agent": _option("--agent", text=f"Only this agent. [env: {_ENV}AGENT]", completed="agent"),
    "user_name": _option("--user-name", text=f"What people call them. [env: {_ENV}USER_NAME]"),
    "by": _option("--by", text=f"Actor, as shown by `history`; you. [env: {_ENV}BY]"),
}
_ALL = {"everyone": _option("--all", text="All memories, of any user and scope.", kind=bool)}
_JSON = {"as_json": _option("--json", text="Print JSON.", kind=bool)}
_FLAGS = ("everyone", "no_user", "as_json")

_Command = Callable[..., int | None] | Callable[..., Awaitable[int | None]]


def command(  # noqa: PLR0913 - each is a choice of its own
    app: typer.Typer,
    name: str,
    *,
    url: bool = True,
    scope: bool = True,
    everyone: bool = True,
    json: bool = True,
    shows_scope: bool = False,
    reads: bool = False,
    by: str = "",
    makers: tuple[str, ...] = _MAKERS,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Callable[[_Command], _Command]:
    """Add a function to *app* as the command *name*, with the shared options it needs.

    *makers* are the commands that make the store which it does not find. One that only
    *shows_scope* may be asked when a variable names it wrongly. One that only *reads* offers no
    `--by`, and refuses it. *by* is the help of `--by` where it does not sign. A coroutine runs in
    what *new_loop* returns.
    """
    shared: dict[str, Any] = {}
    for wanted, options in (
        (url, _URL),
        (url and scope, _SCOPE),
        (url and scope and everyone, _ALL),
        (json, _JSON),
    ):
        shared |= options if wanted else {}
    if by or reads:
        shared["by"] = _option("--by", text=by, hidden=reads)

    def add(function: _Command) -> _Command:
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = own + [
            inspect.Parameter(
                each,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if each in _FLAGS else None,
                annotation=annotation,
            )
            for each, annotation in shared.items()
        ]

        def called(**arguments: Any) -> None:
            taken = {each: arguments.pop(each) for each in shared}
            out = Output(is_json=taken.pop("as_json", False))
            target = Target(**taken)
            is_checked = "user" in shared and not shows_scope
            context = CommandContext(target, out, makers)
            code = _run(
                function,
                context,
                arguments,
                is_checked=is_checked,
                reads=reads,
                has_store=url,
                new_loop=new_loop,
            )
            raise typer.Exit(code)

        called.__name__ = function.__name__
        called.__doc__ = function.__doc__
        called.__module__ = function.__module__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(called)
        return function

    return add


def _run(
    function: _Command,
    run: CommandContext,
    arguments: dict[str, Any],
    *,
    is_checked: bool,
    reads: bool,
    has_store: bool,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None,
) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        if run.target.setting("model")[0] == "none":  # chosen, so nobody needs to be told
            warnings.filterwarnings("ignore", "recall uses words")
        # Commands tell it themselves, in words of a shell.
        warnings.filterwarnings("ignore", "[0-9,]+ memories are not embedded yet")
        warnings.showwarning = lambda message, *_, **__: run.out.note(str(message))
        try:
            if is_checked:
                run.target.check_names()
            if reads:
                run.target.check_reads()
            if has_store and not run.target.is_remote():
                note_idle_key(run.target.setting("pii")[0])
            result = function(run, **arguments)
            if inspect.isawaitable(result):
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    result = runner.run(_awaited(result))
            run.out.flush()
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - it is told, and becomes the exit code
            return report(exc)
    return result or 0


async def _awaited(result: Awaitable[int | None]) -> int | None:
    return await result


def without_a_name(usual: Callable[[], str]) -> type[TyperGroup]:
    """Return a kind of group that calls the command which *usual* names if nobody names one.

    Its options may follow at once: `facts --json` is `facts list --json`.
    """

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Put the usual command first, unless a command or help is asked for."""
            is_named = bool(args) and (not args[0].startswith("-") or args[0] in ("--help", "-h"))
            if not is_named and not ctx.resilient_parsing:  # a shell completes what there is
                args = [usual(), *args]
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Return the command that *args* begin with; say which one may have been meant."""
            if args and args[0] not in self.commands and not args[0].startswith("-"):
                raise no_command(ctx.command_path, args[0], list(self.commands))
            return super().resolve_command(ctx, args)

    return Group
