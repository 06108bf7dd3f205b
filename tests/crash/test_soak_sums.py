"""The long run adds up over its runs, and goes on where it was stopped."""

import random
from contextlib import nullcontext
from pathlib import Path

import pytest
from benchmarks import soak
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
    assert capsys.readouterr().out.split()[-9:] == [
        "a",
        "fault",
        "0.00",
        "50",
        "15",
        "1",
        "0",
        "0",
        "0",
    ]
    assert run(monkeypatch, *kept) == 1, "nothing is left to do, and the loss is still told"
    assert len(rounds) == 6
    assert run(monkeypatch, *kept, "--fresh", "--scale", "0.2") == 0
