"""Which store a URL names: ours, those of installed packages, and those of a program."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rows import each_row

from orbiter.memory import AgentMemory, ShortTermMemory
from orbiter.memory.backends import registry
from orbiter.memory.backends.adapter import StoreAdapter
from orbiter.memory.backends.registry import known_schemes, open_store, register_store
from orbiter.memory.errors import QueryError, UnsupportedError


class ToyStore(ShortTermMemory):
    """A store that remembers by which URL it was made."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


@pytest.fixture(autouse=True)
def schemes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the table of schemes as it was."""
    monkeypatch.setattr(registry, "_schemes", dict(registry._schemes))
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def install(folder: Path, name: str, entry_points: str, module: str = "") -> None:
    """Write a distribution into *folder*, as an installer would."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    if module:
        (folder / f"{name.replace('-', '_')}.py").write_text(module)


def test_ours_are_known() -> None:
    assert {"http", "https", "memory", "postgresql", "redis", "sqlite"} <= set(known_schemes())


def test_a_program_registers_a_scheme() -> None:
    register_store("toy", ToyStore)

    store = open_store("toy://somewhere/else")

    assert isinstance(store, StoreAdapter)
    assert isinstance(store.store, ToyStore)
    assert store.store.url == "toy://somewhere/else"
    assert "toy" in known_schemes()
    register_store("toy", ToyStore)  # the same again changes nothing


@pytest.mark.parametrize("scheme", ["sqlite", "redis", "http"])
def test_a_scheme_that_is_taken_is_refused(scheme: str) -> None:
    with pytest.raises(QueryError, match=f"`{scheme}` is taken"):
        register_store(scheme, ToyStore)


@each_row("scheme", ["", "Toy", "to y", "toy://", 7])
def test_what_cannot_begin_a_url_is_refused(scheme: str) -> None:
    with pytest.raises(QueryError, match="not a valid scheme"):
        register_store(scheme, ToyStore)


def test_an_installed_package_brings_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "parrot-store",
        "[orbiter_memory.stores]\n"
        "parrot = parrot_store:ParrotStore\n"
        "sqlite = parrot_store:Nothing\n",
        "from orbiter.memory import ShortTermMemory\n"
        "class ParrotStore(ShortTermMemory):\n"
        "    def __init__(self, url, *, embeddings=None):\n"
        "        super().__init__()\n"
        "        self.given = url, embeddings\n",
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert "parrot" in known_schemes()
    assert "parrot_store" not in sys.modules, "looked up, and not loaded"
    store = open_store("parrot://polly")

    assert isinstance(store, StoreAdapter)
    assert vars(store.store)["given"] == ("parrot://polly", None)
    assert type(open_store("sqlite:///a.db")).__name__ == "SQLiteMemoryStore", "ours come first"


def test_an_unknown_scheme_is_refused_with_those_that_are_known() -> None:
    register_store("toy", ToyStore)

    with pytest.raises(QueryError) as caught:
        AgentMemory("mysql://ann:s3cret@db/x", embeddings=None)

    told = str(caught.value)
    for known in ("`mysql://…`", "sqlite:///", "postgresql://", "redis://", "`toy://…`"):
        assert known in told
    assert "entry points `orbiter_memory.stores`" in told
    assert "register_store" in told
    assert "s3cret" not in told


def test_a_store_without_a_log_refuses_to_be_audited() -> None:
    register_store("toy", ToyStore)

    with pytest.raises(UnsupportedError, match="ToyStore keeps no audit log"):
        open_store("toy://", audit="writes")


def test_a_package_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = "[orbiter_memory.stores]\nbroken = broken_store:BrokenStore\n"
    install(tmp_path, "broken-store", stores, "import a_driver_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(QueryError) as caught:
        open_store("broken://ann:s3cret@db/x")

    told = str(caught.value)
    assert "the store `broken` of the package `broken-store` cannot be loaded" in told
    assert "a_driver_that_nobody_has" in told
    assert "s3cret" not in told


def test_a_scheme_that_two_packages_claim_is_refused_with_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("red-parrot", "green-parrot"):
        stores = "[orbiter_memory.stores]\nparrot = json:loads\nhttp = json:loads\n"
        install(tmp_path, name, stores)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(QueryError, match="`green-parrot` and `red-parrot` .*; uninstall"):
        open_store("parrot://polly")

    remote = registry.load_scheme("http")
    assert remote is not None
    assert remote.__module__.startswith("orbiter.memory."), "ours come first"
