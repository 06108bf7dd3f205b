"""Memories as people have them: several users and agents, a chat with tools, facts, doubts."""

from datetime import UTC, datetime, timedelta

from orbiter.memory import AgentMemory
from orbiter.memory.cli._sample_data import CHAT, FACTS

__all__ = ["CHAT_ID", "LONG", "fill"]

CHAT_ID = "lisbon"
LONG = " ".join(f"{number} lanterns hung over the harbour." for number in range(60))


async def fill(memory: AgentMemory) -> None:
    """Put the sample in."""
    now = datetime.now(UTC)
    alice = memory.scope(user_id="alice", agent_id="nova")
    for number, (text, tags) in enumerate(FACTS):
        await alice.remember(text, tags=tags, created_at=now - timedelta(days=9 * number))
    await alice.remember(LONG, tags=["story"], importance=0.9)
    await alice.remember("مرحبا، القطار يغادر الساعة السابعة", tags=["travel"])
    await alice.remember("会議は来週の火曜日です", tags=["work"])
    twice = await alice.remember("The spare key is under the blue pot")
    await alice.remember("The spare key is under the blue pot")
    await alice.update(twice.id, "The spare key is under the red pot")
    await alice.remember("The spare key is under the red pot")
    await alice.chat(CHAT_ID).add(list(CHAT))
    facts = alice.facts
    await facts.put("home", "Vienna", valid_from=now - timedelta(days=900))
    await facts.put("home", "Lisbon", valid_from=now - timedelta(days=90))
    await facts.put("diet", "vegetarian", valid_from=now - timedelta(days=30))
    said = await alice.remember("I think I will be in Oslo from June on")
    await facts.propose("home", "Oslo", source=said)
    await alice.remember("Buy our miracle pills", source="web:pills.example")
    await alice.quarantine("web:pills.example")
    bob = memory.scope(user_id="bob", agent_id="scout")
    await bob.remember("Bob's bicycle is locked at the station", tags=["bike"])
    await bob.chat("repairs").add([{"role": "user", "content": "The chain of my bicycle is off"}])
    await memory.flush()
