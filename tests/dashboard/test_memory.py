"""The page of one memory: reading, changing, undoing, and what it tells of where it came from."""

import html
import re

from tests.dashboard._visitor import Visitor
from tests.rows import each_row
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.server.dashboard.memory_page import as_edited
from orbiter.memory.text.word_diff import Piece, word_diff

HOSTILE = "\n</textarea><script>alert(1)</script>\u202e & 'done'"


def _without_marks(page: str) -> str:
    """Return a page as somebody reads it: in one line, without tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


async def test_an_edit_is_saved_shown_as_a_difference_and_undone(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann", by="nova")
    item = await ann.remember("Dinner on Friday at 19:00", tags=["plans"])
    visitor, asked = Visitor(client(await served())), {"id": item.id}

    form = (await visitor.http.get("/ui/memory/edit", params=asked)).text
    saved = await visitor.send(
        "/ui/memory",
        asked,
        version="1",
        content="Dinner on Saturday at 19:00",
        tags="plans, food",
        importance="0.5",
    )
    same = await visitor.send(
        "/ui/memory",
        asked,
        version="2",
        content="Dinner on Saturday at 19:00",
        tags="plans, food",
        importance="0.5",
    )
    now = await ann.get(item.id)
    undone = await visitor.send("/ui/memory/restore", {**asked, "version": "1"})

    assert ">\nDinner on Friday at 19:00</textarea>" in form
    assert "<del>Friday</del><ins>Saturday</ins>" in saved.text
    assert "tags: plans plans, food" in _without_marks(saved.text)
    assert "Saved." in saved.headers["HX-Trigger"]
    assert "No changes." in same.headers["HX-Trigger"]
    assert now is not None
    assert (now.version, now.content) == (2, "Dinner on Saturday at 19:00")
    assert now.metadata.extra == {"tags": ["plans", "food"], "importance": 0.5}
    assert "Version 1 is restored." in undone.headers["HX-Trigger"]
    again = await ann.get(item.id)
    assert again is not None
    assert (again.content, again.metadata.extra) == (item.content, {"tags": ["plans"]})
    page = _without_marks(await visitor.look("/memory", **asked))
    assert "1 remembered" in page
    assert "by nova" in page
    twin = await visitor.twin("/memory", **asked)
    assert [each["version"] for each in twin["changes"]] == [3, 2, 1]  # type: ignore[attr-defined]
    assert twin["item"]["content"] == item.content  # type: ignore[index]


async def test_a_lost_update_is_shown_with_both_texts_and_changes_nothing(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    item = await ann.remember("at seven")
    await ann.update(item.id, "at eight")
    visitor, asked = Visitor(client(await served())), {"id": item.id}

    refused = await visitor.send("/ui/memory", asked, version="1", content="at nine", tags="")
    kept = await ann.get(item.id)
    insisted = await visitor.send("/ui/memory", asked, version="2", content="at nine", tags="")

    assert "Somebody else changed it in the meantime" in refused.text
    assert ">\nat nine</textarea>" in refused.text
    assert ">\nat eight</textarea>" in refused.text
    assert 'name="version" value="2"' in refused.text
    assert kept is not None
    assert kept.content == "at eight"
    assert "<del>eight</del><ins>nine</ins>" in insisted.text


async def test_a_forgotten_memory_is_shown_as_such_and_comes_back(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    item = await ann.remember("the door code")
    visitor, asked = Visitor(client(await served())), {"id": item.id}

    gone = await visitor.send("/ui/memory/forget", asked)
    page = await visitor.look("/memory", **asked)
    is_gone = await ann.get(item.id) is None
    edit = await visitor.http.get("/ui/memory/edit", params=asked)
    back = await visitor.send("/ui/memory/restore", asked)

    assert "Forgotten." in gone.headers["HX-Trigger"]
    assert is_gone
    for shown in (gone.text, page):
        assert "Why it ranks" not in shown
        assert "Related" not in shown
        assert '<div class="stack" id="ranks"' in shown  # where they were, and come again
        assert "<strong>Forgotten.</strong>" in shown
        assert "the door code" in shown
    assert edit.status_code == 422
    assert "<strong>Forgotten.</strong>" not in back.text
    assert "Why it ranks" in back.text
    assert "Related" in back.text
    assert await ann.get(item.id) is not None


async def test_only_a_changed_text_is_called_edited_and_long_names_can_be_read(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    long = "x" * 300
    ann = memory.scope(user_id=f"ann {long}", agent_id=f"nova {long}")
    hidden = await ann.remember("buy pills", source="web:pills.example", tags=[f"tag {long}"])
    await ann.quarantine("web:pills.example")
    written = await ann.remember("at nine", source="web:trains.example")
    await ann.update(written.id, "at ten")
    visitor = Visitor(client(await served()))

    listed, forgotten = (
        await visitor.look("/memories"),
        await visitor.look("/memories", status="forgotten"),
    )

    assert "edited, version 2" in listed
    assert hidden.id in forgotten
    assert "edited" not in forgotten
    assert '<span class="chip c0">note</span>' in listed
    for cut in (f"ann {long}", f"nova {long}", f"tag {long}"):
        assert f'title="{cut}"' in forgotten
    assert f'class="tag" dir="auto" href="/memories?tag=tag+{long}">' in await visitor.look(
        "/memory", id=hidden.id
    )


async def test_hostile_text_is_shown_and_edited_as_it_is(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    item = await ann.remember(
        HOSTILE, tags=[HOSTILE], extra={HOSTILE: HOSTILE}, source=f"web:{HOSTILE}"
    )
    visitor, asked = Visitor(client(await served())), {"id": item.id}

    page = await visitor.look("/memory", **asked, q=HOSTILE)
    form = (await visitor.http.get("/ui/memory/edit", params=asked)).text
    typed = re.search(r'name="content"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    assert typed
    saved = await visitor.send(
        "/ui/memory", asked, version="1", content=html.unescape(typed[1]), tags=HOSTILE.strip()
    )

    assert "<script>alert" not in page + form + saved.text
    assert "⟨U+202E⟩" in page
    assert html.unescape(typed[1]) == HOSTILE
    stored = await ann.get(item.id)
    assert stored is not None
    assert stored.content == HOSTILE  # the text was not changed, the tag was


async def test_the_page_tells_where_a_memory_came_from(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    chat = memory.scope(user_id="ann").chat("trip")
    said, call, answer = await chat.add(
        [
            {"role": "user", "content": "How warm is the sea?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "get_sea", "arguments": '{"city": "Lisbon"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "17 degrees"},
        ]
    )
    fact = await memory.scope(user_id="ann").facts.put("asks_about", "the sea", source=said)
    fork = await chat.fork(said.id, chat_id="other")
    copied = (await fork.items())[0]
    visitor = Visitor(client(await served()))

    pages = {
        each.id: await visitor.look("/memory", id=each.id) for each in (call, answer, fact, copied)
    }
    refused = await visitor.send("/ui/memory", {"id": fact.id}, version="1", content="x", tags="")

    assert "get_sea" in pages[call.id]
    assert "Lisbon" in pages[call.id]
    assert "17 degrees" in pages[call.id]  # the answer stands beside its call
    assert "trust: agent" in pages[call.id]
    assert f"/memory?id={call.id}" in pages[answer.id]
    assert 'href="/chat?user_id=ann&amp;id=trip"' in pages[answer.id]
    assert "How warm is the sea?" in pages[fact.id]
    assert f"/memory?id={said.id}" in pages[copied.id]
    assert refused.status_code == 422  # the text of a fact follows from its value


async def test_why_it_ranks_tells_its_place_or_why_it_is_left_out(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    item = await ann.remember("Mia is allergic to peanuts")
    near = await ann.remember("Leo is allergic to cats")
    await memory.scope(user_id="bob").remember("Bob is allergic to peanuts")
    draft = await ann.remember(MemoryItem(content="peanuts?", status=MemoryStatus.DRAFT))
    visitor = Visitor(client(await served()))

    found = await visitor.look("/memory", id=item.id, q="who is allergic to peanuts")
    out = (await visitor.http.get("/ui/memory/why", params={"id": draft.id, "q": "peanuts"})).text

    assert "Number 1 of" in found
    relevance = (await ann.recall("who is allergic to peanuts"))[0].relevance
    assert f">{relevance:.2f}</span>" in found[found.index(">Relevance<") :][:300]
    assert "points</span>" in found
    assert "contains &#34;allergic&#34;, &#34;peanuts&#34; (2 of 2 words)" in found
    assert "<rect" in found
    assert f"/memory?id={near.id}" in found  # related, of the same user
    assert "Bob is allergic" not in found
    assert "Never recalled: its status is draft" in out


async def test_foreign_and_missing_memories_are_not_there(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    item = await memory.scope(user_id="ann").remember("ann's secret")
    url = await served(keys=keys)
    bob = Visitor(client(url, new_key(keys, "write", "bob")))
    reader = Visitor(client(url, new_key(keys, "read", "ann")))
    await bob.look("/memories")

    for path in ("/memory", "/memory.json", "/ui/memory", "/ui/memory/edit", "/ui/memory/why"):
        for item_id in (item.id, "nothing"):
            for named, status in (({}, 404), ({"user_id": "ann"}, 403)):
                answer = await bob.http.get(path, params={"id": item_id, "q": "x", **named})
                assert answer.status_code == status
                assert "secret" not in answer.text
    for path in ("/ui/memory", "/ui/memory/restore"):
        changed = await bob.send(path, {"id": item.id}, version="1", content="x", tags="")
        assert changed.status_code == 404
    forgot = await bob.send("/ui/memory/forget", {"id": item.id})
    page = await bob.http.get("/memory?id=no", headers={"Accept": "text/html"})
    refused = await reader.send("/ui/memory/forget", {"id": item.id})

    assert forgot.status_code == 404
    assert await memory.scope(user_id="ann").get(item.id) == item
    assert "<h1>Not found</h1>" in page.text
    assert refused.status_code == 403
    assert "Forget" not in await reader.look("/memory", id=item.id)


@each_row(
    ("old", "new", "told"),
    [
        ("", "", []),
        ("same", "same", [("same", "same")]),
        ("", "new", [("added", "new")]),
        ("at 19:00", "at 20:30", [("same", "at "), ("removed", "19:00"), ("added", "20:30")]),
        ("a b c", "a x y c", [("same", "a "), ("removed", "b"), ("added", "x y"), ("same", " c")]),
        ("a b", "c d", [("removed", "a b"), ("added", "c d")]),
    ],
)
def test_a_difference_is_told_in_words(old: str, new: str, told: list[tuple[str, str]]) -> None:
    assert [(piece.kind, piece.text) for piece in word_diff(old, new)] == told


def test_a_difference_of_long_texts_is_short_and_quick() -> None:
    old = " ".join(f"old{number}" for number in range(20_000))
    new = " ".join(f"new{number}" for number in range(20_000))

    replaced = word_diff(f"same {old}", f"same {new}")
    inserted = word_diff(old, f"{old} end")

    assert [piece.kind for piece in replaced] == ["same", "removed", "added"]
    assert sum(len(piece.text) for piece in replaced) < 10_000
    assert inserted == [Piece("same", f"…{old[-160:]}"), Piece("added", " end")]


def test_what_a_browser_does_to_line_ends_is_no_edit() -> None:
    assert as_edited("a\r\nb", "a\nb") is None
    assert as_edited("a\rb", "a\r\nb") is None
    assert as_edited("a\r\nb", "a\nc") == "a\r\nc"
    assert as_edited("a\nb", "a\r\nc") == "a\nc"
    assert as_edited("a", None) is None
