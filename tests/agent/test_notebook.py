"""Notebooks and prompts: short reprs, HTML that only shows, rows, a bar, and the tutorial."""

import ast
import json
import pickle
import re
import sys
from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agent.conftest import Open

from docs import build_tutorial
from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata, ProgressBar
from orbiter.memory.agent import ItemList, VersionList
from orbiter.memory.messages import FORMATS
from orbiter.memory.model.display import html_table
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.tasks import progress

EVIL = "<script>alert(1)</script>\u202e'\" & <img src=x onerror=alert(2)>"


@pytest.fixture
async def memory() -> Any:
    async with AgentMemory("memory://", embeddings=None, summaries=None) as made:
        yield made


def test_an_item_is_one_short_line() -> None:
    item = HumanMemory(
        content="tea " * 500, id="a1", metadata=MemoryMetadata(user_id="ann", extra={"tags": ["x"]})
    )

    assert repr(item) == (
        f"HumanMemory('{('tea ' * 15)[:59]}…', id='a1', user_id='ann', extra={{'tags': ['x']}})"
    )
    assert repr(MemoryItem(content="two\nlines\x1b[2J", id="a2")) == (
        "MemoryItem('two lines�[2J', id='a2')"
    )
    fact = FactMemory(key="city", value="Oslo", id="f", valid_from=datetime(2020, 1, 1, tzinfo=UTC))
    assert repr(fact).startswith("FactMemory('city: Oslo', id='f', extra={'fact': 'city'}, key='ci")


async def test_a_hit_is_one_short_line(memory: AgentMemory) -> None:
    item = await memory.default_user.remember("green tea " * 50)

    (hit,) = await memory.default_user.recall("tea")
    assert repr(hit).startswith(f"Hit({hit.relevance:.2f}, 'green tea green tea")
    assert repr(hit).endswith(f"id={item.id!r})")
    assert len(repr(hit)) < 220


async def test_a_printed_list_has_a_line_for_each_row(memory: AgentMemory) -> None:
    ann = memory.scope("ann")
    for number in range(5):
        await ann.remember(f"note {number}\nof {'many ' * 30}words\x1b[2J", tags=["x"])
    await ann.facts.put("city", "Oslo")
    await ann.chat("main").add("hello")
    page = await ann.list()

    title, head, *rows = str(page).splitlines()

    assert (title, head.split()) == (
        "7 memories, user ann",
        ["memory", "type", "labels", "created", "id"],
    )
    assert [row.split()[-1] for row in rows] == [item.id for item in page]
    assert rows[-1].startswith("  note 0 of many many")
    assert "\x1b" not in str(page)
    assert len({row.index(item.id) for row, item in zip(rows, page, strict=True)}) == 1
    assert repr(page[:3]) == repr(list(page[:3]))
    assert repr(page).endswith(", … 4 more; `print` shows all]")
    for each, first in (
        (await ann.list(where={"tags": "none"}), "0 memories"),
        (await ann.facts.all(), "1 fact"),
        (await ann.facts.history("city"), "1 assertion"),
        (await ann.chats(), "1 chat, user ann"),
        (await ann.history(page[0].id), "1 version"),
        (await memory.users(), "1 user"),
    ):
        assert str(each).splitlines()[0] == first
    assert str(await ann.chat("main").messages()) == "[{'role': 'user', 'content': 'hello'}]"


async def test_what_is_remembered_cannot_act_in_a_notebook(memory: AgentMemory) -> None:
    await memory.default_user.remember(EVIL, tags=[EVIL], extra={EVIL: EVIL})
    await memory.default_user.chat("one").add(EVIL)
    hits = await memory.default_user.recall("alert", explain=True)
    page = await memory.default_user.list()
    context = await memory.default_user.chat("one").context(budget=1000)
    fact = await memory.default_user.facts.put("note", EVIL)
    facts = await memory.default_user.facts.all()
    past = await memory.default_user.facts.history("note")
    said = await memory.default_user.chat("one").items()
    await memory.default_user.chat(EVIL).add("hello")
    chats = await memory.default_user.chats()

    for each in (hits, hits[0], page, page[0], context, fact, facts, past, said, chats):
        html = each._repr_html_()
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        for evil in ("<script", "<img", "\u202e", "http:", "https:", "url("):
            assert evil not in html
    assert "left out" in html_table(("a",), [("left out",)], title=EVIL)


async def test_tables_have_reasons_and_a_context_has_a_bar(memory: AgentMemory) -> None:
    await memory.default_user.remember("green tea", tags=["drinks"])
    await memory.default_user.chat("one").add("What tea do I like?")
    context = await memory.default_user.chat("one").context(budget=400)

    hits = await memory.default_user.recall("green tea")
    assert "contains &quot;green&quot;, &quot;tea&quot;" in hits._repr_html_()
    assert "tags: drinks" in (await memory.default_user.list())._repr_html_()
    html = context._repr_html_()
    assert f"{context.tokens:,} tokens of 400" in html
    for name, tokens in context.parts.items():
        assert f"{name} {tokens:,}" in html
    assert "width:" in html
    rest = context.tokens - sum(context.parts.values())
    assert rest > 0
    assert f"<td>around messages</td><td>{rest:,}</td>" in re.sub(r' style="[^"]*"', "", html)
    assert context.as_kwargs("anthropic") == context.messages("anthropic").as_kwargs()
    assert (await memory.default_user.recall("zebra"))._repr_html_()


async def test_results_are_rows_of_plain_values(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await memory.default_user.remember("green tea", tags=["drinks"])

    (row,) = (await memory.default_user.recall("tea")).to_dicts()
    assert (row["content"], row["extra"], row["id"]) == ("green tea", {"tags": ["drinks"]}, item.id)
    assert row["why"].startswith("contains")
    assert 0 < row["relevance"] <= 1
    (row,) = (await memory.default_user.list()).to_dicts()
    assert (row["content"], row["user_id"], row["status"]) == ("green tea", "~default", "accepted")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        (await memory.default_user.list()).to_pandas()


async def test_facts_chats_and_messages_are_tables_through_a_server_too(
    any_memory: AgentMemory, who: str
) -> None:
    ann = any_memory.scope(who)
    await ann.facts.put("city", "Oslo", valid_from="2020-01-01")
    await ann.facts.put("city", "Bergen", valid_from="2024-01-01")
    await ann.chat("trip").add(["Where to?", "And when?"])

    (row,) = (await ann.facts.all()).to_dicts()
    assert (row["key"], row["value"], row["valid_to"]) == ("city", "Bergen", None)
    rows = (await ann.facts.history("city")).to_dicts()
    assert [each["value"] for each in rows] == ["Oslo", "Bergen"]
    assert [each["held"] for each in rows] == ["2020 to 2024", "since 2024"]
    (row,) = (await ann.chats()).to_dicts()
    assert (row["session_id"], row["items"], row["user_id"]) == ("trip", 2, who)
    rows = (await ann.chat("trip").items()).to_dicts()
    assert [each["content"] for each in rows] == ["Where to?", "And when?"]
    assert "Bergen" in (await ann.facts.all())._repr_html_()
    assert "trip" in (await ann.chats())._repr_html_()


async def test_versions_and_messages_are_tables_through_a_server_too(
    url: str, open_memory: Open, who: str
) -> None:
    ann = open_memory(url).scope(who)
    item = await ann.remember("green tea")
    await ann.update(item, "black tea")
    await ann.chat("one").add([{"role": "user", "content": "Which tea?"}])

    past = await ann.history(item)
    rows = past.to_dicts()
    assert [(row["version"], row["change"], row["content"]) for row in rows] == [
        (1, "added", "green tea"),
        (2, "updated", "black tea"),
    ]
    assert "black tea" in past._repr_html_()
    messages = await ann.chat("one").messages()
    assert messages.to_dicts() == [{"role": "user", "content": "Which tea?"}]
    assert "1 message, format openai" in messages._repr_html_()


async def test_messages_of_every_format_are_shown(memory: AgentMemory) -> None:
    chat = memory.default_user.chat("one")
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    await chat.add(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Which tea?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "green"},
        ]
    )

    for format in FORMATS:
        html = (await chat.messages(format=format))._repr_html_()
        for text in ("Be kind.", "Which tea?", "look_up", "green"):
            assert text in html


async def test_a_slice_is_shown_like_the_whole(memory: AgentMemory) -> None:
    item = await memory.default_user.remember_many(
        ["green tea", "black tea with milk", "white tea and cake"]
    )
    await memory.default_user.update(item[0], "green tea, please")
    await memory.default_user.chat("one").add(["hi", {"role": "assistant", "content": "ho"}])
    owner = memory.default_user
    await owner.facts.put("city", "Oslo")
    whole: tuple[Any, ...] = (
        await memory.default_user.recall("tea", mode="words", k=2, explain=True),
        await memory.default_user.list(limit=2),
        await memory.users(),
        await owner.history(item[0]),
        await owner.facts.history("city"),
        await owner.chats(),
        await memory.default_user.chat("one").items(),
        await memory.default_user.chat("one").messages(),
    )

    for each in whole:
        part = each[:1]
        assert type(part) is type(each)
        assert vars(part) == vars(each)
        assert part == list(each)[:1]
        assert part.to_dicts() == each.to_dicts()[:1]
        assert "<table" in part._repr_html_()
        assert each[0] == next(iter(each))
        assert each[::-1] == list(reversed(each))
        assert copy(each) == each
        assert pickle.loads(pickle.dumps(each)) == each
    assert [each["content"] for each in whole[-1][1:]] == ["ho"]
    assert whole[-1][1:].as_kwargs() == {"messages": [{"role": "assistant", "content": "ho"}]}


async def test_a_table_of_everyones_memories_says_whose_each_row_is(memory: AgentMemory) -> None:
    await memory.scope("ann").remember("ann likes tea")
    alone = await memory.unscoped().list()
    await memory.scope("bob").remember("bob likes tea")
    await memory.scope("bob").chat("one").add("hi")
    await memory.scope("ann").chat("one").add("ho")
    everyone = memory.unscoped()

    assert "1 memory, user ann" in alone._repr_html_()
    for each in (await everyone.list(), await everyone.recall("tea"), await everyone.chats()):
        html = each._repr_html_()
        assert ">user</th>" in html
        assert ">ann</td>" in html
        assert ">bob</td>" in html
    hers = (await memory.scope("ann").recall("tea"))._repr_html_()
    assert "user ann" in hers
    assert ">user</th>" not in hers


async def test_results_become_a_data_frame(memory: AgentMemory) -> None:
    pytest.importorskip("pandas")
    await memory.default_user.remember("green tea")

    frame = (await memory.default_user.recall("tea")).to_pandas()
    assert list(frame["content"]) == ["green tea"]


async def test_a_result_without_rows_has_the_columns_of_one_with_rows(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def columns_of(rows: Sequence[dict[str, Any]] = (), columns: Sequence[str] = ()) -> list[str]:
        return [*rows[0]] if rows else [*columns]

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=columns_of))
    item = await memory.default_user.remember("green tea")
    owner, nobody = memory.default_user, memory.scope("nobody")
    await owner.facts.put("city", "Oslo")
    await owner.chat("one").add("hello")
    full: tuple[Any, ...] = (
        await memory.default_user.recall("tea"),
        await memory.default_user.list(),
        await memory.users(),
        await owner.facts.all(),
        await owner.facts.history("city"),
        await owner.chats(),
        await owner.chat("one").items(),
        await owner.chat("one").messages(),
        await owner.history(item),
    )
    empty: tuple[Any, ...] = (
        await nobody.recall("tea"),
        await memory.default_user.list(query="coffee"),
        await memory.users(starts_with="x"),
        await nobody.facts.all(),
        await nobody.facts.history("city"),
        await nobody.chats(),
        await nobody.chat("one").items(),
        await nobody.chat("one").messages(),
        VersionList(),
    )

    for one, other in zip(empty, full, strict=True):
        assert one.to_dicts() == []
        assert one.to_pandas() == other.to_pandas()


def test_a_bar_moves_on_one_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    screen = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", screen)
    bar = ProgressBar("import")

    for done in range(1, 1001):
        bar(done, 1000)

    assert 2 <= len(written) < 1000
    assert written[-1].startswith("\r\x1b[Kimport: 100% |")
    assert written[-1].endswith("\n")
    assert [line for line in written[:-1] if "\n" in line] == []


def test_a_bar_is_silent_in_a_file_and_one_element_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ProgressBar()(10, 10)
    assert capsys.readouterr() == ("", "")

    shown: list[dict[str, str]] = []
    updated: list[dict[str, str]] = []

    def update(bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        updated.append(bundle)

    def display(bundle: dict[str, str], **_: object) -> object:
        shown.append(bundle)
        return SimpleNamespace(update=update)

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "_DRAW_EVERY", 0.0)
    bar = ProgressBar()
    for done in (1, 5, 10):
        bar(done, 10)
    assert len(shown) == 1
    assert len(updated) == 2
    assert "10 of 10" in updated[-1]["text/plain"]


def test_the_tutorial_runs_and_says_what_it_prints() -> None:
    written = json.loads(build_tutorial.NOTEBOOK.read_text(encoding="utf-8"))

    assert json.loads(build_tutorial.notebook()) == written


def test_the_tutorial_runs_twice_in_one_folder() -> None:
    cells = build_tutorial.CELLS[1::2]

    printed = build_tutorial.run((*cells, *cells))

    assert printed[len(cells) - 1].endswith("memories written\n")
    assert printed[-1].endswith("memories written\n")


def test_a_cell_that_promises_a_table_ends_with_one() -> None:
    names: dict[str, Any] = {}
    codes = build_tutorial.CELLS[1::2]
    ends = [ast.parse(code).body[-1] for code in codes]
    shown = [ast.unparse(end) for end in ends if isinstance(end, ast.Expr)]

    build_tutorial.run(codes[:-1], names)

    tables = [names[name] for name in shown if name in names]
    assert len(tables) == 3
    assert all("<table" in each._repr_html_() for each in tables)
    names["memory"].close()


async def test_what_was_just_stored_is_a_table_too(open_memory: Open, url: str, who: str) -> None:
    ann = open_memory(url).scope(user_id=who)
    rows = [{"note": "green tea", "topic": "drinks"}, {"note": "black tea", "topic": "drinks"}]

    kept = await ann.remember_many(rows, text="note")
    again = await ann.remember_many(["rice"], idempotency_key="once")
    replaced = await ann.remember_many([kept[0]])
    said = await ann.chat("c").add("Which tea?")
    answered = await ann.chat("c").add({"role": "assistant", "content": "Green."})

    for items in (kept, again, replaced, said, answered):
        assert isinstance(items, ItemList)
        assert items[0].content in items._repr_html_()
    assert "2 memories" in str(kept)
    assert [row["content"] for row in kept.to_dicts()] == ["green tea", "black tea"]
    assert isinstance(await ann.remember_many(["rice"], idempotency_key="once"), ItemList)


async def test_what_was_forgotten_or_erased_is_shown(memory: AgentMemory) -> None:
    ann = memory.scope(user_id="ann")
    tea = await ann.remember(EVIL)
    hits = await ann.recall("alert")

    would = (await ann.forget(tea, dry_run=True))._repr_html_()
    gone = (await ann.forget(tea))._repr_html_()
    await ann.remember("green tea")
    counted = (await memory.erase(user_id="ann", dry_run=True))._repr_html_()
    erased = (await memory.erase(user_id="ann"))._repr_html_()
    nobody = (await memory.erase(user_id="an"))._repr_html_()

    assert "1 memory would be forgotten, user ann" in would
    assert "1 memory forgotten, user ann" in gone
    assert "&lt;script&gt;" in gone
    assert "<script" not in would + gone
    assert "would erase 1 memory" in counted
    assert "erased 1 memory" in erased
    assert "nothing is left" in erased
    assert "nothing was there before" in nobody
    assert "<td>found</td><td>False</td>" in re.sub("<td[^>]*>", "<td>", nobody)
    assert "ann" in erased
    assert "1 hit of 1 candidate, user ann" in hits._repr_html_()
    assert "1 of 1 candidate" in str(hits)
