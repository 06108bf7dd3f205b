"""How facts look: as JSON, as a line for a program, and as a few lines for a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.cli._output import Output, styled
from orbiter.memory.cli._text import ago, dumps, moment, one_line, shortened
from orbiter.memory.cli._views import as_json, entry, source_of

if TYPE_CHECKING:
    from rich.text import Text

    from orbiter.memory.model.facts import FactConflict, FactEntry, FactMemory

__all__ = [
    "conflict_json",
    "conflict_lines",
    "entry_json",
    "held",
    "print_facts",
    "value_of",
    "when",
]

_WHY = {
    "same time": "both are valid at the same time",
    "less trusted": "its replacement comes from a less trusted source",
}


def value_of(fact: "FactMemory") -> str:
    """Return what a fact says, on one line: a text as it is, everything else as JSON."""
    if fact.is_end:
        return "ended"
    text = fact.value if isinstance(fact.value, str) else dumps(fact.value, indent=None)
    return one_line(text)


def when(fact: "FactMemory") -> str:
    """Return when a fact holds by what it says itself; nothing if it does not say."""
    from orbiter.memory.model.facts import dated  # noqa: PLC0415 - `--help` needs it not

    return dated(fact)


def held(each: "FactEntry") -> str:
    """Return for which time an assertion held, as far as is known today."""
    from orbiter.memory.model.facts import dated  # noqa: PLC0415

    fact = each.fact
    if fact.retracted_at is not None:
        return f"retracted {moment(fact.retracted_at)}"
    if fact.is_end:
        return when(fact)
    if not each.spans:
        return "never valid: others cover it"
    return " and ".join(dated(span) or "always" for span in each.spans)


def print_facts(
    out: Output, facts: Sequence["FactMemory"], notes: Sequence[str], *, numbered: bool = False
) -> None:
    """Print facts with what is *notes* of each; not for JSON.

    If they are *numbered*, a person sees the number of each, for `@1`.
    """
    if out.is_plain():
        out.rows(
            (fact.id, fact.key, value_of(fact), note)
            for fact, note in zip(facts, notes, strict=True)
        )
        return
    for number, (fact, note) in enumerate(zip(facts, notes, strict=True), 1):
        mark = styled((f"{number:>2}" if numbered else "●", "blue"))
        out.show(entry(mark, _lines(fact, note, 4 * out.console.width)))


def _lines(fact: "FactMemory", note: str, width: int) -> "list[Text]":
    is_retracted = fact.retracted_at is not None
    value = (shortened(value_of(fact), width), "dim strike" if is_retracted else "")
    head = styled((one_line(fact.key), "bold"), "  ", value, (f"  {note}".rstrip(), "cyan"))
    source = fact.metadata.extra.get("source")
    origin = f" · {one_line(source)}" if source else ""
    step = "proposed" if fact.status == "draft" else "recorded"
    return [head, styled((f"{fact.id} · {step} {ago(fact.recorded_at)}{origin}", "dim"))]


def entry_json(each: "FactEntry") -> dict[str, object]:
    """Return an assertion and when it held as JSON values."""
    spans = [{"start": span.start, "end": span.end} for span in each.spans]
    return {"fact": as_json(each.fact), "spans": spans}


def conflict_json(each: "FactConflict") -> dict[str, object]:
    """Return a contradiction as JSON values."""
    return {
        "key": each.key,
        "reason": each.reason,
        "earlier": as_json(each.earlier),
        "later": as_json(each.later),
    }


def conflict_lines(each: "FactConflict") -> "list[Text]":
    """Return both sides of a contradiction, and what it is."""
    lines = [styled((one_line(each.key), "bold"), (f"  {_WHY[each.reason]}", "yellow"))]
    for fact in (each.earlier, each.later):
        span = f"  {when(fact)}".rstrip()
        lines.append(styled(f"{shortened(value_of(fact), 200)}", (span, "cyan")))
        origin = f"{fact.id} · recorded {ago(fact.recorded_at)} · {source_of(fact)}"
        lines.append(styled((origin, "dim")))
    return lines
