"""Does the kit find bugs? Each is planted in a copy of a store; its contract must fail on it."""

import gc
import sys
import warnings
from pathlib import Path

import pytest
from tests.kit.bugs import Bug
from tests.kit.bugs_data import DATA_BUGS
from tests.kit.bugs_lifecycle import LIFECYCLE_BUGS
from tests.kit.bugs_search import QUERY_BUGS, SEARCH_BUGS
from tests.kit.bugs_short_term import NARROW_SCOPE_BUGS, SHORT_TERM_BUGS
from tests.kit.bugs_sql import COUNT_BUGS, ENTRY_BUGS, SQL_BUGS
from tests.kit.bugs_vector import VECTOR_BUGS

# Imported here, they need not be imported anew for each bug, which takes longer than a contract;
# and numpy, which the first needs, cannot be.
import orbiter.memory.backends.vector.index  # noqa: F401
from orbiter.memory.testing import StoreConformance

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest
from orbiter.memory.testing import Capabilities, HashEmbeddings, Recipe, StoreConformance
from planted import {store}

class TestPlanted(StoreConformance):
    capabilities = Capabilities({capabilities})

    @pytest.fixture
    async def store(self, tmp_path):
        store = {store}({arguments})
        if hasattr(store, "init"):
            await store.init()
        yield store
        if hasattr(store, "close"):
            await store.close()

    def recipe(self, store):
        return Recipe("planted:{store}", (str(store._path),))
"""
# Collecting all the others takes longer than the one contract.
ONLY = """
for name in dir(TestPlanted):
    if name.startswith("test_") and {contract!r} not in name:
        setattr(TestPlanted, name, None)
"""
STORES = {
    "ShortTermMemory": {
        "source": (ROOT / "src/orbiter/memory/short_term.py").read_text(),
        "capabilities": "order='oldest', conversation=True, lifecycle=False, durable=False,"
        " shared=False",
        "arguments": "",
    },
    "JournalStore": {
        "source": (ROOT / "tests/kit/journal_store.py").read_text(),
        "capabilities": "shared=False, where=True",
        "arguments": "str(tmp_path / 'journal')",
    },
}
STORES["VectorMemoryStore"] = {
    "source": (ROOT / "src/orbiter/memory/backends/vector/store.py").read_text(),
    "capabilities": "text='meaning', lifecycle=False, durable=False, shared=False, where=True",
    "arguments": "HashEmbeddings()",
}
USER_STORE = """

class UserMemory(ShortTermMemory):
    def __init__(self):
        super().__init__(scope="user")
"""
STORES["UserMemory"] = {
    **STORES["ShortTermMemory"],
    "source": STORES["ShortTermMemory"]["source"] + USER_STORE,
    "capabilities": STORES["ShortTermMemory"]["capabilities"] + ", scope=('user_id', 'agent_id')",
}
SQL_STORE = """

from orbiter.memory.backends.sqlite.dialect import SQLiteDialect
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

class SQLStore(SQLiteMemoryStore):
    def __init__(self, path):
        super().__init__(path, durability="normal")
        self._operations = Operations(SQLiteDialect())
"""
STORES["SQLStore"] = {
    "source": (ROOT / "src/orbiter/memory/backends/sql/operations.py").read_text() + SQL_STORE,
    "capabilities": "versions=True, paging=True, where=True, bulk_delete=True, insert=True,"
    " insertion_order=True, erase=True",
    "arguments": "str(tmp_path / 'memory.db')",
}
COUNT_STORE = """

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

class CountStore(SQLGroupCounts, SQLiteMemoryStore):
    pass
"""
STORES["CountStore"] = {
    "source": (ROOT / "src/orbiter/memory/backends/sql/group_counts.py").read_text() + COUNT_STORE,
    "capabilities": "where=True, bulk_delete=True, facets=True, key_value=True, shared=False",
    "arguments": "str(tmp_path / 'memory.db'), durability='normal'",
}
ENTRY_STORE = """

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

class EntryStore(SQLiteMemoryStore):
    @property
    def key_value(self):
        return SQLKeyValue(self)
"""
STORES["EntryStore"] = {
    "source": (ROOT / "src/orbiter/memory/backends/sql/entry_table.py").read_text() + ENTRY_STORE,
    "capabilities": "key_value=True, shared=False",
    "arguments": "str(tmp_path / 'memory.db'), durability='normal'",
}
JOURNAL_BUGS = DATA_BUGS | QUERY_BUGS | SEARCH_BUGS | LIFECYCLE_BUGS
BUGS = [
    pytest.param(store, bug, id=f"{store} {name}")
    for store, bugs in (
        ("ShortTermMemory", SHORT_TERM_BUGS),
        ("UserMemory", NARROW_SCOPE_BUGS),
        ("JournalStore", JOURNAL_BUGS),
        ("SQLStore", SQL_BUGS),
        ("CountStore", COUNT_BUGS),
        ("EntryStore", ENTRY_BUGS),
        ("VectorMemoryStore", VECTOR_BUGS),
    )
    for name, bug in bugs.items()
]
SLIPS = ("AttributeError", "Failed: async", "ImportError", "NameError", "SyntaxError", "TypeError")
"""How a bug fails that is no bug but nonsense: it would fail on anything."""


def _run(
    pytester: pytest.Pytester, store: str, source: str, contract: str = ""
) -> tuple[int, list[str]]:
    """Return how many contracts passed, and how the others failed."""
    pytester.syspathinsert()
    suite = SUITE.format(store=store, **STORES[store])
    if any(contract in name for name in dir(StoreConformance)):
        suite += ONLY.format(contract=contract)
    pytester.makepyfile(planted=source, test_planted=suite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passed, skipped, failed = pytester.inline_run(
            *("-x", "-q", "-k", contract, "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"),
            *("-o", "asyncio_default_fixture_loop_scope=function", "-p", "pytest_asyncio.plugin"),
        ).listoutcomes()
        messages = [str(report.longrepr.reprcrash.message) for report in failed]  # type: ignore[union-attr]  # failed ones have it
        assert not skipped
        # What a bug leaves open must be gone before another test is blamed for it.
        del failed
        for name in ("last_exc", "last_traceback", "last_type", "last_value"):
            vars(sys).pop(name, None)
        gc.collect()
    return len(passed), messages


@pytest.mark.parametrize("store", STORES)
def test_the_unspoilt_copy_passes(pytester: pytest.Pytester, store: str) -> None:
    # They pass the whole kit elsewhere, and some of it takes a while.
    some, least = {
        "SQLStore": ("history or purge or cursor or pages", 20),
        "CountStore": ("counted or users", 7),
        "EntryStore": ("entries or entry", 5),
    }.get(store, ("not sequence_of_calls and not kill_9", 100))

    passed, failures = _run(pytester, store, STORES[store]["source"], some)

    assert failures == []
    assert passed > least


@pytest.mark.parametrize(("store", "bug"), BUGS)
def test_a_planted_bug_is_caught(pytester: pytest.Pytester, store: str, bug: Bug) -> None:
    assert any(bug.contract in name for name in dir(StoreConformance)), bug.contract

    _, failures = _run(pytester, store, bug.plant(STORES[store]["source"]), bug.contract)

    assert failures, f"`{bug.contract}` did not notice"
    assert not failures[0].startswith(SLIPS)
