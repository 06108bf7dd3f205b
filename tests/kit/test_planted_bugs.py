"""Does the kit find bugs? Each is planted in a copy of a store; a contract must fail on it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT_TERM = ROOT / "src/orbiter/memory/short_term.py"
JOURNAL = ROOT / "tests/kit/journal_store.py"

CONVERSATIONS = (
    'Capabilities(order="oldest", conversation=True, lifecycle=False, durable=False, shared=False)'
)

# What a careless hand might write, in place of what stands there.
SHORT_TERM_BUGS = {
    "keeps the caller's object": ("self._keep(take_in(item))", "self._keep(item)"),
    "hands out its own object": (
        "return None if item is None else copy_item(item)",
        "return item",
    ),
    "hands out its own objects from search": (
        "return [copy_item(item) for _, unit in reversed(list(found)) for item in unit]",
        "return [item for _, unit in reversed(list(found)) for item in unit]",
    ),
    "an update takes the new time of creation": (
        "item.__dict__.update(version=old.version + 1, created_at=old.created_at)",
        "item.__dict__.update(version=old.version + 1)",
    ),
    "an update does not raise the version": ("version=old.version + 1", "version=old.version"),
    "an update leaves the old item on its shelves": (
        "            self._unshelve({item.id: old})\n",
        "",
    ),
    "order is by arrival, not by time": (
        "return item.created_at, self._arrival[item.id]",
        "return datetime.min, self._arrival[item.id]",
    ),
    "equal times are ordered backwards": (
        "return item.created_at, self._arrival[item.id]",
        "return item.created_at, -self._arrival[item.id]",
    ),
    "a limit keeps the oldest": (
        "newest = newest_first(shelf.items)",
        "newest = newest_first(shelf.items[:limit])",
    ),
    "a limit of nothing means no limit": (
        "found = take_units(self._windowed(newest, systems), limit)",
        "found = take_units(self._windowed(newest, systems), limit or 10**9)",
    ),
    "the type filter is forgotten": (
        "if asked.matches(one[1][0])), limit)",
        "if asked.has_text(one[1][0])), limit)",
    ),
    "the text filter is forgotten": ("            text=query,\n", ""),
    "the status filter is forgotten": ("            status=status,\n", ""),
    "one scope field is forgotten": (
        '"task": ("user_id", "session_id", "task_id", "agent_id")',
        '"task": ("user_id", "session_id", "task_id")',
    ),
    "ids are compared without case": (
        "if (value := getattr(item.metadata, name)) is not None",
        (
            "if (value := getattr(item.metadata, name)) is not None"
            " and (value := value.lower()) is not None"
        ),
    ),
    "an empty id counts as none": (
        "if (value := getattr(item.metadata, name)) is not None",
        "if (value := getattr(item.metadata, name))",
    ),
    "clear removes everyone": ("if metadata is None:", "if True:"),
    "clear takes an empty filter for all": (
        "if not asked.wanted:",
        "if not asked.wanted and metadata.extra:",
    ),
    "clear counts wrong": ("return len(gone)", "return len(gone) + 1"),
    "clear forgets the index": ("self._unshelve(gone)", "pass"),
    "a batch is kept item by item": (
        "for item in [take_in(item) for item in items]:\n            self._keep(item)",
        "for item in items:\n            self._keep(take_in(item))",
    ),
    "text is trimmed": (
        "self._keep(take_in(item))",
        "item = take_in(item); item.__dict__['content'] = item.content.strip(); self._keep(item)",
    ),
    "dangling calls are returned": (
        "for index, unit in walk_units(newest):",
        "for index, unit in ((i, [item]) for i, item in newest):",
    ),
    "a limit splits groups": (
        "return [copy_item(item) for _, unit in reversed(list(found)) for item in unit]",
        (
            "every = [copy_item(item) for _, unit in reversed(list(self._windowed(newest_first("
            "shelf.items), []))) for item in unit if asked.matches(item)]\n"
            "        return every[-limit:] if limit else []"
        ),
    ),
    "a wait between reading and writing loses updates": (
        "self._keep(take_in(item))",
        (
            "old = self._items.get(item.id)\n"
            "        await __import__('asyncio').sleep(0)\n"
            "        self._keep(take_in(item))\n"
            "        self._items[item.id].__dict__['version'] = old.version + 1 if old else 1"
        ),
    ),
    "a cancelled add leaves half an item": (
        "self._keep(take_in(item))",
        (
            "item = take_in(item)\n"
            "        self._items[item.id] = item\n"
            "        await __import__('asyncio').sleep(0)\n"
            "        del self._items[item.id]\n"
            "        self._keep(item)"
        ),
    ),
}

JOURNAL_BUGS = {
    "acknowledges before it writes": (
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "",
    ),
    "opening twice starts anew": (
        "        if self._file is not None:\n            return\n        self._items = {}\n",
        "        self._items = {}\n        self._path = Path(str(self._path) + 'x')\n",
    ),
    "a closed store answers": (
        "    ) -> list[MemoryItem]:\n        self._opened()\n",
        "    ) -> list[MemoryItem]:\n",
    ),
    "a subclass comes back as a plain item": (
        "item = load_item(dumped)",
        "item = MemoryItem.model_construct(**dumped)",
    ),
    "a cleared item is back after opening": (
        'self._write({"clear": gone})',
        "[self._items.pop(i) for i in gone]",
    ),
    "versions are not kept": (
        "            item = load_item(dumped)\n",
        "            item = load_item({**dumped, 'version': 1})\n",
    ),
    "folds case for ASCII only": (
        "found = [item for item in self._items.values() if asked.matches(item)]",
        (
            "plain = Query('', metadata, memory_type, status, limit)\n"
            "        found = [item for item in self._items.values() if plain.matches(item)"
            " and query.lower() in item.content.lower()]"
        ),
    ),
    "takes the query for a pattern": (
        "found = [item for item in self._items.values() if asked.matches(item)]",
        (
            "plain = Query('', metadata, memory_type, status, limit)\n"
            "        import fnmatch\n"
            "        found = [item for item in self._items.values() if plain.matches(item)"
            " and fnmatch.fnmatch(item.content.casefold(), f'*{query.casefold()}*')]"
        ),
    ),
    "filters after the cut": (
        "return [copy_item(item) for item in found[::-1][:limit]]",
        (
            "newest = sorted(self._items.values(), key=lambda i: i.created_at)[::-1][:limit]\n"
            "        return [copy_item(item) for item in newest if asked.matches(item)]"
        ),
    ),
}

SUITE = """
import pytest
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance
from planted import {store}

class TestPlanted(StoreConformance):
    capabilities = {capabilities}

    @pytest.fixture
    async def store(self, tmp_path):
        store = {make}
        if hasattr(store, "init"):
            await store.init()
        yield store
        if hasattr(store, "close"):
            await store.close()

    def recipe(self, store):
        return Recipe("planted:{store}", (str(store._path),))
"""


def _run(folder: Path, source: str, *, journal: bool) -> subprocess.CompletedProcess[str]:
    (folder / "planted.py").write_text(source)
    (folder / "test_planted.py").write_text(
        SUITE.format(
            store="JournalStore" if journal else "ShortTermMemory",
            capabilities="Capabilities(shared=False)" if journal else CONVERSATIONS,
            make="JournalStore(str(tmp_path / 'j'))" if journal else "ShortTermMemory()",
        )
    )
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
            *("-o", f"pythonpath={folder} {ROOT / 'src'}", "-o", "asyncio_mode=auto"),
            *("--rootdir", str(folder), str(folder / "test_planted.py")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize("journal", [False, True])
def test_the_unspoilt_copy_passes(tmp_path: Path, journal: bool) -> None:
    source = (JOURNAL if journal else SHORT_TERM).read_text()

    done = _run(tmp_path, source, journal=journal)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("bug", [*SHORT_TERM_BUGS, *JOURNAL_BUGS])
def test_a_planted_bug_is_caught(tmp_path: Path, bug: str) -> None:
    journal = bug in JOURNAL_BUGS
    right, wrong = (JOURNAL_BUGS if journal else SHORT_TERM_BUGS)[bug]
    source = (JOURNAL if journal else SHORT_TERM).read_text()
    assert source.count(right) >= 1, "the store has changed; plant the bug anew"

    done = _run(tmp_path, source.replace(right, wrong), journal=journal)

    assert done.returncode == 1, f"not caught: {bug}\n{done.stdout}{done.stderr}"
    assert "failed" in done.stdout
