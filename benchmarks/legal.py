"""How often is a trimmed history illegal? One million random cases through ours: none may be.

Each case draws a broken history, a window, an item limit, a token budget and what becomes of open
tool groups, trims, encodes for all four providers, and checks legality, budget, order, the newest
round and idempotence, and that no chat template of an open model refuses it.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import get_args

from benchmarks._chat_templates import refusals

from orbiter.memory.conversation.tokens import count_tokens
from orbiter.memory.conversation.windows import (
    OpenGroup,
    complete_tool_groups,
    last_rounds,
    rounds,
    trim_to_budget,
)
from orbiter.memory.messages import Format, from_messages, to_messages, validate
from orbiter.memory.model.items import HumanMemory, MemoryItem, role_of
from orbiter.memory.testing.histories import random_history

FORMATS: tuple[Format, ...] = get_args(Format)
BATCH = 5_000
READ_EVERY = 10
"""Reading the messages back takes half the time; every tenth case does it."""


def faults(seed: int) -> Iterator[str]:
    """Yield what is wrong with the case of this seed."""
    rng = random.Random(seed)
    history = random_history(rng)
    window = rng.choice((0, 0, 1, 2, 3))
    max_items = rng.choice((None, None, rng.randint(0, 12)))
    budget = rng.choice((None, rng.randint(0, 60), rng.randint(0, 600)))
    policies: tuple[OpenGroup, ...] = ("drop", "drop", "complete", "keep")
    policy = rng.choice(policies)

    windowed = last_rounds(history, window)
    kept = trim_to_budget(windowed, max_items=max_items, budget=budget, open_group=policy)
    if max_items is not None and len(kept) > max_items:
        yield f"{len(kept)} items over the limit of {max_items}"
    if budget is not None and count_tokens(kept) > budget:
        yield f"{count_tokens(kept)} tokens over the budget of {budget}"
    if trim_to_budget(kept, max_items=max_items, budget=budget, open_group=policy) != kept:
        yield "trimming twice changed it"
    legal = complete_tool_groups(windowed, open_group=policy)
    places = {item.id: place for place, item in enumerate(legal)}
    order = [places[item.id] for item in kept]
    if order != sorted(set(order)):
        yield "order changed"
    yield from newest_round_faults(legal, kept, max_items, budget)
    asked = [*kept, HumanMemory(content="Go on.")]
    yield from refusals(to_messages(asked, "openai").messages)
    for format in FORMATS:
        # Without the group that `keep` may leave open at the end, all must be legal.
        messages = to_messages(kept, format).messages
        for problem in validate(messages, format):
            yield f"{format}: {problem}"
        if seed % READ_EVERY:
            continue
        again = to_messages(from_messages(messages, format), format).messages
        if again != messages:
            yield f"{format}: reading and writing the messages changed them"
        if policy == "keep":
            from_messages(to_messages(kept, format, open_group=policy).messages, format)


def newest_round_faults(
    legal: Sequence[MemoryItem],
    kept: Sequence[MemoryItem],
    max_items: int | None,
    budget: int | None,
) -> Iterator[str]:
    if not any(role_of(item) == "human" for item in legal):
        return
    newest = [item for item in rounds(legal)[-1] if role_of(item) != "system"]
    fits = (max_items is None or len(newest) <= max_items) and (
        budget is None or count_tokens(newest) <= budget
    )
    if fits and not {item.id for item in newest} <= {item.id for item in kept}:
        yield "the newest round fits and is not whole"


def run(first: int, count: int) -> tuple[int, list[str]]:
    found = [
        f"seed {seed}: {fault}" for seed in range(first, first + count) for fault in faults(seed)
    ]
    return count, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    wanted = parser.parse_args()
    starts = range(wanted.first, wanted.first + wanted.cases, BATCH)
    sizes = [min(BATCH, wanted.first + wanted.cases - start) for start in starts]
    done, found, began = 0, [], time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for count, faulty in pool.map(run, starts, sizes):
            done += count
            found += faulty
            if sys.stderr.isatty() or done % (20 * BATCH) == 0:
                print(f"\r{done:,} of {wanted.cases:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for line in found[:20]:
        print(line)
    minutes = (time.monotonic() - began) / 60
    print(f"{done:,} random cases, {len(found)} faults ({minutes:.1f} minutes)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
