"""A user who signs in with a key sees their own memories, and nothing of others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.browser.conftest import Look
from tests.browser.test_every_page import MENU

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, Role
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


@pytest_asyncio.fixture(loop_scope="session")
async def locked(memory: AgentMemory, keys: KeyFile) -> AsyncIterator[str]:
    """Return the address of a server that needs a key."""
    key_of(keys, "admin", None)
    settings = Settings(port=0, with_mcp=False, rate=10_000, burst=10_000)
    app = create_app(memory, settings=settings, keys=keys)
    async with serving(app, settings=settings) as url:
        yield url


def key_of(keys: KeyFile, role: Role, user: str | None) -> str:
    return keys.create(scope=MemoryMetadata(user_id=user), role=role, name=f"{user}'s")[1]


async def test_a_user_sees_only_what_is_theirs(
    locked: str, look: Look, memory: AgentMemory, keys: KeyFile
) -> None:
    theirs = (await memory.scope(user_id="alice").list(limit=1))[0]
    visit = await look(f"{locked}/memories", key=key_of(keys, "write", "bob"))
    page = visit.page

    await expect(page.locator("#results")).to_contain_text("Bob's bicycle")
    others = [f"/{name}?user_id=alice" for name in ("", "chats", "facts")]
    others.append(f"/memory?id={theirs.id}&user_id=alice")
    for path in [*MENU, *others]:
        visit.allowed = {403} if path in others else set()
        await visit.go(path)
        shown = await page.inner_text("main")
        assert ("Not allowed with this key" in shown) == (path in others), path
        for secret in ("peanuts", "Vienna", "Lisbon", "red pot", "lanterns", theirs.content[:20]):
            assert secret not in shown, path
        await visit.check()
    visit.allowed = {404}
    await visit.go(f"/memory?id={theirs.id}")
    assert theirs.content[:20] not in await page.inner_text("main")

    mine = await memory.scope(user_id="bob").remember("Bob's pump is in the shed")
    await visit.go(f"/memory?id={mine.id}")
    await page.get_by_role("button", name="Edit").click()
    await page.locator("#edit-content").fill("Bob's pump is in the cellar")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".memory-body")).to_have_text("Bob's pump is in the cellar")


async def test_who_may_only_read_is_offered_no_change(
    locked: str, look: Look, memory: AgentMemory, keys: KeyFile
) -> None:
    item = (await memory.scope(user_id="bob").list(query="bicycle"))[0]
    visit = await look(locked, key=key_of(keys, "read", "bob"))

    await expect(visit.page.get_by_role("button", name="Add a memory")).to_have_count(0)
    await visit.go(f"/memory?id={item.id}")
    await expect(visit.page.locator(".memory-body")).to_contain_text("bicycle")
    await expect(visit.page.get_by_role("button", name="Edit")).to_have_count(0)
    await expect(visit.page.get_by_role("button", name="Forget")).to_have_count(0)
