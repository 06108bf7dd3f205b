"""Every page in light, dark and at the width of a phone: whole, named, legible, and by itself."""

import pytest
from playwright.async_api import expect
from tests.browser._sample import CHAT_ID
from tests.browser.conftest import Look

from orbiter.memory import AgentMemory
from orbiter.memory.server.dashboard.templating import environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

MENU: list[str] = [
    path for _, links in vars(environment().globals["ui"])["navigation"] for path, *_ in links
]


async def _paths(memory: AgentMemory) -> list[str]:
    """Return every page of the menu but the first, and others that open from them."""
    item = (await memory.scope(user_id="alice").list(query="red pot"))[0]
    opened = [f"/memory?id={item.id}", f"/chat?id={CHAT_ID}&user_id=alice&agent_id=nova"]
    asked = ["/memories?q=peanuts", "/recall?q=sea", "/context?q=dinner&user_id=alice"]
    asked += ["/?user_id=alice", "/playground?user_id=alice"]
    asked += ["/facts?user_id=alice", "/data?user_id=alice", "/users?agent_id=nova"]
    return [*MENU[1:], *opened, *asked]


@pytest.mark.parametrize("is_phone", [False, True], ids=["desk", "phone"])
async def test_every_page_is_whole_in_light_and_dark(
    site: str, look: Look, memory: AgentMemory, is_phone: bool
) -> None:
    visit = await look(site, phone=is_phone)

    for path in await _paths(memory):
        await visit.check()
        await visit.page.emulate_media(color_scheme="dark")
        await visit.check()
        await visit.page.emulate_media(color_scheme="light")
        await visit.go(path)
    await visit.check()


@pytest.mark.parametrize("width", [390, 1024, 1440])
async def test_headings_and_cards_begin_at_one_line_and_no_choice_is_cut(
    site: str, look: Look, memory: AgentMemory, width: int
) -> None:
    visit = await look(site)
    await visit.page.set_viewport_size({"width": width, "height": 900})

    for path in ["/", *await _paths(memory)]:
        await visit.go(path)
        await visit.check()
        lefts, cut = await visit.page.evaluate(_ALIGNED)
        assert len(lefts) == 1, (path, lefts)
        assert cut == [], path


_ALIGNED = """() => {
  const left = (each) => Math.round(each.getBoundingClientRect().left);
  const parts = [...document.querySelectorAll("main > *, main h1")];
  const lefts = new Set(parts.filter((each) => each.checkVisibility()).map(left));
  // Of a closed list, what is chosen.
  const pen = document.createElement("canvas").getContext("2d");
  const cut = [...document.querySelectorAll("main select")].filter((each) => {
    if (!each.checkVisibility() || !each.selectedOptions.length) return false;
    const { font, paddingLeft, paddingRight } = getComputedStyle(each);
    pen.font = font;
    const room = each.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return pen.measureText(each.selectedOptions[0].text).width > room + 1;
  }).map((each) => each.outerHTML.slice(0, 80));
  return [[...lefts], cut];
}"""


async def test_what_is_pressed_is_large_enough(site: str, look: Look, memory: AgentMemory) -> None:
    item = (await memory.scope(user_id="alice").list(query="red pot"))[0]
    visit = await look(f"{site}/memories?user_id=alice")
    for path in (f"/memory?id={item.id}", f"/chat?id={CHAT_ID}&user_id=alice&agent_id=nova", ""):
        # A link within a sentence is as high as its line.
        small = await visit.page.evaluate(
            """() => [...document.querySelectorAll("main :is(a[href], button, summary)")]
              .filter((each) => each.checkVisibility())
              .filter((each) => getComputedStyle(each).display !== "inline")
              .filter((each) => each.getBoundingClientRect().height < 24)
              .map((each) => each.outerHTML.slice(0, 120))"""
        )
        assert small == []
        if path:
            await visit.go(path)


async def test_focus_is_always_seen(site: str, look: Look) -> None:
    visit = await look(site)
    for _ in range(30):
        await visit.page.keyboard.press("Tab")
        seen = await visit.page.evaluate(
            """() => {
              const at = document.activeElement;
              const { outlineStyle, outlineWidth } = getComputedStyle(at);
              const isSeen = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
              return at === document.body || isSeen ? "" : at.outerHTML.slice(0, 200);
            }"""
        )
        assert seen == ""


async def test_a_page_that_is_not_there_says_so(site: str, look: Look) -> None:
    visit = await look(site)
    visit.allowed = {404}

    await visit.go("/memory?id=nobody")

    await visit.check()
    assert "nobody" in await visit.page.inner_text("main")


async def test_the_menu_of_a_phone_closes_and_a_chat_begins_with_what_was_said(
    site: str, look: Look
) -> None:
    visit = await look(f"{site}/chat?id={CHAT_ID}&user_id=alice&agent_id=nova", phone=True)
    page = visit.page
    sheet, button = page.locator(".sheet"), page.get_by_text("Menu", exact=True)

    await expect(page.get_by_role("button", name="Preview")).to_be_hidden()
    await page.get_by_text("Window, summary and details").tap()
    await expect(page.get_by_role("button", name="Preview")).to_be_visible()
    await button.tap()
    await page.keyboard.press("Escape")
    await expect(sheet).to_be_hidden()
    await expect(button).to_be_focused()
    await button.tap()
    await page.locator("main").tap(position={"x": 5, "y": 600})
    await expect(sheet).to_be_hidden()
    await button.tap()
    await page.locator(".sheet").get_by_role("button", name="Shortcuts").tap()
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    await expect(page.locator("#keys-title")).to_be_focused()
    await visit.check()


async def test_the_button_of_the_theme_says_what_it_does(site: str, look: Look) -> None:
    visit = await look(f"{site}/users", dark=True)
    button = visit.page.locator(".side [data-theme-toggle]")

    await expect(button).to_have_text("Light theme")
    await button.click()
    await expect(button).to_have_text("Dark theme")


async def test_what_is_new_is_told_above_the_list_and_shown_when_asked_for(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="nils")
    await mine.remember("The mill stands still")
    visit = await look(f"{site}/memories?user_id=nils")
    page = visit.page
    await expect(page.locator("[data-dot-text]")).to_have_text("connected")

    await mine.remember("The mill turns")
    fresh = page.get_by_role("status").get_by_text("Show 1 new")
    await expect(fresh).to_be_visible()
    await expect(page.locator("#results .memory")).to_have_count(1)
    await visit.check()
    await fresh.click()

    await expect(page.locator("#results .memory").first).to_contain_text("The mill turns")
    await expect(page.locator("[data-fresh]")).to_be_hidden()
    await expect(page.locator("#results .memory-text").first).to_be_focused()


async def test_on_a_phone_answers_come_before_what_happens_live(site: str, look: Look) -> None:
    visit = await look(f"{site}/memories?q=peanuts", phone=True)

    answers = await visit.page.locator("#results").bounding_box()
    live = await visit.page.locator(".home-live").bounding_box()

    assert answers is not None
    assert live is not None
    assert answers["y"] < live["y"]


async def test_the_name_of_a_user_is_whole_where_there_is_room(
    site: str, look: Look, memory: AgentMemory
) -> None:
    name = "a-user-with-a-rather-long-identifier-0123456789"
    await memory.scope(user_id=name).remember("Here I am")
    visit = await look(f"{site}/users?starts_with=a-user")

    cut = await visit.page.locator(".user .clip1").first.evaluate(
        "(each) => each.scrollWidth > each.clientWidth"
    )

    assert not cut
