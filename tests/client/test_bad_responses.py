"""Responses that our server never sends: each is an error, and nothing hangs or overflows."""

import asyncio
import gzip
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.rows import each_row
from tests.timing import HANG

from orbiter.memory import MemoryConnectionError
from orbiter.memory.client import RemoteMemory, _read_response, _remote_events
from orbiter.memory.client._transport import RetryPolicy
from orbiter.memory.errors import MemoryTimeoutError, TransferError
from orbiter.memory.transfer import export_file, import_file

JSON = "application/json"
DEEP = b"[" * 100_000 + b"]" * 100_000


def answer(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def saying(said: bytes, *, pause: float | None = None) -> AsyncIterator[RemoteMemory]:
    """Give a memory whose server answers everything with *said*, byte by byte with a *pause*."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for place in range(len(said)) if pause is not None else ():
                writer.write(said[place : place + 1])
                await writer.drain()
                await asyncio.sleep(pause or 0)
            if pause is None:
                writer.write(said)
                await writer.drain()
            while await reader.read(2**16):  # until the client has had enough
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        memory = RemoteMemory(f"http://127.0.0.1:{port}", timeout=0.5 if pause else HANG)
        try:
            yield memory
        finally:
            await memory.close()


@each_row(
    "said",
    [
        answer(DEEP),
        answer(b'{"items": [null], "next": null}'),
        answer(b'{"items": 5, "next": []}'),
        answer(b"[]"),
        answer(b"\xff\xfe"),
        answer(b'{"items": [{"id": 5}]}'),
        answer(b"x", "Content-Encoding: gzip"),
        answer(b'{"type": "x", "detail": ' + DEEP + b"}", status=500),
        answer(b"[]", "Retry-After: nan", status=502),
        answer(b"", "Location: http://[", status=302),
        b"HTTP/1.1 200 OK\r\nContent-Length: minus one\r\n\r\n",
        b"nothing of the kind\r\n\r\n",
    ],
    ids=[str(place) for place in range(12)],
)
async def test_what_is_no_answer_is_told_as_none(said: bytes) -> None:
    async with saying(said) as memory:
        with pytest.raises(MemoryConnectionError):
            await memory.scope(user_id="alice").list()


async def test_an_answer_that_unpacks_to_too_much_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_read_response.read_whole, "__kwdefaults__", {"most": 10_000, "until": 1e9})
    async with saying(answer(gzip.compress(b" " * 20_000), "Content-Encoding: gzip")) as memory:
        with pytest.raises(MemoryConnectionError, match="more than 10,000 bytes"):
            await memory.scope(user_id="alice").list()


async def test_an_answer_that_never_ends_ends_with_the_time_of_the_call() -> None:
    async with saying(answer(b" " * 2_000), pause=0.05) as memory:
        with pytest.raises(MemoryTimeoutError, match=r"in 0.5 seconds"):
            await memory.scope(user_id="alice").list()


@each_row("asked", ["0", "-5", "nan", "inf", "-inf", "1e-300", "Fri, 1 Jan", ""])
def test_no_pause_is_as_short_as_a_server_likes(asked: str) -> None:
    patience = RetryPolicy(tries=3)

    pauses = [patience.pause(tried, retry_after=asked, left=60.0) for tried in range(1, 50)]

    assert len([each for each in pauses if each is not None and each < 0.5]) < 10
    assert all(each is None or 0 <= each < 60 for each in pauses)


# Events


async def test_an_event_that_cannot_be_read_is_told_as_missed() -> None:
    good = {"kind": "updated", "at": "2024-01-01T00:00:00Z", "scope": {}}
    odd = [b"{", DEEP, b"5", b'{"kind": "married"}', json.dumps({**good, "kind": "later"}).encode()]
    said = b"".join(b"data: " + each + b"\n\n" for each in [*odd, json.dumps(good).encode()])
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with saying(head + said) as memory:
        stream = memory.events()

        heard = [await asyncio.wait_for(anext(stream), HANG) for _ in range(len(odd) + 1)]
        stream._end()  # this server never says what else it has sent

    assert [event.kind for event in heard] == ["missed"] * len(odd) + ["updated"]
    assert "cannot be read" in heard[0].detail


async def test_whatever_else_goes_wrong_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(answer: object) -> object:
        raise ZeroDivisionError(answer)

    monkeypatch.setattr(_remote_events, "_events_of", broken)
    async with saying(answer(b"")) as memory:
        with pytest.raises(MemoryConnectionError, match="ZeroDivisionError"):
            await asyncio.wait_for(anext(memory.events()), HANG)


async def test_an_event_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_remote_events, "_LONGEST", 1_000)
    monkeypatch.setattr(_remote_events, "_PATIENCE", RetryPolicy(tries=1))
    for said in (b"data: " + b"x" * 2_000, b"data: x\n" * 200):
        async with saying(b"HTTP/1.1 200 OK\r\n\r\n" + said) as memory:
            with pytest.raises(MemoryConnectionError):
                await asyncio.wait_for(anext(memory.events()), HANG)


# Files


def packed(fill: Callable[[zipfile.ZipFile], None]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        fill(file)
    return made.getvalue()


@pytest.mark.parametrize(
    "fill",
    [
        lambda file: file.writestr("../../evil.md", "x"),
        lambda file: file.writestr("big.md", b"\0" * 20_000_000),
    ],
)
async def test_a_folder_takes_no_more_than_an_import(
    fill: Callable[[zipfile.ZipFile], None], tmp_path: Path
) -> None:
    async with saying(answer(packed(fill), "X-Orbiter-Records: x")) as memory:
        with pytest.raises(TransferError, match="refused"):
            await export_file(memory.scope(user_id="a"), tmp_path / "out", format="markdown")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("said", [b"no json\n", b"5\n", DEEP + b"\n", b'{"end": 5}\n', b""])
async def test_an_export_that_is_none_is_not_written(said: bytes, tmp_path: Path) -> None:
    async with saying(answer(said)) as memory:
        with pytest.raises(MemoryConnectionError):
            await export_file(memory.scope(user_id="alice"), tmp_path / "out.jsonl")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "said", [b"[]\n", b"5\n", b"{\n", b'{"report": {"odd": 1}}\n', b'{"error": 5}\n', DEEP + b"\n"]
)
async def test_what_is_told_of_an_import_must_make_sense(said: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    async with saying(answer(said)) as memory:
        with pytest.raises(MemoryConnectionError, match="cannot be read"):
            await import_file(memory.scope(user_id="alice"), tmp_path / "in.jsonl")
