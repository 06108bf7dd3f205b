"""What the OpenAPI document says of the doors that are no calls: streams, health, counts."""

from typing import Any

__all__ = ["OTHER_PATHS"]


def _told(description: str, media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema or {}}}}


def _text(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


_STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}

OTHER_PATHS: dict[str, dict[str, Any]] = {
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
