"""The long run adds up over its runs, and goes on where it was stopped."""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from benchmarks import server_load, soak
from benchmarks.server_load import Tally
from tests.crash._children import Child
from tests.crash._faults import Figures


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of the rounds that are carried out, of ten cycles each."""
    seen: list[int] = []

    async def work(number: int, dice: random.Random) -> Figures:
        if len(seen) == 2:
            seen.append(-1)
            raise KeyboardInterrupt
        seen.append(number)
        return Figures(cycles=10, acknowledged=3, lost=int(number == 4))

    tier = soak.Tier(lambda: nullcontext(work), 50)
    monkeypatch.setattr(soak, "TIERS", {"a fault": tier})
    return seen


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["soak", *args])
    return soak.main()


def test_a_run_that_is_stopped_is_gone_on_with_and_a_loss_is_never_forgotten(
    rounds: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = ("--kept", str(tmp_path / "soak.json"))

    assert run(monkeypatch, *kept) == 0, "stopped, and nothing was lost so far"
    assert "the next run goes on here" in capsys.readouterr().out
    assert run(monkeypatch, *kept) == 1, "the fifth round lost one"

    assert rounds == [0, 1, -1, 2, 3, 4]
    assert capsys.readouterr().out.split()[-10:] == [
        "a",
        "fault",
        "0.00",
        "50",
        "15",
        "0",
        "1",
        "0",
        "0",
        "0",
    ]
    assert run(monkeypatch, *kept) == 1, "nothing is left to do, and the loss is still told"
    assert len(rounds) == 6
    assert run(monkeypatch, *kept, "--fresh", "--scale", "0.2") == 0


def test_sums_of_a_run_that_did_not_count_refusals_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    figures = {"cycles": 14, "acknowledged": 20, "lost": 1, "torn": 0, "hung": 0, "leaked": 0}
    kept = {"kill -9": {"rounds": 2, "seconds": 7.5, "figures": figures}}
    path.write_text(json.dumps(kept), encoding="utf-8")

    sums = soak.Sum.all_of(path)

    assert sums["kill -9"].figures == Figures(cycles=14, acknowledged=20, lost=1)


@pytest.mark.parametrize("missing", [0, 2])
async def test_a_refused_request_of_a_client_is_no_lost_write(
    missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally(60, stored=[("key", f"{n}") for n in range(5)], errors=["504 b'out of time'"] * 3)

    @asynccontextmanager
    async def running(*args: str, port: int) -> AsyncIterator[int]:
        yield 1

    async def load(*args: object, **options: object) -> Tally:
        return tally

    async def look(port: int, stored: object) -> int:
        return missing if stored == tally.stored else -1

    for name, stand_in in {"running": running, "load": load, "missing": look}.items():
        monkeypatch.setattr(soak, name, stand_in)
    for name in ("resident", "handles_of"):
        monkeypatch.setattr(soak, name, lambda pid: 0)
    async with soak.TIERS["minutes of 200 clients"].open() as minute:
        figures = await minute(0, random.Random(0))

    assert figures == Figures(cycles=1, acknowledged=5, refused=3, lost=missing)


@pytest.mark.parametrize(("may_refuse", "code"), [(True, 0), (False, 1)])
def test_what_is_refused_is_printed_and_fails_a_run_only_where_none_may_be(
    may_refuse: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work(number: int, dice: random.Random) -> Figures:
        return Figures(cycles=10, acknowledged=7, refused=4)

    tier = soak.Tier(lambda: nullcontext(work), 10, may_refuse=may_refuse)
    monkeypatch.setattr(soak, "TIERS", {"a fault": tier})

    assert run(monkeypatch, "--kept", str(tmp_path / "soak.json")) == code
    assert capsys.readouterr().out.split()[-7:] == ["10", "7", "4", "0", "0", "0", "0"]


def say_nothing(pipe: Connection) -> None:
    pipe.recv()


def test_a_child_that_says_nothing_is_ended_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    children: list[Child] = []

    async def work(number: int, dice: random.Random) -> Figures:
        children.append(Child(say_nothing))
        await asyncio.to_thread(children[-1].receive, 0.1)
        return Figures(cycles=1)

    tier = soak.Tier(lambda: nullcontext(work), 50)
    monkeypatch.setattr(soak, "TIERS", {"a fault": tier})

    assert run(monkeypatch, "--kept", str(tmp_path / "soak.json")) == 1

    [child] = children
    assert child.end() == -signal.SIGKILL
    out = capsys.readouterr().out
    assert "said nothing for 0.1 s" in out
    assert out.split()[-7:] == ["0", "0", "0", "0", "0", "1", "0"]


def test_a_round_without_an_end_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(number: int, dice: random.Random) -> Figures:
        await asyncio.Event().wait()
        return Figures()

    tier = soak.Tier(lambda: nullcontext(work), 50)
    monkeypatch.setattr(soak, "TIERS", {"a fault": tier})
    monkeypatch.setattr(soak, "LONGEST", 0.1)

    assert run(monkeypatch, "--kept", str(tmp_path / "soak.json")) == 1

    assert capsys.readouterr().out.split()[-2:] == ["1", "0"]


async def test_a_server_that_does_not_stop_is_ended_and_counts_as_hung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_load, "LONGEST_STOP", 0.5)
    port = server_load.free_port()
    deaf = (
        "import signal, socket, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    )

    with pytest.raises(TimeoutError, match="did not stop"):
        async with server_load.running("-c", deaf, port=port) as pid:
            pass

    assert not Path(f"/proc/{pid}").exists()
