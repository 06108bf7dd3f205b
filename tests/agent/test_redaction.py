"""What is private is never stored, and secrets are redacted, whichever way a text comes in."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.agent._served import SERVED
from tests.agent.conftest import Open

from orbiter.memory import AgentMemory, HumanMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.messages import Format, to_messages
from orbiter.memory.model.facts import show_value
from orbiter.memory.model.items import MemoryItem, new_id
from orbiter.memory.transfer import import_file

PIN = "the safe opens with 7261"
PRIVATE = f"hello <private>{PIN}</private> there"
TOKEN = "ghp_" + "a1B2c3" * 6
SECRETS = {"github token": TOKEN, "password": "password=hunter2"}


async def _everything(memory: AgentMemory) -> str:
    await memory.init()
    return "\n".join(record.to_line() for record in await memory.store.records())


async def _remember(alice: ScopedMemory, text: str) -> None:
    await alice.remember(text, tags=[text], extra={"note": {"deep": [text]}})
    await alice.remember(MemoryItem(content=text))
    await alice.remember_many([text, {"role": "user", "content": text}], idempotency_key=new_id())


async def _update(alice: ScopedMemory, text: str) -> None:
    item = await alice.remember("nothing")
    await alice.update(item.id, text)


async def _facts(alice: ScopedMemory, text: str) -> None:
    await alice.facts.put("contact", {"at": [text]})


async def _chat(alice: ScopedMemory, text: str) -> None:
    function = {"name": "f", "arguments": json.dumps({"x": text, "y": 1})}
    call = {"id": "c1", "type": "function", "function": function}
    await alice.chat("one").add(text)
    await alice.chat("one").add(
        [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": text},
        ]
    )
    await alice.chat("two").add(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c2", "name": "f", "input": {"x": text}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": text}]},
        ],
        format="anthropic",
    )  # fmt: skip


async def _wrap(alice: ScopedMemory, text: str) -> None:
    client = alice.wrap(_client(text), chat="wrapped")
    said: list[Any] = [{"role": "user", "content": text}]
    for _ in range(2):
        await client.chat.completions.create(model="m", messages=said)
        said += [{"role": "assistant", "content": text}, {"role": "user", "content": f"on: {text}"}]


def _client(answer: str, sent: list[Any] | None = None) -> openai.AsyncOpenAI:
    def respond(request: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(json.loads(request.content))
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        kept = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx.Response(200, json={**kept, "choices": [choice]})

    transport = httpx.MockTransport(respond)
    return openai.AsyncOpenAI(api_key="k", http_client=httpx.AsyncClient(transport=transport))


async def _import(alice: ScopedMemory, text: str) -> None:
    message = {"role": "user", "content": text}
    line = {"type": "user", "sessionId": "s", "uuid": new_id(), "message": message}
    line |= {"cwd": "/app", "timestamp": "2026-11-01T10:00:00Z"}
    folder = Path(str(alice.scope.user_id))
    folder.mkdir(exist_ok=True)
    (folder / "s.jsonl").write_text(json.dumps(line) + "\n")
    await import_file(alice, folder / "s.jsonl", format="claude-code")
    theirs = [{"id": "1", "memory": text, "user_id": "alice", "metadata": {"note": text}}]
    (folder / "mem0.json").write_text(json.dumps({"results": theirs}))
    done = await import_file(alice, folder / "mem0.json")
    assert done.stored + done.updated == 1
    assert (await import_file(alice, folder / "mem0.json")).unchanged == 1


WAYS = (_remember, _update, _facts, _chat, _wrap, _import)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("place", ["sqlite", "http"])
async def test_nothing_private_is_stored_whichever_way_it_comes(
    tmp_path: Path, open_memory: Open, monkeypatch: pytest.MonkeyPatch, way: Any, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "agent.db"
    memory = open_memory(f"{SERVED}{file}" if place == "http" else file)
    for text in (PRIVATE, f"hello <PRIVATE >a<private>b</private> {PIN}"):
        await way(memory.scope("alice"), text)
    await memory.flush()
    await memory.close()

    async with AgentMemory(file, embeddings=None) as plain:
        text = await _everything(plain)
    assert "hello" in text
    assert PIN not in text
    raw = b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())
    assert PIN.encode() not in raw


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_secrets_are_redacted_by_one_word_and_without_it_in_what_is_imported(
    tmp_path: Path, open_memory: Open, monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"use {TOKEN}, and password=hunter2 please"
    kept = {}
    for redact in ("secrets", None, "none"):
        memory = open_memory(tmp_path / f"{redact}.db", redact=redact)
        await way(memory.scope("alice"), text)
        kept[redact] = await _everything(memory)

    assert TOKEN not in kept["secrets"]
    assert "hunter2" not in kept["secrets"]
    assert (
        "use [redacted: github token], and password=[redacted: password] please"
        in (kept["secrets"])
    )
    assert (TOKEN in kept[None]) == (way is not _import)
    assert TOKEN in kept["none"]


async def test_a_message_of_only_what_is_private_is_not_stored(open_memory: Open) -> None:
    alice = open_memory("memory://").scope("alice")
    chat = alice.chat("one")

    assert await chat.add(f"<private>{PIN}</private>") == []
    assert await chat.add([{"role": "user", "content": f" <private>{PIN}"}], format="openai") == []
    assert await chat.add([HumanMemory(content=f"<private>{PIN}")]) == []
    with pytest.raises(QueryError, match="all of it is marked as private"):
        await alice.remember(f"<private>{PIN}</private> ")
    assert await chat.items() == []


@pytest.mark.parametrize("place", ["sqlite", "http"])
async def test_many_of_which_one_is_private_are_refused_with_its_place(
    tmp_path: Path, open_memory: Open, place: str
) -> None:
    file = tmp_path / "agent.db"
    alice = open_memory(f"{SERVED}{file}" if place == "http" else file).scope("alice")
    secret = f"<private>{PIN}</private>"
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": secret, "tool_calls": [call]}
    for one in (secret, {"role": "user", "content": secret}, HumanMemory(content=secret)):
        for key in (None, new_id()):
            with pytest.raises(
                QueryError,
                match="^message 1: there is nothing to store: all of it is marked as private$",
            ):
                await alice.remember_many(["tea", one, "milk"], idempotency_key=key)
    with pytest.raises(QueryError, match="^message 2: .* marked as private$"):
        await alice.remember_many([asked, {"role": "tool", "tool_call_id": "c1", "content": "x"},
            {"role": "user", "content": secret}])  # fmt: skip
    with pytest.raises(QueryError, match="^message 0: .* marked as private$"):
        await alice.remember_many([{"t": secret, "n": 1}], text="t")

    assert await alice.list() == []
    # Of these, something is left.
    assert len(await alice.remember_many([asked, f"tea {secret}"])) == 2


async def test_an_update_to_what_is_private_is_refused(open_memory: Open) -> None:
    alice = open_memory("memory://").scope("alice")
    item = await alice.remember("tea")

    with pytest.raises(QueryError, match="all of it is marked as private"):
        await alice.update(item.id, f"<private>{PIN}</private>")
    assert [each.content for each in await alice.list()] == ["tea"]
    assert (await alice.update(item.id, f"mint <private>{PIN}</private>")).content == "mint "


async def test_what_is_private_may_reach_over_parts_of_a_message(open_memory: Open) -> None:
    chat = open_memory("memory://").scope("alice").chat("one")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    texts = ["<private>a", "b</private>", f"hello <private>{PIN}", "c</private>you", "<private>d"]
    parts = [{"type": "text", "text": text} for text in texts]

    await chat.add([{"role": "user", "content": [*parts[:3], picture, *parts[3:]]}])

    (item,) = await chat.items()
    assert item.content.split() == ["hello", "you"]
    formats: tuple[Format, ...] = ("openai", "anthropic")
    for format in formats:
        sent = json.dumps(await chat.messages(format=format))
        assert ("hello " in sent, "you" in sent, "iVBORw0KGgo" in sent) == (True, True, True)
        assert ('"text": ""' in sent, PIN in sent, "private" in sent) == (False, False, False)


@pytest.mark.parametrize("format", ["openai", "anthropic"])
async def test_a_conversation_is_legal_without_what_was_private(
    open_memory: Open, format: Any
) -> None:
    chat = open_memory("memory://").scope("alice").chat("one")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    await chat.add(
        [
            {"role": "user", "content": "<private>a"},
            {"role": "assistant", "content": "<private>b</private>", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "<private>c</private>"},
            {"role": "user", "content": [{"type": "text", "text": "<private>d"}, {
                "type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]},
            {"role": "assistant", "content": "<private>e"},
        ]
    )  # fmt: skip

    items = await chat.items()
    assert [item.memory_type for item in items] == ["ai", "tool", "human"]
    sent = json.dumps(to_messages(items, format))
    assert "c1" in sent
    assert "iVBORw0KGgo" in sent
    assert "private>" not in sent
    assert '"text": ""' not in sent


async def test_a_model_is_sent_what_is_private_and_a_resent_history_is_stored_once(
    open_memory: Open,
) -> None:
    sent: list[Any] = []
    alice = open_memory("memory://", redact="secrets").scope("alice")
    client = alice.wrap(_client(f"noted {TOKEN}", sent), chat="one")
    said: list[Any] = []
    for text in (f"<private>{PIN}</private>", f"my key is {TOKEN}", "and now?"):
        said.append({"role": "user", "content": text})
        await client.chat.completions.create(model="m", messages=said)
        said.append({"role": "assistant", "content": f"noted {TOKEN}"})

    assert TOKEN not in json.dumps(sent)
    assert PIN in json.dumps(sent[0])
    assert PIN not in json.dumps(sent[1:])
    answer = "noted [redacted: github token]"
    assert [item.content for item in await alice.chat("one").items()] == [
        answer, "my key is [redacted: github token]", answer, "and now?", answer,
    ]  # fmt: skip
    # Who asks with the secret, or says it again, finds what was stored of it.
    once = await alice.remember(f"my key is {TOKEN}", dedupe=True)
    assert (await alice.remember(f"My key is {TOKEN}.", dedupe=True)).id == once.id
    assert len(await alice.recall(f"my key is {TOKEN}", mode="words", k=1)) == 1


async def test_personal_data_and_secrets_are_replaced_together(open_memory: Open) -> None:
    memory = open_memory("memory://", redact="secrets", pii=lambda text: text.upper())

    item = await memory.scope("alice").remember(f"a@b.c has {TOKEN} <private>x</private>")

    assert item.content == "A@B.C HAS [REDACTED: GITHUB TOKEN] "


async def test_another_memory_over_the_same_store_turns_nothing_off(tmp_path: Path) -> None:
    own = AgentMemory(tmp_path / "a.db", embeddings=None, redact="secrets")
    async with own as memory, AgentMemory(store=memory.store) as other:
        item = await other.scope("alice").remember(TOKEN)
    assert item.content == "[redacted: github token]"


def test_another_word_is_refused() -> None:
    with pytest.raises(QueryError, match="`redact` must be `secrets` or `none`, not 'all'"):
        AgentMemory("memory://", redact="all")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`redact`"):
        AgentMemory("http://127.0.0.1:1", redact="secrets")


NAMED: tuple[tuple[str, Any], ...] = (
    ("wifi password", "hunter2"),
    ("wifi password", "hunter2 with a capital H"),
    ("Password for the wifi", "hunter2"),
    ("wifi_password (home)", "my hunter2"),
    ("mot_de_passe", "hunter2"),
    ("database", {"host": "h", "password": "hunter2"}),
    ("database", {"host": "h", "all": [{"env": {"DB_PASSWORD": "hunter2x"}}]}),
    ("passwords", {"password": ["hunter2", "hunter22"]}),
    ("contraseña", "hunter2"),
    ("api_key", "hunter2hunter2"),
    ("password", "<private>x</private>hunter2"),
)


@pytest.mark.parametrize("named", NAMED, ids=str)
async def test_a_fact_under_the_name_of_a_secret_is_redacted_in_value_and_content(
    tmp_path: Path, open_memory: Open, named: tuple[str, Any]
) -> None:
    key, value = named
    memory = open_memory(tmp_path / "a.db", redact="secrets")
    alice = memory.scope("alice")

    made = await alice.facts.put(key, value)
    again = await alice.facts.put(key, value)
    (held,) = (await alice.facts.all()).values()
    await alice.facts.put(key, "other", op="add")

    assert made.id == again.id == held.id
    assert "[redacted: " in json.dumps(held.value)
    assert held.content == f"{key.replace('_', ' ')}: {show_value(held.value)}"
    await memory.close()
    raw = b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())
    assert b"hunter2" not in raw


async def test_a_number_under_the_name_of_a_password_is_redacted(open_memory: Open) -> None:
    alice = open_memory("memory://", redact="secrets").scope("alice")

    assert (await alice.facts.put("wifi password", 12345678)).value == "[redacted: password]"
    for key, value in (("token_count", 4096), ("password_set", True), ("tests_pass", 12)):
        assert (await alice.facts.put(key, value)).value == value


@pytest.mark.parametrize(
    "named",
    [
        ("key", "C major"),
        ("token", "understanding"),
        ("password", "[redacted: password]"),
        ("password", "<your password here>"),
        ("password", ""),
        ("secret", "I am afraid of spiders"),
        ("password manager", "Bitwarden"),
        ("database", {"password_file": "/run/secrets/db", "secret_name": "production-database"}),
        ("schema", {"password": {"type": "string", "description": "the password"}}),
        (
            "usage",
            {"max_tokens": 4096, "next_page_token": "abcdefabcdef", "primary_key": "user_id"},
        ),
    ],
    ids=str,
)
async def test_what_only_sounds_like_the_name_of_a_secret_stays(
    open_memory: Open, named: tuple[str, Any]
) -> None:
    alice = open_memory("memory://", redact="secrets").scope("alice")

    assert (await alice.facts.put(*named)).value == named[1]


async def test_what_is_proposed_is_redacted_before_it_is_compared(open_memory: Open) -> None:
    alice = open_memory("memory://", redact="secrets").scope("alice")
    said = await alice.remember("the password is hunter2")

    draft = await alice.facts.propose("wifi password", "hunter2", source=said)
    assert draft is not None
    accepted = await alice.facts.accept(draft)

    assert "hunter2" not in draft.model_dump_json() + accepted.model_dump_json()
    assert await alice.facts.propose("wifi password", "hunter2", source=said) is None


@pytest.mark.parametrize("redact", ["secrets", None])
async def test_a_secret_under_its_name_is_redacted_in_labels_and_calls_of_tools(
    tmp_path: Path, open_memory: Open, redact: Any
) -> None:
    memory = open_memory("memory://", redact=redact)
    alice = memory.scope("alice")
    call: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "f"}
    call["input"] = {"env": {"DB_PASSWORD": "hunter2x"}, "password": "hunter2", "n": 4}
    answer = {"role": "assistant", "content": [call]}
    if redact is None:
        line = {"type": "assistant", "sessionId": "s", "uuid": new_id(), "message": answer}
        line |= {"cwd": "/app", "timestamp": "2026-11-01T10:00:00Z"}
        (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
        await import_file(alice, tmp_path / "s.jsonl", format="claude-code")
    else:
        await alice.remember("x", extra={"password": "hunter2", "note": {"api_key": "hunter2abc"}})
        await alice.chat("one").add([{"role": "user", "content": "go"}, answer], format="anthropic")
        # Who asks with the secret finds what was stored of it.
        assert len(await alice.list(where={"password": "hunter2"})) == 1

    kept = await _everything(memory)
    assert "DB_PASSWORD" in kept
    assert "[redacted: password]" in kept
    assert "hunter2" not in kept


async def test_a_memory_with_a_secret_in_a_label_is_found_again_when_it_is_said_again(
    open_memory: Open,
) -> None:
    alice = open_memory("memory://", redact="secrets").scope("alice")

    once = await alice.remember("x", extra={"password": "hunter2"}, dedupe=True)
    assert (await alice.remember("x", extra={"password": "hunter2"}, dedupe=True)).id == once.id


async def test_a_fact_of_only_what_is_private_is_refused(open_memory: Open) -> None:
    alice = open_memory("memory://").scope("alice")
    said = await alice.remember("x")
    for value in (f"<private>{PIN}", [f"<private>{PIN}"], {"a": f" <private>{PIN}</private>"}):
        for op in ("set", "add"):
            with pytest.raises(QueryError, match="all of it is marked as private"):
                await alice.facts.put("safe", value, op=op)
        with pytest.raises(QueryError, match="all of it is marked as private"):
            await alice.facts.propose("safe", value, source=said)
    assert await alice.facts.all() == {}
    assert (await alice.facts.put("empty", "")).value == ""


async def test_know_answers_with_what_was_stored(open_memory: Open) -> None:
    know = memory_tools(open_memory("memory://", redact="secrets").scope("alice"))["know"]

    assert "all of it is marked as private" in await know("safe", f"<private>{PIN}</private>")
    assert await know("safe", f"steel <private>{PIN}</private>") == "Known: safe is steel ."
    assert await know("wifi password", "hunter2") == "Known: wifi password is [redacted: password]."
    assert await know("wifi password", "hunter2") == "Known: wifi password is [redacted: password]."
