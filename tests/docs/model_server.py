"""A server with the API of OpenAI that answers by a script, for documents and examples."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

__all__ = ["model_server"]


@contextmanager
def model_server(script: Callable[[list[dict[str, Any]]], str]) -> Iterator[HTTPServer]:
    """Serve chat completions on loopback; *script* is given the messages and returns the answer."""

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": script(sent["messages"])}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            about = {"id": "1", "object": "chat.completion", "created": 1, "model": sent["model"]}
            body = json.dumps({**about, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Model)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
