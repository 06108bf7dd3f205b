"""What people type first works, or the error says what to type instead."""

import os
import re
import sys
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import run
from typing import Any
from uuid import UUID

import pytest
from tests.agent.conftest import Open

from orbiter.memory import AgentMemory
from orbiter.memory import sync as blocking
from orbiter.memory.agent import DEFAULT_USER, ScopedMemory, hints
from orbiter.memory.embeddings import LocalEmbeddings, OpenAIEmbeddings
from orbiter.memory.errors import AccessError, ItemNotFoundError, QueryError
from orbiter.memory.transfer import export_file, import_file

# Without a scope


async def test_a_memory_remembers_without_a_scope(any_memory: AgentMemory, who: str) -> None:
    item = await any_memory.default_user.remember(f"the {who} key is under the mat")

    assert item.metadata.user_id == DEFAULT_USER
    hits = await any_memory.default_user.recall(f"where is the {who} key?", mode="words")
    assert item.id in [hit.item.id for hit in hits]
    assert item.id in [each.id for each in await any_memory.default_user.list(query=who)]
    changed = await any_memory.default_user.update(hits[0], f"the {who} key is with Ann")
    assert (await any_memory.default_user.get(item.id)) == changed
    assert await any_memory.default_user.forget(item)
    assert await any_memory.default_user.list(query=who) == []


async def test_a_chat_needs_no_scope(memory: AgentMemory, who: str) -> None:
    await memory.default_user.chat(who).add("Hello")

    (said,) = await memory.default_user.chat(who).messages()
    assert said["content"] == "Hello"
    assert memory.default_user.chat(who).scope.user_id == DEFAULT_USER


@pytest.mark.parametrize("named", ["alice", "default", "~"])
async def test_the_default_user_and_a_named_one_see_nothing_of_each_other(
    any_memory: AgentMemory, who: str, named: str
) -> None:
    alice = any_memory.scope(f"{named}-{who}" if named == "alice" else named)
    own = await any_memory.default_user.remember(f"secret {who} of the owner")
    hers = await alice.remember(f"secret {who} of the other")

    for handle, mine, foreign in ((alice, hers, own), (any_memory.default_user, own, hers)):
        assert foreign.id not in [hit.item.id for hit in await handle.recall(f"secret {who}")]
        assert [each.id for each in await handle.list(query=f"secret {who}")] == [mine.id]
        assert await handle.get(foreign.id) is None
        with pytest.raises(ItemNotFoundError):
            await handle.update(foreign, "changed")
        assert not await handle.forget(foreign)
    # Another's memory brings its user along, and is refused before it is written.
    with pytest.raises(AccessError, match="user_id"):
        await any_memory.default_user.remember(hers)
    await alice.forget(everything=True)
    assert await any_memory.default_user.get(own.id) is not None


async def test_erasing_one_leaves_the_other(local_memory: AgentMemory, who: str) -> None:
    alice = local_memory.scope(f"alice-{who}")
    own, hers = (
        await local_memory.default_user.remember(f"own {who}"),
        await alice.remember(f"hers {who}"),
    )

    assert await local_memory.erase(user_id=f"alice-{who}")
    assert await alice.get(hers.id) is None
    assert await local_memory.default_user.get(own.id) is not None


async def test_facts_chats_entries_and_files_are_kept_apart(
    memory: AgentMemory, who: str, tmp_path: Path
) -> None:
    alice, owner = memory.scope(f"alice-{who}"), memory.default_user
    await owner.facts.put(f"city-{who}", "Oslo")
    await memory.default_user.chat(f"chat-{who}").add(f"hello {who}")
    await owner.kv.put(("notes",), who, b"1")

    assert await alice.facts.get(f"city-{who}") is None
    assert await alice.chats() == []
    assert await alice.chat(f"chat-{who}").messages() == []
    assert await alice.kv.get(("notes",), who) is None
    await export_file(alice, tmp_path / "hers.jsonl")
    assert who not in (tmp_path / "hers.jsonl").read_text().replace(f"alice-{who}", "")


async def test_without_an_id_there_is_no_scope(memory: AgentMemory) -> None:
    with pytest.raises(QueryError, match="at least one"):
        memory.scope(None)
    with pytest.raises(QueryError, match="at least one"):
        await memory.erase()


def test_the_blocking_form_and_the_command_line_know_the_default_user(tmp_path: Path) -> None:
    with blocking.AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        memory.default_user.remember("Tea, not coffee")
        (hit,) = memory.default_user.recall("tea", k=1)
        assert hit.item.content == "Tea, not coffee"
        assert memory.default_user.stats().items == 1
        memory.default_user.chat("one").add("hello")
    shown = {}
    for user in ("alice", "default", DEFAULT_USER):
        command = [sys.executable, "-m", "orbiter.memory.cli", "list", "--json", "--user", user]
        env = {**os.environ, "ORBITER_MEMORY_URL": str(tmp_path / "a.db")}
        done = run(command, env=env, capture_output=True, text=True, check=True)
        shown[user] = "Tea" in done.stdout
    assert shown == {"alice": False, "default": False, DEFAULT_USER: True}


async def test_a_name_that_only_a_handle_has_says_so(memory: AgentMemory) -> None:
    with pytest.raises(AttributeError, match=r"memory\.scope\(user_id=…\)\.facts"):
        memory.facts  # type: ignore[attr-defined]  # noqa: B018 - the mistake
    assert not hasattr(memory, "nonsense")


async def test_a_method_of_other_libraries_is_named_as_here(memory: AgentMemory) -> None:
    alice = memory.scope("alice")
    for handle, name, meant in (
        (alice, "delete_all", "forget"),
        (alice, "clear", "forget"),
        (memory, "user", "scope"),
        (memory, "ready", "flush"),
        (alice, "similarity_search", "recall"),
        (alice, "add_texts", "remember_many"),
        (alice.chat("c"), "add_user_message", "add"),
        (alice.chat("c"), "add_message", "add"),
    ):
        with pytest.raises(AttributeError, match=f"did you mean `{meant}`"):
            getattr(handle, name)
    for name, meant in (("delete_all", "forget"), ("save", "remember"), ("session", "chat")):
        with pytest.raises(AttributeError, match=rf"`memory\.scope\(user_id=…\)\.{meant}`"):
            getattr(memory, name)


def test_the_blocking_form_says_so_too() -> None:
    with blocking.AgentMemory("memory://", embeddings=None) as memory:
        with pytest.raises(AttributeError, match=r"`memory.default_user.evict`"):
            getattr(memory, "evict")  # noqa: B009 - types know that it is not there
        with pytest.raises(AttributeError, match=r"'remember_mny'; .*default_user\.remember_many`"):
            getattr(memory, "remember_mny")  # noqa: B009


# Names of arguments


async def test_an_unknown_argument_names_the_nearest(alice: ScopedMemory) -> None:
    with pytest.raises(
        TypeError, match=r"`remember` got an unexpected keyword argument `tgas`; .*`tags`\?"
    ):
        await alice.remember("x", tgas=["a"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"memory\.scope\(user_id=…\)\.remember\(…\)"):
        await alice.remember("x", user_id="alice")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it takes `item_id`"):
        await alice.get(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError,
        match=r"`AgentMemory` got an unexpected keyword argument `embedings`.*`embeddings`",
    ):
        AgentMemory(embedings=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"`user_id`; .*`AgentMemory\(…\)\.scope\(user_id=…\)`"):
        AgentMemory(user_id="alice")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"`scope` got an unexpected keyword argument `user`.*`user_id`"
    ):
        AgentMemory("memory://").scope(user="alice")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "wrong", "way"),
    [
        (
            "recall",
            "limit top_k n_results n count max_results top size",
            "did you mean `k`?",
        ),
        ("recall", "threshold min_score score", "did you mean `min_relevance`?"),
        ("recall", "filter filters", "did you mean `where`?"),
        ("recall", "q text question", "did you mean `query`?"),
        ("recall", "kind type", "did you mean `memory_type`?"),
        ("recall", "after start", "did you mean `since`?"),
        ("recall", "tag tags", 'did you mean `where={"tags": …}`?'),
        ("recall", "user", "`memory.scope(user_id=…).recall(…)`"),
        ("recall", "include rerank", "it takes `query`, `k`, "),
        ("list", "k top_k n count size max", "did you mean `limit`?"),
        ("list", "offset page skip", "did you mean `cursor`?"),
        ("list", "session", "`memory.scope(session_id=…).list(…)`"),
        ("list", "sort order", "it takes `query`, "),
        ("remember", "text content message", "did you mean `what`?"),
        ("remember", "ttl expires_in expires_at", "did you mean `expires`?"),
        ("remember", "timestamp when date", "did you mean `created_at`?"),
        ("remember", "labels category", "did you mean `tags`?"),
        ("remember", "meta metadata", "did you mean `extra`?"),
        ("remember", "priority weight", "did you mean `importance`?"),
        ("chat.context", "max_tokens tokens n limit", "did you mean `budget`?"),
        ("chat.context", "query question", "did you mean `task`?"),
        ("chat.context", "k top_k", "did you mean `memory_limit`?"),
        ("chat.messages", "n last", "did you mean `rounds`?"),
        ("chat.add", "text content", "did you mean `what`?"),
        ("chat.add", "role name", 'it is part of the message: `add({"role": …, "content": …})`'),
    ],
)
async def test_a_keyword_of_another_library_is_answered_with_ours(
    alice: ScopedMemory, call: str, wrong: str, way: str
) -> None:
    handle = alice.chat("c") if call.startswith("chat.") else alice
    method = getattr(handle, call.removeprefix("chat."))
    for name in wrong.split():
        with pytest.raises(TypeError, match=f"argument `{name}`; .*{re.escape(way)}"):
            await method(**{name: 1})


def test_a_method_of_another_library_is_answered_with_ours(alice: ScopedMemory) -> None:
    for handle, wrong, meant in (
        (alice, "find", "recall"),
        (alice, "search", "recall"),
        (alice, "add", "remember"),
        (alice, "get_all", "list"),
        (alice, "delete", "forget"),
        (alice, "save", "remember"),
        (alice, "remove", "forget"),
        (alice, "items", "list"),
        (alice, "remeber", "remember"),
        (alice.facts, "set", "put"),
        (alice.facts, "list", "all"),
        (alice.facts, "delete", "end"),
        (alice.chat("c"), "append", "add"),
        (alice.chat("c"), "history", "messages"),
    ):
        with pytest.raises(AttributeError, match=f"'{wrong}'; did you mean `{meant}`"):
            getattr(handle, wrong)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'$"):
        _ = alice.nonsense  # type: ignore[attr-defined]
    with (
        blocking.AgentMemory("memory://", embeddings=None) as memory,
        pytest.raises(AttributeError, match="did you mean `put`"),
    ):
        memory.default_user.facts.set("home", "Lisbon")  # type: ignore[attr-defined]


def test_facts_that_are_read_as_a_dict_name_their_calls(alice: ScopedMemory) -> None:
    with blocking.AgentMemory("memory://", embeddings=None) as memory:
        for facts in (alice.facts, memory.default_user.facts):
            with pytest.raises(TypeError, match=r"`facts\.get\('city'\)` reads one"):
                _ = facts["city"]  # type: ignore[index]
            with pytest.raises(TypeError, match=r"`facts\.put\('city', …\)`"):
                facts["city"] = "Lisbon"  # type: ignore[index]
            with pytest.raises(TypeError, match=r"`facts\.all\(\)` has all"):
                _ = "city" in facts  # type: ignore[operator]
            with pytest.raises(TypeError, match=r"`facts\.all\(\)` has all"):
                list(facts)  # type: ignore[call-overload]


async def test_too_many_values_are_answered_with_what_to_name(alice: ScopedMemory) -> None:
    with pytest.raises(
        TypeError, match=r"takes 1 .*, not 2; .*`add\(\{\"role\": 'user', \"content\": …\}\)`"
    ):
        await alice.chat("c").add("user", "hello")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="`recall` takes .*; name the others: .*`where`"):
        await alice.recall("tea", 5, 5, 5)  # type: ignore[call-arg, arg-type]
    with (
        blocking.AgentMemory("memory://", embeddings=None) as memory,
        pytest.raises(TypeError, match="a message is one dict"),
    ):
        memory.default_user.chat("c").add("assistant", "hello")  # type: ignore[call-arg]


# Values


async def test_a_scope_is_named_by_text_number_or_uuid(any_memory: AgentMemory, who: str) -> None:
    identity = UUID(int=int(who, 16) + 2**100)
    item = await any_memory.scope(identity, session_id=42).remember("tea")

    assert (item.metadata.user_id, item.metadata.session_id) == (str(identity), "42")
    assert await any_memory.scope(user_id=str(identity), session_id="42").get(item.id) == item
    for wrong in (True, 1.5, b"alice", ["alice"], ""):
        with pytest.raises(QueryError, match="`user_id` must be a string"):
            any_memory.scope(wrong)  # type: ignore[arg-type]


async def test_a_number_erases_whom_it_names(local_memory: AgentMemory, who: str) -> None:
    user = int(who, 16)
    item = await local_memory.scope(user).remember("tea")

    assert (await local_memory.erase(user_id=user)).items == 1
    assert await local_memory.scope(user).get(item.id) is None


async def test_an_end_may_be_so_long_from_now(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("tea")
    for text, days in (("30d", 30), ("2W", 14), ("36h", 1.5)):
        kept = await any_alice.remember(f"tea for {text}", expires=text)
        item = await any_alice.update(item.id, expires=text)
        for end in (kept.expires_at, item.expires_at):
            assert end is not None
            assert (
                timedelta()
                <= timedelta(days=days) - (end - datetime.now(UTC))
                < timedelta(minutes=1)
            )

    for wrong in ("20", "2020-13", "202003", "99999999999w", "0d", "in 2040"):
        with pytest.raises(QueryError, match="expires"):
            await any_alice.remember("tea", expires=wrong)


async def test_a_year_and_a_month_are_times(any_alice: ScopedMemory) -> None:
    for text, month in (("2020", 1), ("2020-03", 3)):
        fact = await any_alice.facts.put("city", text, valid_from=text, valid_to="2022")
        assert fact.valid_from == datetime(2020, month, 1, tzinfo=UTC)
        assert fact.valid_to == datetime(2022, 1, 1, tzinfo=UTC)
    for wrong in ("20", "2020-13", "202003"):
        with pytest.raises(QueryError, match="valid_from"):
            await any_alice.facts.put("city", "Oslo", valid_from=wrong)


async def test_times_may_be_iso_texts(any_memory: AgentMemory, who: str) -> None:
    alice = any_memory.scope(f"alice-{who}")
    old = await alice.remember("tea", created_at="2020-05-01T12:00+02:00")
    new = await alice.remember("tea, too", expires="2999-01-01")

    assert old.created_at == datetime(2020, 5, 1, 10, tzinfo=UTC)
    assert new.expires_at == datetime(2999, 1, 1, tzinfo=UTC)
    (found,) = await alice.recall("tea", until="2021-01-01")
    assert found.item.id == old.id
    assert [each.id for each in await alice.list(since="2021-01-01")] == [new.id]
    with pytest.raises(QueryError, match="`since` must be a datetime, or a text such as"):
        await alice.list(since="some day")


async def test_bounds_are_named_as_in_a_question(any_memory: AgentMemory, who: str) -> None:
    alice = any_memory.scope(f"alice-{who}")
    old = await alice.remember("tea of old", created_at="2020-05-01T12:00")
    new = await alice.remember("tea of now")

    assert [hit.id for hit in await alice.recall("tea", since="last week")] == [new.id]
    assert [hit.id for hit in await alice.recall("tea", until="May 2020")] == [old.id]
    assert [each.id for each in await alice.list(until="2020-05-01")] == [old.id]
    assert len(await alice.count_by("memory_type", since="2020", until="two years ago")) == 1
    assert [each.id for each in await alice.list(since="yesterday", until="today")] == [new.id]
    assert [each.id for each in (await alice.forget(until="1 May 2020")).items] == [old.id]


class MissingTime(datetime):
    """What pandas has for a date that is missing: it passes for a time, and is none."""

    def __ne__(self, other: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = datetime.__hash__

    def replace(self, *_: object, **__: object) -> "MissingTime":
        return self

    def astimezone(self, *_: object) -> "MissingTime":
        raise ValueError("NaTType does not support astimezone")

    def isoformat(self, *_: object, **__: object) -> str:
        return "NaT"

    __str__ = __repr__ = isoformat


async def test_a_missing_date_of_a_table_is_refused_and_nothing_is_stored(
    any_memory: AgentMemory, who: str
) -> None:
    ann, missing = any_memory.scope(who), MissingTime(2026, 1, 1)

    with pytest.raises(ValueError, match="NaT is no time; leave it out"):
        await ann.remember("tea", created_at=missing)
    with pytest.raises(ValueError, match="NaT is no time; leave it out"):
        await ann.remember_many(["tea", "milk"], created_at=missing)
    with pytest.raises(ValueError, match="NaT is no time; leave it out"):
        await ann.remember("tea", expires=missing)
    with pytest.raises(ValueError, match="NaT is no time; leave it out"):
        await ann.facts.put("drink", "tea", valid_from=missing)
    with pytest.raises(ValueError, match="NaT is no time; leave it out"):
        await ann.list(since=missing)

    assert await ann.list() == []


async def test_facts_and_the_past_take_iso_texts(memory: AgentMemory, who: str) -> None:
    alice = memory.scope(f"alice-{who}")
    await alice.facts.put("city", "Oslo", valid_from="2020-01-01", valid_to="2021-01-01")

    held = await alice.facts.get("city", as_of="2020-06-01")
    assert held is not None
    assert held.value == "Oslo"
    assert await alice.as_of("2020-01-01").list() == []


async def test_a_hit_stands_for_its_memory(any_memory: AgentMemory, who: str) -> None:
    alice = any_memory.scope(f"alice-{who}")
    await alice.remember("green tea")
    (hit,) = await alice.recall("tea", mode="words")
    assert (hit.id, hit.content) == (hit.item.id, "green tea")
    assert (hit.metadata, hit.created_at) == (hit.item.metadata, hit.item.created_at)

    changed = await alice.update(hit, "black tea")
    assert changed.content == "black tea"
    assert await alice.get(hit) == changed
    assert len(await alice.forget(hit)) == 1
    assert await alice.list() == []


async def test_a_path_may_begin_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_memory: Open
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "soul.md").write_text("Be kind.")
    for url, file in (("~/a.db", "a.db"), ("sqlite:///~/b.db", "b.db")):
        memory = open_memory(url, persona="~/soul.md")
        await memory.default_user.remember("tea")
        assert (tmp_path / file).is_file()
    assert "Be kind." in (await memory.default_user.chat("one").context("Go")).text
    await memory.backup("~/copy.db")
    await export_file(memory.default_user, "~/out.jsonl")
    assert (tmp_path / "out.jsonl").is_file()
    assert (await memory.restore("~/copy.db")).items == 1
    assert (await import_file(memory.default_user, "~/out.jsonl")).stored == 0


# Filters that nothing can match


async def test_a_filter_on_a_field_that_no_memory_has_says_so(
    any_memory: AgentMemory, who: str
) -> None:
    alice = any_memory.scope(f"alice-{who}")
    await alice.remember("tea", tags=["drinks"])
    hints._checked_fields.clear()  # each is told once

    with pytest.warns(UserWarning, match=r"the field `tgas`, .*did you mean `tags`\?"):
        assert await alice.recall("tea", where={"tgas": "drinks"}) == []
    with pytest.warns(UserWarning, match="the field `zzz`, .*the newest have `tags`"):
        assert await alice.list(where={"$or": [{"zzz": 1}, {"tags": "none"}]}) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await alice.recall("tea", where={"tgas": "drinks"}) == []  # told already
        assert await alice.recall("tea", where={"tags": "none"}) == []
        assert await alice.list(where={"other": {"$exists": True}}) == []
        assert await any_memory.scope(f"new-{who}").list(where={"yyy": 1}) == []


def test_what_wants_one_text_names_what_takes_several() -> None:
    for model in (LocalEmbeddings(), OpenAIEmbeddings(model="m", api_key="k", dimension=2)):
        with pytest.raises(QueryError, match="`embed_many` for several"):
            model.embed(["a", "b"])  # type: ignore[arg-type]
    assert len(LocalEmbeddings().embed_many(["a", "b"])) == 2


def test_a_plain_with_names_the_blocking_form() -> None:
    memory = AgentMemory("memory://", embeddings=None)

    with pytest.raises(TypeError, match=r"take it from `orbiter\.memory\.sync`"), memory:
        pass


# What a hit stands for


async def test_to_forget_a_hit_is_to_forget_what_says_the_same(
    any_memory: AgentMemory, who: str
) -> None:
    alice = any_memory.scope(f"alice-{who}")
    for text in ("I like green tea", "I like green tea!", "I like green tea"):
        await alice.remember(text)
    other = await alice.remember("The car is in row C")
    foreign = await any_memory.scope(f"bob-{who}").remember("I like green tea")
    (hit, *_) = await alice.recall("green tea", mode="words")
    assert len(hit.repeats) == 2

    would = await alice.forget(hit, dry_run=True)
    gone = await alice.forget([hit])

    assert would.ids == gone.ids == (hit.id, *(item.id for item in hit.repeats))
    assert "green tea" not in str(await alice.recall("green tea", mode="words"))
    assert [item.id for item in await alice.list()] == [other.id]
    assert await any_memory.scope(f"bob-{who}").get(foreign.id) is not None


async def test_its_id_or_its_item_is_one_memory(memory: AgentMemory, who: str) -> None:
    alice = memory.scope(f"alice-{who}")
    await alice.remember_many(["I like green tea", "I like green tea!"])
    (hit, *_) = await alice.recall("green tea", mode="words")

    assert (await alice.forget(hit.id)).ids == (hit.id,)
    assert (await alice.forget(hit.repeats[0])).ids == (hit.repeats[0].id,)


async def test_a_hit_of_everyones_memories_stands_for_one_user_only(
    memory: AgentMemory, who: str
) -> None:
    hers = await memory.scope(f"alice-{who}").remember(f"the {who} tea is green")
    his = await memory.scope(f"bob-{who}").remember(f"the {who} tea is green")
    (hit,) = await memory.scope(f"alice-{who}").recall(f"{who} tea", mode="words")

    gone = await memory.unscoped().forget(replace(hit, repeats=(his,)))

    assert gone.ids == (hers.id,)


# Calls that say what to write


async def test_erase_takes_the_user_first(local_memory: AgentMemory, who: str) -> None:
    await local_memory.scope(f"alice-{who}").remember("tea")

    assert (await local_memory.erase(f"alice-{who}", dry_run=True)).items == 1
    assert (await local_memory.erase(f"alice-{who}")).items == 1


def test_a_chat_without_a_name_says_what_to_write() -> None:
    expected = r"`chat` needs a name, such as `chat\(\"main\"\)`; `chats\(\)` lists those there are"
    handle = AgentMemory("memory://", embeddings=None).scope("alice")
    with pytest.raises(TypeError, match=expected):
        handle.chat()  # type: ignore[call-arg]  # the mistake
    with blocking.AgentMemory("memory://", embeddings=None) as memory:
        with pytest.raises(TypeError, match=expected):
            memory.scope("alice").chat()  # type: ignore[call-arg]  # the mistake
        with pytest.raises(TypeError, match=expected):
            memory.default_user.chat()  # type: ignore[call-arg]  # the mistake


@pytest.mark.parametrize("name", ["persona", "soul", "system_prompt", "instructions"])
async def test_a_persona_is_given_to_the_memory(memory: AgentMemory, name: str) -> None:
    with pytest.raises(TypeError, match=rf"`{name}`; .*`AgentMemory\(…, persona=…\)`"):
        await memory.default_user.chat("one").context("Go", **{name: "Be kind."})  # type: ignore[arg-type]


async def test_a_text_to_forget_that_is_no_id_says_how(any_memory: AgentMemory, who: str) -> None:
    alice = any_memory.scope(f"alice-{who}")
    item = await alice.remember("I like tea")

    with pytest.raises(
        QueryError, match=r'no memory has the id `I like tea`; .*query="I like tea"'
    ):
        await alice.forget("I like tea")
    assert not await alice.forget("0" * 32)
    assert (await alice.forget(query="I like tea")).ids == (item.id,)


async def test_names_of_other_libraries_are_answered_with_ours(memory: AgentMemory) -> None:
    ann = memory.scope("ann-hints")
    await ann.remember("Backups run at 3 am")
    found = await ann.recall("backups")

    with pytest.raises(TypeError, match="`infer`; what is given is stored as it is"):
        await ann.remember("x", infer=False)  # type: ignore[call-arg]
    with pytest.raises(QueryError, match="a `list` cannot be stored; .*several at once: `remember"):
        await ann.remember(["tea", "milk"])  # type: ignore[arg-type]
    for result in (found, await ann.list()):
        with pytest.raises(TypeError, match=r"is a list, and has no 'results': iterate over it"):
            result["results"]  # type: ignore[call-overload]
    (item,) = await ann.list()
    for value, key, way in (
        (found[0], "memory", "write `.content`"),
        (found[0], "score", "write `.score`"),
        (item, "memory", "write `.content`"),
        (item, "user_id", "write `.metadata.user_id`"),
        (item, 0, "such as `.content`"),
    ):
        with pytest.raises(TypeError, match=f"is not a dict.*{re.escape(way)}; `to_dicts"):
            value[key]  # type: ignore[index]
    with pytest.raises(AttributeError, match="'text'; did you mean `content`?"):
        getattr(found[0], "text")  # noqa: B009 - types know that it is not there
    for name in ("delete", "clear"):
        with pytest.raises(AttributeError, match=r"`forget\(where=\{\"session_id\": chat.id\}\)`"):
            getattr(ann.chat("main"), name)
    with pytest.raises(AttributeError, match=r"`chat\(name\).context\(task\)` builds one"):
        getattr(ann, "context")  # noqa: B009
    with pytest.raises(AttributeError, match=r"`stats\(\).items` counts memories"):
        getattr(ann, "count")  # noqa: B009
    for name in ("export", "load"):
        with pytest.raises(AttributeError, match=r"`orbiter\.memory\.transfer\.\w+_file\(alice"):
            getattr(ann, name)


async def test_what_the_hint_for_a_chat_says_works(memory: AgentMemory) -> None:
    ann = memory.scope("ann-forgets")
    chat, other = ann.chat("main"), ann.chat("other")
    await chat.add("hello")
    await other.add("stays")

    await ann.forget(where={"session_id": chat.id})

    assert await chat.items() == []
    assert len(await other.items()) == 1


async def test_errors_name_no_internal_class(memory: AgentMemory) -> None:
    ann: Any = memory.scope("ann")  # else types know it before

    for call in (ann.history, ann.quarantine, ann.evaluate, lambda: ann.evict(1)):
        with pytest.raises(TypeError, match="needs|missing|positional") as refused:
            await call()
        assert "Mixin" not in str(refused.value)
