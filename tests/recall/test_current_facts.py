"""Facts in recall: what holds before what held, nothing that was wrong, each with its dates."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.recall.conftest import MODELS, Opening

from orbiter.memory import (
    HumanMemory,
    LocalEmbeddings,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SQLiteMemoryStore,
)
from orbiter.memory.context import ContextManager
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.recall import BoundRecall, Hit, RecallMode, RecallResult, recall
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
NOW = datetime(2025, 6, 1, tzinfo=UTC)
MODES: list[RecallMode] = ["hybrid", "words", "meaning", "recent"]


def _day(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


def _fact(value: str, since: datetime, *, key: str = "home_city", **fields: Any) -> FactMemory:
    settings = {"metadata": ANN, "recorded_at": since, "created_at": since, **fields}
    return FactMemory(id=f"{key}-{value}", key=key, value=value, valid_from=since, **settings)


PARIS = _fact("Paris", _day(2015))
LIMA = _fact("Lima", _day(2020))
BERLIN = _fact("Berlin", _day(2024, 3))


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


def _values(found: RecallResult) -> list[Any]:
    return [hit.item.value for hit in found if isinstance(hit.item, FactMemory)]


def _of(found: RecallResult, value: str) -> Hit:
    return next(hit for hit in found if getattr(hit.item, "value", None) == value)


def _adds_up(found: RecallResult) -> bool:
    sums = [sum(reason.points for reason in hit.why) for hit in found]
    is_sorted = [hit.score for hit in found] == sorted((h.score for h in found), reverse=True)
    return is_sorted and [hit.score for hit in found] == pytest.approx(sums)


@MODELS
async def test_what_holds_comes_before_what_held_and_both_have_their_dates(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many([BERLIN, PARIS, LIMA, MemoryItem(content="green tea", metadata=ANN)])

        found = await recall(store, "What is my home city?", scope=ANN, now=NOW)
        in_time = await recall(store, "my home city in 2016", scope=ANN, now=NOW)

    assert _values(found) == ["Berlin", "Lima"]  # nothing but the key speaks for Paris
    assert set(_values(in_time)) == {"Berlin", "Lima", "Paris"}
    assert _values(in_time)[0] == "Paris"
    assert [hit.passage for hit in found[:2]] == [
        "home city: Berlin (since 1 Mar 2024)",
        "home city: Lima (2020 to 1 Mar 2024)",
    ]
    assert "holds since 1 Mar 2024" in [reason.text for reason in _of(found, "Berlin").why]
    assert "held 2020 to 1 Mar 2024" in [reason.text for reason in _of(found, "Lima").why]
    assert all(r.points < 0 for r in _of(found, "Lima").why if r.part == "fact")
    assert _adds_up(found)
    assert _adds_up(in_time)


@pytest.mark.parametrize("mode", ["hybrid", "words", "meaning"])
async def test_what_holds_is_brought_in_where_only_what_held_was_found(mode: RecallMode) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(256)) as store:
        await store.add_many([PARIS, LIMA, BERLIN])

        ask = partial(recall, store, "Lima", scope=ANN, mode=mode, now=NOW, min_relevance=0)
        found = await ask(k=2)
        held = await ask(until=_day(2023))

    assert _values(found) == ["Berlin", "Lima"]
    assert _adds_up(found)
    assert "Berlin" not in _values(held)  # a filter holds for what is brought in, too
    assert "held 2020 to 1 Mar 2024" in [reason.text for reason in _of(held, "Lima").why]


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_retracted_proposed_or_never_held_does_not_come(mode: RecallMode) -> None:
    wrong = _fact("Rome", _day(2025, 2), retracted_at=_day(2025, 3))
    proposed = _fact("Oslo", _day(2025, 4), status=MemoryStatus.DRAFT)
    corrected = _fact("Bern", _day(2024, 3), recorded_at=_day(2024, 2))
    ended = _fact("", _day(2025, 1), key="car", is_end=True)
    car = _fact("red", _day(2020), key="car")
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(256)) as store:
        await store.add_many([wrong, proposed, corrected, BERLIN, ended, car])

        found = await recall(store, "home city", scope=ANN, mode=mode, now=NOW)
        any_status = await recall(store, "home city", scope=ANN, mode=mode, status=None, now=NOW)
        drafts = await recall(store, "Oslo", scope=ANN, mode=mode, status=MemoryStatus.DRAFT)
        cars = await recall(store, "car", scope=ANN, mode=mode, now=NOW)

    assert set(_values(found)) - {"red"} == {"Berlin"}
    assert set(_values(any_status)) - {"red"} == {"Berlin"}
    assert _values(drafts) == ["Oslo"]  # who reviews proposals asks for them
    assert set(_values(cars)) - {"Berlin"} == {"red"}
    assert "held 2020 to 2025" in [reason.text for reason in _of(cars, "red").why]


async def test_every_scope_has_facts_of_its_own() -> None:
    work = MemoryMetadata(user_id="ann", session_id="work")
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([LIMA, _fact("Berlin", _day(2024, 3), metadata=work)])

        found = await recall(store, "home city", scope=ANN, mode="words", now=NOW)

    assert {hit.passage for hit in found} == {
        "home city: Lima (since 2020)",
        "home city: Berlin (since 1 Mar 2024)",
    }


async def test_what_is_trusted_too_little_covers_nothing() -> None:
    rumour = FactMemory(
        key="home_city",
        value="Atlantis",
        valid_from=_day(2025),
        recorded_at=_day(2025),
        metadata=MemoryMetadata(user_id="ann", extra={"source": "web", "trust": 1}),
    )
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([BERLIN, rumour])

        found = await recall(store, "home city", scope=ANN, mode="words", now=NOW)
        careful = await recall(
            store, "home city", scope=ANN, mode="words", now=NOW, min_trust="agent"
        )

    assert _values(found)[0] == "Atlantis"
    assert _values(careful) == ["Berlin"]
    assert careful[0].passage.endswith("(since 1 Mar 2024)")


def _many_cities() -> list[FactMemory]:
    """Return four hundred values of one key, one after the other."""
    return [
        _fact(f"town {number}", _day(2015) + timedelta(days=number), key="city")
        for number in range(400)
    ]


@MODELS
async def test_a_key_with_many_earlier_values_hides_neither_its_value_nor_other_memories(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    places = _many_cities()
    places[100] = _fact("town 100", places[100].valid_from, key="city", valid_to=_day(2030))
    note = MemoryItem(content="A city needs trees, says Ann.", metadata=ANN, created_at=_day(2014))
    read = 0

    async with opened(model) as store:
        await store.add_many([*places, note])
        match_words = store.match_words

        async def counting(*args: Any, **options: Any) -> Any:
            nonlocal read
            matches = await match_words(*args, **options)
            read += len(matches.items)
            return matches

        store.match_words = counting
        found = await recall(store, "Which city?", scope=ANN, mode="words", now=NOW)
        read_in_all = read
        asked = await recall(store, "town 7", scope=ANN, mode="words", now=NOW)

    assert _values(found) == ["town 399", "town 398"]
    assert note.id in [hit.item.id for hit in found]
    assert read_in_all < 300  # the earlier values are not all read
    assert [_of(asked, "town 7").passage] == ["city: town 7 (8 Jan 2015 to 9 Jan 2015)"]
    assert _of(asked, "town 7").replaced_by == places[-1].id


def _count_reads(store: Any) -> list[int]:
    """Return a list that gets how many items each read of *store* returns from now on."""
    sizes: list[int] = []

    def counting(read: Any, size_of: Any) -> Any:
        async def counted(*args: Any, **options: Any) -> Any:
            answer = await read(*args, **options)
            sizes.append(size_of(answer))
            return answer

        return counted

    for name in ("search", "nearest", "deciding_facts"):
        setattr(store, name, counting(getattr(store, name), len))
    store.match_words = counting(store.match_words, lambda matches: len(matches.items))
    return sizes


def _values_of(user_id: str, count: int, **fields: Any) -> list[FactMemory]:
    """Return so many values of one key that are not alike, one a day, the last one yesterday."""
    metadata = MemoryMetadata(user_id=user_id)
    start = datetime.now(UTC) - timedelta(days=count)
    every = []
    for number in range(count):
        since = start + timedelta(days=number)
        name = "".join(chr(97 + int(digit)) for digit in f"{number * 7919 % 9973:04}")
        fields |= {"metadata": metadata, "recorded_at": since, "created_at": since}
        every.append(FactMemory(key="city", value=f"{name}ville", valid_from=since, **fields))
    return every


@MODELS
async def test_a_recall_reads_and_weighs_no_more_the_more_earlier_values_a_fact_has(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    counts = (30, 300, 900)
    async with opened(model) as store:
        for count in counts:
            places = _values_of(f"u{count}", count)
            note = MemoryItem(content="A city needs trees.", metadata=places[0].metadata)
            await store.add_many([note, *places])
        await store.catch_up()
        sizes, reads, weighed = _count_reads(store), [], []
        for count in counts:
            sizes.clear()
            who = MemoryMetadata(user_id=f"u{count}")
            found = await recall(store, "Which city?", scope=who, min_relevance=0)
            reads.append(sum(sizes))
            weighed.append(found.considered)
            values = _values_of(f"u{count}", count)
            assert _values(found)[:2] == [values[-1].value, values[-2].value]
            assert "A city needs trees." in [hit.item.content for hit in found]

    is_sqlite = isinstance(store, SQLiteMemoryStore)  # which leaves them out by itself
    assert max(reads) <= (60 if is_sqlite else 500)
    assert reads[2] <= reads[1] + 10
    assert max(weighed) <= 20


@MODELS
async def test_an_earlier_value_is_found_among_hundreds_by_its_name_its_time_and_its_filter(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    places = _values_of("ann", 400)
    old = places[50]
    day = f"{old.valid_from:%Y-%m-%d}"
    async with opened(model) as store:
        await store.add_many(places)

        named = await recall(store, f"Was {old.value} my city?", scope=ANN)
        dated = await recall(store, f"Which city was mine on {day}?", scope=ANN)
        before = await recall(store, "Which city?", scope=ANN, until=places[60].created_at)
        past = await recall(
            store, "When did I live in which city?", scope=ANN, k=12, min_relevance=0
        )

    assert set(_values(named)[:2]) == {places[-1].value, old.value}
    assert _of(named, old.value).replaced_by == places[-1].id
    assert _of(named, old.value).span is not None
    assert _of(named, old.value).span.end == places[51].valid_from  # type: ignore[union-attr]
    assert old.value in _values(dated)
    assert set(_values(before)) <= {place.value for place in places[:60]}
    assert _values(before)[0] == places[59].value
    assert len(_values(past)) == 12


async def test_values_that_were_wrong_do_not_hide_the_one_that_holds() -> None:
    right, *wrong = _values_of("ann", 40)
    gone = [each.model_copy(update={"retracted_at": each.recorded_at}) for each in wrong]
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([right, *gone])

        found = await recall(store, "Which city?", scope=ANN, mode="words")

    assert _values(found) == [right.value]


async def test_a_value_that_holds_again_after_another_has_the_dates_of_that() -> None:
    home, *others = _values_of("ann", 40)
    visit = others[-1].model_copy(update={"valid_to": others[-1].valid_from + timedelta(hours=1)})
    early = [each.model_copy(update={"valid_from": home.valid_from}) for each in others[:-1]]
    last = early[-1]
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([home, *early, visit])

        found = await recall(store, "Which city?", scope=ANN, mode="words")

    assert _values(found) == [last.value, visit.value]
    assert found[0].span is not None
    assert found[0].span.start == visit.valid_to


@MODELS
async def test_many_values_in_one_scope_hide_no_value_of_the_same_key_in_another(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    places = _many_cities()
    work = MemoryMetadata(user_id="ann", session_id="work")
    labelled = MemoryMetadata(user_id="ann", extra={"fact": "city"})
    note = MemoryItem(
        content="city: town planning matters", metadata=labelled, created_at=_day(2013)
    )
    others = [
        _fact("town of Ulm", _day(2014), key="city", metadata=work),
        _fact("town called Wien", _day(2014), key="city", metadata=MemoryMetadata(user_id="bob")),
    ]

    async with opened(model) as store:
        await store.add_many([*others, note, *places])
        found = await recall(store, "Which city?", scope=ANN, mode="words", now=NOW)
        everyones = await recall(store, "Which city?", scope=None, mode="words", now=NOW)

    assert set(_values(found)) == {"town 399", "town 398", "town of Ulm"}
    assert set(_values(everyones)) == {*_values(found), "town called Wien"}
    for each in (found, everyones):
        assert note.id in [hit.item.id for hit in each]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where do I live?", "Berlin"),
        ("Where did I live in 2021?", "Lima"),
        ("Where did I live in 2016?", "Paris"),
        ("Where will I live in 2028?", "Berlin"),
        ("What was my home city in March 2022?", "Lima"),
        ("Who will I work for in January 2026?", "Nordlicht"),
        ("Who is my employer?", "Kessler"),
    ],
)
async def test_only_what_holds_at_the_time_asked_about_is_relevant(
    local: LocalEmbeddings, question: str, answer: str
) -> None:
    works = _fact("Kessler", _day(2019, 4), key="employer")
    will = _fact("Nordlicht", _day(2025, 12), key="employer")
    async with SQLiteMemoryStore(":memory:", embeddings=local) as store:
        await store.add_many([PARIS, LIMA, BERLIN, works, will])
        await store.catch_up()

        found = await recall(store, question, scope=ANN, now=NOW)

    assert _values(found)[0] == answer
    assert all(hit.relevance <= found[0].relevance for hit in found[1:])


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("Where did I live before?", ["Lima", "Paris"]),
        ("Where did I live previously?", ["Lima", "Paris"]),
        ("Where did I live before Berlin?", ["Lima", "Paris"]),
        ("Where did I live before I moved to Lima?", ["Paris"]),
        ("Where did I live before Paris?", []),
        ("What was my previous home city?", ["Lima", "Paris"]),
    ],
)
async def test_what_held_before_is_what_was_before_the_value_of_now_or_the_one_that_is_named(
    local: LocalEmbeddings, question: str, answers: list[str]
) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=local) as store:
        await store.add_many([PARIS, LIMA, BERLIN])
        await store.catch_up()

        found = await recall(store, question, scope=ANN, now=NOW)

    assert _values(found)[: len(answers)] == answers
    likely = [hit.relevance for hit in found]
    assert all(each > 0.3 for each in likely[: len(answers)])
    assert all(each < 0.3 for each in likely[len(answers) :])


async def test_a_fact_is_of_the_time_when_it_began_not_of_when_it_was_written_down() -> None:
    signed = HumanMemory(content="I signed a contract", metadata=ANN, created_at=_day(2025, 5, 28))
    moved = _fact("Berlin", _day(2025, 5, 27))
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([_fact("red", _day(2020), key="car"), moved, signed])
        found = await recall(store, "What did I do in May 2025?", scope=ANN, now=NOW)
        other = await recall(store, "What did I do in June 2025?", scope=ANN, now=NOW)

    assert {hit.item.content: hit.relevance >= 0.5 for hit in found} == {
        "I signed a contract": True,
        "home city: Berlin": True,
    }
    assert all(hit.relevance < 0.5 for hit in other if hit.item.memory_type == "fact")


async def test_what_was_before_a_value_that_is_named_is_not_outdated() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([LIMA, BERLIN])

        before = await recall(store, "What was my home city before Berlin?", scope=ANN, now=NOW)
        in_may = await recall(store, "What was my home city in May?", scope=ANN, now=NOW)

    for found in (before, in_may):  # May of which year?
        assert _of(found, "Lima").relevance > 0.15  # a third of that, if it were outdated


async def test_recent_stays_in_the_order_of_time() -> None:
    late = _fact("Rome", _day(2010), created_at=_day(2025, 5), recorded_at=_day(2025, 5))
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([BERLIN, late])

        found = await recall(store, "", scope=ANN, mode="recent", now=NOW)

    assert _values(found) == ["Rome", "Berlin"]
    assert found[0].passage == "home city: Rome (2010 to 1 Mar 2024)"
    assert _adds_up(found)


@pytest.mark.parametrize("is_bound", [True, False], ids=["recall", "plain store"])
async def test_a_context_shows_facts_with_their_dates(is_bound: bool) -> None:
    since = datetime.now(UTC).replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    moved = _fact("Oslo", since - timedelta(days=1))
    wrong = _fact("Rome", since, retracted_at=since)
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([PARIS, moved, wrong])
        context = await ContextManager(None).assemble(
            "What is my home city?",
            long_term=BoundRecall(store, ANN) if is_bound else store,
            scope=ANN,
        )

    assert f"home city: Oslo (since 31 Dec {since.year - 1})" in context.text
    assert ("home city: Paris (2015 to 31 Dec" in context.text) is is_bound
    assert "Rome" not in context.text
