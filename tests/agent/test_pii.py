"""`AgentMemory(pii=…)`: nothing that the hook replaces reaches a store, whichever way it comes."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.agent._served import SERVED
from tests.agent.conftest import Open

from orbiter.memory import AgentMemory, SQLiteMemoryStore
from orbiter.memory import sync as blocking
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem, new_id
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing import ScriptedSummarizer
from orbiter.memory.text.pii import PIIHasher
from orbiter.memory.transfer import export_file, import_file

HASHER = PIIHasher(b"only for these tests, not a key", tenant="acme")
KINDS = {
    "email": "ann@example.com",
    "phone": "+49 30 1234567",
    "card": "4111 1111 1111 1111",
    "iban": "DE89 3704 0044 0532 0130 00",
}


async def _everything(memory: AgentMemory) -> str:
    """Return all that a store holds of items, with every earlier version."""
    await memory.init()
    return "\n".join(record.to_line() for record in await memory.store.records())


@pytest.mark.parametrize("kind", KINDS)
async def test_no_kind_of_value_reaches_any_store(
    any_url: str, open_memory: Open, who: str, kind: str
) -> None:
    memory = open_memory(any_url, pii=HASHER)
    alice, value = memory.scope(f"alice-{who}"), KINDS[kind]
    token = HASHER(value)

    item = await alice.remember(
        f"mine is {value} {who}", tags=[value], extra={"where": {"a": [value]}}
    )
    assert item.content == f"mine is {token} {who}"
    stored = await alice.get(item.id)
    assert stored is not None
    assert value not in stored.model_dump_json()
    assert (stored.metadata.extra["tags"], stored.metadata.extra["where"]) == (
        [token],
        {"a": [token]},
    )
    # Whoever asks for the value finds it, as both become the same token.
    assert [hit.item.id for hit in await alice.recall(value, mode="words")] == [item.id]
    assert [each.id for each in await alice.list(query=value)] == [item.id]
    assert [each.id for each in await alice.list(where={"tags": value})] == [item.id]
    assert len(await alice.forget(query=value)) == 1


async def _remember_item(alice: ScopedMemory, value: str) -> None:
    await alice.remember(MemoryItem(content=value))


async def _remember_many(alice: ScopedMemory, value: str) -> None:
    message = {"role": "user", "content": value}
    await alice.remember_many([value, message], idempotency_key=new_id())


async def _update(alice: ScopedMemory, value: str) -> None:
    item = await alice.remember("nothing")
    await alice.update(item.id, value, extra={"note": value})


async def _chat(alice: ScopedMemory, value: str) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps(value)},
    }
    await alice.chat("one").add(
        [
            {"role": "user", "content": [{"type": "text", "text": value}]},
            {"role": "assistant", "content": value, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": value},
        ]
    )


async def _facts(alice: ScopedMemory, value: str) -> None:
    await alice.facts.put("contact", {"at": [value]})
    await alice.facts.put("other", value, source=f"user:{value}")


async def _add(alice: ScopedMemory, value: str) -> None:
    await alice.remember({"role": "user", "content": value}, extra={"from": value})


WAYS = (_remember_item, _remember_many, _update, _chat, _facts, _add)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("place", ["sqlite", "http"])
async def test_no_call_writes_a_value(
    tmp_path: Path, open_memory: Open, way: Any, place: str
) -> None:
    file = tmp_path / "agent.db"
    memory = open_memory(f"{SERVED}{file}" if place == "http" else file, pii=HASHER)
    for value in KINDS.values():
        await way(memory.scope("alice"), value)
    await memory.flush()
    await memory.close()

    async with AgentMemory(file, embeddings=None) as plain:
        text = await _everything(plain)
    assert "[email:" in text
    raw = b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())
    for value in KINDS.values():
        assert value not in text
        assert value.encode() not in raw


async def test_imports_and_summaries_pass_the_hook(tmp_path: Path, open_memory: Open) -> None:
    plain = open_memory(tmp_path / "plain.db").scope("alice")
    item = await plain.remember(KINDS["email"])
    await plain.update(item.id, f"now {KINDS['phone']}")
    await export_file(plain, tmp_path / "ours.jsonl")
    theirs = [
        {
            "id": "1",
            "memory": KINDS["card"],
            "user_id": "alice",
            "metadata": {"iban": KINDS["iban"]},
        }
    ]
    (tmp_path / "mem0.json").write_text(json.dumps({"results": theirs}))
    memory = open_memory(tmp_path / "a.db", pii=HASHER)
    alice = memory.scope("alice")

    for name in ("ours.jsonl", "mem0.json"):
        assert (await import_file(alice, tmp_path / name)).stored == 1
        assert (await import_file(alice, tmp_path / name)).stored == 0
    text = await _everything(memory)
    assert {f"[{kind}:" in text for kind in KINDS} == {True}
    assert [value for value in KINDS.values() if value in text] == []

    talk = open_memory(
        tmp_path / "b.db",
        pii=HASHER,
        summaries="auto",
        summarizer=ScriptedSummarizer(KINDS["email"]),
    )
    chat = talk.scope("alice").chat("one")
    await chat.add(["one", "two", "three"])
    await chat.summarize()
    assert KINDS["email"] not in await _everything(talk)


async def test_a_context_and_recent_activity_pass_the_hook(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory(tmp_path / "a.db", pii=HASHER, episodic=f"sqlite:///{tmp_path}/recent.db")
    alice = memory.scope("alice", agent_id="bot")
    item = await alice.remember(f"Ann is at {KINDS['email']}")

    context = await alice.chat("one").context(f"Who is {KINDS['email']}?")
    assert KINDS["email"] not in context.text
    assert HASHER(KINDS["email"]) in context.text
    assert item.content in context.text
    await alice.activity.add_interaction("called", KINDS["phone"])
    (recent,) = await alice.activity.get_recent()
    assert recent.content == HASHER(KINDS["phone"])


async def test_stores_of_others_and_the_blocking_form_pass_the_hook(tmp_path: Path) -> None:
    for store in (SQLiteMemoryStore(tmp_path / "a.db"), ShortTermMemory()):
        async with AgentMemory(store=store, embeddings="auto", pii=HASHER) as memory:
            item = await memory.scope("alice").remember(KINDS["email"])
            stored = await store.get(item.id)
            assert stored is not None
            assert stored.content == HASHER(KINDS["email"])


def test_the_blocking_form_passes_the_hook() -> None:
    with blocking.AgentMemory("memory://", embeddings=None, pii=HASHER) as memory:
        assert memory.default_user.remember(KINDS["email"]).content == HASHER(KINDS["email"])


async def test_labels_with_names_of_the_librarys_own_pass_the_hook(open_memory: Open) -> None:
    memory = open_memory("memory://", pii=HASHER)
    rows = [{"note": "tea", "fact": KINDS["email"], "imported": "4111111111111111"}]

    (item,) = await memory.scope("alice").remember_many(rows, text="note")

    assert item.metadata.extra == {
        "fact": HASHER(KINDS["email"]),
        "imported": HASHER(KINDS["card"]),
    }


async def test_names_stay_as_they_are(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(tmp_path / "a.db", pii=HASHER)
    alice = memory.scope(KINDS["email"])
    await alice.facts.put(KINDS["phone"], "home")

    assert (await alice.remember("tea")).metadata.user_id == KINDS["email"]
    fact = await alice.facts.get(KINDS["phone"])
    assert fact is not None
    assert fact.created_at <= datetime.now(UTC)


async def test_a_word_of_the_terminal_is_taken(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "only for these tests, not a key"
    monkeypatch.setenv("ORBITER_PII_KEY", key)
    monkeypatch.setenv("ORBITER_PII_TENANT", "")  # as an empty line of a file of settings
    text = f"{KINDS['email']}, {KINDS['card']}"

    all_kinds = await open_memory(tmp_path / "a.db", pii="tokens").scope("ann").remember(text)
    one_kind = await open_memory(tmp_path / "b.db", pii="card").scope("ann").remember(text)
    none = await open_memory(tmp_path / "c.db", pii="none").scope("ann").remember(text)

    assert all_kinds.content == PIIHasher(key, tenant="default")(text)
    assert one_kind.content == PIIHasher(key, tenant="default", kinds=["card"])(text)
    assert none.content == text


def test_a_word_without_a_meaning_or_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBITER_PII_KEY", raising=False)

    with pytest.raises(QueryError, match="`pii` must be `none`, `tokens`, or some of .*not `yes`"):
        AgentMemory("memory://", pii="yes")
    with pytest.raises(QueryError, match="set `ORBITER_PII_KEY` to .*; or use `pii=None`"):
        AgentMemory("memory://", pii="tokens")
    monkeypatch.setenv("ORBITER_PII_KEY", "short")
    with pytest.raises(QueryError, match="`ORBITER_PII_KEY` needs at least 16 bytes"):
        AgentMemory("memory://", pii="tokens")


def test_what_is_no_hook_is_refused() -> None:
    with pytest.raises(QueryError, match="`pii` must be a function"):
        AgentMemory("memory://", pii=1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`pii` is decided where the store is"):
        AgentMemory("http://127.0.0.1:1", pii=HASHER)
