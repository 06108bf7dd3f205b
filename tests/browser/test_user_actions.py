"""Actions on the pages: search, edit, undo, the labs, import."""

import json
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from tests.browser.conftest import Look

from orbiter.memory import AgentMemory
from orbiter.memory.transfer import export_file

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_search_answers_while_one_types(site: str, look: Look) -> None:
    visit = await look(f"{site}/memories")
    page = visit.page
    await expect(page.locator("[data-search]")).to_be_focused()

    await page.keyboard.type("peanuts")

    first = page.locator("#results .memory").first
    await expect(first).to_contain_text("Mia is allergic to peanuts")
    await expect(first.locator(".score")).to_be_visible()
    await first.locator("a.memory-text").click()
    await page.wait_for_url("**/memory?**")
    await expect(page.locator(".memory-body")).to_have_text("Mia is allergic to peanuts")


async def test_an_edit_is_shown_with_its_difference_and_can_be_undone(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="edith")
    item = await mine.remember("The train leaves at seven")
    visit = await look(f"{site}/memory?id={item.id}")
    page = visit.page

    await page.get_by_role("button", name="Edit").click()
    await page.locator("#edit-content").fill("The train leaves at nine")
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator(".memory-body")).to_have_text("The train leaves at nine")
    await expect(page.locator(".diff ins").first).to_contain_text("nine")
    assert (await mine.get(item.id)).content == "The train leaves at nine"  # type: ignore[union-attr]

    visit.answer = True
    await page.get_by_role("button", name="Restore this version").last.click()

    await expect(page.locator(".memory-body")).to_have_text("The train leaves at seven")
    assert (await mine.get(item.id)).content == "The train leaves at seven"  # type: ignore[union-attr]
    await visit.check()


async def test_what_is_forgotten_can_be_brought_back(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="edith")
    item = await mine.remember("The attic key hangs by the door")
    visit = await look(f"{site}/memory?id={item.id}")
    visit.answer = True

    await visit.page.get_by_role("button", name="Forget").click()
    await expect(visit.page.get_by_text("Forgotten.", exact=True)).to_be_visible()
    assert await mine.get(item.id) is None

    await visit.page.get_by_role("button", name="Restore", exact=True).click()
    await expect(visit.page.get_by_role("button", name="Forget")).to_be_visible()
    assert await mine.get(item.id) is not None


async def test_what_was_done_a_moment_ago_is_undone_in_its_message(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="ursula")
    item = await mine.remember("The cellar key hangs by the stairs")
    visit = await look(f"{site}/memory?id={item.id}&user_id=ursula")
    page, undo = visit.page, visit.page.locator(".toast").get_by_role("button", name="Undo")
    visit.answer = True

    await page.get_by_role("button", name="Forget").click()
    await undo.click()
    await expect(page.get_by_role("button", name="Forget")).to_be_visible()
    assert await mine.get(item.id) is not None

    await page.get_by_role("button", name="Edit").click()
    await page.locator("#edit-content").fill("The cellar key is lost")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".memory-body")).to_have_text("The cellar key is lost")
    await undo.last.click()
    await expect(page.locator(".memory-body")).to_have_text("The cellar key hangs by the stairs")

    await visit.go("/memories?user_id=ursula")
    await page.get_by_role("button", name="Add a memory").click()
    await page.locator("#add-content").fill("The shed has no key")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#results")).to_contain_text("The shed has no key")
    await undo.last.click()
    await expect(page.locator("#results")).not_to_contain_text("The shed has no key")


async def test_times_are_those_of_the_reader_with_their_zone(
    site: str, look: Look, memory: AgentMemory
) -> None:
    item = await memory.scope(user_id="edith").remember("The clock is slow")
    visit = await look(f"{site}/memory?id={item.id}")

    told = visit.page.locator("time[data-clock]").first
    await expect(told).to_have_text(
        await told.evaluate(
            """(time) => new Date(time.dateTime).toLocaleString(undefined, {
              year: "numeric", month: "short", day: "numeric",
              hour: "2-digit", minute: "2-digit", timeZoneName: "short" })"""
        )
    )
    await expect(visit.page.locator(".side [data-zone]")).to_contain_text("UTC")


async def test_a_field_offers_the_names_that_exist(site: str, look: Look) -> None:
    visit = await look(f"{site}/context")
    page = visit.page

    await page.get_by_label("User").fill("ali")
    await expect(page.locator("#user_id-offers option[value=alice]")).to_be_attached()
    await page.get_by_label("User").fill("alice")
    await page.get_by_label("Chat").focus()
    await expect(page.locator("#chat-offers option[value=lisbon]")).to_be_attached()


async def test_the_report_of_an_erasure_is_a_file_to_keep(
    site: str, look: Look, memory: AgentMemory, tmp_path: Path
) -> None:
    await memory.scope(user_id="gone").remember("Nobody will know of this")
    visit = await look(f"{site}/data")
    page = visit.page
    visit.answer = True
    everyone = (await memory.unscoped().stats()).items
    await expect(page.locator("#stored")).to_contain_text(f"{everyone} memories")
    await page.locator("#x-user_id").fill("gone")

    await (
        page.locator("#erase-title")
        .locator("..")
        .locator("..")
        .get_by_role("button", name="Preview")
        .click()
    )
    await page.locator("#x-typed").fill("gone")
    await page.get_by_role("button", name="Erase for good").click()
    await expect(page.locator("#stored")).to_contain_text(f"{everyone - 1} memories")
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download the report").click()
    file = await waiting.value
    await file.save_as(tmp_path / file.suggested_filename)

    visit.troubles = [each for each in visit.troubles if "downloaded" not in each]
    report = json.loads((tmp_path / "erase-report.json").read_text())
    assert (report["erased"], report["proven"]) == ({"user_id": "gone"}, True)
    assert "Nobody will know" not in str(report)


async def test_a_turn_in_the_playground_shows_what_it_recalls(site: str, look: Look) -> None:
    visit = await look(f"{site}/playground?user_id=alice&chat=try")
    page = visit.page

    await page.locator("#message").fill("Who is allergic to peanuts?")
    await page.keyboard.press("Control+Enter")

    await expect(page.locator(".play-chat")).to_contain_text("I remember: Mia is allergic")
    await expect(page.locator(".play-side .score").first).to_be_visible()
    await expect(page.locator("#message")).to_have_value("")
    await visit.check()


async def test_the_context_lab_shows_what_is_sent_and_what_it_costs(site: str, look: Look) -> None:
    visit = await look(f"{site}/context?user_id=alice")
    page = visit.page

    await page.get_by_label("Task").fill("Where could we have dinner, and who has an allergy?")
    await page.get_by_label("Budget").fill("300")
    await page.get_by_role("button", name="Assemble").click()
    await visit.settled()

    await expect(page.locator("#cost")).to_contain_text("of 300 tokens")
    await expect(page.locator(".memory", has_text="peanuts").first).to_be_visible()
    await expect(page.locator("svg.bar rect").first).to_be_attached()
    await page.get_by_text("Anthropic", exact=True).last.click()
    await expect(page.locator("pre:visible").last).to_contain_text("dinner")
    await visit.check()


async def test_a_name_that_is_left_blank_is_not_sent(
    site: str, look: Look, memory: AgentMemory
) -> None:
    visit = await look(f"{site}/recall")
    page = visit.page
    await page.get_by_label("Question").fill("Who has an allergy?")
    await page.get_by_role("button", name="Recall", exact=True).click()
    await visit.settled()
    assert "user_id" not in page.url
    await expect(page.locator(".memory", has_text="peanuts").first).to_be_visible()

    await page.goto(f"{site}/memories")
    await page.get_by_role("button", name="Add a memory").click()
    await page.locator("#add-content").fill("The cellar is dry")
    await page.locator("#add-user").fill("edith")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#results")).to_contain_text("The cellar is dry")
    [stored] = await memory.scope(user_id="edith").list(query="cellar")
    assert stored.metadata.agent_id is None

    await page.goto(f"{site}/data")
    await page.locator("#x-user_id").fill("edith")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#erase")).to_contain_text("This would erase")
    await visit.check()


async def test_a_file_is_imported_with_a_report(
    site: str, look: Look, memory: AgentMemory, tmp_path: Path
) -> None:
    lines = [{"messages": [{"role": "user", "content": f"Ticket {n} is red"}]} for n in range(3)]
    file = tmp_path / "tickets.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    visit = await look(f"{site}/data")
    page = visit.page

    await page.set_input_files("#i-file", file)
    await page.locator("#import").get_by_label("User").fill("imogen")
    await page.get_by_role("button", name="Import").click()

    await expect(page.locator('[data-count="stored"]')).to_have_text("3")
    assert (await memory.scope(user_id="imogen").stats()).items == 3
    await visit.check()
    await page.get_by_role("link", name="View", exact=True).click()
    await expect(page.locator(".memory").first).to_contain_text("is red")


async def test_a_damaged_file_says_that_nothing_was_stored(
    site: str, look: Look, memory: AgentMemory, tmp_path: Path
) -> None:
    whole, file = tmp_path / "whole.jsonl", tmp_path / "damaged.jsonl"
    await export_file(memory.scope(user_id="bob"), whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b"{ no\n", *lines[1:]]))
    visit = await look(f"{site}/data")
    visit.allowed = {400, 403, 422}
    page = visit.page
    report = page.locator("[data-report]")

    await page.set_input_files("#i-file", file)
    await page.get_by_role("button", name="Import").click()
    await expect(report.get_by_role("heading")).to_have_text("Nothing was stored")
    await expect(report.get_by_role("heading")).to_be_focused()
    await expect(report).to_contain_text("Line 2 is damaged")

    await page.set_input_files("#i-file", whole)
    await page.locator("#import").get_by_label("User").fill("imogen")
    await page.get_by_role("button", name="Import").click()
    await expect(report).to_contain_text("names its users itself")
    await expect(report.locator("dl")).to_be_hidden()


async def test_a_page_of_before_a_restart_still_saves(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="edith")
    item = await mine.remember("The lamp is green")
    visit = await look(f"{site}/memory?id={item.id}")
    visit.allowed = {403}
    visit.answer = True
    page = visit.page
    await page.evaluate("token = '0'.repeat(64)")  # as of a server that is gone

    await page.get_by_role("button", name="Forget").click()

    await expect(page.get_by_text("Forgotten.", exact=True)).to_be_visible()
    assert await mine.get(item.id) is None


async def test_what_is_wrong_is_told_at_the_form_in_its_own_words(site: str, look: Look) -> None:
    visit = await look(f"{site}/facts?user_id=fay")
    visit.allowed = {400, 422}
    page = visit.page
    form = page.locator("#new-fact form")

    await page.get_by_label("Key", exact=True).fill("home")
    await page.get_by_label("Value", exact=True).fill("Oslo")
    await page.get_by_label("True from").fill("2025-01-01T00:00")
    await page.get_by_label("Until").fill("2024-01-01T00:00")
    for _ in range(2):
        await page.get_by_role("button", name="Save").click()
        await visit.settled()

    alert = form.get_by_role("alert")
    await expect(alert).to_have_count(1)
    await expect(alert).to_contain_text("Until")
    await expect(alert).not_to_contain_text("valid_to")
    await expect(page.get_by_label("True from")).to_be_focused()
    await expect(page.locator(".toast")).to_have_count(0)
    await visit.check()
    await page.get_by_label("Until").fill("")
    await page.get_by_role("button", name="Save").first.click()
    await expect(page.locator(".holds")).to_have_text("Oslo")
    await expect(alert).to_have_count(0)


async def test_what_was_counted_is_what_is_hidden(
    site: str, look: Look, memory: AgentMemory
) -> None:
    mine = memory.scope(user_id="dora")
    await mine.remember("Cheap watches", source="web:watches.example")
    await mine.remember("Mine is blue")
    visit = await look(f"{site}/review?tab=quarantined&user_id=dora")
    visit.answer = True
    page = visit.page

    await page.get_by_label("Source", exact=True).fill("web:watches.example")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("button", name="Hide them")).to_be_visible()
    await page.get_by_label("Source", exact=True).fill("user")
    await expect(page.locator("#doubt")).to_be_empty()
    await page.get_by_label("Source", exact=True).fill("web:watches.example")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_role("button", name="Hide them").click()

    await expect(page.locator("#hidden")).to_contain_text("Cheap watches")
    await expect(page.locator("#count-quarantined")).to_have_text("1")
    assert [item.content for item in await mine.list()] == ["Mine is blue"]


async def test_a_file_of_another_user_is_copied_for_one_who_names_its_owner(
    site: str, look: Look, memory: AgentMemory, tmp_path: Path
) -> None:
    await memory.scope(user_id="olga").remember("Olga's boat is called Petrel")
    file = tmp_path / "olga.jsonl"
    await export_file(memory.scope(user_id="olga"), file)
    visit = await look(f"{site}/data")
    page = visit.page

    await page.set_input_files("#i-file", file)
    await page.locator("#import").get_by_label("User", exact=True).fill("oskar")
    await page.get_by_label("Owner in the file").fill("olga")
    await page.get_by_role("button", name="Import").click()

    await expect(page.locator('[data-count="stored"]')).to_have_text("1")
    [copied] = await memory.scope(user_id="oskar").list()
    assert copied.content == "Olga's boat is called Petrel"
    await visit.check()


async def test_a_new_memory_is_saved_by_keys_from_each_of_its_fields(
    site: str, look: Look, memory: AgentMemory
) -> None:
    visit = await look(f"{site}/memories")
    page = visit.page

    for field in ("#add-tags", "#add-user", "#add-content"):
        await page.get_by_role("button", name="Add a memory").click()
        await page.locator("#add-content").fill(f"Saved from {field}")
        await page.locator("#add-user").fill("petra")
        await page.locator(field).focus()
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#results")).to_contain_text(f"Saved from {field}")

    assert (await memory.scope(user_id="petra").stats()).items == 3


async def test_the_playground_shows_the_newest_message(site: str, look: Look) -> None:
    visit = await look(f"{site}/playground?user_id=alice&chat=long-talk")
    page = visit.page
    newest = page.locator(".play-chat .turn").last

    for number in range(6):
        await page.locator("#message").fill(f"Who is allergic to peanuts, and who is not? {number}")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".play-chat .turn")).to_have_count(2 * number + 2)
    assert await _is_within(page, ".play-chat .talk", newest)

    await visit.go("/playground?user_id=alice&chat=long-talk")
    assert await _is_within(page, ".play-chat .talk", newest)


async def _is_within(page: Page, selector: str, inner: Locator) -> bool:
    outer_box, inner_box = await page.locator(selector).bounding_box(), await inner.bounding_box()
    assert outer_box is not None
    assert inner_box is not None
    return inner_box["y"] + inner_box["height"] <= outer_box["y"] + outer_box["height"] + 1
