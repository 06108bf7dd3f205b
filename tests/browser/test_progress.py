"""Long work in a real browser: the bar moves by itself, and the proof takes its place."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect
from tests.browser.conftest import Look

from orbiter.memory import AgentMemory
from orbiter.memory.tasks.progress import advance

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_erasure_shows_how_far_it_is(
    site: str, look: Look, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="perdita").remember("The winter's tale")
    steps = [asyncio.Event(), asyncio.Event()]
    work = AgentMemory.erase

    async def held(store: AgentMemory, **given: Any) -> Any:
        if not given.get("dry_run"):
            for number, step in enumerate(steps):
                advance(30 + 45 * number, 120)
                await step.wait()
        return await work(store, **given)

    monkeypatch.setattr(AgentMemory, "erase", held)
    visit = await look(f"{site}/data?user_id=perdita")
    page = visit.page
    visit.answer = True
    await page.locator("#x-user_id").fill("perdita")
    await page.locator(".danger-zone").get_by_role("button", name="Preview").click()
    await page.locator("#x-typed").fill("perdita")
    await page.get_by_role("button", name="Erase for good").click()

    bar = page.locator("#erase progress")
    await expect(bar).to_have_attribute("value", "30")
    await visit.check()
    steps[0].set()
    await expect(bar).to_have_attribute("value", "75")
    other = await look(f"{site}/data")
    await expect(other.page.locator("#jobs progress")).to_have_attribute("value", "75")
    await other.check()
    steps[1].set()

    await expect(page.locator("#erase")).to_contain_text("Proven:")
    await expect(other.page.locator("#jobs progress")).to_have_count(0)
    await expect(other.page.locator("#jobs .tag").first).to_have_text("done")
