"""Valid agent histories, trimmed by each library's own call: how many would a provider refuse?

Every history is legal before trimming, and every budget has room for the system message and the
newest round. Results are judged by `validate` and counted by `count_tokens`, ours and theirs
alike; `texts over` leaves out roles and ids, which libraries rate differently.

    python -m benchmarks.peers_legal
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import get_args

from benchmarks._histories import agent_history
from benchmarks._peers import LlamaMemories, agents_session, langchain_trims
from benchmarks._timing import Table, exit_code

from orbiter.memory.conversation.tokens import count_tokens, estimate_tokens
from orbiter.memory.conversation.windows import complete_tool_groups, rounds, trim_to_budget
from orbiter.memory.messages import Format, Message, from_messages, to_messages, validate
from orbiter.memory.model.items import MemoryItem, calls_of
from orbiter.memory.model.tool_calls import call_arguments, call_name
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing.histories import random_history

SLOW_SHARE = 10  # LlamaIndex goes through SQL for each message: every tenth history is enough

tokens = cache(estimate_tokens)  # the same texts come back from every library


def text_tokens(item: MemoryItem) -> int:
    """Return what an item's text and calls cost, without the roles and ids around them."""
    return tokens(item.content) + sum(
        tokens(call_name(call)) + tokens(call_arguments(call)) for call in calls_of(item)
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and the limits it is trimmed to."""

    items: list[MemoryItem]
    max_items: int
    budget: int


@dataclass(slots=True)
class Score:
    """What became of the histories that one call trimmed."""

    call: str
    note: str = ""
    has_budget: bool = True
    is_ours: bool = False
    results: int = 0
    kept: float = 0.0
    illegal: int = 0
    over: int = 0
    texts_over: int = 0

    def judge(self, case: Case, messages: Sequence[Message], format: Format = "openai") -> None:
        self.count(case, from_messages(messages, format), illegal=bool(validate(messages, format)))

    def count(self, case: Case, kept: Sequence[MemoryItem], *, illegal: bool) -> None:
        self.results += 1
        self.kept += len(kept) / max(1, len(case.items))
        self.illegal += illegal
        if self.has_budget:
            self.over += count_tokens(kept, counter=tokens) > case.budget
            self.texts_over += sum(map(text_tokens, kept)) > case.budget

    def add_to(self, table: Table) -> None:
        bad = self.illegal + self.over
        table.add(
            self.call,
            f"{self.results:,}",
            f"{self.kept / self.results:.0%}",
            f"{self.illegal / self.results:.1%}",
            f"{self.over / self.results:.1%}" if self.has_budget else "-",
            f"{self.texts_over / self.results:.1%}" if self.has_budget else "-",
            self.note,
            bar="0" if self.is_ours else "",
            measured=str(bad),
            ok=bad == 0 if self.is_ours else None,
        )


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    items = agent_history(rng, rounds=rng.randint(2, 5))
    least = count_tokens([items[0], *rounds(items)[-1]])
    budget = rng.randint(least, count_tokens(items) - 1)
    return Case(items, rng.randint(1, len(items) - 1), budget)


async def ours(case: Case, trimmed: Score, searched: Score) -> None:
    # One message per item, made from the whole history, so that encoding repairs nothing.
    messages = to_messages(case.items, "openai").messages
    by_id = {item.id: message for item, message in zip(case.items, messages, strict=True)}
    kept = trim_to_budget(case.items, budget=case.budget)
    trimmed.judge(case, [by_id[item.id] for item in kept])
    memory = ShortTermMemory()
    await memory.add_many(case.items)
    found = await memory.search(limit=case.max_items)
    searched.judge(case, [by_id[item.id] for item in found])


def ours_on_broken(seed: int, score: Score) -> None:
    rng = random.Random(seed)
    case = Case(random_history(rng), max_items=0, budget=rng.randint(0, 300))
    kept = trim_to_budget(case.items, budget=case.budget)
    illegal = complete_tool_groups(kept) != kept or any(
        validate(to_messages(kept, format).messages, format) for format in get_args(Format)
    )
    score.count(case, kept, illegal=illegal)


async def measure(cases: int) -> list[Score]:
    mine = [
        Score("trim_to_budget(…)", is_ours=True),
        Score("ShortTermMemory.search(limit)", is_ours=True, has_budget=False),
    ]
    broken = Score("trim_to_budget(…), broken histories", "all four providers", is_ours=True)
    chains = [
        Score("langchain trim_messages, len", "defaults", has_budget=False),
        Score("langchain trim_messages, approximate", "defaults; counts chars / 4"),
        Score("langchain trim_messages, our counter", "defaults"),
        Score("langchain trim_messages, our counter", "start_on, include_system"),
    ]
    agents = Score("openai-agents get_items(limit)", "no system message", has_budget=False)
    llama = Score("LlamaIndex Memory(token_limit)", "our tokenizer; ignores calls, roles")
    memories = LlamaMemories()
    for seed in range(cases):
        case = draw(seed)
        await ours(case, *mine)
        ours_on_broken(seed, broken)
        trims = langchain_trims(case.items, max_items=case.max_items, budget=case.budget)
        for score, messages in zip(chains, trims, strict=True):
            score.judge(case, messages)
        # The instructions live in the agent there, not in the session.
        entries = await agents_session(case.items[1:], limit=case.max_items)
        agents.judge(case, entries, "openai-responses")
        if seed % SLOW_SHARE == 0:
            llama.judge(case, await memories.trim(case.items, budget=case.budget))
    return [*mine, broken, *chains, agents, llama]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_600)
    title = "Trimmed histories a provider would refuse, and those over the token budget"
    table = Table(title, "call", "histories", "kept", "illegal", "over", "texts over", "note")
    for score in asyncio.run(measure(parser.parse_args().cases)):
        score.add_to(table)
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
