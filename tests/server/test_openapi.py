"""The document is a sound OpenAPI 3.1, says what is so, and nothing generated from it breaks us."""

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.timing import HANG

from orbiter.memory.agent import AgentMemory
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.server.api.openapi import document
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.wire import OPERATIONS, REST_ONLY

Clients = tuple[httpx.Client, requests.Session]

load_all_checks()
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
STREAMS = ("/v1/events", "/v1/import", "/v1/export")
"""What is no answer in one piece; other tests are for them."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the address of a server of this module, in a thread of its own."""
    found: list[str] = []
    is_up, is_finished = threading.Event(), threading.Event()

    async def run() -> None:
        wanted = Settings(port=0, rate=100_000, burst=100_000)
        memory = AgentMemory("memory://", embeddings=HashEmbeddings(), audit="writes")
        async with serving(create_app(memory, settings=wanted), settings=wanted) as address:
            found.append(address)
            is_up.set()
            await asyncio.to_thread(is_finished.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    is_up.wait(30)
    yield found[0]
    is_finished.set()
    thread.join(30)


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Return what asks: made once, as that costs more than asking."""
    with httpx.Client(timeout=HANG) as ours, requests.Session() as theirs:
        yield ours, theirs


# The document


def test_every_call_is_in_the_document_and_every_reference_leads_somewhere() -> None:
    text = json.dumps(document())
    paths = document()["paths"]
    parts = document()["components"]

    for each in (*OPERATIONS, *REST_ONLY):
        described = paths[f"/v1/{each.path}"][each.verb.lower()]
        assert described["summary"]
        assert str(each.status) in described["responses"]
        assert {"401", "403", "422"} <= described["responses"].keys()
    for other in (*STREAMS, "/healthz", "/readyz", "/metrics", "/v1/openapi.json"):
        assert other in paths
    for kind in ("schemas", "parameters", "responses"):
        for name in parts[kind]:
            assert f'"#/components/{kind}/{name}"' in text, f"nobody needs {name}"
    names = [each["operationId"] for path in paths.values() for each in path.values()]
    assert len(names) == len(set(names))
    assert len(_found) == len(names), "schemathesis cannot read some"
    assert parts["securitySchemes"].keys() == {"bearer", "basic"}


def test_descriptions_speak_of_requests_not_of_python() -> None:
    for path, verbs in document()["paths"].items():
        for each in verbs.values():
            text = f"{each['summary']} {each.get('description', '')}"
            assert "progress*" not in text, "a request has no callback"
            assert "`None`" not in text
            assert not re.search(r"\*\w+\*", text), "Markdown shows a name in backticks as code"
            for parameter in each["parameters"]:
                assert "$ref" in parameter or parameter["description"], (path, parameter["name"])
    assert all(each["description"] for each in document()["components"]["parameters"].values())


def test_a_call_that_answers_404_says_so() -> None:
    get = document()["paths"]["/v1/memories/{item_id}"]["get"]
    end = document()["paths"]["/v1/facts/{key}/end"]["post"]

    assert get["summary"] == "Return the memory of that id; 404 if there is none in this scope."
    assert "Returns `null` if nothing is true" in end["description"]


def test_every_schema_is_one_and_its_examples_are_what_it_says() -> None:
    for path in document()["paths"].values():
        for each in path.values():
            content = each.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None:
                continue
            schema = {**content["schema"], "components": document()["components"]}
            check = jsonschema_rs.validator_for(schema)
            if "example" in content:
                check.validate(content["example"])


def test_the_document_is_served(url: str) -> None:
    answer = httpx.get(f"{url}/v1/openapi.json", timeout=HANG)

    assert answer.json() == document()
    schemathesis.openapi.from_dict(answer.json()).validate()


# What is generated from it

_schema = schemathesis.openapi.from_dict(document())
_found = [each.ok() for each in _schema.get_all_operations() if isinstance(each, Ok)]
_operations = [each for each in _found if each.path not in STREAMS]
_with_body = [each for each in _operations if each.method != "get" or each.path == "/v1/memories"]


def _try(
    operation: Any, url: str, clients: Clients, mode: GenerationMode, count: int, checks: list[Any]
) -> None:
    told: dict[str, str] = {}
    turns = itertools.count()

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if next(turns) % 2 and operation.path.startswith("/v1/") and not _is_everyones(operation):
            case.query = {**(case.query or {}), "user_id": "ann"}
            for name in ("everyone", "by"):
                case.query.pop(name, None)
            if mode is GenerationMode.POSITIVE:
                _make_sense(case, url, clients[0])
        response = case.call(base_url=url, session=clients[1])
        assert response.status_code < 500 or response.status_code == 501, response.text
        try:
            case.validate_response(response, checks=checks)
        except (Failure, FailureGroup) as exc:
            told[str(response.status_code)] = f"{exc}\n{response.text[:500]}"

    ask()
    assert not told, told


def _make_sense(case: Any, url: str, client: httpx.Client) -> None:
    """Have a request name what is there, as no generator can."""
    ann = {"user_id": "ann"}
    item = client.post(
        f"{url}/v1/memories", params=ann, json={"what": "tea", "source": "web"}
    ).json()
    named = {"item_id": item["id"], "key": "city", "chat_id": "c"}
    path, body = case.operation.path, case.body if isinstance(case.body, dict) else {}
    if "{fact_id}" in path or "facts/{key}" in path:
        fact = {"key": "city", "value": item["id"], "source": item}
        made = client.post(f"{url}/v1/fact-drafts", params=ann, json=fact).json()["fact"]
        named["fact_id"] = made["id"]
        if "fact-drafts" not in path:
            client.post(f"{url}/v1/fact-drafts/{made['id']}/accept", params=ann)
    if path.endswith("/fork"):
        said = client.post(f"{url}/v1/chats/c/messages", params=ann, json={"what": "tea"}).json()
        case.body = {"at": said["items"][0]["id"]}
    elif path.endswith("/fact-drafts") and body:
        case.body = {"key": "city", "value": body.get("value"), "source": item}
    elif path.endswith(("/quarantine", "/release", "/undo")):
        case.body = {"source": "web"}
    elif case.method == "PATCH":
        case.body, case.headers = {"content": "green tea"}, {"If-Match": '"1"'}
    elif path.endswith("/restore"):
        case.body = {"version": 1}
    if case.path_parameters:
        case.path_parameters = {k: named.get(k, v) for k, v in case.path_parameters.items()}


def _is_everyones(operation: Any) -> bool:
    return any(tag in ("store", "audit") for tag in operation.definition.raw.get("tags", ()))


@pytest.mark.parametrize("operation", _operations, ids=lambda each: each.label)
def test_answers_are_what_the_document_says(operation: Any, url: str, clients: Clients) -> None:
    _try(operation, url, clients, GenerationMode.POSITIVE, 4, CHECKS)


@pytest.mark.parametrize("operation", _with_body, ids=lambda each: each.label)
def test_nothing_wrong_breaks_it(operation: Any, url: str, clients: Clients) -> None:
    _try(operation, url, clients, GenerationMode.NEGATIVE, 2, CHECKS)
