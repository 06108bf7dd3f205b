"""Every message on the page of troubles is raised by the program, word for word."""

import re
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from orbiter.memory import (
    AgentMemory,
    LocalEmbeddings,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.agent import hints
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import import_file

PAGE = Path(__file__).parents[2] / "docs/troubleshooting.md"
NOBODY = "127.0.0.1:9"
"""Where nothing listens: the port `discard`."""


class Troubles:
    """One method for each message: it does what somebody did who got to read it."""

    def __init__(self, memory: AgentMemory, folder: Path) -> None:
        self.memory = memory
        self.alice = memory.scope("alice")
        self.folder = folder

    async def _recall_at(self, url: str | Path | None = None, **how: object) -> None:
        async with AgentMemory(url, **how) as memory:  # type: ignore[arg-type]  # as a user might
            await memory.scope("alice").recall("Oslo")

    async def is_not_a_valid_store_url(self) -> None:
        await self._recall_at("mysql://localhost/memories")

    async def the_folder_does_not_exist(self) -> None:
        await self._recall_at(self.folder / "nowhere/agent.db")

    async def is_not_a_sqlite_database(self) -> None:
        (self.folder / "letter.db").write_text("Dear Ann, " * 1000)
        await self._recall_at(self.folder / "letter.db")

    async def could_not_be_reached_postgres(self) -> None:
        url = f"postgresql://{NOBODY}/memories"
        await self._recall_at(store=PostgresMemoryStore(url, retry_for=0.5))  # else ten seconds

    async def cannot_be_reached_redis(self) -> None:
        await self._recall_at(store=RedisMemoryStore(f"redis://{NOBODY}/0", deadline=0.5))

    async def the_vectors_were_made_by_another_model(self) -> None:
        async with AgentMemory(self.folder / "v.db", embeddings=HashEmbeddings()) as memory:
            await memory.scope("alice").remember("I live in Oslo")
            await memory.flush()
        await self._recall_at(self.folder / "v.db", embeddings=HashEmbeddings(32))

    async def is_not_initialized(self) -> None:
        await SQLiteMemoryStore(self.folder / "s.db").get("1")

    async def a_scope_needs_at_least_one_of(self) -> None:
        self.memory.scope()

    async def must_be_a_string_that_is_not_empty(self) -> None:
        self.memory.scope(user_id="")

    async def takes_an_item_or_its_id_or_filters(self) -> None:
        await self.alice.forget()

    async def unknown_operator(self) -> None:
        await self.alice.recall("tea", where={"price": {"$like": "5"}})

    async def no_memory_here_has_the_field(self) -> None:
        await self.alice.recall("Oslo", where={"tgas": "home"})

    async def must_be_a_datetime(self) -> None:
        await self.alice.recall("Oslo", since="yesterdayish")

    async def unexpected_keyword_argument(self) -> None:
        await self.alice.remember("I live in Oslo", tgs=["home"])  # type: ignore[call-arg]

    async def needs_a_model(self) -> None:
        await self.alice.recall("Oslo", mode="meaning")

    async def unknown_mode(self) -> None:
        await self.alice.recall("Oslo", mode="vector")  # type: ignore[arg-type]

    async def the_budget_is(self) -> None:
        await self.alice.chat("trip").context("Where to?", budget=5)

    async def takes_one_text_not_a_list(self) -> None:
        LocalEmbeddings().embed(["tea", "coffee"])  # type: ignore[arg-type]

    async def was_expected_at_version(self) -> None:
        item = await self.alice.remember("I live in Oslo")
        await self.alice.update(item.id, "I live in Bergen", expected_version=7)

    async def there_is_no_memory(self) -> None:
        await self.alice.update("nope", "I live in Bergen")

    async def there_is_nothing_to_store(self) -> None:
        await self.alice.remember(" ")

    async def has_no_audit_log(self) -> None:
        await self.memory.audit.verify()

    async def it_has_no_role(self) -> None:
        await self.alice.chat("trip").add({"foo": 1})

    async def is_of_an_unknown_format(self) -> None:
        (self.folder / "x.json").write_text('{"a": 1}')
        await import_file(self.alice, self.folder / "x.json")

    async def does_orbiter_memory_serve_run_there(self) -> None:
        await self._recall_at(f"http://{NOBODY}", token="x")

    async def is_another_computer_and_over_http_anyone_could_read_the_key(self) -> None:
        await self._recall_at("http://memory.example.com", token="x")

    async def _401_key_needed(self) -> None:
        keys = KeyFile(self.folder / "keys.json")
        keys.create(scope=MemoryMetadata(user_id="alice"), role="write", name="an agent")
        settings = Settings(port=0, with_dashboard=False, with_mcp=False)
        app = create_app(self.memory, settings=settings, keys=keys)
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(serving(app, settings=settings))
            await self._recall_at(url, token="om_wrong")


def _messages() -> dict[str, str]:
    """Return the messages of the page by the name of the method that gets them."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^### (.+)\n\n```text\n(.+)\n```$", text, re.MULTILINE)
    named = {re.sub(r"\W+", "_", title.lower()).strip("_"): said for title, said in found}
    return {f"_{name}" if name[0].isdigit() else name: said for name, said in named.items()}


@pytest_asyncio.fixture
async def troubles(tmp_path: Path) -> AsyncIterator[Troubles]:
    hints._checked_fields.clear()  # another test may have asked for the same field
    async with AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        await memory.scope("alice").remember("I live in Oslo")
        yield Troubles(memory, tmp_path)


def test_every_message_has_somebody_who_gets_it() -> None:
    names = {name for name in vars(Troubles) if name != "_recall_at"}

    assert set(_messages()) == {name for name in names if not name.startswith("__")}


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("name", _messages())
async def test_a_message_is_raised_as_the_page_quotes_it(name: str, troubles: Troubles) -> None:
    quoted = re.escape(_messages()[name]).replace("…", ".*")
    act: Callable[[], Awaitable[None]] = getattr(troubles, name)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            await act()
        except Exception as exc:  # noqa: BLE001 - its name and words are compared
            said = f"{type(exc).__name__}: {exc}"
        else:
            said = "\n".join(f"{each.category.__name__}: {each.message}" for each in warned)

    assert re.fullmatch(quoted, said, re.DOTALL), said
