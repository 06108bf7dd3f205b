"""Random histories of a handle over years, compared with a model too simple to be wrong.

The model is a dict of texts for each user, a list of what was said of each fact, and a copy of both
for every moment that was noted.
"""

import asyncio
import copy
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.agent.conftest import Open
from tests.timing import HANG

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.copying import copy_item

pytestmark = pytest.mark.slow

_T = TypeVar("_T")

USERS = st.sampled_from(["ann", "bob"])
KEYS = st.sampled_from(["city", "job"])
LAST_DAY = 9
DAYS = st.integers(0, LAST_DAY)
START = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class Said:
    """One assertion: a value, or `None` for an end, from a day on."""

    value: int | None
    day: int
    recorded: int
    retracted: int | None = None


@dataclass
class Life:
    """What is remembered of one user."""

    texts: dict[str, str] = field(default_factory=dict)
    forgotten: dict[str, str] = field(default_factory=dict)
    facts: dict[str, list[Said]] = field(default_factory=dict)

    def drop(self, item_id: str) -> None:
        self.texts.pop(item_id, None)
        self.forgotten.pop(item_id, None)


def holds(facts: list[Said], day: int, known: int) -> int | None:
    """Return the value at a day, as known after so many steps."""
    there = [
        each
        for each in facts
        if each.day <= day
        and each.recorded <= known
        and (each.retracted is None or each.retracted > known)
    ]
    return max(there, key=lambda each: (each.day, each.recorded)).value if there else None


class Years(RuleBasedStateMachine):
    """Does the same to handles and to the model."""

    memory: ClassVar[AgentMemory]
    loop: ClassVar[asyncio.AbstractEventLoop]

    def __init__(self) -> None:
        super().__init__()
        self.prefix = secrets.token_hex(4)
        self.lives = {"ann": Life(), "bob": Life()}
        self.moments: list[tuple[datetime, int, dict[str, Life]]] = []
        self.step = 0

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=HANG)

    def of(self, user: str) -> ScopedMemory:
        return self.memory.scope(user_id=f"{self.prefix}-{user}")

    def one(self, ids: dict[str, str], number: int) -> str | None:
        return list(ids)[number % len(ids)] if ids else None

    # Memories

    @rule(user=USERS)
    def remember(self, user: str) -> None:
        self.step += 1
        item = self.run(self.of(user).remember(f"text {self.step}", expires=timedelta(hours=1)))
        self.lives[user].texts[item.id] = item.content

    @rule(user=USERS, number=DAYS)
    def update(self, user: str, number: int) -> None:
        self.step += 1
        item_id = self.one(self.lives[user].texts, number)
        if item_id is not None:
            self.run(self.of(user).update(item_id, f"text {self.step}"))
            self.lives[user].texts[item_id] = f"text {self.step}"

    @rule(user=USERS, number=DAYS)
    def forget(self, user: str, number: int) -> None:
        life = self.lives[user]
        item_id = self.one(life.texts, number)
        if item_id is not None:
            self.run(self.of(user).forget(item_id))
            life.forgotten[item_id] = life.texts.pop(item_id)

    @rule(user=USERS, number=DAYS)
    def restore(self, user: str, number: int) -> None:
        life = self.lives[user]
        item_id = self.one(life.forgotten, number)
        if item_id is not None:
            self.run(self.of(user).restore(item_id))
            life.texts[item_id] = life.forgotten.pop(item_id)

    @rule(user=USERS, number=DAYS)
    def expire(self, user: str, number: int) -> None:
        item_id = self.one(self.lives[user].texts, number)
        if item_id is None:
            return
        item = self.run(self.of(user).get(item_id))
        assert item is not None
        ended = copy_item(item)
        ended.expires_at = datetime.now(UTC) - timedelta(seconds=1)
        self.run(self.of(user).remember(ended))
        for life in self.always(user):
            life.drop(item_id)

    @rule(user=USERS, die=st.integers(0, 5))
    def erase(self, user: str, die: int) -> None:
        if die:
            return
        report = self.run(self.memory.erase(user_id=f"{self.prefix}-{user}"))
        assert report, str(report)
        for life in self.always(user):
            life.texts.clear()
            life.forgotten.clear()
            life.facts.clear()

    def always(self, user: str) -> list[Life]:
        """Return what the user remembers, now and at every moment that was noted."""
        return [self.lives[user], *(lives[user] for _, _, lives in self.moments)]

    # Facts

    @rule(user=USERS, key=KEYS, day=DAYS)
    def put(self, user: str, key: str, day: int) -> None:
        self.step += 1
        facts = self.of(user).facts
        self.run(facts.put(key, self.step, valid_from=START + timedelta(days=day)))
        said = Said(self.step, day, self.step)
        self.lives[user].facts.setdefault(key, []).append(said)

    @rule(user=USERS, key=KEYS, day=DAYS)
    def end(self, user: str, key: str, day: int) -> None:
        self.step += 1
        known = self.lives[user].facts.get(key, [])
        is_true = [holds(known, each, self.step) is not None for each in range(day, LAST_DAY + 1)]
        if any(is_true) and not is_true[0]:
            with pytest.raises(QueryError, match="later `at`"):
                self.run(self.of(user).facts.end(key, at=START + timedelta(days=day)))
            return
        made = self.run(self.of(user).facts.end(key, at=START + timedelta(days=day)))
        assert (made is not None) is is_true[0]
        if made is not None:
            known.append(Said(None, day, self.step))

    @rule(user=USERS, key=KEYS)
    def revert(self, user: str, key: str) -> None:
        self.step += 1
        self.run(self.of(user).facts.revert(key))
        live = [each for each in self.lives[user].facts.get(key, []) if each.retracted is None]
        if live:
            live[-1].retracted = self.step

    # Time

    @rule()
    def note(self) -> None:
        time.sleep(0.003)  # SQLite's clock has milliseconds
        self.moments.append((datetime.now(UTC), self.step, copy.deepcopy(self.lives)))
        time.sleep(0.003)

    @rule(user=USERS, number=DAYS, day=DAYS)
    def look_back(self, user: str, number: int, day: int) -> None:
        if not self.moments:
            return
        moment, known, lives = self.moments[number % len(self.moments)]
        past = self.of(user).as_of(moment)
        found = self.run(past.list(memory_type="item", limit=100))
        assert {item.id: item.content for item in found} == lives[user].texts
        for key in ("city", "job"):
            # From the present list, cut at the step: retractions came later.
            wanted = holds(self.lives[user].facts.get(key, []), day, known)
            asked = {"as_of": START + timedelta(days=day)}
            known_then = self.run(self.of(user).facts.get(key, known_at=moment, **asked))
            assert (known_then and known_then.value) == wanted
            seen_then = self.run(past.facts.get(key, **asked))
            assert (seen_then and seen_then.value) == wanted

    @invariant()
    def agrees(self) -> None:
        for user, life in self.lives.items():
            handle = self.of(user)
            found = self.run(handle.list(memory_type="item", limit=100))
            assert {item.id: item.content for item in found} == life.texts
            gone = self.run(handle.list(memory_type="item", limit=100, forgotten=True))
            assert {item.id: item.content for item in gone} == life.forgotten
            true = self.run(handle.facts.all())
            wanted = {key: holds(said, 9, self.step) for key, said in life.facts.items()}
            assert {key: fact.value for key, fact in true.items()} == {
                key: value for key, value in wanted.items() if value is not None
            }


async def test_no_sequence_of_years_differs_from_the_model(
    local_url: str, open_memory: Open
) -> None:
    memory = open_memory(local_url, embeddings=None)
    await memory.init()
    attributes = {"memory": memory, "loop": asyncio.get_running_loop()}
    machine = type("Machine", (Years,), attributes)
    how = settings(
        max_examples=10 if local_url.startswith("sqlite") else 5,
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    await asyncio.to_thread(run_state_machine_as_test, machine, settings=how)
