"""What turns of an agent cost, and the tables that tell it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks._statements import Counts
from benchmarks._timing import Table, duration
from benchmarks._turns import BUDGET, CONTEXT, STEPS

COUNTED = 8
"""Turns whose statements are counted."""
SHOWN = 10_000
"""The size for which every step is told."""
MESSAGES = 5
"""Of one turn."""
WHOLE = "the whole turn"


@dataclass
class Cost:
    """What turns cost among so many memories."""

    size: int
    seconds: dict[str, float] = field(default_factory=dict)
    to_write: dict[str, float] = field(default_factory=dict)
    to_read: dict[str, float] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    """Of all the turns that were counted."""
    later: dict[str, Counts] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    """The tokens of a context."""
    first: float = 0.0
    """The first context of a store that was just opened, to a bare INSERT."""
    bytes_each: float = 0.0
    resident: int = 0


def steps_table(where: str, cost: Cost) -> Table:
    table = Table(
        f"One turn, {cost.size:,} memories, {where}",
        *("step", "reads", "writes", "commits", "synced", "others"),
        *("later: reads", "writes", "commits", "synced"),
        *("takes", "bare SELECTs", "bare INSERTs"),
    )
    total, rest = Counts(), Counts()
    for name in (*STEPS, WHOLE):
        now, later = cost.counts.get(name, total), cost.later.get(name, Counts())
        if name not in STEPS:
            later = rest
        total, rest = total + now, rest + later
        table.add(
            name,
            *map(each, (now.reads, now.writes, now.commits, now.synced, now.others)),
            *map(each, (later.reads, later.writes, later.commits, later.synced)),
            duration(cost.seconds[name]),
            f"{cost.to_read[name]:,.0f}",
            f"{cost.to_write[name]:.1f}",
        )
    return table


def each(count: int) -> str:
    """Return a count of all turns as that of one."""
    return f"{count / COUNTED:.1f}".removesuffix(".0")


def growth_table(where: str, costs: Sequence[Cost]) -> Table:
    sizes = [f"{cost.size:,}" for cost in costs]
    table = Table(f"How it grows, {where}: ratio to a bare INSERT", "memories", *sizes)
    for name in (*STEPS, WHOLE):
        ratios = [cost.to_write[name] for cost in costs]
        cells = [f"{ratio:.1f}" for ratio in ratios]
        table.add(name, *cells, measured=f"{ratios[-1] / ratios[0]:.2f}x")
    # A context is computing more than waiting, and so is a SELECT: others at the disk slow neither.
    reads = [cost.to_read[CONTEXT] for cost in costs]
    cells = [f"{ratio:,.0f}" for ratio in reads]
    table.add("the context, in bare SELECTs", *cells, measured=f"{reads[-1] / reads[0]:.2f}x")
    firsts = [cost.first for cost in costs]
    cells = [f"{first:.0f}" for first in firsts]
    table.add("the first context", *cells, measured=f"{firsts[-1] / firsts[0]:.1f}x")
    statements = [_statements(cost) for cost in costs]
    grown = f"{statements[-1] / statements[0]:.2f}x"
    table.add("statements of a context", *(f"{one:.1f}" for one in statements), measured=grown)
    writes = [_writes(cost) for cost in costs]
    grown = f"{writes[-1] / writes[0]:.2f}x"
    table.add("writes per message", *(f"{one:.1f}" for one in writes), measured=grown)
    table.add("bytes on disk per memory", *(f"{cost.bytes_each:,.0f}" for cost in costs))
    table.add("memory of the process, MB", *(f"{cost.resident / 1e6:,.0f}" for cost in costs))
    return table


def _statements(cost: Cost) -> float:
    return cost.counts[CONTEXT].statements / COUNTED


def _writes(cost: Cost) -> float:
    """Return the writes of a turn, sooner or later, by its messages."""
    total = sum((*cost.counts.values(), *cost.later.values()), Counts())
    return total.writes / COUNTED / MESSAGES


def tokens_table(where: str, costs: Sequence[Cost]) -> Table:
    table = Table(
        f"Tokens of a context of at most {BUDGET:,}, {where}",
        *("part", *(f"{cost.size:,}" for cost in costs)),
    )
    names = list(dict.fromkeys(name for cost in costs for name in cost.parts))
    for name in names:
        table.add(name, *(f"{cost.parts.get(name, 0):,}" for cost in costs))
    return table


def show(where_all: str, found: Mapping[str, Sequence[Cost]]) -> list[Table]:
    """Return the tables of one database: with words only, and with vectors."""
    tables = []
    for name, costs in found.items():
        where = f"{where_all}, {name}"
        shown = next((cost for cost in costs if cost.size >= SHOWN), costs[-1])
        tables += [
            steps_table(where, shown),
            growth_table(where, costs),
            tokens_table(where, costs),
        ]
    return tables
