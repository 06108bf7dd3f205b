"""Health checks of a computer and a store, each with a cure if something is wrong.

Every check is made here; `orbiter-memory doctor` prints them, and the dashboard shows some of them
on its page of data.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from orbiter.memory._lazy import install_command

if TYPE_CHECKING:  # a command that only looks for an extra loads no models of items
    from orbiter.memory.model.protocols import Embeddings
    from orbiter.memory.model.reports import StoreStats, Verification

__all__ = [
    "Check",
    "check_contents",
    "check_environment",
    "check_extras",
    "check_index",
    "check_loaded_model",
    "check_local_model",
    "check_store",
    "check_waiting",
    "is_installed",
]

EXTRAS = {
    "local": ("numpy", "onnxruntime", "orbiter_memory_minilm"),
    "vector": ("numpy",),
    "ann": ("usearch",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "openai": ("openai",),
    "client": ("httpx",),
    "mcp": ("mcp", "httpx"),
    "server": ("starlette", "uvicorn", "httptools", "jinja2", "mcp"),
    "oidc": ("jwt", "cryptography", "httpx"),
    "otel": ("opentelemetry",),
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "note", "wrong"]
    found: str
    cure: str = ""


def is_installed(extra: str) -> bool:
    """Tell whether everything of an extra is there."""
    return all(find_spec(module) is not None for module in EXTRAS[extra])


def check_environment() -> list[Check]:
    """Look at the versions of this package, of Python and of SQLite."""
    import sqlite3  # noqa: PLC0415 - only this looks at it

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
        compile_options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    has_words = "ENABLE_FTS5" in compile_options
    cure = "" if has_words else "install a Python whose SQLite has FTS5"
    words = "with" if has_words else "without"
    state: Literal["ok", "wrong"] = "ok" if has_words else "wrong"
    checks.append(Check("sqlite", state, f"{sqlite3.sqlite_version}, {words} FTS5", cure))
    return checks


def check_extras() -> Check:
    """Look which extras are installed."""
    there = [name for name in EXTRAS if is_installed(name)]
    missing = [name for name in EXTRAS if name not in there]
    summary = f"{', '.join(there) or 'none'} installed"
    return Check("extras", "ok", summary + (f"; not {', '.join(missing)}" if missing else ""))


def check_local_model(describe: Callable[[Exception], str] = str) -> Check:
    """Load the model that comes with the extra `[local]`, and try it; *describe* words an error."""
    if not is_installed("local"):
        return _no_model(install_command("local"))
    from orbiter.memory.embeddings.local import LocalEmbeddings  # noqa: PLC0415

    try:
        model = LocalEmbeddings()
        model.embed("well?")
    except Exception as exc:  # noqa: BLE001 - a model that does not load is the finding
        return Check(
            "model", "wrong", describe(exc), f"{install_command('local')} --force-reinstall"
        )
    return Check("model", "ok", f"{model.name}, {model.dimension} dimensions, works")


def check_loaded_model(model: "Embeddings | None") -> Check:
    """Say what an open store embeds with."""
    if model is None:
        return _no_model(f"{install_command('local')}, and start without `--model none`")
    name = getattr(model, "name", type(model).__name__)
    return Check("model", "ok", f"{name}, {model.dimension} dimensions")


def _no_model(cure: str) -> Check:
    return Check("model", "note", "none: recall uses words and structure only", cure)


def check_store(url: str) -> Check:
    """Say which store is open."""
    return Check("store", "ok", url)


def check_contents(verified: "Verification | None", *, cure: str) -> Check:
    """Say what reading everything has found; `None` where a store cannot do that."""
    if verified is None:
        return Check("contents", "note", "this store has no self-check; its database server has")
    if verified.problems:
        first = "; ".join(verified.problems[:3])
        more = f" and {len(verified.problems) - 3} more" if len(verified.problems) > 3 else ""
        return Check("contents", "wrong", f"{first}{more}", cure)
    done = ", search indexes rebuilt" if verified.repaired else ""
    rows = "row" if verified.checked == 1 else "rows"
    return Check("contents", "ok", f"{verified.checked:,} {rows} read{done}")


def check_index(stats: "StoreStats | None") -> list[Check]:
    """Say that recall by meaning has no index, if an extension is missing for it."""
    if stats is None or stats.missing_extension is None:
        return []
    lack = "this database began without pgvector: recall by meaning reads every vector of a user"
    cure = (
        "stop the servers, run `CREATE EXTENSION vector; DROP TABLE memory_vectors`, then "
        "`orbiter-memory doctor --repair`; see docs/operate/run.md"
    )
    return [Check("index", "note", lack, cure)]


def check_waiting(
    stats: "StoreStats",
    *,
    cure: str = "each recall embeds some; `orbiter-memory doctor --repair` embeds all",
) -> Check:
    """Say whether everything can be found, by meaning too; *cure* embeds what is pending."""
    if stats.embedding_error:
        return Check("vectors", "wrong", stats.embedding_error, "see `model` above")
    if stats.unembedded:
        what = "1 memory is" if stats.unembedded == 1 else f"{stats.unembedded:,} memories are"
        summary = f"{what} not embedded yet, so found by words only"
        return Check("waiting", "note", summary, cure)
    return Check("waiting", "ok", "nothing: every memory is embedded")
