"""The waits of the tests themselves: stretched by the load, never without an end."""

import asyncio
import os
import sys

import pytest
from tests import timing
from tests.busy import main
from tests.timing import scaled, until, until_blocking


def test_a_run_can_stretch_every_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITER_TEST_TIME_SCALE", "8")

    assert scaled(0.5) == 4.0


@pytest.mark.parametrize(("load", "seconds"), [(0.0, 2.0), (1.0, 2.0), (30.0, 30.0)])
def test_a_busy_machine_stretches_them_and_a_quiet_one_shortens_none(
    monkeypatch: pytest.MonkeyPatch, load: float, seconds: float
) -> None:
    monkeypatch.delenv("ORBITER_TEST_TIME_SCALE", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    assert scaled(2.0) == seconds


async def test_what_never_happens_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "HANG", 0.01)

    async def never() -> bool:
        return False

    with pytest.raises(AssertionError, match="the answer did not happen"):
        await until(never, "the answer")
    with pytest.raises(AssertionError, match="the answer did not happen"):
        await asyncio.to_thread(until_blocking, lambda: False, "the answer")


def test_busy_loops_end_with_their_command(capfd: pytest.CaptureFixture[str]) -> None:
    code = main([sys.executable, "-c", "raise SystemExit(3)"])

    assert code == 3
    assert "beside 4 busy loops: exit 3" in capfd.readouterr().out
