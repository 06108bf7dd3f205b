"""What the OpenAPI document says of the doors that are no calls: streams, health, counts."""

from typing import Any

__all__ = ["JOB", "JOB_PATHS", "OTHER_PATHS", "PREFER"]


def _told(description: str, media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema or {}}}}


def _text(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


_STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}

JOB: dict[str, Any] = {
    "type": "object",
    "title": "Job",
    "description": "Long work: how far it is, and in the end what it returned or raised.",
    "required": ["id", "call", "state", "progress", "created_at", "ended_at", "problem"],
    "properties": {
        "id": {"type": "string"},
        "call": {"type": "string", "description": "Such as `memory.erase`."},
        "state": {"enum": ["queued", "running", "done", "failed"]},
        "progress": {
            "type": "object",
            "required": ["done", "total"],
            "properties": {
                "done": {"type": "integer"},
                "total": {"type": ["integer", "null"], "description": "`null` if not known."},
            },
        },
        "created_at": {"type": "string", "format": "date-time"},
        "ended_at": {"type": ["string", "null"], "format": "date-time"},
        "report": {"description": "What the call returns, once it is done."},
        "problem": {
            "anyOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}],
            "description": "What the call raised, if it failed.",
        },
    },
}
_JOB_REF = {"$ref": "#/components/schemas/Job"}
_JOB_ID = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
}
PREFER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "RFC 7240: `respond-async` to wait for nothing, `wait=10` for ten seconds.",
    "schema": {"type": "string"},
}

JOB_PATHS: dict[str, dict[str, Any]] = {
    "/v1/jobs": {
        "get": {
            "operationId": "jobs",
            "summary": "The jobs of this key, newest first, without their reports.",
            "responses": {
                "200": _told(
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
            "parameters": [_JOB_ID, PREFER],
            "responses": {"200": _told("The job.", "application/json", _JOB_REF)},
        },
        "delete": {
            "operationId": "job_drop",
            "summary": "Stop a job if it is under way, and forget it; what it did stays done.",
            "parameters": [_JOB_ID],
            "responses": {"204": {"description": "There is no such job any more."}},
        },
    },
    "/v1/jobs/{job_id}/events": {
        "get": {
            "operationId": "job_events",
            "summary": "Progress of one job as server-sent events; the last one has its report.",
            "parameters": [_JOB_ID],
            "responses": {"200": _told("Events until it is over.", "text/event-stream")},
        }
    },
}
"""Where jobs are followed; whose memories they are about, the key says."""

OTHER_PATHS: dict[str, dict[str, Any]] = {
    **JOB_PATHS,
    "/v1/events": {
        "get": {
            "operationId": "events",
            "summary": "What happens from now on, as server-sent events; none holds content.",
            "responses": {"200": _told("Events until one side ends it.", "text/event-stream")},
        }
    },
    "/v1/import": {
        "post": {
            "operationId": "import",
            "summary": "Store what a file holds; the body is the file.",
            "parameters": [
                _text("format", "Whose file it is; without it, that is found out."),
                _text("name", "What the file is called, which tells some formats what it holds."),
                _text("owner", "Whose memories are taken of a file that holds several people's."),
            ],
            "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
            "responses": {
                "200": _told("Lines of JSON; the last has the report.", "application/x-ndjson")
            },
        }
    },
    "/v1/export": {
        "get": {
            "operationId": "export",
            "summary": "Everything of the scope, as a file.",
            "parameters": [_text("format", "`jsonl`, `csv`, `openai`, `mcp` or `markdown`.")],
            "responses": {"200": _told("The file.", "application/x-ndjson")},
        }
    },
    "/v1/openapi.json": {
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {"200": _told("The document.", "application/json", {"type": "object"})},
        }
    },
    "/healthz": {
        "get": {
            "operationId": "healthz",
            "summary": "Whether the server lives.",
            "responses": {"200": _told("It does.", "application/json", _STATUS)},
        }
    },
    "/readyz": {
        "get": {
            "operationId": "readyz",
            "summary": "Whether the store answers.",
            "responses": {
                "200": _told("It does.", "application/json", _STATUS),
                "503": _told("It does not.", "application/problem+json"),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "Counts, in Prometheus' format, for an administrator.",
            "responses": {"200": _told("The counts.", "text/plain")},
        }
    },
}  # fmt: skip
