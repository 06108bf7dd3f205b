"""The blocking classes have every public name of the async ones, for Python and type checkers."""

import ast
import inspect
import pydoc
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args, get_origin

import pytest
from docs.build_sync import STUB, stub
from tests.rows import each_row

from orbiter.memory import agent, extraction, sync, transfer
from orbiter.memory.episodic import manager

PAIRS = [
    (agent.AgentMemory, sync.AgentMemory),
    (agent.ScopedMemory, sync.ScopedMemory),
    (agent.Chat, sync.Chat),
    (manager.ShortTermMemoryManager, sync.ShortTermMemoryManager),
    (extraction.LongTermMemory, sync.LongTermMemory),
    (extraction.MemoryOrchestrator, sync.MemoryOrchestrator),
]
FUNCTIONS = ("export_file", "import_file", "migrate")


def _public() -> Iterator[tuple[type, type, str]]:
    for twin, form in PAIRS:
        yield from ((twin, form, name) for name in dir(twin) if not name.startswith("_"))


@each_row(
    ("twin", "form", "name"),
    [pytest.param(*each, id=f"{each[0].__name__}.{each[2]}") for each in _public()],
)
def test_a_blocking_name_has_the_signature_and_the_words_of_the_async_one(
    twin: type, form: type, name: str
) -> None:
    theirs, ours = inspect.getattr_static(twin, name), inspect.getattr_static(form, name)

    assert type(theirs) is type(ours)
    told = (inspect.getdoc(theirs) or "").replace("`async for`", "a `for` loop")
    assert inspect.getdoc(ours) == told.replace("async with", "with")
    if not isinstance(theirs, property):
        _check_function(theirs, ours)


def _check_function(theirs: Any, ours: Any) -> None:
    wanted, given = inspect.signature(theirs), inspect.signature(ours)
    _check_parameters(wanted, given)
    returned = wanted.return_annotation
    if wanted == given:
        assert ours.__annotations__ == theirs.__annotations__
    elif returned == given.return_annotation:
        assert list(ours.__annotations__) == list(theirs.__annotations__)
    elif returned in dict(PAIRS):
        assert given.return_annotation is dict(PAIRS)[returned]
    else:
        assert issubclass(get_origin(returned) or returned, AsyncIterator)
        assert get_origin(given.return_annotation) is sync.Stream
    # Frameworks ask these, and look behind `__wrapped__`.
    assert not inspect.iscoroutinefunction(inspect.unwrap(ours))
    assert not inspect.isasyncgenfunction(inspect.unwrap(ours))
    assert ours.__qualname__ == theirs.__qualname__


def _check_parameters(wanted: inspect.Signature, given: inspect.Signature) -> None:
    """Check that they are the same, but for what is taken in its blocking form."""
    for theirs, ours in zip(wanted.parameters.values(), given.parameters.values(), strict=True):
        assert ours.replace(annotation=theirs.annotation) == theirs
        if ours != theirs:
            forms = {
                dict(PAIRS)[each] for each in get_args(theirs.annotation) or [theirs.annotation]
            }
            assert forms == set(get_args(ours.annotation) or [ours.annotation])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_signature_and_the_words_of_the_async_one(name: str) -> None:
    theirs, ours = getattr(transfer, name), getattr(sync, name)

    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert ours.__module__ == "orbiter.memory.sync"
    _check_function(theirs, ours)


@each_row(("twin", "form"), PAIRS, ids=lambda each: each.__name__)
def test_a_class_is_made_entered_and_explained_like_the_async_one(twin: Any, form: Any) -> None:
    assert form.__name__ == twin.__name__
    assert form.__module__ == "orbiter.memory.sync"
    assert hasattr(form, "__enter__") == hasattr(twin, "__aenter__")
    assert "async with" not in (form.__doc__ or "")
    assert pydoc.render_doc(form)
    if hasattr(twin, "__aenter__"):
        _check_parameters(inspect.signature(twin), inspect.signature(form))


def test_what_the_async_classes_hand_out_is_handed_out_in_its_blocking_form() -> None:
    returned = {
        str(inspect.signature(getattr(twin, name)).return_annotation)
        for twin, _, name in _public()
        if inspect.isroutine(inspect.getattr_static(twin, name))
    }
    known = {"ScopedMemory", "Chat", "EventStream", "AsyncGenerator"}

    # A new kind of handle needs a blocking form, and a line above.
    handles = {each for each in returned if any(name in each for name in ("agent._", "Async"))}
    plain = ("_results.", "_reading.")
    left = {each for each in handles if not any(name in each for name in (*known, *plain))}
    assert left == set()


def test_the_types_are_written_anew_when_the_async_classes_change() -> None:
    assert STUB.read_text() == stub(), "run: .venv/bin/python docs/build_sync.py"


def test_type_checkers_see_every_name() -> None:
    tree = ast.parse(STUB.read_text())
    typed = {
        node.name: {
            getattr(each, "name", "") or ast.unparse(getattr(each, "target", node))
            for each in node.body
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }

    for twin, _, name in _public():
        assert name in typed[twin.__name__]
    assert {"redis_url", "agent_id"} <= typed["ShortTermMemoryManager"]
    assert set(FUNCTIONS) <= {getattr(node, "name", "") for node in tree.body}
    assert set(dir(sync)) == set(sync.__all__)


@pytest.mark.slow
def test_importing_it_starts_no_thread_and_no_loop() -> None:
    program = (
        "import sys, threading, orbiter.memory.sync as s; s.AgentMemory('memory://', "
        "embeddings=None); loop = s._background_loop; "
        "print(threading.active_count(), loop._current, 'asyncpg' in "
        "sys.modules, 'redis' in sys.modules, 'numpy' in "
        "sys.modules, 'orbiter.memory.transfer' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "1 None False False False False\n"
