"""Writes docs/rest.md from the OpenAPI document: `python docs/build_rest.py`.

A test keeps it current.
"""

import json
from pathlib import Path
from typing import Any

from orbiter.memory.server.api.openapi import document

PAGE = Path(__file__).with_name("rest.md")
INTRO = """\
# REST API reference

<!-- by docs/build_rest.py -->

Every call of the server, from its OpenAPI document, which it serves at `/v1/openapi.json`.
[Server](server.md) explains keys, limits and errors. Every call on memories also takes the scope in
its query: `user_id`, `session_id`, `task_id`, `agent_id`, or `everyone=true`.
"""


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(f'"{each}"' for each in schema["enum"] if each is not None)
    some = schema.get("anyOf") or schema.get("oneOf")
    if some:
        return " or ".join(dict.fromkeys(_type(each) for each in some))
    kind = schema.get("type", "any JSON")
    if isinstance(kind, list):
        return " or ".join(dict.fromkeys(_type({**schema, "type": each}) for each in kind))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return "null" if kind == "null" else str(schema.get("format") or kind)


def _rows(call: dict[str, Any]) -> list[str]:
    rows = []
    for each in call.get("parameters", []):
        if "$ref" in each:
            continue  # the scope, which every call has
        schema = each.get("schema") or each["content"]["application/json"]["schema"]
        rows.append(_row(each["name"], each["in"], schema, needed=each.get("required", False)))
    for kind, content in call.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        if kind != "application/json" or "properties" not in schema:
            rows.append(f"| the body | {kind} | {_type(schema)} | |")
            continue
        needed = schema.get("required", [])
        for name, one in schema["properties"].items():
            rows.append(_row(name, "body", one, needed=name in needed))
    return rows


def _row(name: str, place: str, schema: dict[str, Any], *, needed: bool) -> str:
    default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
    return f"| `{name}` | {place} | {_type(schema)} | {'required' if needed else default} |"


def _call(verb: str, path: str, call: dict[str, Any]) -> list[str]:
    lines = [f"### `{verb.upper()} {path}`", "", call.get("summary", ""), ""]
    if call.get("description"):
        lines += [call["description"], ""]
    notes = [f"Role: `{call['x-role']}`."] if "x-role" in call else []
    good = [code for code in call["responses"] if code < "400"]
    notes.append(f"Status: {', '.join(f'`{code}`' for code in good)}.")
    lines += [" ".join(notes), ""]
    rows = _rows(call)
    if rows:
        lines += ["| parameter | in | type | default |", "|---|---|---|---|", *rows, ""]
    return lines


def page() -> str:
    """Return the text of the page."""
    groups: dict[str, list[str]] = {}
    for path, verbs in document()["paths"].items():
        for verb, call in verbs.items():
            tag = (call.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).extend(_call(verb, path, call))
    lines = [INTRO]
    for tag, calls in groups.items():
        lines += [f"## {tag.capitalize()}", "", *calls]
    lines += ["## Errors", "", "| status | meaning |", "|---|---|"]
    for code, each in document()["components"]["responses"].items():
        lines.append(f"| {code} | {each['description']} |")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
