"""What a command works on: the store that its options name, whose memories, and its output."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from click import UsageError

from orbiter.memory.cli._error_messages import say
from orbiter.memory.cli._output import Output

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.model.protocols import Reranker
    from orbiter.memory.text.redaction import PIIHook

__all__ = [
    "ENV_PREFIX",
    "PII_VARIABLES",
    "SCOPES",
    "CommandContext",
    "Target",
    "is_missing",
    "is_served",
    "note_idle_key",
    "pii_hook",
]

ENV_PREFIX = "ORBITER_MEMORY_"
SCOPES = ("user", "session", "task", "agent")
PII_VARIABLES = PII_KEY, _ = "ORBITER_PII_KEY", "ORBITER_PII_TENANT"
"""Variables and no options: a command line is seen by others on the computer."""


@dataclass(frozen=True, slots=True)
class Target:
    """The store, and whose memories in it, as options, variables and the settings file say."""

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
    by: str | None = None
    everyone: bool = False
    no_user: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where what is set comes from: `--url`, or the name of a variable."""
    default_user: str | None = None
    """Whom the store means where nobody is named, once it is open."""

    def is_given(self, name: str) -> bool:
        """Return whether *name* is set by an option of the command line."""
        return self.origins.get(name, "").startswith("--")

    def is_remote(self) -> bool:
        """Return whether the store is a server's."""
        return (self.url or "").lower().startswith(("http://", "https://"))

    def check_scope(self) -> None:
        """Raise `UsageError` for a scope that is named, but empty: it would widen what is meant."""
        if self.no_user and self.is_given("user"):
            raise UsageError("`--no-user` and `--user` exclude each other; leave one out")
        if self.everyone and (named := [each for each in self.scope_options() if each != "--all"]):
            raise UsageError(f"`--all` and `{named[0]}` exclude each other; leave one out")
        for name in SCOPES:
            variable = f"{ENV_PREFIX}{name.upper()}"
            is_empty = getattr(self, name) == "" or (
                getattr(self, name) is None and os.environ.get(variable) == ""
            )
            if is_empty and not self.everyone and not (name == "user" and self.no_user):
                way = "use `--no-user`" if name == "user" else "leave it out"
                origin = self.origins.get(name, variable)
                raise UsageError(f"`{origin}` is empty; give a name, or {way}")

    def scope_options(self) -> list[str]:
        """Return the options given that say whose memories; the environment's do not count."""
        options = [f"--{name}" for name in SCOPES if self.is_given(name)]
        options += ["--no-user"] if self.no_user else []
        return options + (["--all"] if self.everyone else [])

    def scope(self) -> dict[str, str] | None:
        """Return what `AgentMemory.scope` takes, or `None` for everyone's memories."""
        from orbiter.memory.agent.default_user import DEFAULT_USER  # noqa: PLC0415 - not for help

        if self.everyone:
            return None
        names = {name: getattr(self, name) for name in SCOPES}
        names["user"] = None if self.no_user else self.user or self.default_user or DEFAULT_USER
        fields = {f"{name}_id": value for name, value in names.items() if value}
        if not fields:
            raise UsageError(
                "no scope is given; use `--user`, `--session`, `--task` or `--agent`, or `--all` "
                "for everyone's memories"
            )
        return fields

    def actor(self) -> str | None:
        """Return who signs what is written: `--by`, or else the computer's user.

        The log refuses names of the library. It is never shortened, so those who change what is
        theirs are not named in it. A server signs with the name of the key.
        """
        from orbiter.memory.agent.default_user import (  # noqa: PLC0415 - `--help` needs none of it
            DEFAULT_USER,
            os_user,
        )

        name = os_user()
        if self.by or name is None or name.startswith("~") or self.is_remote():
            return self.by
        owners = [] if self.everyone else (self.scope() or {}).values()
        return None if {name, DEFAULT_USER} & set(owners) else name

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
    path: str = ""
    """How the command is called, such as `orbiter-memory facts list`."""

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
        by = self.target.actor()
        memory.unscoped(by=by)  # refuses a name that is none, before a file is made
        # Around everything, and not in the handle: whoever acts signs what is imported, too.
        with nullcontext() if by is None else acting_as(by):
            async with memory:
                self._check_key(memory)
                if not (self.target.user or self.target.no_user or self.target.everyone):
                    found = await default_user_of(memory)
                    self.target = replace(self.target, default_user=found)
                yield memory

    def _check_key(self, memory: "AgentMemory") -> None:
        """Raise `UsageError` if the key of a server is for another scope than the options name.

        The default and the environment do not count: what the key names is meant.
        """
        memory._engine.leaves_scope_to_key = True  # noqa: SLF001 - of this library
        for field_name, value in memory._engine.held.items():  # noqa: SLF001 - of this library
            name = field_name.removesuffix("_id")
            chosen = getattr(self.target, name)
            if self.target.everyone:
                say(f"the key is for {name} `{value}`; `--all` is nothing more", kind="note")
            elif chosen not in (None, value):
                origin = self.target.origins.get(name)
                other = f"the key is for {name} `{value}`, and {origin} is `{chosen}`"
                if self.target.is_given(name):
                    raise UsageError(f"{other}; leave `{origin}` out, or use another key")
                say(f"{other}, which is not used", kind="note")

    def check_there(self, memory: "AgentMemory") -> None:
        """Raise `FileNotFoundError` if *memory* is a file that does not exist yet."""
        if is_missing(memory):
            raise FileNotFoundError(
                f"there is no store at `{memory.url}` yet; `orbiter-memory remember` or "
                "`orbiter-memory import` makes one"
            )

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
        from orbiter.memory.backends.urls import for_several_processes  # noqa: PLC0415

        target, url = self.target, self.target.url or None
        if target.is_remote():  # which has its own model
            for name in ("pii", "redact"):
                chosen, origin = getattr(target, name), target.origins.get(name)
                way = "what a server replaces, it was told when it started"
                if target.is_given(name):
                    raise UsageError(f"`--{name}` is for a store; {way}")
                if chosen not in (None, "none"):
                    say(f"{origin} is `{chosen}`, which is not used here; {way}", kind="note")
            return AgentMemory(url, token=target.token, persona=persona, audit=audit)
        if target.is_given("token"):
            raise UsageError("`--token` is the key of a server; leave it out, or give its `--url`")
        return AgentMemory(
            for_several_processes(url) if url is not None and is_worker else url,
            embeddings="auto" if meaning and target.model != "none" else None,
            reranker=_reranker(reranker) if meaning else None,
            persona=persona,
            audit=audit,
            redact=target.redact,  # type: ignore[arg-type]  # click has checked it
            pii=pii_hook(target),
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
            scope, name = self.target.scope(), self.target.user_name
            yield memory, memory.unscoped() if scope is None else memory.scope(**scope, name=name)


def _reranker(place: str | None) -> "Reranker | None":
    """Return the reranker at *place*, or else where the environment says; most have none."""
    place = place or os.environ.get(f"{ENV_PREFIX}RERANKER")
    if not place:
        return None
    from orbiter.memory.rerankers import open_reranker  # noqa: PLC0415 - few have one

    return open_reranker(place, api_key=os.environ.get(f"{ENV_PREFIX}RERANKER_KEY"))


def pii_hook(target: Target) -> "PIIHook | None":
    """Return what replaces personal data before it is written, if the setting `pii` says so."""
    if target.pii in (None, "", "none"):
        return None
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - few need it
    from orbiter.memory.text.pii import hasher_of  # noqa: PLC0415

    try:
        return hasher_of(str(target.pii), origin=target.origins["pii"], off="`--pii none`")
    except QueryError as exc:
        raise UsageError(str(exc)) from None


def note_idle_key(pii: str | None) -> None:
    """Say so if there is a key for tokens, and nothing says whether personal data is replaced."""
    if pii is None and os.environ.get(PII_KEY):
        say(
            f"`{PII_KEY}` is set, but personal data is stored as it is; "
            f"`{ENV_PREFIX}PII=tokens` replaces it, `{ENV_PREFIX}PII=none` ends this note",
            kind="note",
        )


def is_missing(memory: "AgentMemory") -> bool:
    """Return whether *memory* is a file that does not exist yet."""
    if is_served(memory):
        return False
    path = getattr(memory.store, "db_path", ":memory:")
    return path != ":memory:" and not Path(path).exists()


def is_served(memory: "AgentMemory") -> bool:
    """Return whether *memory* is behind a server, which has a store and a model of its own."""
    from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415

    return is_http_url(memory.url)
