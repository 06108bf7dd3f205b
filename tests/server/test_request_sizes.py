"""Limits of one request: entries, values, bytes; and how a cut answer is continued."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.conftest import Client, Served

from orbiter.memory import AgentMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.server.http import json_body
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.wire import OPERATIONS, REQUIRED, REST_ONLY, TARGET_PARAMS, Operation, Param
from orbiter.memory.wire.calls import MAX_LIST, dump_param

BARE = {"with_mcp": False, "with_dashboard": False}
WAY = "use several calls, or import a file"


def _takes_list(schema: Any) -> bool:
    kinds = schema.get("type", ())
    return "array" in ([kinds] if isinstance(kinds, str) else kinds) or any(
        _takes_list(each) for each in schema.get("anyOf", ())
    )


def _lists() -> Iterator[Any]:
    """Yield every argument of the table that may be a list."""
    for operation in (*OPERATIONS, *REST_ONLY):
        for param in (*TARGET_PARAMS[operation.target], *operation.params):
            if _takes_list(param.codec.schema()):
                yield pytest.param(operation, param, id=f"{operation.id}-{param.name}")


LISTS = list(_lists())


def test_the_table_has_lists() -> None:
    assert {"scope.remember_many-things", "chat.add-what", "scope.remember-tags"} <= {
        each.id for each in LISTS
    }


@pytest.fixture
async def api(served: Served, client: Client) -> httpx.AsyncClient:
    """Return a client of a server that has nothing beside REST."""
    return client(f"{await served(**BARE)}/v1/")


@pytest.mark.parametrize(("operation", "param"), LISTS)
async def test_a_list_of_too_many_is_refused_before_any_is_looked_at(
    api: httpx.AsyncClient, memory: AgentMemory, operation: Operation, param: Param
) -> None:
    path = operation.path.replace("{", "").replace("}", "")
    body = {
        each.name: ["x"] if _takes_list(each.codec.schema()) else "x"
        for each in operation.params
        if each.default is REQUIRED and each.place == "body"
    }
    entries = [None] * (MAX_LIST + 1)  # none of which would do

    answer = await api.request(
        operation.verb, path, params={"user_id": "ann"}, json={**body, param.wire_name: entries}
    )

    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert detail.startswith(f"`{param.wire_name}` has 1,001 entries")
    assert "at most 1,000" in detail
    assert detail.endswith(WAY)
    assert (await memory.unscoped().stats()).items == 0


@pytest.mark.parametrize(("operation", "param"), LISTS)
def test_a_client_sends_no_list_of_too_many(operation: Operation, param: Param) -> None:
    with pytest.raises(QueryError, match=f"`{param.name}` has 1,001 entries.*{WAY}"):
        dump_param(param, ["x"] * (MAX_LIST + 1))


async def test_as_many_as_a_call_takes_are_stored_together(
    served: Served, memory: AgentMemory
) -> None:
    async with AgentMemory(await served(**BARE)) as remote:
        ann = remote.scope(user_id="ann")
        with pytest.raises(QueryError, match="1,001 entries"):
            await ann.remember_many([f"note {number}" for number in range(MAX_LIST + 1)])
        before = (await ann.stats()).items
        stored = await ann.remember_many([f"note {number}" for number in range(MAX_LIST)])
        said = await ann.chat("c").add([f"word {number}" for number in range(MAX_LIST)])

    assert before == 0
    assert (len(stored), len(said)) == (MAX_LIST, MAX_LIST)
    assert (await memory.unscoped().stats()).items == 2 * MAX_LIST


async def test_more_than_a_call_takes_are_forgotten_in_several(served: Served) -> None:
    async with AgentMemory(await served(**BARE)) as remote:
        ann = remote.scope(user_id="ann")
        kept = await ann.remember("kept")
        stored = await ann.remember_many([f"note {number}" for number in range(MAX_LIST)])
        stored.append(await ann.remember("one more"))

        would = await ann.forget(stored, dry_run=True)
        gone = await ann.forget(stored, permanently=True)
        left = await ann.list()

    assert (len(would), would.dry_run, would.erasure) == (len(stored), True, None)
    assert gone.erasure, gone.erasure
    assert set(gone.ids) == {item.id for item in stored}
    assert gone.erasure.items == len(stored)
    assert [item.id for item in left] == [kept.id]


# Values


@pytest.mark.parametrize(
    "filling",
    [b"[]", b"{}", b"0", b'""', b"[[[[]]]]", b'{"a":{"b":0}}'],
)
async def test_a_body_of_too_many_values_is_refused_before_it_is_read(
    api: httpx.AsyncClient, filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("orbiter.memory.server.api.requests.parse", never)
    body = b'{"things":[' + b",".join([filling] * (json_body.MAX_VALUES + 1)) + b"]}"

    answer = await api.post(
        "memories/batch?user_id=ann", content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 413
    assert "50,000 JSON values" in answer.json()["detail"]
    assert "several requests, or import a file" in answer.json()["detail"]


async def test_what_stands_in_a_text_is_no_value(api: httpx.AsyncClient) -> None:
    text = ',[{"\\' * 150_000  # each of which would be one, outside

    answer = await api.post("memories?user_id=ann", json={"what": text})

    assert answer.status_code == 201
    assert answer.json()["content"] == text


@pytest.mark.parametrize("size", range(3, 12))
async def test_values_are_counted_wherever_a_slice_ends(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {'a"b\\': ["\\\\", '",[', {"c": [1, [2]], "\\": "é\n"}], "d": '\\"\\\\"'}
    body = json.dumps(value).encode()
    count = sum(body.count(each) for each in (b",", b"[", b"{")) - len(",[")  # in a text
    monkeypatch.setattr(json_body, "_SLICE", size)

    monkeypatch.setattr(json_body, "MAX_VALUES", count)
    await json_body.check_values(body)

    monkeypatch.setattr(json_body, "MAX_VALUES", count - 1)
    with pytest.raises(HTTPProblem):
        await json_body.check_values(body)


async def test_a_text_longer_than_any_memory_has_is_refused(api: httpx.AsyncClient) -> None:
    body = b'{"what":"' + b"\\n" * (json_body.MAX_TEXT // 2 + 1) + b'"}'

    answer = await api.post(
        "memories?user_id=ann", content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 413
    assert "8,388,608 bytes" in answer.json()["detail"]


async def test_a_number_longer_than_any_is_refused_before_it_is_read(
    api: httpx.AsyncClient,
) -> None:
    for start in range(json_body._SLICE - 3, json_body._SLICE):  # wherever a slice ends
        body = b'{"what":"x","tags":[],' + b" " * start + b'"importance":' + b"9" * 100_000 + b"}"

        answer = await api.post(
            "memories?user_id=ann", content=body, headers={"Content-Type": "application/json"}
        )

        assert (answer.status_code, "numbers of" in answer.text) == (413, True)


# Pages


@pytest.fixture
async def long_memories(memory: AgentMemory) -> list[str]:
    """Store memories of different lengths, some longer than a page; return them, newest first."""
    ann = memory.scope(user_id="ann")
    texts = [f"{n} " + "x" * (30_000 if n % 7 == 0 else 3_000) for n in range(40)]
    for text in texts:
        await ann.remember(text)
    return texts[::-1]


async def test_a_page_ends_where_its_bytes_do_and_goes_on_with_its_cursor(
    served: Served, client: Client, long_memories: list[str]
) -> None:
    http = client(await served(max_page_bytes=20_000, **BARE))
    found, sizes = list[str](), list[int]()
    asked: dict[str, str] = {"user_id": "ann", "limit": "1000"}
    for _ in range(100):
        answer = await http.get("/v1/memories", params=asked)
        sizes.append(len(answer.content))
        found += [item["content"] for item in answer.json()["items"]]
        if answer.json()["next"] is None:
            break
        asked["cursor"] = answer.json()["next"]

    assert found == long_memories
    assert len(sizes) > 5
    assert all(size <= 32_000 for size in sizes)  # one that is longer than a page comes alone


@pytest.mark.parametrize("letter", ["\x01", "\\", "ä", "😀"])
@pytest.mark.parametrize("place", ["content", "calls"])
async def test_a_page_counts_bytes_as_they_are_written(
    served: Served, client: Client, memory: AgentMemory, letter: str, place: str
) -> None:
    text = letter * 1_000
    call = {"id": "1", "name": "look", "arguments": {"at": text}}
    await memory.scope(user_id="ann").remember_many(
        [
            AIMemory(content=text)
            if place == "content"
            else AIMemory(content="", tool_calls=[call])
            for _ in range(30)
        ]
    )
    http = client(await served(max_page_bytes=10_000, **BARE))

    answer = await http.get("/v1/memories", params={"user_id": "ann", "limit": 30})

    assert answer.json()["next"] is not None
    assert len(answer.content) <= 12_000


async def test_a_page_of_few_bytes_is_as_long_as_asked(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(**BARE))
    await memory.scope(user_id="ann").remember_many([f"note {number}" for number in range(300)])

    counts = {
        limit: await _count(http, limit) for limit in (0, 1, 7, 8, 9, 50, 299, 300, 301, 1_000)
    }

    assert {limit: len(page["items"]) for limit, page in counts.items()} == {
        limit: min(limit, 300) for limit in counts
    }
    assert [limit for limit, page in counts.items() if page["next"] is None and limit] == [
        300,
        301,
        1_000,
    ]


async def _count(http: httpx.AsyncClient, limit: int) -> Any:
    answer = await http.get("/v1/memories", params={"user_id": "ann", "limit": limit})
    return answer.json()


async def test_a_client_has_whole_pages_however_long_the_memories(
    served: Served, long_memories: list[str]
) -> None:
    async with AgentMemory(await served(max_page_bytes=20_000, **BARE)) as remote:
        ann = remote.scope(user_id="ann")
        page = await ann.list(limit=25)
        rest = await ann.list(limit=25, cursor=page.next)
        now = (await ann.history((await ann.list(limit=1))[0].id))[-1].at
        then = [item.content async for item in ann.as_of(now)]

    assert [item.content for item in (*page, *rest)] == long_memories
    assert (len(page), len(rest), rest.next) == (25, 15, None)
    assert then == long_memories


# Answers without pages


async def test_an_answer_that_is_too_long_is_refused_with_the_way_out(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(max_answer=50_000, **BARE))
    chat = memory.scope(user_id="ann").chat("c")
    await chat.add([f"{n} " + "tea " * 250 for n in range(60)])
    fact = memory.scope(user_id="ann").facts
    for n in range(60):
        await fact.put(f"key {n}", "x" * 1_000)

    long = {
        path: await http.get(f"/v1/{path}?user_id=ann")
        for path in ("chats/c/items", "chats/c/messages", "facts")
    }
    long["recall"] = await http.post(
        "/v1/recall?user_id=ann", json={"query": "tea", "k": 100, "min_relevance": 0}
    )
    short = await http.get("/v1/chats/c/items?user_id=ann&rounds=5")

    assert {answer.status_code for answer in long.values()} == {422}
    assert all("more than 50,000 bytes" in each.json()["detail"] for each in long.values())
    assert "`rounds` or `budget`" in long["chats/c/items"].json()["detail"]
    assert "`k`" in long["recall"].json()["detail"]
    assert short.status_code == 200
    assert len(short.json()["items"]) == 5


async def test_a_context_has_a_budget_even_if_none_is_named(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(max_context=500, **BARE))
    chat = memory.scope(user_id="ann").chat("c")
    await chat.add([f"{n} " + "tea " * 50 for n in range(60)])

    for path in ("context", "chats/c/context"):
        context = await http.post(f"/v1/{path}?user_id=ann", json={"task": "tea"})
        assert context.status_code == 200
        assert context.json()["budget"] == 500
        assert 0 < context.json()["tokens"] <= 500

        larger = await http.post(f"/v1/{path}?user_id=ann", json={"task": "tea", "budget": 501})
        assert larger.status_code == 422
        assert "`budget` must be at most 500 here, not 501" in larger.json()["detail"]


async def test_what_was_changed_is_told_however_long_it_is(served: Served, client: Client) -> None:
    http = client(await served(max_answer=1_000, **BARE))

    stored = await http.post(
        "/v1/memories/batch?user_id=ann", json={"things": ["x" * 500 for _ in range(20)]}
    )

    assert stored.status_code == 201
    assert len(stored.json()["items"]) == 20


async def test_a_memory_with_much_in_it_is_kept_whole(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(**BARE))
    more = [{"n": number, "texts": ["a", "b", [number]]} for number in range(5_000)]
    message = {"role": "user", "content": "x", "more": more}

    stored = await http.post("/v1/memories?user_id=ann", json={"what": message})
    (kept,) = await memory.scope(user_id="ann").list()
    shown = await http.get(f"/v1/memories/{kept.id}?user_id=ann")

    assert stored.status_code == 201
    assert isinstance(kept, HumanMemory)
    assert shown.json()["native"] == stored.json()["native"] == kept.native
    assert more in kept.native["openai"].values()


def test_an_answer_with_many_labels_is_not_small() -> None:
    labels = {f"label {number}": number for number in range(1_000)}

    assert json_body.is_small(MemoryItem(content="tea"))
    assert not json_body.is_small(MemoryItem(content="tea", metadata=MemoryMetadata(extra=labels)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON)
def test_an_answer_in_pieces_is_the_same_json(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_body, "SMALL", 2)
        pieces = json_body.write_json(value)

    assert b"".join(pieces) == json_body.compact_json(value).encode("utf-8")


def test_a_long_text_is_never_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    long = 'tea "harbour" ' * 10_000
    hit = {"item": {"content": long, "id": "1"}, "repeats": [{"content": long}]}
    written: list[int] = []
    write = json_body.compact_json

    def noted(value: object) -> str:
        found = write(value)
        written.append(len(found))
        return found

    monkeypatch.setattr(json_body, "compact_json", noted)

    pieces = json_body.write_json({"hits": [hit, hit], "text": long})

    assert json.loads(b"".join(pieces)) == {"hits": [hit, hit], "text": long}
    assert max(written) <= 2 * json_body.SMALL
