"""The page of memories on the move: what it offers, and what is gone for good."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.audit import acting_as
from orbiter.memory.transfer import FORMATS, WRITTEN

ANN = {"user_id": "ann"}


async def test_the_page_offers_every_format_and_its_links_work(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).remember("Mia hates peanuts")
    await memory.scope(user_id="ben").remember("Ben's own")
    visitor = Visitor(client(await served()))

    page, twin = await visitor.look("/data", **ANN), await visitor.twin("/data", **ANN)
    table = await visitor.http.get("/v1/export?format=csv&user_id=ann")
    every = await visitor.http.get("/v1/export?format=openai&everyone=true")

    assert list(twin["read"]) == list(FORMATS)  # type: ignore[call-overload]
    assert list(twin["written"]) == list(WRITTEN)  # type: ignore[call-overload]
    assert all(told for told in twin["read"].values())  # type: ignore[attr-defined]
    assert "/v1/export?format=csv&amp;user_id=ann" in page
    assert "cannot be imported again" in page
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert f'filename="memories-ann-csv-{today}.csv"' in table.headers["content-disposition"]
    assert (
        f'filename="memories-everyone-openai-{today}.jsonl"' in every.headers["content-disposition"]
    )
    assert "peanuts" in table.text
    assert "Ben" not in table.text


async def test_an_erasure_removes_what_the_map_of_an_earlier_version_kept(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).remember("Mia hates peanuts")
    file = Path(f"{memory.url.removeprefix('sqlite:///')}.map.json")
    file.write_text("{}")

    erased = await Visitor(client(await served())).send("/ui/data/erase", ANN, typed="ann")

    assert "nothing is left" in erased.text
    assert not file.exists()


async def test_a_server_that_only_shows_blames_no_key(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    shown = await Visitor(client(await served(read_only=True))).look("/data")
    url = await served(keys=keys)
    reader = await Visitor(client(url, new_key(keys, "read", user="ann"))).look("/data")

    assert "This server is read-only." in shown
    assert "Your key" not in shown
    assert "Your key may only read." in reader


async def test_erasing_is_counted_first_and_needs_the_name(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).remember("Mia hates peanuts")
    await memory.scope(user_id="ben").remember("Ben's own")
    visitor = Visitor(client(await served()))

    counted = await visitor.http.get("/ui/data/erase", params=ANN)
    mistyped = await visitor.send("/ui/data/erase", ANN, typed="anne")
    still = len(await memory.scope(**ANN).list())
    nobody = await visitor.send("/ui/data/erase", {}, typed="")
    erased = await visitor.send("/ui/data/erase", ANN, typed="ann")
    nothing = await visitor.http.get("/ui/data/erase", params=ANN)
    again = await visitor.send("/ui/data/erase", ANN, typed="ann")

    assert "This would erase" in counted.text
    assert '<dd class="figure number">1</dd><dt class="meta">memory</dt>' in counted.text
    assert '<strong class="number">1</strong> memory<' in erased.text
    assert mistyped.status_code in (400, 422)
    assert "type `ann`" in mistyped.json()["detail"]
    assert still == 1
    assert nobody.status_code in (400, 422)
    assert "nothing is left" in erased.text
    assert "Proven:" in erased.text
    assert "Backups and exports were not searched." in erased.text
    assert "There is nothing to erase" in nothing.text
    assert "<h3>There was nothing to erase</h3>" in again.text
    assert "not searched" not in again.text
    assert [item.content for item in await memory.unscoped().list()] == ["Ben's own"]


async def test_what_is_erased_of_somebody_with_entries_alone_is_shown_first(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).kv.append(("threads", "t1"), [b"state"] * 12)
    visitor = Visitor(client(await served()))

    counted = await visitor.http.get("/ui/data/erase", params=ANN)
    erased = await visitor.send("/ui/data/erase", ANN, typed="ann")

    assert (
        '<dd class="figure number">12</dd><dt class="meta">key-value entries</dt>' in counted.text
    )
    assert "Erase for good" in counted.text
    assert '<strong class="number">12</strong> key-value entries' in erased.text


async def test_an_erasure_says_which_keys_are_left(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).remember("Mia hates peanuts")
    left = new_key(keys, user="ann").split("_")[1]
    visitor = Visitor(client(await served(keys=keys), new_key(keys, "admin")))

    erased = await visitor.send("/ui/data/erase", ANN, typed="ann")

    assert f"The API key <code>{left}</code> still works" in erased.text
    assert f"<code>orbiter-memory keys revoke {left} --url " in erased.text


async def test_a_budget_is_counted_first(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    for number in range(4):
        await ann.remember(f"Thing {number}")
    visitor = Visitor(client(await served()))

    counted = await visitor.send("/ui/data/evict", ANN, max_items="1")
    before = len(await ann.list())
    await visitor.send("/ui/data/evict", ANN, max_items="1", sure="yes")
    everyone = await visitor.send("/ui/data/evict", {}, max_items="1")

    assert '<strong class="number">3</strong> would be forgotten' in counted.text
    assert (before, len(await ann.list())) == (4, 1)
    assert everyone.status_code in (400, 422)


async def test_nobody_erases_what_their_key_does_not_open(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).remember("Mia hates peanuts")
    url = await served(keys=keys)
    writer = Visitor(client(url, new_key(keys, user="ann")))
    bens = Visitor(client(url, new_key(keys, "admin", user="ben")))

    page = await writer.look("/data")
    refused = await writer.send("/ui/data/erase", ANN, typed="ann")
    foreign = await bens.send("/ui/data/erase", ANN, typed="ann")

    assert "erase-title" not in page
    assert refused.status_code == 403
    assert foreign.status_code == 403
    assert "this key is for user_id `ben`, not `ann`" in foreign.json()["detail"]
    assert len(await memory.scope(**ANN).list()) == 1


async def test_what_goes_wrong_soon_is_a_problem_that_the_page_shows_at_its_form(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    answer = await visitor.send("/ui/review/doubt", ANN, source="nowhere <b>")

    assert answer.status_code == 422
    assert "nowhere <b>" in answer.json()["detail"]


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(tmp_path / "audited.db", audit="writes", summaries=None) as made:
        yield made


async def test_the_audit_log_is_shown_to_whoever_answers_for_everyone(
    audited: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    with acting_as("the <b>import</b>"):
        note = await audited.scope(**ANN).remember("Mia hates peanuts")
    with acting_as("ben"):
        for number in range(25):
            await audited.scope(user_id="ben").remember(f"Ben's {number}")
    await audited.scope(user_id="zac").kv.put(("prefs",), "theme", b"dark")
    url = await served(audited, keys=keys)
    admin = Visitor(client(url, new_key(keys, "admin")))
    of_ann = client(url, new_key(keys, "admin", user="ann"))

    page = await admin.look("/data")
    newest = (await admin.http.get("/ui/data/audit", params={"actor": ""})).text
    older = (await admin.http.get("/ui/data/audit", params={"before": "9"})).text
    by_ben = (await admin.http.get("/ui/data/audit", params={"actor": "ben"})).text
    by_zoe = (await admin.http.get("/ui/data/audit", params={"actor": "zoe"})).text
    ann_alone = (await admin.http.get("/ui/data/audit", params=ANN)).text
    refused = await of_ann.get("/ui/data/audit")

    assert 'hx-get="/ui/data/audit"' in page
    assert newest.count("<li class") == 21  # and the button
    assert "before=9" in newest
    assert "1 key-value entry" in newest
    assert "peanuts" not in newest + older
    assert "&lt;b&gt;import&lt;/b&gt;" in older
    assert note.id[:12] in older
    assert "Older entries" not in older
    assert "import" not in by_ben
    assert "No entry by" in by_zoe
    assert ann_alone.count("<li class") == 1
    assert refused.status_code == 403
    assert 'hx-get="/ui/data/audit' not in await Visitor(of_ann).look("/data")


async def test_a_store_without_an_audit_log_says_how_to_begin_one(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    shown = await client(await served()).get("/ui/data/audit")

    assert shown.status_code == 200
    assert "<code>orbiter-memory audit begin</code> starts one" in shown.text
    assert "`" not in shown.text


async def test_without_keys_the_dashboard_signs_as_it_is_told(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("tea")
    note = await memory.scope(user_id="ben").remember("coffee")
    visitor = Visitor(client(await served(dashboard_by="officer <b>")))

    erased = await visitor.send("/ui/data/erase", ANN, typed="ann")
    await visitor.send("/ui/memory/forget", {"id": note.id})

    assert "officer &lt;b&gt;" in erased.text
    assert (await memory.scope(user_id="ben").history(note.id))[-1].by == "officer <b>"
