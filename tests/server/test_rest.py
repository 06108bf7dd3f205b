"""REST on a real socket: what each kind of request is answered, and what is refused, and how."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, new_user
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)
from tests.timing import HANG

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server.http.error_responses import problem_response
from orbiter.memory.wire import OPERATIONS, REST_ONLY, Operation

__all__ = ["postgres_server", "redis_server"]

PROBLEM = "application/problem+json"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def api(served: Served, client: Client) -> httpx.AsyncClient:
    """Return a client of a server without keys, as one user."""
    url = await served(rate=10_000, burst=10_000)
    return client(f"{url}/v1/", params={"user_id": "ann"})


def detail(answer: httpx.Response, status: int) -> str:
    """Return what a problem says, which has that status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:orbiter-memory:error:")
    return str(problem["detail"])


# Memories


async def test_an_end_may_be_a_span_and_a_wrong_one_is_told_what_works(
    api: httpx.AsyncClient,
) -> None:
    for span, days in (("30d", 30), ("12h", 0.5), ("2w", 14), ("1.5d", 1.5)):
        made = (await api.post("memories", json={"what": "likes tea", "expires": span})).json()
        ends, began = (datetime.fromisoformat(made[name]) for name in ("expires_at", "created_at"))
        assert (ends - began).total_seconds() == pytest.approx(days * 86_400, abs=HANG)
    for wrong in ("soon", "30 days", "d", "-3d", "31.1.2027"):
        refused = await api.post("memories", json={"what": "likes tea", "expires": wrong})
        assert refused.status_code == 422
        told = refused.json()["detail"]
        assert all(word in told for word in ("`expires`", "seconds from now", "`30d`", wrong))
    far = await api.post("memories", json={"what": "likes tea", "expires": "99999999999w"})
    assert (far.status_code, "out of range" in far.json()["detail"]) == (422, True)


async def test_a_memory_is_made_read_changed_forgotten_and_brought_back(
    api: httpx.AsyncClient, memory: AgentMemory
) -> None:
    made = await api.post("memories", json={"what": "likes tea", "tags": ["a"], "expires": 3600})

    assert made.status_code == 201
    assert made.headers["etag"] == '"1"'
    path = f"memories/{made.json()['id']}"
    assert made.headers["location"] == f"/v1/{path}?user_id=ann"
    stored = await memory.scope(user_id="ann").get(made.json()["id"])
    assert stored is not None
    assert stored.expires_at is not None
    assert stored.metadata.extra == {"tags": ["a"]}

    got = await api.get(path)
    assert (got.status_code, got.json(), got.headers["etag"]) == (200, made.json(), '"1"')
    head = await api.head(path)
    assert (head.status_code, head.headers["etag"], head.content) == (200, '"1"', b"")
    assert head.headers["content-length"] == str(len(got.content))
    assert (await api.get(path, headers={"If-None-Match": '"1"'})).status_code == 304

    changed = await api.patch(path, json={"content": "likes coffee", "expires": "never"})
    assert (changed.json()["version"], changed.headers["etag"]) == (2, '"2"')
    assert "expires_at" not in changed.json()
    assert (await api.get(path, headers={"If-None-Match": '"1"'})).status_code == 200
    history = (await api.get(f"{path}/history")).json()["versions"]
    assert [each["item"]["content"] for each in history] == ["likes tea", "likes coffee"]

    assert (await api.delete(path, params={"dry_run": "true"})).json()["dry_run"] is True
    assert len((await api.delete(path)).json()["items"]) == 1
    assert "there is no memory" in detail(await api.delete(path), 404)
    detail(await api.get(path), 404)
    detail(await api.patch(path, json={"content": "x"}), 404)
    assert (await api.post(f"{path}/restore")).status_code == 200
    assert (await api.post(f"{path}/restore", json={"version": 1})).json()["content"] == "likes tea"


async def test_a_change_expects_the_version_that_if_match_names(api: httpx.AsyncClient) -> None:
    made = (await api.post("memories", json={"what": "one"})).json()
    path = f"memories/{made['id']}"

    async def patch(tag: str, item: str = path) -> httpx.Response:
        return await api.patch(item, json={"content": "new"}, headers={"If-Match": tag})

    assert (await patch('"1"')).headers["etag"] == '"2"'
    conflict = await patch('"1"')
    assert "expected at version 1" in detail(conflict, 412)
    assert conflict.json()["attributes"] == {"item_id": made["id"], "expected": 1, "found": 2}
    assert (await patch("*")).headers["etag"] == '"3"'
    assert (await patch('"7", "3"')).headers["etag"] == '"4"'
    detail(await patch('"7", "3"'), 412)
    detail(await patch('"of-another-server"'), 412)
    detail(await patch("*", "memories/none"), 404)
    for bad in ('W/"4"', "4", "", '"4" "5"', '"4', '"4",', "*, *"):
        assert "If-Match" in detail(await patch(bad), 400), bad
    refused = await api.delete(path, headers={"If-Match": '"1"'})
    assert "If-Match" in detail(refused, 400), "what would be passed over must not be asked for"


async def test_pages_go_on_where_the_one_before_ended(api: httpx.AsyncClient) -> None:
    given = {"things": [f"note {n}" for n in range(5)], "extra": {"n": 1}}
    batch = await api.post("memories/batch", json=given)
    assert (batch.status_code, len(batch.json()["items"])) == (201, 5)

    found, cursor = [], None
    while True:
        asked = {"limit": "2", "where": '{"n": {"$gte": 1}}'} | (
            {"cursor": cursor} if cursor else {}
        )
        page = (await api.get("memories", params=asked)).json()
        found += [item["content"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert sorted(found) == given["things"]
    assert "at most 1,000" in detail(await api.get("memories", params={"limit": "1001"}), 422)
    assert "cursor" in detail(await api.get("memories", params={"cursor": "none"}), 422)
    gone = await api.post("forget", json={"where": {"n": 1}})
    assert len(gone.json()["items"]) == 5
    forgotten = await api.get("memories", params={"forgotten": "true"})
    assert len(forgotten.json()["items"]) == 5


async def test_who_asks_for_a_log_that_nobody_keeps_is_told_how_to_start_one(
    api: httpx.AsyncClient,
) -> None:
    told = detail(await api.get("audit"), 501)

    assert "has no audit log; `orbiter-memory audit begin` starts one" in told


async def test_recall_and_context_say_why(api: httpx.AsyncClient) -> None:
    for what in ("Ann is allergic to nuts", "the car is red"):
        await api.post("memories", json={"what": what, "source": "user:ann"})

    found = (await api.post("recall", json={"query": "nuts", "k": 1, "explain": True})).json()
    context = (await api.post("context", json={"task": "nuts?", "budget": 500})).json()

    assert found["hits"][0]["item"]["content"] == "Ann is allergic to nuts"
    assert found["hits"][0]["why"]
    assert "nuts" in found["hits"][0]["told"]
    assert found["left_out"]
    assert "allergic" in context["text"]
    assert context["tokens"] <= 500
    assert context["messages"]["messages"][-1]["role"] == "user"
    assert (await api.get("chats")).json() == {"chats": []}, "a chat that is nowhere"
    assert "give the task" in detail(await api.post("context", json={}), 422)


async def test_less_relevant_memories_are_left_out_on_request(api: httpx.AsyncClient) -> None:
    for what in ("The door code is 4711", "The garden door is green"):
        await api.post("memories", json={"what": what})
    asked = {"query": "What is the door code?", "mode": "words", "explain": True}

    every = (await api.post("recall", json=asked)).json()["hits"]
    least = every[0]["relevance"]
    best = (await api.post("recall", json={**asked, "min_relevance": least})).json()
    nothing = (await api.post("recall", json={**asked, "min_relevance": 1})).json()
    strict = {"task": "What is the door code?", "min_relevance": 1}

    assert [0 < hit["relevance"] < 1 for hit in every] == [True, True]
    assert [hit["item"]["content"] for hit in best["hits"]] == ["The door code is 4711"]
    assert best["left_out"][0]["reason"] == "relevance"
    assert 0 < best["left_out"][0]["relevance"] < least
    assert nothing["hits"] == []
    assert "4711" in (await api.post("context", json={"task": "the door code?"})).json()["text"]
    assert "4711" not in (await api.post("context", json=strict)).json()["text"]
    for wrong in (2, -1, "x", True):
        answer = await api.post("recall", json={**asked, "min_relevance": wrong})
        assert "min_relevance" in detail(answer, 422)


# Once per key


async def test_an_idempotency_key_does_it_once_and_nothing_else(api: httpx.AsyncClient) -> None:
    async def post(path: str, key: str, body: dict[str, Any]) -> httpx.Response:
        return await api.post(path, json=body, headers={"Idempotency-Key": key})

    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("memories", {"what": "tea", "tags": ["a"]}, {"what": "tea", "tags": ["b"]}),
        ("memories/batch", {"things": ["a", "b"]}, {"things": ["a"]}),
        ("chats/c/messages", {"what": ["a", "b"]}, {"what": ["a", "c"]}),
    ]
    for path, body, other in calls:
        first = await post(path, "k", body)
        again = await post(path, "k", body)
        assert first.status_code == again.status_code == 201
        assert first.json() == again.json()
        assert "Idempotency-Key" in detail(await post(path, "k", other), 422)
        assert "empty" in detail(await post(path, "", body), 422)
        clash = {**body, "idempotency_key": "other"}
        assert "differ" in detail(await post(path, "k", clash), 422)
        # In the body it is the argument of the call: what came first stays.
        kept = await api.post(path, json={**other, "idempotency_key": "k"})
        assert kept.json() == first.json()

    made = (await post("memories", "edited", {"what": "old"})).json()
    await api.patch(f"memories/{made['id']}", json={"content": "new"})
    assert (await post("memories", "edited", {"what": "old"})).json()["content"] == "new"
    detail(await post("memories", "edited", {"what": "new"}), 422)
    assert len((await api.get("memories")).json()["items"]) == 6


TIMES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"expires": 60}),
    ({"expires": 60}, {"expires": 3600}),
    ({"expires": 60}, {}),
    ({"expires": "2999-01-01T00:00:00Z"}, {"expires": "2998-01-01T00:00:00Z"}),
    ({"created_at": "2020-01-01T00:00:00Z"}, {"created_at": "2021-01-01T00:00:00Z"}),
    ({}, {"created_at": "2020-01-01T00:00:00Z"}),
)


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_used_key_drops_nothing_of_another_request(
    kind: str, served: Served, client: Client, redis_server: RedisServer
) -> None:
    place = "memory://" if kind == "memory" else redis_server.url()
    async with AgentMemory(place, embeddings=None, summaries=None) as used:
        url = await served(used, rate=10_000, burst=10_000)
        api = client(f"{url}/v1/", params={"user_id": new_user()})

        async def post(path: str, key: str, body: dict[str, Any]) -> httpx.Response:
            return await api.post(path, json=body, headers={"Idempotency-Key": key})

        for path, name in (("memories/batch", "things"), ("chats/c/messages", "what")):
            assert (await post(path, "k", {name: ["A"]})).status_code == 201
            for other in (["X", "Y"], ["A", "B"], ["B"], []):
                refused = detail(await post(path, "k", {name: other}), 422)
                assert "key" in refused, (path, other)
            again = await post(path, "k", {name: ["A"]})
            assert [each["content"] for each in again.json()["items"]] == ["A"]
            longer = await api.post(path, json={name: ["X", "Y"], "idempotency_key": "k"})
            assert "nothing was stored" in detail(longer, 422)
            assert len((await api.get("memories")).json()["items"]) == 1 + (name == "what")
        for number, (first, second) in enumerate(TIMES):
            for path, more in (
                ("memories", {"what": "x"}),
                ("memories/batch", {"things": ["x", "y"]}),
            ):
                key = f"dated {number}"
                assert (await post(path, key, {**more, **first})).status_code == 201
                assert (await post(path, key, {**more, **first})).status_code == 201, first
                assert "key" in detail(await post(path, key, {**more, **second}), 422), second
        # Changed since: what was asked first is in the past, where there is one.
        made = (await post("memories", "p", {"what": "old"})).json()
        await api.patch(f"memories/{made['id']}", json={"content": "new"})
        assert "key" in detail(await post("memories", "p", {"what": "other"}), 422)
        again = await post("memories", "p", {"what": "old"})
        assert again.status_code == (201 if kind == "memory" else 422)


async def test_a_request_is_known_again_when_some_of_it_was_forgotten(
    api: httpx.AsyncClient,
) -> None:
    async def post(path: str, body: dict[str, Any]) -> httpx.Response:
        return await api.post(path, json=body, headers={"Idempotency-Key": "k"})

    for path, name in (("memories/batch", "things"), ("chats/c/messages", "what")):
        first = (await post(path, {name: ["a", "b", "c"]})).json()["items"]
        for gone in (first[0], first[2]):
            await api.delete(f"memories/{gone['id']}")

        again = await post(path, {name: ["a", "b", "c"]})

        assert [each["content"] for each in again.json()["items"]] == ["b"], path
        for other in (["a", "b"], ["a", "b", "x"], ["b"], ["a", "b", "c", "d"]):
            assert "key" in detail(await post(path, {name: other}), 422), (path, other)
    one = (await post("memories", {"what": "tea"})).json()
    await api.delete(f"memories/{one['id']}")
    again = await post("memories", {"what": "tea"})
    assert (again.status_code, again.json()["id"]) == (201, one["id"])
    detail(await post("memories", {"what": "jam"}), 422)
    assert (await api.get(f"memories/{one['id']}")).status_code == 404, "what is gone stays gone"


@pytest.fixture(params=["memory", "postgres", "redis"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a store of each kind."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn = server.create_database()
        yield dsn
        server.drop_database(dsn)
    elif request.param == "redis":
        yield request.getfixturevalue("redis_server").url()
    else:
        yield "memory://"


@pytest.mark.parametrize(
    ("path", "name"), [("memories/batch", "things"), ("chats/c/messages", "what")]
)
async def test_of_two_requests_that_race_the_one_that_is_stored_is_the_one_that_is_answered(
    place: str, path: str, name: str, served: Served, client: Client
) -> None:
    async with AgentMemory(place, embeddings=None, summaries=None) as used:
        url = await served(used, rate=10_000, burst=10_000)
        api = client(f"{url}/v1/", params={"user_id": new_user()})

        for race in range(50):
            bodies = [[f"{race} {each} {n}" for n in range(2)] for each in "ab"]
            answers = await asyncio.gather(
                *(
                    api.post(path, json={name: body}, headers={"Idempotency-Key": str(race)})
                    for body in (*bodies, bodies[0])
                )
            )

            codes = [each.status_code for each in answers]
            assert codes in ([201, 422, 201], [422, 201, 422])
            winner = bodies[codes.index(201)]
            for answer in answers:
                if answer.status_code == 201:
                    assert [each["content"] for each in answer.json()["items"]] == winner
            listed = (await api.get("memories", params={"limit": 2})).json()["items"]
            assert sorted(each["content"] for each in listed) == winner
            assert {each["version"] for each in listed} == {1}


# Chats and facts


async def test_names_may_hold_anything_as_one_segment(api: httpx.AsyncClient) -> None:
    for name in ("a/b", "..", "ü?#%", "messages", "a b"):
        segment = quote(name, safe="").replace(".", "%2E")
        said = await api.post(f"chats/{segment}/messages", json={"what": "hello"})
        put = await api.put(f"facts/{segment}", json={"value": {"x": [1, None]}})

        assert said.json()["items"][0]["metadata"]["session_id"] == name
        messages = (await api.get(f"chats/{segment}/messages", params={"format": "gemini"})).json()
        assert messages["messages"][0]["parts"] == [{"text": "hello"}]
        assert (put.json()["key"], put.json()["value"]) == (name, {"x": [1, None]})
        assert (await api.get(f"facts/{segment}")).json() == put.json()

    keys = await api.get("fact-keys")
    assert set(keys.json()["keys"]) == {"a/b", "..", "ü?#%", "messages", "a b"}
    detail(await api.get("facts/%FF"), 400)
    detail(await api.get("facts/"), 404)
    detail(await api.get("facts/a/b"), 404)


async def test_facts_are_asked_as_of_then_and_reviewed(api: httpx.AsyncClient) -> None:
    said = (await api.post("memories", json={"what": "I live in Kiel"})).json()
    await api.put("facts/city", json={"value": "Rome", "valid_from": "2020-01-01T00:00:00Z"})
    await api.put("facts/city", json={"value": "Bonn", "valid_from": "2024-01-01T00:00:00Z"})

    then = await api.get("facts/city", params={"as_of": "2021-06-01T00:00:00+02:00"})
    draft = await api.post("fact-drafts", json={"key": "home", "value": "Kiel", "source": said})
    accepted = await api.post(f"fact-drafts/{draft.json()['fact']['id']}/accept")
    past = await api.get("past/facts", params={"moment": "2099-01-01T00:00:00Z"})

    assert then.json()["value"] == "Rome"
    assert accepted.json()["status"] == "accepted"
    assert {key: fact["value"] for key, fact in past.json()["facts"].items()} == {
        "city": "Bonn",
        "home": "Kiel",
    }
    assert (await api.post("facts/none/end")).json() == {"fact": None}
    assert "fact-keys" in detail(await api.get("facts/none"), 404)
    assert "`moment` is missing" in detail(await api.get("past/facts"), 422)
    assert "a day such as" in detail(await api.get("facts", params={"as_of": "then"}), 422)
    fork = await api.post("chats/c/messages", json={"what": ["one", "two"]})
    branch = await api.post(
        "chats/c/fork", json={"at": fork.json()["items"][0]["id"], "chat_id": "d"}
    )
    assert (branch.status_code, branch.json()) == (201, {"chat_id": "d"})
    assert branch.headers["location"] == "/v1/chats/d/messages?user_id=ann"
    assert len((await api.get("chats/d/items")).json()["items"]) == 1


# What is refused


async def test_what_no_call_has_is_refused_by_its_name(
    api: httpx.AsyncClient, client: Client
) -> None:
    bare = client(str(api.base_url))
    asked = [
        (api.post("memories", json={"what": "x", "bogus": 1}), 422, "'bogus'"),
        (api.post("memories", json={"what": "x", "user_id": "bob"}), 422, "belongs in the query"),
        (
            bare.post("erase?by=x", json={"user_id": "a"}),
            422,
            '`by` belongs in the body: `{"by": …}`',
        ),
        (bare.post("erase?user_id=a"), 422, '`user_id` belongs in the body: `{"user_id": …}`'),
        (api.post("recall", json={"query": "x", "everyone": True}), 422, "belongs in the query"),
        (api.get("memories", params={"sort": "id; DROP TABLE items"}), 422, "'sort'"),
        (api.post("memories", json={}), 422, "`what` is missing"),
        (api.get("memories", params={"limit": "ten"}), 422, "`limit`"),
        (api.get("memories", params={"limit": "-1"}), 422, "`limit`"),
        (api.get("memories", params={"limit": "NaN"}), 422, "`limit`"),
        (api.get("memories", params={"where": "{"}), 422, "`where`"),
        (api.get("memories", params={"where": "[]"}), 422, "`where`"),
        (api.get("memories", params={"where": '{"a":' * 800 + "1" + "}" * 800}), 422, "`where`"),
        (api.get("memories", params={"forgotten": "yes"}), 422, "`forgotten`"),
        (bare.get("memories?limit=1&limit=2"), 400, "'limit' twice"),
        (bare.get("memories?user_id=%FF"), 400, "query"),
        (bare.get("memories"), 422, "name user_id"),
        (api.post("recall", json={"mode": "magic"}), 422, "`mode`"),
        (api.post("memories", json={"what": "x", "created_at": "31 May"}), 422, "created_at"),
        (api.get("store/stats"), 422, "'user_id'"),
        (
            api.post("memories/batch", json={"things": ["x", {"role": "bogus", "content": "y"}]}),
            422,
            "message 1: ",
        ),
        (
            api.post("chats/c/messages", json={"what": ["x", "y", {"role": "bogus"}]}),
            422,
            "message 2: ",
        ),
        (api.get("events", params={"since": "1"}), 422, "'since'"),
        (api.get("export", params={"formt": "csv"}), 422, "'formt'"),
        (api.post("import", params={"fromat": "csv"}, content=b"x"), 422, "'fromat'"),
        (api.get("nothing"), 404, "openapi.json"),
        (api.put("memories"), 405, "GET"),
    ]
    for asking, status, words in asked:
        assert words in detail(await asking, status)
    assert (await api.put("memories")).headers["allow"] == "POST, GET, HEAD, OPTIONS"
    for path, allowed in (("events", "GET"), ("openapi.json", "GET"), ("import", "POST")):
        assert (await api.delete(path)).headers["allow"].startswith(allowed)
    options = await api.request("OPTIONS", "memories/x")
    assert options.status_code == 204
    assert options.headers["allow"] == "GET, PATCH, DELETE, HEAD, OPTIONS"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"\xff\xfe", 400),
        (b'{"query": NaN}', 400),
        (b'{"recency_weight": 1e999}', 422),
        (b'{"query": "a", "query": "b"}', 400),
        (b'{"where": {"a": 1, "a": 2}}', 400),
        (b'{"k": ' + b"9" * 5_000 + b"}", 400),
        (b"[" * 45_000, 400),
        (b"[" * 200_000, 413),
        (b'{"where":' + b'{"$not":' * 900 + b"1" + b"}" * 901, 400),
        (b'{"where":' + b'{"$not":' * 40 + b"{}" + b"}" * 41, 422),
        (b'{"query": "\\ud800"}', 422),
        (b'{"\\ud800": 1}', 422),
        (b'{"query": "\\u0000"}', 422),
        (b'{"query": 5}', 422),
        (b'{"k": 1.5}', 422),
        (b'{"k": true}', 422),
        (b'{"k": -1}', 422),
        (b'{"k": 123456789012345678}', 422),
        (b'{"where": {"a": {"$gt": []}}}', 422),
        (b'{"since": {}}', 422),
        (b'{"min_trust": 1.5}', 422),
    ],
)
async def test_a_bad_body_is_told_what_is_wrong(body: bytes, status: int) -> None:
    detail(await _bare(body), status)


async def test_a_body_that_is_no_json_is_refused_by_its_type(api: httpx.AsyncClient) -> None:
    answer = await api.post("recall", data={"query": "x"})
    assert "application/json" in detail(answer, 415)
    assert (await api.post("recall")).status_code == 200, "nothing is all the defaults"


async def _bare(body: bytes) -> httpx.Response:
    """Return the answer to a body, from a server that needs no socket."""
    from orbiter.memory.server import create_app  # noqa: PLC0415

    async with AgentMemory("memory://", embeddings=None, summaries=None) as memory:
        app = create_app(memory, port=80)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/v1/recall?user_id=ann", content=body, headers=JSON)


KEYS = (
    "x') OR '1'='1", "a'; DROP TABLE items;--", 'a" OR 1=1', "$.a", "a.b[0]", "a' UNION SELECT--",
    "extra')||(SELECT 1)||('", "a\\' OR 1=1", "a`b", "{a}", "*", "a) OR (1=1", "a->>'b'", "%' OR %",
    "metadata.extra.x') OR ('1'='1", "json_extract(a,'$')", "a\nb", "ａ", "a/**/b", "') --",
)  # fmt: skip
OPERATORS = ("$where", "$expr", "$function", "$regex", "$gt; DROP", "$$", "$or ", "$jsonSchema")


async def test_no_key_operator_or_field_of_a_filter_says_more_than_it_is(
    api: httpx.AsyncClient, memory: AgentMemory
) -> None:
    await memory.scope(user_id="bob").remember("bob's secret", tags=["t"])
    await memory.scope(user_id="ann").remember("ann's own", tags=["t"])

    for key in KEYS:
        for where in ({key: 1}, {key: "x"}, {key: {"$ne": None}}, {key: {"$in": [key]}}):
            for answer in (
                await api.get("memories", params={"where": json.dumps(where)}),
                await api.post("forget", json={"where": where, "dry_run": True}),
            ):
                if key.startswith("$"):
                    assert "operator" in detail(answer, 422)
                else:
                    assert (answer.status_code, answer.json()["items"]) == (200, [])
    for name in OPERATORS:
        for wrong in ({name: 1}, {"tags": {name: 1}}, {"$or": [{name: 1}]}):
            refused = await api.post("recall", json={"query": "x", "where": wrong})
            assert "operator" in detail(refused, 422)
    for text in KEYS:
        for param in ("query", "memory_type", "cursor"):
            answer = await api.get("memories", params={param: text})
            assert answer.status_code in (200, 422)
            assert "secret" not in answer.text
            assert param == "cursor" or answer.json()["items"] == []
    assert len((await api.get("memories")).json()["items"]) == 1


# Who may


def _request(
    operation: Operation, name: str = "nowhere", **scope: str
) -> tuple[str, str, dict[str, Any] | None]:
    """Return a request for a call that is in order, whatever it finds under *name*."""
    path = operation.path
    for each in ("item_id", "chat_id", "key", "fact_id"):
        path = path.replace(f"{{{each}}}", name)
    is_past = operation.target.startswith("past")
    query = {**scope, **({"moment": "2099-01-01T00:00:00Z"} if is_past else {})}
    if operation.target in ("memory", "audit"):
        query = {}
    bodies: dict[str, dict[str, Any]] = {
        "scope.remember": {"what": "x"},
        "scope.remember_many": {"things": ["x"]},
        "scope.update": {"content": "x"},
        "scope.forget": {"everything": True, "dry_run": True},
        "scope.context": {"task": "x"},
        "scope.evict": {"max_items": 1_000},
        "scope.quarantine": {"source": "web"},
        "scope.release": {"source": "web"},
        "scope.undo": {"source": "web"},
        "chat.add": {"what": "x"},
        "chat.context": {"task": "x"},
        "chat.fork": {"at": name},
        "facts.put": {"value": 1},
        "facts.propose": {"key": "k", "value": 1, "source": []},
        "past.recall": {"query": "x"},
        "memory.erase": {"user_id": "nobody", "dry_run": True},
    }
    body = None if operation.verb in ("GET", "DELETE") else bodies.get(operation.id, {})
    return operation.verb, f"/v1/{path}" + (f"?{urlencode(query)}" if query else ""), body


EVERY = (*OPERATIONS, *REST_ONLY)


async def test_every_call_needs_a_key_and_its_role(
    served: Served, client: Client, keys: KeyFile
) -> None:
    ann = new_user()
    shown = {role: new_key(keys, role, ann) for role in ("read", "write", "admin")}
    shown["all"] = new_key(keys, "admin")
    url = await served(keys=keys, rate=10_000, burst=10_000)
    nobody = client(url)
    by_role = {role: client(url, key) for role, key in shown.items()}

    for operation in EVERY:
        verb, path, body = _request(operation)
        bare = await nobody.request(verb, path, json=body)
        assert bare.status_code == 401, operation
        assert "WWW-Authenticate" in bare.headers
        for role in ("read", "write"):
            may = role == operation.role or (role, operation.role) == ("write", "read")
            answer = await by_role[role].request(verb, path, json=body)
            assert (answer.status_code != 403) is may, (operation.id, role, answer.text)
            assert answer.status_code < 500, (operation.id, answer.text)
        if operation.target in ("memory", "audit"):
            is_own = operation.name == "erase"  # without a name, as the key has one
            held = await by_role["admin"].request(verb, path, json={} if is_own else body)
            assert held.status_code == (200 if is_own else 403), "an administrator of somebody's"
            free = await by_role["all"].request(verb, path, json=body)
            assert free.status_code in (200, 501), "501: there is no audit log"


async def test_a_server_that_only_reads_refuses_every_change(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    item = await memory.scope(user_id="ann").remember("stays")
    api = client(await served(read_only=True, rate=10_000, burst=10_000))

    for operation in EVERY:
        verb, path, body = _request(operation, item.id, user_id="ann")
        answer = await api.request(verb, path, json=body)
        assert (answer.status_code == 403) is operation.is_change, (operation.id, answer.text)

    assert (await memory.unscoped().list()) == [item]


async def test_what_is_anothers_is_not_there(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    ann, bob = new_user(), new_user()
    url = await served(keys=keys, rate=10_000, burst=10_000)
    theirs = memory.scope(user_id=bob)
    item = await theirs.remember("bob's secret")
    said = (await theirs.chat("c").add("bob's secret"))[0]
    fact = await theirs.facts.put("city", "secret")
    draft = await theirs.facts.propose("home", "secret", source=item)
    assert draft is not None
    api = client(url, new_key(keys, "write", ann))
    before = await memory.unscoped().list()

    for operation in EVERY:
        if operation.target in ("memory", "audit"):
            continue
        for foreign in (item.id, said.id, fact.id, draft.id):
            verb, path, body = _request(operation, foreign, user_id=bob, by=bob)
            refused = await api.request(verb, path, json=body)
            assert refused.status_code == 403, (operation.id, refused.text)
            assert "secret" not in refused.text, operation.id
            verb, path, body = _request(operation, foreign, by=bob)
            answer = await api.request(verb, path, json=body)
            assert "secret" not in answer.text, operation.id
            if "{item_id}" in operation.path or "{fact_id}" in operation.path:
                assert answer.status_code == 404, (operation.id, answer.text)

    # An administrator of hers erases what is hers, and is told so if the request names another.
    erasing = client(url, new_key(keys, "admin", ann))
    assert (await erasing.post("/v1/erase", json={"user_id": bob})).status_code == 403
    assert (await memory.scope(ann).stats()).items > 0
    assert (await erasing.post("/v1/erase", json={})).json()["items"] > 0
    assert await memory.unscoped().list() == before


async def test_many_at_once_lose_nothing(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(api.post("memories", json={"what": f"note {n}"}) for n in range(40))
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len((await api.get("memories", params={"limit": "100"})).json()["items"]) == 40


# What must not keep others waiting


async def test_a_key_has_one_call_at_a_time_that_reads_everything(
    api: httpx.AsyncClient, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="ann").remember_many([f"note {n % 300}" for n in range(700)])
    at_work, most = 0, 0
    read = ScopedMemory.duplicates

    async def counted(handle: ScopedMemory) -> object:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        try:
            return await read(handle)
        finally:
            at_work -= 1

    monkeypatch.setattr(ScopedMemory, "duplicates", counted)

    answers = await asyncio.gather(
        *(api.get("duplicates", headers={"Prefer": "wait=20"}) for _ in range(4))
    )

    assert {answer.status_code for answer in answers} == {200}  # each waits for its turn
    assert len({answer.text for answer in answers}) == 1
    assert most == 1


async def test_a_filter_of_very_many_values_is_refused(api: httpx.AsyncClient) -> None:
    where = {"tags": {"$in": [str(n) for n in range(10_001)]}}

    asked = await api.post("recall", json={"query": "tea", "where": where})

    assert "more than 2,000 values" in detail(asked, 422)


async def test_a_change_takes_no_condition_of_a_read(api: httpx.AsyncClient) -> None:
    made = (await api.post("memories", json={"what": "tea"})).json()["id"]

    answer = await api.patch(
        f"memories/{made}", json={"content": "x"}, headers={"If-None-Match": "*"}
    )

    assert "a change takes `If-Match`" in detail(answer, 400)


async def test_the_types_of_problems_are_those_that_clients_know(api: httpx.AsyncClient) -> None:
    known = {
        400: "BadRequest", 401: "KeyNeeded", 403: "Refused", 404: "NotFound",
        405: "MethodNotAllowed", 408: "RequestTooSlow", 413: "TooLarge",
        415: "UnsupportedMediaType", 418: "Refused", 421: "UnknownHost", 429: "TooManyRequests",
        431: "HeadTooLarge", 500: "InternalError", 503: "Unavailable", 504: "OutofTime",
    }  # fmt: skip
    made = {status: json.loads(bytes(problem_response(status, "no").body)) for status in known}

    assert {status: problem["type"] for status, problem in made.items()} == {
        status: f"urn:orbiter-memory:error:{name}" for status, name in known.items()
    }
    from_elsewhere = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    refused = await api.post("memories", json={"what": "x"}, headers=from_elsewhere)
    assert detail(refused, 403)
    assert refused.json()["type"] == "urn:orbiter-memory:error:Refused"


async def test_recall_covers_a_matter_over_time_and_says_what_replaced_what(
    api: httpx.AsyncClient,
) -> None:
    for what, when in (
        ("I live in Oslo", "2025-01-05"),
        ("I moved to Paris, I no longer live in Oslo", "2026-02-01"),
    ):
        await api.post("memories", json={"what": what, "created_at": f"{when}T00:00:00+00:00"})

    asked = {"query": "Where do I live now? Oslo?"}
    best = (await api.post("recall", json=asked)).json()
    in_order = (await api.post("recall", json={**asked, "spread": True})).json()

    assert [hit["replaced_by"] for hit in best["hits"]] == [None, best["hits"][0]["item"]["id"]]
    assert (best["spread"], in_order["spread"]) == (False, True)
    assert in_order["hits"][0]["item"]["content"] == "I live in Oslo"
