"""Does the kit find what stores do wrong when items are over? See `test_planted_bugs.py`."""

import pytest
from tests.kit.bugs import Bug
from tests.kit.bugs_expiry import SHORT_TERM_EXPIRY_BUGS, SQL_EXPIRY_BUGS
from tests.kit.test_planted_bugs import SLIPS, STORES, _run

from orbiter.memory.backends.sqlite import idle_tasks

pytestmark = pytest.mark.full

BUGS = [
    pytest.param(store, bug, id=f"{store} {name}")
    for store, bugs in (("SQLStore", SQL_EXPIRY_BUGS), ("ShortTermMemory", SHORT_TERM_EXPIRY_BUGS))
    for name, bug in bugs.items()
]


@pytest.mark.parametrize(("store", "bug"), BUGS)
def test_a_planted_bug_is_caught(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, store: str, bug: Bug
) -> None:
    monkeypatch.setattr(idle_tasks, "sweep_some", lambda _: 0)  # nor does sweeping hide it

    _, failures = _run(pytester, store, bug.plant(STORES[store]["source"]), bug.contract)

    assert failures, f"`{bug.contract}` did not notice"
    assert not failures[0].startswith(SLIPS)
