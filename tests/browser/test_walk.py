"""Every page in light, dark and at the width of a phone: whole, named, legible, and by itself."""

import pytest
from tests.browser._sample import CHAT_ID
from tests.browser.conftest import Look

from orbiter.memory import AgentMemory
from orbiter.memory.server.dashboard._pages import NAVIGATION

pytestmark = pytest.mark.asyncio(loop_scope="session")

MENU = [path for _, links in NAVIGATION for path, *_ in links]
LOOKS = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"phone": True},
}


@pytest.mark.parametrize("how", LOOKS)
async def test_every_page_is_whole(site: str, look: Look, memory: AgentMemory, how: str) -> None:
    item = (await memory.scope(user_id="alice").list(query="red pot"))[0]
    visit = await look(site, **LOOKS[how])

    opened = [f"/memory?id={item.id}", f"/chat?id={CHAT_ID}&user_id=alice&agent_id=nova"]
    asked = ["/?q=peanuts", "/recall?q=sea", "/context?q=dinner&user_id=alice", "/?user_id=alice"]
    for path in [*MENU[1:], *opened, *(asked if how != "dark" else ())]:
        await visit.check()
        await visit.go(path)
    await visit.check()


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
