"""Without a mouse: search, walk, open, edit, save and undo; and go from page to page."""

import pytest
from playwright.async_api import Page, expect
from tests.browser.conftest import Look

from orbiter.memory import AgentMemory

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until what is called so has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        said = await page.evaluate(
            """() => {
              const at = document.activeElement;
              if (at === document.body) return "";
              return [at.innerText, at.labels?.[0]?.innerText].join(" ");
            }"""
        )
        if name in said:
            return
    raise AssertionError(f"nothing called {name} can be reached with Tab")


async def test_everything_can_be_done_by_keys(site: str, look: Look, memory: AgentMemory) -> None:
    mine = memory.scope(user_id="kim")
    await mine.remember("The bridge opens at dawn", tags=["kim"])
    item = await mine.remember("The bridge closes at dusk", tags=["kim"])
    visit = await look(f"{site}/?user_id=kim")
    page = visit.page
    visit.answer = True
    keys = page.keyboard

    await keys.press("Escape")
    await keys.press("/")
    await expect(page.locator("[data-search]")).to_be_focused()
    await keys.type("bridge dusk")
    await expect(page.locator("#results h2")).to_contain_text("answer")
    await keys.press("Escape")
    await keys.press("j")
    await keys.press("j")
    await keys.press("k")
    await expect(page.locator(".memory.is-selected")).to_contain_text("dusk")
    await keys.press("Enter")
    await page.wait_for_url("**/memory?**")

    await tab_to(page, "Edit")
    await keys.press("Enter")
    await expect(page.locator("#edit-content")).to_be_focused()
    await keys.press("ControlOrMeta+a")
    await keys.type("The bridge closes at noon")
    await tab_to(page, "Save")
    await keys.press("Enter")
    await expect(page.locator(".memory-body")).to_have_text("The bridge closes at noon")

    await tab_to(page, "Restore this version")
    await keys.press("Enter")
    await expect(page.locator(".memory-body")).to_have_text("The bridge closes at dusk")
    assert (await mine.get(item.id)).content == "The bridge closes at dusk"  # type: ignore[union-attr]


async def test_letters_go_from_page_to_page(site: str, look: Look) -> None:
    visit = await look(site)
    page = visit.page
    await page.keyboard.press("Escape")  # out of the search box

    for key, path in (("f", "/facts"), ("m", "/map"), ("o", "/doctor"), ("h", "/")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await page.wait_for_url(f"{site}{path}")
        if path == "/":
            break

    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


async def test_the_menu_of_a_phone_opens_and_goes_somewhere(site: str, look: Look) -> None:
    visit = await look(site, phone=True)

    await visit.page.get_by_text("Menu", exact=True).tap()
    await visit.page.locator(".sheet").get_by_role("link", name="Facts").tap()

    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Facts")
    await visit.check()
