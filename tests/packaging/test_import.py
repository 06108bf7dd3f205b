"""Importing the package does nothing: no file, no thread, no logger, no socket, no extra."""

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PathDistribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

import orbiter.memory
from orbiter.memory._lazy import install_command, lazy_pattern, missing_extra
from orbiter.memory._missing_names import PEERS

PROBE = """
import _thread, json, sys
seen = []
def counted(start):
    def call(*args, **kwargs):
        seen.append("thread")
        return start(*args, **kwargs)
    return call
for name in ("start_new_thread", "start_joinable_thread"):  # the second since Python 3.13
    if hasattr(_thread, name):
        setattr(_thread, name, counted(getattr(_thread, name)))
def watch(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so")):
        seen.append(f"open {args[0]}")
    elif event.startswith(("socket.", "subprocess.", "os.mkdir", "os.putenv")):
        seen.append(event)
sys.addaudithook(watch)
%s
loggers = handlers = []
if "logging" in sys.modules:
    import logging
    handlers = [str(h) for h in logging.root.handlers]
    loggers = [n for n in logging.root.manager.loggerDict if n.startswith(("orbiter", "synaptic"))]
print(json.dumps({"seen": seen, "logging": handlers + loggers, "modules": sorted(sys.modules)}))
"""


def _probe(statement: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROBE % statement], capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_importing_opens_no_file_starts_no_thread_touches_no_logger() -> None:
    found = _probe("import orbiter.memory")

    assert found["seen"] == []
    assert found["logging"] == []
    assert not set(found["modules"]) & {
        "pydantic",
        "asyncio",
        "asyncpg",
        "sqlite3",
        "openai",
        "logging",
        "numpy",
        "onnxruntime",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "import orbiter.memory.base",
        "import orbiter.memory as m; [getattr(m, n) for n in m.__all__ if n[:6] != 'OpenAI']",
        "import synaptic.core.base.memory",
    ],
)
def test_using_the_names_adds_nothing_but_pydantics_search_for_plugins(statement: str) -> None:
    found = _probe(statement)

    # It reads each installed distribution's entry points, and looks into Python's own zip.
    searched = (".dist-info/", ".zip")
    assert [entry for entry in found["seen"] if not any(s in entry for s in searched)] == []
    assert found["logging"] == []
    assert not set(found["modules"]) & {"openai", "pytest", "numpy", "orbiter.memory.testing"}


def test_the_first_use_by_words_waits_for_no_validator_no_plugin_and_no_report(
    tmp_path: Path,
) -> None:
    program = """
import asyncio, json, sys
from orbiter.memory import AgentMemory
async def main():
    async with AgentMemory(sys.argv[1], embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("I love hiking in the mountains")
        assert [hit.item.content for hit in await alice.recall("hiking")]
asyncio.run(main())
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
assert not MemoryItem.__pydantic_complete__ and not MemoryMetadata.__pydantic_complete__
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "new.db")],
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(json.loads(done.stdout))
    assert not loaded & {"importlib.metadata", "urllib.request", "email", "difflib"}
    reports = ("agent.results", "model.key_value", "model.reports", "model.value_counts")
    seldom = (*reports, "backends.sqlite.backup", "messages.codec", "recall._in_memory_index")
    assert not loaded & {f"orbiter.memory.{name}" for name in seldom}


def test_a_pattern_is_compiled_on_first_use() -> None:
    broken, pattern = lazy_pattern("("), lazy_pattern(r"A(\d)", re.IGNORECASE)

    with pytest.raises(re.error):
        broken.search("")
    assert [match[1] for match in pattern.finditer("a1 A2")] == ["1", "2"]
    assert (pattern.pattern, pattern.flags & re.IGNORECASE) == (r"A(\d)", re.IGNORECASE)
    assert pattern.sub("x", "a1 b") == "x b"


def test_the_probe_sees_a_file_a_thread_and_a_logger() -> None:
    found = _probe(
        "open('/dev/null').close(); import threading, logging; "
        "threading.Thread(target=int).start(); logging.getLogger('orbiter.x').warning('hi')"
    )

    assert found["seen"] == ["open /dev/null", "thread"]
    assert "orbiter.x" in found["logging"]


def test_a_whole_conversation_reaches_for_no_network() -> None:
    program = """
import asyncio
from orbiter.memory import *
from orbiter.memory.summarizers import ExtractiveSummarizer
async def main():
    memory = ShortTermMemory()
    for number in range(30):
        await memory.add(HumanMemory(content=f"My number is {number}."))
    items = await memory.window(budget=500)
    await generate_summary(items, SummaryConfig(), ExtractiveSummarizer())
    to_messages(items, "anthropic")
asyncio.run(main())
"""
    found = _probe(program)

    events = {entry for entry in found["seen"] if entry.startswith("socket.")}
    assert events <= {"socket.__new__"}  # the pair an event loop wakes itself with


@pytest.mark.parametrize(
    ("origin", "extra", "command"),
    [
        (None, "redis", "pip install 'orbiter-memory[redis]'"),
        ({"url": "file:///co", "dir_info": {}}, "redis", "pip install '/co[redis]'"),
        (
            {"url": "file:///my%20co", "dir_info": {"editable": True}},
            "redis",
            "pip install -e '/my co[redis]'",
        ),
        (
            {"url": "file:///d/o-1.whl", "archive_info": {}},
            "local",
            "pip install --find-links '/d' '/d/o-1.whl[local]'",
        ),
        (
            {"url": "https://h/o", "vcs_info": {"vcs": "git", "commit_id": "4f2"}},
            "redis",
            "pip install 'orbiter-memory[redis] @ git+https://h/o@4f2'",
        ),
    ],
)
def test_a_missing_extra_is_told_with_the_line_that_installs_it_here(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, extra: str, command: str
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(PathDistribution, "read_text", lambda _self, _name: text)

    error = missing_extra("a test needs it", extra)

    assert install_command(extra) == command
    assert str(error) == f"a test needs it: pip install 'orbiter-memory[{extra}]'"
    notes = getattr(error, "__notes__", [])
    assert [note.endswith(f": {command}") for note in notes] == ([] if origin is None else [True])


def test_the_model_of_a_checkout_is_installed_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "models" / "minilm").mkdir(parents=True)
    text = json.dumps({"url": tmp_path.as_uri(), "dir_info": {}})
    monkeypatch.setattr(PathDistribution, "read_text", lambda _self, _name: text)

    command = install_command("local")

    assert command == f"pip install '{tmp_path}/models/minilm' '{tmp_path}[local]'"


@each_row("package", ["orbiter.memory", "orbiter.memory.sync"])
@each_row(
    ("name", "way"),
    [
        ("Memory", "here it is `AgentMemory`, or without `await`"),
        ("MemoryClient", 'here it is `AgentMemory("https://…", token=…)`'),
        ("AgentMemroy", "did you mean `AgentMemory`?"),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(package: str, name: str, way: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"'{name}' from '{package}'; {way}")):
        exec(f"from {package} import {name}", {})

    assert not hasattr(import_module(package), name)


def test_a_name_of_nobody_is_a_plain_import_error() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Zebra' from 'orbiter.memory' \("):
        exec("from orbiter.memory import Zebra", {})
    assert find_spec("orbiter.memory.zebra") is None
    for name in PEERS:
        assert name not in orbiter.memory.__all__
