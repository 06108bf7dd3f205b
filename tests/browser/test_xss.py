"""Hostile texts in every field, on every page: none runs, asks, moves or breaks anything."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.browser._visits import Visit
from tests.browser.conftest import Look
from tests.browser.payloads import PAYLOADS
from tests.browser.test_every_page import MENU

from orbiter.memory import AgentMemory, MemoryItem
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.server.dashboard.templating import visible
from orbiter.memory.testing import HashEmbeddings

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVERYTHING = "\n".join(PAYLOADS)


class Hostile:
    """A summarizer that was talked into it."""

    async def summarize(self, prompt: str) -> str:
        return EVERYTHING


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentMemory]:
    """Return memories that are hostile in all that they say."""
    path = tmp_path_factory.mktemp("hostile") / "m.db"
    async with AgentMemory(
        f"sqlite:///{path}", embeddings=HashEmbeddings(), summarizer=Hostile()
    ) as memory:
        await _all_at_once(memory)
        await asyncio.gather(*(_one(memory, text) for text in PAYLOADS))  # the newest
        await memory.flush()
        yield memory


async def _one(memory: AgentMemory, text: str) -> None:
    """Remember *text* as the content, the id, the type and the owner of one memory."""
    whose = {"user_id": text, "agent_id": text, "session_id": text}
    item = MemoryItem(
        id=text,
        content=text,
        memory_type=text,
        metadata=MemoryMetadata(**whose, extra={"tags": [text], text: text, "source": text}),
    )
    await memory.scope(**whose).remember(item)


async def _all_at_once(memory: AgentMemory) -> None:
    """Remember what only few pages show, with every payload in it."""
    eve = memory.scope(user_id="eve", by=PAYLOADS[0])
    chat = eve.chat(PAYLOADS[8])
    await chat.add({"role": "user", "content": EVERYTHING})
    calls = [
        {"id": f"call {n}", "type": "function", "function": {"name": text[:64], "arguments": "{}"}}
        for n, text in enumerate(PAYLOADS)
    ]
    await chat.add({"role": "assistant", "content": EVERYTHING, "tool_calls": calls})
    await chat.add(
        [
            {"role": "tool", "tool_call_id": f"call {n}", "content": text}
            for n, text in enumerate(PAYLOADS)
        ]
    )
    await asyncio.gather(*(_said(eve, text) for text in PAYLOADS))
    assert await chat.summarize()
    item = await eve.remember(
        EVERYTHING, tags=list(PAYLOADS), extra=dict.fromkeys(PAYLOADS, EVERYTHING)
    )
    await eve.update(item.id, EVERYTHING[::-1])
    await eve.quarantine(PAYLOADS[9])


async def _said(eve: ScopedMemory, text: str) -> None:
    said = await eve.remember(f"{text} twice", source=text)
    await eve.remember(f"{text} twice")
    key = " ".join(text.split())[:200].strip()  # a key is one line
    await eve.facts.put(key, text)
    await eve.facts.put(key, {text: [text]})
    await eve.facts.propose(key, f"{text} perhaps", source=said)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile_site(hostile: AgentMemory) -> AsyncIterator[str]:
    settings = Settings(port=0, with_mcp=False, rate=10_000, burst=10_000)
    async with serving(create_app(hostile, settings=settings), settings=settings) as url:
        yield url


async def inspect(visit: Visit, *, whole: bool = True) -> None:
    """Fail if a payload did anything but be read."""
    page = visit.page
    found = await page.evaluate(
        """() => {
          const of = (each) => each.href?.baseVal ?? each.href ?? each.action ?? each.src;
          return [
          window.xss || 0,
          document.querySelectorAll("[data-xss], iframe, object, base, [http-equiv], style").length,
          document.querySelectorAll("[onerror], [onload], [onfocus], [onclick]").length,
          [...document.querySelectorAll("a[href], form[action], img[src], use[href]")].filter(
            (each) => new URL(of(each), location).origin !== location.origin).length,
          [...document.querySelectorAll("[hx-get], [hx-post], [sse-connect]")].filter((each) =>
            [...each.attributes].some((one) => one.value.startsWith("//"))).length,
          typeof window.orbiter.say, typeof window.htmx.config,
        ]}"""
    )
    assert found == [0, 0, 0, 0, 0, "function", "object"], page.url
    assert page.url.startswith(visit.site)
    if whole:
        await visit.check()


def address(path: str, asked: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(asked)}"


async def test_every_memory_that_is_hostile_in_every_field_is_only_read(
    hostile_site: str, look: Look
) -> None:
    visit = await look(f"{hostile_site}/memories", phone=True)
    page = visit.page
    rows = page.locator("#results .memory")
    while (before := await rows.count()) < len(PAYLOADS):
        await page.get_by_role("link", name="Load more").click()
        await expect(rows).not_to_have_count(before)
    shown = set(await rows.evaluate_all("all => all.map((each) => each.dataset.id)"))
    assert {visible(text) for text in PAYLOADS} <= shown
    await inspect(visit)

    for text in PAYLOADS[::6]:
        await visit.go(address("/memory", {"id": text}))
        await inspect(visit)


async def test_every_page_shows_hostile_memories_as_they_are(
    hostile_site: str, hostile: AgentMemory, look: Look
) -> None:
    visit = await look(hostile_site, phone=True)  # where there is least room
    last = (await hostile.scope(user_id="eve").list(query="moc.elpmaxe"))[0]
    eve = {"user_id": "eve"}
    asked = {"q": "twice perhaps", **eve}
    for path in [
        *(address(path, eve) for path in MENU if path not in ("/recall", "/context")),
        *(address("/review", {"tab": tab, **eve}) for tab in ("contradictions", "drafts")),
        "/facts",
        "/chats",
        address("/memories", {"q": PAYLOADS[0]}),
        *(address(path, {}) for path in ("/", "/users")),
        address("/playground", {"chat": PAYLOADS[8], **eve}),
        address("/memory", {"id": last.id}),
        address("/chat", {"id": PAYLOADS[8], **eve}),
        address("/facts", {"key": PAYLOADS[8], **eve}),
        address("/recall", asked),
        address("/context", {"chat": PAYLOADS[8], "budget": "4000", **asked}),
    ]:
        await visit.go(path)
        await inspect(visit)


async def test_hostile_questions_are_answered_with_words(hostile_site: str, look: Look) -> None:
    names = ("id", "q", "key", "user_id", "budget", "type", "as_of", "cursor", "where")
    paths = ["/memory", "/context", "/recall", "/facts", "/memories", "/chat"]
    paths += ["/playground", "/users", "/"]
    visit = await look(hostile_site)
    visit.allowed = {400, 404, 422}
    for number, path in enumerate(paths):
        texts = (*PAYLOADS, *PAYLOADS, *PAYLOADS)[number * len(names) :][: len(names)]
        asked = dict(zip(names, texts, strict=False))
        for each in (path, "/memory"):
            await visit.go(address(each, asked | {"id": f"{texts[0]} none"}))
            await inspect(visit, whole=False)


async def test_hostile_text_that_is_edited_comes_back_as_it_was(
    hostile_site: str, hostile: AgentMemory, look: Look
) -> None:
    mine = hostile.scope(user_id="mallory")
    item = await mine.remember(f"\n{EVERYTHING}")
    visit = await look(f"{hostile_site}/memory?id={item.id}")
    page = visit.page

    await page.get_by_role("button", name="Edit").click()
    await inspect(visit)
    await page.get_by_label("Importance").fill("0.7")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#memory")).to_contain_text("version 2")

    await inspect(visit)
    kept = await mine.get(item.id)
    assert kept is not None
    assert _lines(kept.content) == _lines(item.content)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")  # which is how forms are sent


async def test_what_turns_letters_around_is_shown_by_its_name(
    hostile_site: str, look: Look
) -> None:
    turned = next(text for text in PAYLOADS if "\u202e" in text)
    visit = await look(hostile_site + address("/memory", {"id": turned}))
    shown = await visit.page.inner_text("main")

    assert "⟨U+202E⟩gpj.exe⟨U+202C⟩" in shown
    assert "\u202e" not in await visit.page.inner_html("main")
