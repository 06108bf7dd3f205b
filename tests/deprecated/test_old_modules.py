"""Modules by the paths they had before: they load with a warning, and so do pickles of before.

`names_before.json` has every public module and name of before, and `pickles_before.json` what the
code of before pickled, each with what it wrote of it.
"""

import base64
import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.timing import HANG

import orbiter.memory
from orbiter.memory.deprecation import OLD_MODULES, OrbiterDeprecationWarning
from orbiter.memory.model import dump_item

HERE = Path(__file__).parent
NAMES = json.loads((HERE / "names_before.json").read_text())
PICKLES = json.loads((HERE / "pickles_before.json").read_text(encoding="utf-8"))
OLD = sorted({f"orbiter.memory.{old}" for names in OLD_MODULES.values() for old in names})


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    """Have every test, this and later ones, import the old modules for the first time."""
    _unload()
    yield
    _unload()


def _unload() -> None:
    for name in OLD:
        if sys.modules.pop(name, None) is not None:
            parent, _, short = name.rpartition(".")
            vars(sys.modules.get(parent, orbiter.memory)).pop(short, None)


@pytest.mark.parametrize("name", [name for name in OLD if "._" not in name])
def test_an_old_module_loads_and_says_at_the_import_where_it_is_now(name: str) -> None:
    with pytest.warns(OrbiterDeprecationWarning) as caught:
        __import__(name)

    assert len(caught) == 1, "once for the import"
    assert caught[0].filename == __file__
    short = name.removeprefix("orbiter.memory.")
    for home in (new for new, names in OLD_MODULES.items() if short in names):
        assert f"`orbiter.memory.{home}`" in str(caught[0].message)


def test_every_way_to_import_an_old_module_works_and_warns_once() -> None:
    for program in (
        "import orbiter.memory.keys",
        "from orbiter.memory import keys",
        "from orbiter.memory.keys import Key, KeyFile",
        "from orbiter.memory.keys import *",
    ):
        _unload()
        names: dict[str, Any] = {}

        with pytest.warns(OrbiterDeprecationWarning, match=r"now `orbiter.memory.auth`") as caught:
            exec(compile(program, "user.py", "exec"), names)

        assert [each.filename for each in caught] == ["user.py"], program


@pytest.mark.filterwarnings("ignore::orbiter.memory.deprecation.OrbiterDeprecationWarning")
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_of_before_loads_from_where_it_was(name: str) -> None:
    module = import_module(name)

    assert [each for each in NAMES[name] if not hasattr(module, each)] == []


@pytest.mark.filterwarnings("ignore::orbiter.memory.deprecation.OrbiterDeprecationWarning")
def test_a_module_that_never_was_is_still_an_error() -> None:
    for name in ("nothing", "_nothing", "items.nothing", "facts._nothing"):
        with pytest.raises(ModuleNotFoundError, match=name):
            import_module(f"orbiter.memory.{name}")


@pytest.mark.parametrize(
    "kept", PICKLES["items"], ids=lambda kept: str(kept["record"]["memory_type"])
)
def test_an_item_that_was_pickled_before_loads(kept: dict[str, Any]) -> None:
    with pytest.warns(OrbiterDeprecationWarning):
        item = pickle.loads(base64.b64decode(kept["pickle"]))

    assert dump_item(item) == kept["record"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(item)) == item, "what is written now names the new module"


@pytest.mark.parametrize("kept", PICKLES["values"], ids=lambda kept: str(kept["text"])[:16])
def test_a_value_that_was_pickled_before_loads(kept: dict[str, Any]) -> None:
    with pytest.warns(OrbiterDeprecationWarning):
        value = pickle.loads(base64.b64decode(kept["pickle"]))

    assert repr(value) == kept["text"]
    for name in getattr(type(value), "__slots__", ()):
        assert hasattr(value, name), "a field that came later"


def test_nothing_of_this_is_loaded_until_an_old_path_is_named() -> None:
    program = """
import sys
import orbiter.memory
from orbiter.memory.agent import AgentMemory
from orbiter.memory.backends.postgres import PostgresMemoryStore
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.backends.vector import Embeddings, OpenAIEmbeddings, VectorMemoryStore
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.summary import SummaryConfig
from synaptic.core.base.memory import History, Memory, ResponseMem
assert "orbiter.memory.deprecation" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=HANG)
