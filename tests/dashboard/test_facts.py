"""The page of facts: what holds, what held, and changes to it."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import httpx
import pytest
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server.dashboard import facts_page
from orbiter.memory.server.dashboard.fact_timeline import axis_of, row_of, ticks_of

ANN = {"user_id": "ann"}
HOSTILE = "<script>alert(1)</script>\u202egnp"


def _day(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


async def test_the_page_draws_a_time_line_for_each_key(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    facts = memory.scope(**ANN).facts
    await facts.put("city", "Berlin", valid_from=_day(2019))
    await facts.put("city", "Lisbon", valid_from=_day(2024, 3))
    wrong = await facts.put("phone", "000", valid_from=_day(2020))
    await facts.retract(wrong.id)
    await memory.scope(agent_id="nova", **ANN).facts.put("tone", "warm")
    visitor = Visitor(client(await served()))

    page = await visitor.look("/facts", **ANN)
    twin = await visitor.twin("/facts", **ANN)

    rows = {row["key"]: row for row in twin["rows"]}  # type: ignore[attr-defined]
    assert (rows["city"]["value"], rows["city"]["when"]) == ("Lisbon", "since 1 Mar 2024")
    assert [shape[0] for shape in rows["city"]["shapes"]] == ["past", "now"]
    assert rows["phone"]["shapes"] == []
    assert rows["phone"]["holds"] is None
    assert list(rows) == ["city", "phone"]
    assert [each["scope"] for each in twin["narrower"]] == [{**ANN, "agent_id": "nova"}]  # type: ignore[attr-defined]
    assert 'class="span now"' in page
    assert 'class="in-bar in-now"><span>Lisbon<' in page


async def test_the_list_of_memories_marks_what_was_retracted(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    facts = memory.scope(**ANN).facts
    await facts.put("city", "Lisbon")
    wrong = await facts.put("phone", "000")
    visitor = Visitor(client(await served()))

    before = await visitor.look("/memories", **ANN)
    await facts.retract(wrong.id)
    after = await visitor.look("/memories", **ANN)

    assert '<span class="tag bad">retracted</span>' not in before
    assert after.count('<span class="tag bad">retracted</span>') == 1


async def test_keys_are_in_order_and_in_pages(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_page, "_MAX_KEYS", 2)
    for key in ("city_10", "city_2", "City_1", "abc"):
        await memory.scope(**ANN).facts.put(key, "here")
    visitor = Visitor(client(await served()))

    first, page = await visitor.twin("/facts", **ANN), await visitor.look("/facts", **ANN)
    second = await visitor.twin("/facts", skip="2", **ANN)

    assert [row["key"] for row in first["rows"]] == ["abc", "City_1"]  # type: ignore[attr-defined]
    assert [row["key"] for row in second["rows"]] == ["city_10", "city_2"]  # type: ignore[attr-defined]
    assert "skip=2" in page
    assert "1 to 2 of 4 keys" in page


async def test_a_history_comes_in_pages_below_what_can_be_done(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_page, "_AT_ONCE", 2)
    facts = memory.scope(**ANN).facts
    for year in (2019, 2021, 2023):
        await facts.put("city", f"Town {year}", valid_from=_day(year))
    visitor = Visitor(client(await served()))
    asked = {"key": "city", **ANN}

    newest = (await visitor.http.get("/ui/facts/history", params=asked)).text
    rest = (await visitor.http.get("/ui/facts/history", params={"earlier": "2", **asked})).text

    assert newest.index("End now") < newest.index("Town 2023")
    assert "valid since 2023" in newest
    assert "was valid 2021 to 2023" in newest
    assert "Town 2019" not in newest
    assert "Town 2019" in rest
    assert "End now" not in rest
    assert "Earlier assertions" not in rest


async def test_a_page_is_asked_for_two_times(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    facts = memory.scope(**ANN).facts
    await facts.put("city", "Berlin", valid_from=_day(2019))
    await facts.put("city", "Lisbon", valid_from=_day(2024))
    visitor = Visitor(client(await served()))

    then = await visitor.twin("/facts", as_of="2020-06-01T00:00", **ANN)
    unknown = await visitor.twin("/facts", known_at="2021-01-01", **ANN)
    wrong = await visitor.http.get("/facts", params={"as_of": "some day", **ANN})

    assert [row["value"] for row in then["rows"]] == ["Berlin"]  # type: ignore[attr-defined]
    assert unknown["rows"] == []
    assert wrong.status_code in (400, 422)


async def test_an_administrator_first_chooses_whose(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(**ANN).facts.put("city", "Lisbon")
    await memory.scope(user_id="ben", agent_id="nova").facts.put("tone", "warm")
    visitor = Visitor(client(await served()))

    page, twin = await visitor.look("/facts"), await visitor.twin("/facts")

    assert 'href="/facts?user_id=ann"' in page
    assert '<input class="input" id="w-user" name="user_id"' in page
    assert "Lisbon" not in page
    scopes = [each["scope"] for each in twin["whose"]]  # type: ignore[attr-defined]
    assert {"user_id": "ben", "agent_id": "nova"} in scopes


async def test_facts_are_put_ended_and_retracted(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor, facts = Visitor(client(await served())), memory.scope(**ANN).facts
    key = "a/b \u202e&?"

    put = await visitor.send("/ui/facts/put", ANN, key=key, value="[1, 2]", kind="json")
    await visitor.send("/ui/facts/put", {"of": key, **ANN}, value="two")
    ended = await visitor.send("/ui/facts/end", {"of": key, **ANN})
    after_end = await facts.get(key)
    await _undo(visitor, ended)
    after_undo = await facts.get(key)
    assert after_undo is not None
    await visitor.send("/ui/facts/retract", {"id": after_undo.id, **ANN})
    at_last = await facts.get(key)
    history = await visitor.http.get("/ui/facts/history", params={"key": key, **ANN})
    refused = await visitor.send("/ui/facts/put", ANN, key="k", value="{", kind="json")

    assert put.status_code == 200
    assert "/ui/facts/retract?" in put.headers["HX-Trigger"]
    assert 'class="span now"' in put.text
    assert (ended.status_code, after_end) == (200, None)
    assert after_undo.value == "two"
    assert at_last is not None
    assert at_last.value == [1, 2]
    assert history.text.count('class="gone"') == 2
    assert refused.status_code in (400, 422)
    assert "not valid JSON" in refused.json()["detail"]


async def _undo(visitor: Visitor, answer: httpx.Response) -> httpx.Response:
    said = json.loads(answer.headers["HX-Trigger"])["orbiter:say"]
    path, _, query = said["undo"].partition("?")
    return await visitor.send(path, dict(parse_qsl(query)))


async def test_undo_takes_back_its_own_change_and_never_a_newer_one(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor, facts = Visitor(client(await served())), memory.scope(**ANN).facts
    await visitor.send("/ui/facts/put", ANN, key="city", value="Porto")
    put = await visitor.send("/ui/facts/put", ANN, key="city", value="Lisbon")
    await facts.put("city", "Oslo")  # by somebody else, before the message is gone

    late = await _undo(visitor, put)
    oslo = await facts.get("city")
    ended = await visitor.send("/ui/facts/end", {"of": "city", **ANN})
    taken_back = await _undo(visitor, ended)
    again = await visitor.send("/ui/facts/put", ANN, key="city", value="Oslo")

    assert "A newer change stays: it is Oslo." in late.headers["HX-Trigger"]
    assert oslo is not None
    assert oslo.value == "Oslo"
    retracted = [
        entry.fact.value
        for entry in await facts.history("city")
        if entry.fact.retracted_at is not None and not entry.fact.is_end
    ]
    assert retracted == ["Lisbon"]
    assert "Retracted: it is Oslo." in taken_back.headers["HX-Trigger"]
    assert "undo" not in again.headers["HX-Trigger"]  # it held already: nothing was recorded


async def test_what_a_fact_says_never_becomes_a_part_of_the_page(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    source = await memory.scope(**ANN).remember(HOSTILE)
    await memory.scope(**ANN).facts.put(HOSTILE, HOSTILE, source=source)
    visitor = Visitor(client(await served()))

    page = await visitor.look("/facts", key=HOSTILE, **ANN)
    twin = await visitor.twin("/facts", **ANN)

    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert page.count("⟨U+202E⟩gnp") > 3
    assert twin["rows"][0]["value"] == HOSTILE  # type: ignore[index]


async def test_a_key_sees_and_changes_its_own_facts_alone(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    hers = await memory.scope(**ANN).facts.put("city", "Lisbon")
    url = await served(keys=keys)
    ben = Visitor(client(url, new_key(keys, user="ben")))
    reader = Visitor(client(url, new_key(keys, "read", user="ann")))

    seen = await ben.twin("/facts")
    stolen = await ben.send("/ui/facts/retract", {"id": hers.id})
    named = await ben.send("/ui/facts/retract", {"id": hers.id, **ANN})
    refused = await reader.send("/ui/facts/end", {"of": "city"})
    shown = await reader.look("/facts")

    assert (seen["owner"], seen["rows"]) == ({"user_id": "ben"}, [])
    assert (stolen.status_code, named.status_code) == (404, 403)
    assert refused.status_code == 403
    assert "Lisbon" in shown
    assert "/ui/facts/put" not in shown
    assert await memory.scope(**ANN).facts.get("city") == hers


async def test_contradictions_are_counted_beside_what_holds(memory: AgentMemory) -> None:
    facts = memory.scope(**ANN).facts
    await facts.put("city", "Lisbon", valid_from=_day(2025))
    await facts.put("city", "Porto", valid_from=_day(2025))
    await facts.put("city", "Sintra", valid_from=_day(2026))
    said = [entry.fact for entry in await facts.history("city")]
    now = datetime.now(UTC)

    axis = axis_of(said, now=now)
    row = row_of("city", said, axis=axis, as_of=now, known_at=now)

    assert [(shape.kind, shape.label) for shape in row.shapes] == [
        ("past", "Porto"),
        ("now", "Sintra"),
    ]
    assert len(row.conflicts) == 1


def test_a_slider_steps_by_what_suits_and_leaves_the_axis() -> None:
    now = _day(2026, 6)
    axis = axis_of((), now=now, days=365)

    moved = axis_of((), now=now, days=365, as_of=axis.start)

    assert (moved.start, moved.end) == (axis.start, axis.end)
    assert axis.step == timedelta(days=1)
    assert axis_of((), now=now, days=1).step == timedelta(hours=1)
    assert axis_of((), now=now, days=365, as_of=_day(2019)).start < _day(2019)


def test_the_marks_of_an_axis_say_as_much_as_its_length_needs() -> None:
    labels = [
        ticks_of(_day(2024), end)[2].label
        for end in (_day(2024, 1, 3), _day(2024, 3, 1), _day(2034))
    ]

    assert labels == ["2 Jan 00:00", "31 Jan", "Dec 2028"]
