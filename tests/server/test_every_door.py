"""No user sees another's memory, through whatever door he comes."""

import random
from pathlib import Path

import pytest
from tests.server.every_door import DOORS, ask_everywhere

pytestmark = pytest.mark.slow


async def test_whoever_asks_sees_what_is_his_and_nothing_else(tmp_path: Path) -> None:
    users = 12

    verdict = await ask_everywhere(tmp_path, random.Random(7), users=users)

    assert verdict.leaked == []
    assert verdict.missing == []
    assert verdict.pairs == users * (users - 1) * (len(DOORS) + 1)
