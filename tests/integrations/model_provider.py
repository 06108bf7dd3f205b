"""A server that answers as the providers do, and remembers what it was sent."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
}


class Provider(ThreadingHTTPServer):
    """Answers every call, and knows what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.calls_tool = False
        self.echoes = False
        self.fails = False
        self.text = ""
        self.raw = ""
        """The whole answer, as it goes over the wire."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def last(self) -> str:
        """What the model was sent last, as text."""
        return json.dumps(self.requests[-1], ensure_ascii=False)


class _Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        self.server.paths.append(self.path)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.server.fails:
            self.send_error(400)
            return
        text = self.server.text or f"answer {len(self.server.requests)}"
        if self.server.echoes:
            text = body["messages"][-1]["content"]
        streams = bool(body.get("stream")) or "streamGenerateContent" in self.path
        path, calls = self.path.partition("?")[0], self.server.calls_tool
        if path.endswith("/chat/completions"):
            answer = _chat(text, streams=streams, calls=calls)
        elif path.endswith("/responses"):
            answer = _responses(text, streams=streams, calls=calls)
        elif path.endswith(("/messages", "/invoke", ":rawPredict", ":streamRawPredict")):
            answer = _messages(text, streams=streams, calls=calls)
        else:
            answer = _gemini(text, streams=streams, calls=calls)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.end_headers()
        self.wfile.write((self.server.raw or answer).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _events(*events: dict[str, Any], named: bool = False) -> str:
    return "".join(
        (f"event: {each['type']}\n" if named else "") + f"data: {json.dumps(each)}\n\n"
        for each in events
    )


def _chat(text: str, *, streams: bool, calls: bool) -> str:
    head = {"id": "c", "created": 1, "model": "m"}
    if not streams:
        message: dict[str, Any] = {"role": "assistant", "content": None if calls else text}
        message |= {"tool_calls": [CALL]} if calls else {}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice]})
    first: dict[str, Any] = {"role": "assistant", "content": text[:3]}
    second: dict[str, Any] = {"content": text[3:]}
    if calls:
        start = {**CALL, "index": 0, "function": {"name": "weather", "arguments": '{"city'}}
        first = {"role": "assistant", "tool_calls": [start]}
        second = {"tool_calls": [{"index": 0, "function": {"arguments": '":"Oslo"}'}}]}
    ends = [None, None, "stop"]
    pieces = [
        {**head, "object": "chat.completion.chunk",
         "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in zip([first, second, {}], ends, strict=True)
    ]  # fmt: skip
    return _events(*pieces) + "data: [DONE]\n\n"


def _responses(text: str, *, streams: bool, calls: bool) -> str:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    function: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "id": "fc_1"}
    function |= CALL["function"]
    output = [thought, function] if calls else [{**message, "content": [part]}]
    response = {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": output, "parallel_tool_calls": True, "tools": [],
        "tool_choice": "auto",
    }  # fmt: skip
    if not streams:
        return json.dumps(response)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "output": []}}
    ]
    for place, entry in enumerate(output):
        added = {**entry, "content": []} if "content" in entry else entry
        head = {"output_index": place, "item_id": entry["id"], "content_index": 0}
        events.append({"type": "response.output_item.added", **head, "item": added})
        if "content" in entry:
            empty = {**part, "text": ""}
            events.append({"type": "response.content_part.added", **head, "part": empty})
            delta = {"delta": text, "logprobs": []}
            events.append({"type": "response.output_text.delta", **head, **delta})
        events.append({"type": "response.output_item.done", **head, "item": entry})
    events.append({"type": "response.completed", "response": response})
    numbered = [{**each, "sequence_number": place} for place, each in enumerate(events)]
    return _events(*numbered, named=True)


def _messages(text: str, *, streams: bool, calls: bool) -> str:
    message = {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {}}
    if not streams:
        uses = [{**call, "input": {"city": "Oslo"}}] if calls else []
        return json.dumps({**message, "content": [{"type": "text", "text": text}, *uses]})
    return _events(
        {"type": "message_start", "message": {**message, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        *(
            [
                {"type": "content_block_start", "index": 1, "content_block": call},
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'},
                },
                {"type": "content_block_stop", "index": 1},
            ]
            if calls
            else []
        ),
        {"type": "message_stop"},
        named=True,
    )


def _gemini(text: str, *, streams: bool, calls: bool) -> str:
    def piece(part: str, end: str | None) -> dict[str, Any]:
        held: dict[str, Any] = {"text": part}
        if calls:
            held = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [held]}}
        return {"candidates": [{**candidate, **({"finishReason": end} if end else {})}]}

    if not streams:
        return json.dumps(piece(text, "STOP"))
    return _events(piece(text[:3], None), piece(text[3:], "STOP"))


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Yield a provider that answers until the block ends."""
    server = Provider()
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
