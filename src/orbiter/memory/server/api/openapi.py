"""The OpenAPI 3.1 document, generated from the calls and their types."""

import inspect
import re
from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from orbiter.memory import __version__, agent
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.tasks.read_from import READ_SOURCES
from orbiter.memory.wire import (
    OPERATIONS,
    REQUIRED,
    REST_ONLY,
    TARGET_PARAMS,
    Codec,
    Operation,
    Param,
    Target,
)
from orbiter.memory.wire.leaf_types import Instant
from orbiter.memory.wire.operations import HANDLES

__all__ = ["OTHER_PATHS", "document"]


_TAGS: dict[Target, str] = {
    "memory": "store",
    "scope": "memories",
    "chat": "chats",
    "facts": "facts",
    "past": "past",
    "past_facts": "past",
    "audit": "audit",
    "kv": "key-value",
}
"""The tags that the calls of a target have in the document."""
_DESCRIPTIONS = {
    "If-Match": "The `ETag` that the memory must still have, or `*`.",
    "action": "Only entries of this action, such as `added` or `erased`.",
    "agent_id": "Only entries of this agent.",
    "as_of": "Valid at this time; now if left out.",
    "before": "The number of the last entry of a page, to get older ones.",
    "by": "Only what this actor did.",
    "budget": "At most this many tokens.",
    "chat_id": "The id of the conversation.",
    "cursor": "The `next` of the page before.",
    "dedupe": "Return the memory that says the same, if there is one, instead of another.",
    "dry_run": "Report what would be forgotten, and change nothing.",
    "fact_id": "The id of the assertion or draft.",
    "forgotten": "List forgotten memories instead, which `restore` can bring back.",
    "format": "The provider whose messages to return.",
    "item_id": "The id of the memory.",
    "key": "The key of the fact, such as `home_city`.",
    "known_at": "As known at this time; now if left out.",
    "limit": "At most this many results.",
    "memory_type": "Only memories of this type, such as `human` or `fact`.",
    "moment": "The time in the past to read.",
    "open_group": "What to do with tool calls that have no results yet.",
    "order": "By `name`, by who was seen last (`recent`), or by who has most (`items`).",
    "permanently": "Erase it for good, with its versions and what indexes hold; for an admin.",
    "query": "Only memories that contain this text.",
    "rounds": "Only the last rounds; each starts at a message of the user.",
    "session_id": "Only entries of this session.",
    "since": "Not before this time: ISO 8601, or as `3d`, `yesterday` or `last week`.",
    "starts_with": "Only names that begin so.",
    "status": "Only memories with this status.",
    "task_id": "Only entries of this task.",
    "until": "Until this time, written as `since`; a day or a phrase is included.",
    "user_id": "Only entries of this user.",
    "where": 'A filter on fields and `metadata.extra`, such as `{"price": {"$lt": 5}}`.',
}
"""What the parameters of paths, queries and headers mean: the same in every call."""

_SUMMARIES = {
    ("DELETE", "memories/{item_id}"): "Forget one memory; `restore` brings it back.",
    ("POST", "context"): "Return the context for a model: of a chat, or of memories alone.",
}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "scope.remember": {"what": "Ann is allergic to nuts", "tags": ["health"]},
    "scope.remember_many": {"things": ["likes tea", {"role": "user", "content": "hello"}]},
    "scope.recall": {"query": "what can Ann eat?", "k": 5, "explain": True},
    "scope.update": {"content": "Ann is allergic to hazelnuts"},
    "scope.forget": {"where": {"lang": "en"}, "dry_run": True},
    "scope.context": {"task": "plan a dinner", "budget": 2000},
    "chat.add": {"what": {"role": "user", "content": "hello"}},
    "chat.context": {"budget": 2000, "format": "openai"},
    "facts.put": {"value": "Berlin", "valid_from": "2024-03-01T00:00:00Z"},
    "memory.erase": {"user_id": "ann", "dry_run": True},
}
_PROBLEMS = {
    400: "The request cannot be read.",
    401: "The key is missing or not valid.",
    403: "The key does not allow this, or the server is read-only.",
    404: "It does not exist, or it belongs to somebody else.",
    405: "The path does not allow this method.",
    408: "The body arrived too slowly.",
    409: "It has changed meanwhile, or is in a state that does not allow this.",
    412: "It is not the version that `If-Match` names.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is not valid; `detail` says why.",
    429: "Too many requests; `Retry-After` says when to try again.",
    501: "The store does not support this.",
    502: "A model that the server uses has failed.",
    503: "The store does not respond.",
    504: "It took too long.",
}


_STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


class Problem(TypedDict):
    """RFC 9457; `attributes` and `errors` let a client raise the same error."""

    type: str
    title: str
    status: int
    detail: str
    attributes: NotRequired[dict[str, object]]
    errors: NotRequired[list[dict[str, object]]]


class Progress(TypedDict):
    """How far a job is."""

    done: int
    total: Annotated[int | None, Field(description="`null` if not known.")]


class Job(TypedDict):
    """A long-running call: its progress, and at the end its result or error."""

    id: str
    call: Annotated[str, Field(description="Such as `memory.erase`.")]
    owner: Annotated[
        str | None,
        Field(description="The id of the key that started it; `null` on a server without keys."),
    ]
    state: Literal["queued", "running", "done", "failed"]
    progress: Progress
    created_at: Instant
    ended_at: Instant | None
    report: NotRequired[
        Annotated[object, Field(description="The result of the call, once it is done.")]
    ]
    problem: Annotated[Problem | None, Field(description="The error of the call, if it failed.")]


def _param(name: str, place: str, description: str, **schema: Any) -> dict[str, Any]:
    kind = schema or {"type": "string"}
    needed = place == "path"
    named = {"name": name, "in": place, "required": needed, "description": description}
    return {**named, "schema": kind}


def _text(name: str, description: str) -> dict[str, Any]:
    return _param(name, "query", description)


_NAME = {"type": "string", "minLength": 1}
_JOB_REF = {"$ref": "#/components/schemas/Job"}
_JOB_ID = _param("job_id", "path", "The id of the job.", **_NAME)
_PREFER = _param(
    "Prefer",
    "header",
    "RFC 7240: `respond-async` returns at once, `wait=10` waits up to ten seconds.",
)
_ONCE = _param(
    "Idempotency-Key",
    "header",
    "Carried out once for each key; another request with the same key is a 422.",
    **_NAME,
)
_UNLESS = _param(
    "If-None-Match",
    "header",
    "The `ETag` that the client has; if it is still current, the answer is 304.",
)
_SCOPE = [
    *(
        _param(name, "query", f"The {name.removesuffix('_id')} of the scope.", **_NAME)
        for name in SCOPE_FIELDS
    ),
    _param(
        "everyone",
        "query",
        "Everyone's memories; needs an administrator's key.",
        type="boolean",
    ),
    _param(
        "name",
        "query",
        "What people call the user, where the id does not tell; for recall.",
        **_NAME,
    ),
    _param(
        "by",
        "query",
        "The actor, for `history` and the audit log; needs an administrator's key.",
        **_NAME,
    ),
    _param(
        "read_from",
        "query",
        "`replica` lets a replica of the store answer what only reads.",
        type="string",
        enum=[*READ_SOURCES],
    ),
]
"""Whose memories a request is about, and who acts."""

_SCOPE_REFS = [{"$ref": f"#/components/parameters/{each['name']}"} for each in _SCOPE]


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    schemas: dict[str, Any] = {}
    _schema(Codec(Job), schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in (*OPERATIONS, *REST_ONLY):
        described = paths.setdefault(f"/v1/{operation.path}", {})
        described[operation.verb.lower()] = _operation(operation, schemas)
    for path, verbs in OTHER_PATHS.items():
        has_scope = path.startswith("/v1/") and not path.endswith(".json")
        has_scope = has_scope and path not in JOB_PATHS
        paths[path] = {verb: _other(each, has_scope=has_scope) for verb, each in verbs.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orbiter-memory",
            "version": __version__,
            "description": (
                "Memory for agents. The scope is in the query of every request: `user_id`, "
                "`session_id`, `task_id`, `agent_id`; what a key is bound to overrides it."
            ),
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"basic": []}],
        "tags": [{"name": name} for name in dict.fromkeys(_TAGS.values())],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": _problem_responses(),
            "parameters": {each["name"]: each for each in _SCOPE},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "For browsers: the key is the password.",
                },
            },
        },
    }


def _other(call: dict[str, Any], *, has_scope: bool) -> dict[str, Any]:
    params = [*call.get("parameters", []), *(_SCOPE_REFS if has_scope else [])]
    codes = (400, 401, 403, 413, 422, 429) if has_scope else (401, 403, 429)
    codes = (*codes, 400, 404, 422) if call["operationId"].startswith("job") else codes
    responses = {**call["responses"], **_problem_refs(*codes)}
    return {**call, "parameters": params, "responses": responses}


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    params = (*TARGET_PARAMS[operation.target], *operation.params)
    described: dict[str, Any] = {
        "operationId": _id(operation),
        "tags": [_TAGS[operation.target]],
        **_docs(operation),
        "parameters": [_parameter(each, schemas) for each in params if each.place != "body"],
        "responses": _responses(operation, schemas),
        "x-role": operation.role,
    }
    if operation.target not in ("memory", "audit"):
        described["parameters"] += _SCOPE_REFS
    if any(each.name == "idempotency_key" for each in operation.params):
        described["parameters"].append(_ONCE)
    if operation.id == "scope.get":
        described["parameters"].append(_UNLESS)
    if operation.is_long:
        described["parameters"] += [_PREFER, _ONCE]
    body = [each for each in operation.params if each.place == "body"]
    if operation.verb not in ("GET", "DELETE"):
        described["requestBody"] = _body(operation, body, schemas)
    return described


def _id(operation: Operation) -> str:
    way = "_one" if operation.verb == "DELETE" else ""
    if operation.path.endswith("/query"):
        way = "_query"  # the same call with its filters in the body
    return f"{operation.target}_{operation.name}{way}"


def _docs(operation: Operation) -> dict[str, str]:
    summary = _SUMMARIES.get((operation.verb, operation.path))
    if summary is not None:
        return {"summary": summary}
    method = getattr(getattr(agent, HANDLES[operation.target]), operation.name)
    text = re.sub(r"\s*\*progress\* [^.]*\.", "", inspect.getdoc(method) or "")  # no callbacks here
    if operation.is_absent_404:
        text = text.replace(", or `None` if", "; 404 if")
    text = re.sub(r"\*(\w+)\*", r"`\1`", text.replace("`None`", "`null`"))
    summary, _, rest = text.partition("\n\n")
    return {"summary": summary, "description": rest} if rest else {"summary": summary}


def _parameter(param: Param, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(param.codec, schemas)
    described: dict[str, Any] = {
        "name": param.wire_name,
        "in": param.place,
        "required": param.default is REQUIRED,
        "description": _DESCRIPTIONS[param.wire_name],
    }
    # A query has no `null`: what is not said is left out.
    some = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    schema = some[0] if len(some) == 1 else {**schema, **({"anyOf": some} if some else {})}
    if param.place == "path":
        schema = {**schema, "minLength": 1}
    if param.place == "query" and schema.get("type") in (None, "object"):
        # An object is JSON in one parameter.
        return {**described, "content": {"application/json": {"schema": schema}}}
    return {**described, "schema": schema}


def _body(operation: Operation, params: list[Param], schemas: dict[str, Any]) -> dict[str, Any]:
    needed = [each.name for each in params if each.default is REQUIRED]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name: _with_default(each, schemas) for each in params},
    }
    if needed:
        schema["required"] = needed
    content: dict[str, Any] = {"schema": schema}
    if operation.id in _EXAMPLES:
        content["example"] = _EXAMPLES[operation.id]
    return {"required": bool(needed), "content": {"application/json": content}}


def _with_default(param: Param, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(param.codec, schemas)
    has_default = param.default is not REQUIRED and param.default is not None
    return {**schema, "default": param.codec.dump(param.default)} if has_default else schema


def _responses(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(operation.returns, schemas)
    good: dict[str, Any] = {
        "description": "Done.",
        "content": {"application/json": {"schema": schema}},
    }
    headers: dict[str, Any] = {}
    if operation.target == "scope" and operation.name in ("get", "remember", "update", "restore"):
        headers["ETag"] = {"schema": {"type": "string"}, "description": "The version, in quotes."}
    if operation.id in ("scope.remember", "chat.fork"):
        headers["Location"] = {"schema": {"type": "string"}}
    if headers:
        good["headers"] = headers
    responses: dict[str, Any] = {str(operation.status): good}
    if operation.is_long:
        responses["202"] = {
            "description": "It is not done yet; `Location` is the URL of the job.",
            "headers": {"Location": {"schema": {"type": "string"}}},
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}},
        }
    if operation.id == "scope.get":
        responses["304"] = {"description": "It is still the version that `If-None-Match` names."}
    return responses | _problem_refs(*_PROBLEMS)


def _problem_refs(*codes: int) -> dict[str, Any]:
    return {str(code): {"$ref": f"#/components/responses/{code}"} for code in codes}


def _problem_responses() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    responses: dict[str, Any] = {
        str(code): {
            "description": text,
            "content": {"application/problem+json": {"schema": schema}},
        }
        for code, text in _PROBLEMS.items()
    }
    responses["429"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    responses["405"]["headers"] = {"Allow": {"schema": {"type": "string"}}}
    return responses


def _schema(codec: Codec, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of *codec*; what several have in common goes to *schemas*."""
    schema = codec.schema("#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    if schema.get("type") != "object" or "title" not in schema:
        return schema
    schemas[schema["title"]] = schema  # an answer as a whole
    return {"$ref": f"#/components/schemas/{schema['title']}"}


def _answer(description: str, media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema or {}}}}


JOB_PATHS: dict[str, dict[str, Any]] = {
    "/v1/jobs": {
        "get": {
            "operationId": "jobs",
            "summary": "The jobs of this key, newest first, without their reports.",
            "responses": {
                "200": _answer(
                    "The jobs.",
                    "application/json",
                    {
                        "type": "object",
                        "required": ["jobs"],
                        "properties": {"jobs": {"type": "array", "items": _JOB_REF}},
                    },
                )
            },
        }
    },
    "/v1/jobs/{job_id}": {
        "get": {
            "operationId": "job",
            "summary": "One job, with its report once it is done; `Prefer: wait=10` waits for it.",
            "parameters": [_JOB_ID, _PREFER],
            "responses": {"200": _answer("The job.", "application/json", _JOB_REF)},
        },
        "delete": {
            "operationId": "job_drop",
            "summary": "Stop a job if it is running, and delete it; what it has done is kept.",
            "parameters": [_JOB_ID],
            "responses": {"204": {"description": "The job is deleted."}},
        },
    },
    "/v1/jobs/{job_id}/events": {
        "get": {
            "operationId": "job_events",
            "summary": "Progress of one job as server-sent events; the last one has its report.",
            "parameters": [_JOB_ID],
            "responses": {"200": _answer("Events until the job ends.", "text/event-stream")},
        }
    },
}
"""The paths of jobs; a key has its own jobs, so they take no scope."""

OTHER_PATHS: dict[str, dict[str, Any]] = {
    **JOB_PATHS,
    "/v1/events": {
        "get": {
            "operationId": "events",
            "summary": "New events, as server-sent events; none has the content of a memory.",
            "responses": {"200": _answer("Events until one side closes it.", "text/event-stream")},
        }
    },
    "/v1/import": {
        "post": {
            "operationId": "import",
            "summary": "Import a file; the body is the file.",
            "parameters": [
                _text("format", "The format of the file; detected if it is left out."),
                _text("name", "The name of the file, which some formats need."),
                _text("owner", "Whose memories to import, if not the caller's, or which session."),
                _text("text", "The column of a table that is the memory."),
                _text("at", "The column of a table that says when."),
                _text("user_column", "The column of a table that says whose each row is."),
                _text("day_first", "`true` if `3/4/2026` is in April, `false` if it is in March."),
            ],
            "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
            "responses": {
                "200": _answer("Lines of JSON; the last has the report.", "application/x-ndjson")
            },
        }
    },
    "/v1/export": {
        "get": {
            "operationId": "export",
            "summary": "Export everything in the scope, as a file.",
            "parameters": [_text("format", "`jsonl`, `csv`, `openai`, `mcp` or `markdown`.")],
            "responses": {"200": _answer("The file.", "application/x-ndjson")},
        }
    },
    "/v1/openapi.json": {
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {"200": _answer("The document.", "application/json", {"type": "object"})},
        }
    },
    "/healthz": {
        "get": {
            "operationId": "healthz",
            "summary": "Liveness of the server.",
            "responses": {"200": _answer("The server is running.", "application/json", _STATUS)},
        }
    },
    "/readyz": {
        "get": {
            "operationId": "readyz",
            "summary": "Readiness of the store.",
            "responses": {
                "200": _answer("The store responds.", "application/json", _STATUS),
                "503": _answer("The store does not respond.", "application/problem+json"),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "Metrics in Prometheus format; needs an administrator's key.",
            "responses": {"200": _answer("The metrics.", "text/plain")},
        }
    },
}  # fmt: skip
