"""Without a mouse: search, walk, open, edit, save and undo; and go from page to page."""

from datetime import UTC, date, datetime, timedelta

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
    visit = await look(f"{site}/memories?user_id=kim")
    page = visit.page
    visit.answer = True
    keys = page.keyboard

    await keys.press("Escape")
    await keys.press("/")
    await expect(page.locator("[data-search]")).to_be_focused()
    await keys.type("bridge dusk")
    await expect(page.locator("#results a[href*='dusk']").first).to_be_visible()
    await keys.press("Escape")
    await expect(page.locator("[data-search]")).to_have_value("bridge dusk")
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


async def test_the_focus_stays_where_the_work_is(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="lou")
    said = await mine.remember("We live in Porto, and the cat is called Ada")
    for key, value in (("city", "Porto"), ("cat", "Ada")):
        await mine.facts.propose(key, value, source=said)
    visit = await look(f"{site}/review?tab=drafts&user_id=lou")
    page, focused = visit.page, visit.page.locator(":focus")
    keys = page.keyboard

    # Proposals: the next one, and after the last one the way back.
    await keys.press("j")
    await keys.press("d")
    await expect(focused).to_contain_text("Ada")
    await keys.press("d")
    await expect(focused).to_have_text("Undo")
    await expect(page.get_by_text("Nothing more to review")).to_be_visible()
    await keys.press("Enter")
    await expect(focused).to_contain_text("Ada")
    await expect(page.locator("#count-drafts")).to_have_text("1")
    assert len(await mine.facts.drafts()) == 1

    # A count: what was counted.
    await visit.go("/data?user_id=lou")
    await page.get_by_label("Memories to keep").fill("0")
    await keys.press("Tab")
    await keys.press("Enter")
    await expect(page.locator("#evicted .panel")).to_be_focused()


async def test_a_slider_through_time_goes_step_by_step(
    site: str, look: Look, memory: AgentMemory
) -> None:
    facts = memory.scope(user_id="tess").facts
    now = datetime.now(UTC)
    await facts.put("city", "Graz", valid_from=now - timedelta(days=500))
    await facts.put("city", "Linz", valid_from=now - timedelta(days=20))
    visit = await look(f"{site}/facts?user_id=tess")
    page, slider = visit.page, visit.page.get_by_label("Show the facts at")

    await slider.focus()
    for key in ("ArrowLeft", "ArrowLeft", "PageDown"):
        await page.keyboard.press(key)
    await expect(page.locator(".holds")).to_have_text("Graz")

    await expect(slider).to_be_focused()
    day = date.fromisoformat(page.url.split("as_of=")[1][:10])
    assert 20 < (now.date() - day).days < 200
    await expect(page.locator("#facts-told")).to_contain_text("You see what was true on")
    await page.keyboard.press("PageUp")
    await expect(page.locator(".holds")).to_have_text("Linz")
    await expect(slider).to_be_focused()
    await visit.check()


async def test_letters_go_from_page_to_page(site: str, look: Look) -> None:
    visit = await look(site)
    page = visit.page
    await page.keyboard.press("Escape")  # out of the search box

    for key, path in (("f", "/facts"), ("c", "/chats"), ("u", "/users"), ("h", "/")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await page.wait_for_url(f"{site}{path}")
        if path == "/":
            break

    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_hidden()


async def test_the_menu_of_a_phone_opens_and_goes_somewhere(site: str, look: Look) -> None:
    visit = await look(site, phone=True)

    await visit.page.get_by_text("Menu", exact=True).tap()
    await visit.page.locator(".sheet").get_by_role("link", name="Facts").tap()

    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Facts")
    await visit.check()


async def test_a_new_form_has_the_focus_as_soon_as_it_is_there(
    site: str, look: Look, memory: AgentMemory
) -> None:
    # A moment later it would take the focus away from whoever types already.
    item = await memory.scope(user_id="kim").remember("The ferry leaves at ten")
    page = (await look(f"{site}/memory?id={item.id}")).page

    focused = await page.evaluate(
        """() => new Promise((resolve) => {
          new MutationObserver((_, seen) => {
            if (!document.getElementById("edit-content")) return;
            seen.disconnect();
            resolve(document.activeElement.id);
          }).observe(document.getElementById("memory"), { childList: true, subtree: true });
          document.querySelector("#memory button[hx-get*='edit']").click();
        })"""
    )

    assert focused == "edit-content"
