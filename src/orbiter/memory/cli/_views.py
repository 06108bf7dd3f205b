"""How items and facts look: as JSON, as a line for a program, and as a few lines for a person."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orbiter.memory.cli._output import Output, styled
from orbiter.memory.cli._text import ago, dumps, moment, one_line, shortened
from orbiter.memory.text.word_diff import word_diff

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from orbiter.memory.model.facts import FactConflict, FactEntry, FactMemory
    from orbiter.memory.model.items import MemoryItem, MemoryMetadata
    from orbiter.memory.recall import Excluded, Hit, Reason

__all__ = [
    "CHANGES",
    "as_json",
    "conflict_json",
    "conflict_lines",
    "differences",
    "entry",
    "entry_json",
    "facts",
    "held",
    "hit_json",
    "hit_lines",
    "hit_text",
    "left_out_json",
    "left_out_lines",
    "parts_of",
    "print_facts",
    "print_item",
    "print_items",
    "said",
    "scope_label",
    "source_of",
    "state_of",
    "value_of",
    "when",
]

_STYLES = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}
_SCOPES = ("user_id", "session_id", "task_id", "agent_id")


def as_json(item: "MemoryItem") -> dict[str, Any]:
    """Return an item as JSON values."""
    from orbiter.memory.model.serialization import dump_item  # noqa: PLC0415

    return dump_item(item)


def scope_label(scope: "MemoryMetadata") -> str:
    """Return a scope in words, its widest part first."""
    fields = ((name[:-3], getattr(scope, name)) for name in _SCOPES)
    return " ".join(f"{name} {value}" for name, value in fields if value is not None)


def tags_of(item: "MemoryItem") -> list[str]:
    """Return an item's tags."""
    tags = item.metadata.extra.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def said(item: "MemoryItem") -> str:
    """Return what an item says on one line; of a message without words, which tools it calls."""
    from orbiter.memory.model.items import AIMemory  # noqa: PLC0415

    text = one_line(item.content)
    if isinstance(item, AIMemory) and item.tool_calls:
        calls = ", ".join(call.name for call in item.calls)
        text = f"{text} → {one_line(calls)}".strip()
    return text


def state_of(item: "MemoryItem") -> str:
    """Return why recall leaves an item out: `draft`, `retracted`, `not recalled`; else nothing."""
    from orbiter.memory.model.items import is_indexed  # noqa: PLC0415

    if getattr(item, "retracted_at", None):  # a fact
        return "retracted"
    if item.status != "accepted":
        return str(item.status.value)
    return "" if is_indexed(item) else "not recalled"


def source_of(item: "MemoryItem") -> str:
    """Return where an item comes from: its label, or what its type tells."""
    from orbiter.memory.model import trust  # noqa: PLC0415

    return one_line(trust.source_of(item))


def facts(
    item: "MemoryItem",
    *,
    now: datetime | None = None,
    shows_scope: bool = False,
    ended: str = "",
) -> "Text":
    """Return one dim line: id, age, scope, version, kind, what is amiss with it, end, tags.

    *ended* is what became of a fact that holds no more.
    """
    kind = "" if item.memory_type == "item" else f" · {item.memory_type}"
    version = f" · v{item.version}" if item.version > 1 else ""
    end = "" if item.expires_at is None else f" · until {moment(item.expires_at)}"
    state = f" · {state_of(item)}" if state_of(item) and not ended else ""
    label = one_line(scope_label(item.metadata)) if shows_scope else ""
    scope = f" · {label}" if label else ""
    summary = f" · {ago(item.created_at, now=now)}{scope}{version}{kind}{state}{end}"
    line = styled((item.id, "dim"), (summary, "dim"))
    if ended:
        line.append_text(styled((f" · {one_line(ended)}", "yellow")))
    for tag in tags_of(item):
        line.append_text(styled((f"  #{one_line(tag)}", "magenta")))
    return line


def entry(mark: "Text", lines: Sequence["Text"]) -> "RenderableType":
    """Return lines that hang to the right of a mark."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, Group(*lines))
    return grid


def print_items(
    out: Output,
    items: Sequence["MemoryItem"],
    *,
    shows_scope: bool = False,
) -> None:
    """Print items: two lines each for a person, one for a program.

    With *shows_scope*, a person sees whose each is. Of a page, facts that hold no more are marked.
    """
    ended: Mapping[str, str] = getattr(items, "ended", {})
    if out.is_plain():
        out.table(_row(item, ended.get(item.id, "")) for item in items)
        return
    for item in items:
        mark = styled(("●", _STYLES.get(item.memory_type, "blue")))
        text = styled(shortened(said(item), 4 * out.console.width))
        line = facts(item, shows_scope=shows_scope, ended=ended.get(item.id, ""))
        out.show(entry(mark, [text, line]))


def print_item(out: Output, item: "MemoryItem") -> None:
    """Print one item, as JSON if that is wanted."""
    if out.is_json:
        out.data(as_json(item))
    else:
        print_items(out, [item])


def _row(item: "MemoryItem", ended: str) -> tuple[object, ...]:
    kind = f"{item.memory_type} {one_line(ended) or state_of(item)}".rstrip()
    return item.id, moment(item.created_at), kind, said(item)


def parts_of(item: "MemoryItem") -> list[tuple[str, str]]:
    """Return everything known about an item beside its text, by name.

    What a program keeps in `extra` is named `extra.…`, so that it passes for nothing else.
    """
    from orbiter.memory.model.facts import FactMemory  # noqa: PLC0415
    from orbiter.memory.model.trust import trust_of  # noqa: PLC0415

    extra = dict(item.metadata.extra)
    tags = tags_of(item)
    if tags:
        del extra["tags"]
    parts = [
        ("id", item.id),
        ("kind", item.memory_type),
        ("status", str(item.status.value)),
        ("version", str(item.version)),
        ("scope", scope_label(item.metadata) or "none"),
        ("created", moment(item.created_at)),
        ("changed", moment(item.updated_at) if item.updated_at != item.created_at else ""),
        ("expires", "" if item.expires_at is None else moment(item.expires_at)),
        ("tags", " ".join(f"#{tag}" for tag in tags)),
    ]
    if isinstance(item, FactMemory):
        del extra["fact"]
        parts += [("key", item.key), *_dates_of(item)]
    if "source" in extra and extra.get("trust") == trust_of(item):  # what follows from the source
        del extra["trust"]
        parts.append(("trust", trust_of(item).name.lower()))
    parts += [(name, _value(extra.pop(name))) for name in ("importance", "source") if name in extra]
    parts += [(f"extra.{name}", _value(value)) for name, value in sorted(extra.items())]
    return [(one_line(name), one_line(value)) for name, value in parts if value != ""]


def _dates_of(fact: "FactMemory") -> list[tuple[str, str]]:
    """Return from when to when a fact is said to hold, and since when that is known."""
    from orbiter.memory.model.facts import ALWAYS  # noqa: PLC0415

    dates = [
        # What nobody dated begins before every time zone does.
        ("valid from", None if fact.valid_from == ALWAYS else fact.valid_from),
        ("valid to", fact.valid_to),
        ("recorded", fact.recorded_at),
        ("retracted", fact.retracted_at),
    ]
    sources = [("from", " ".join(fact.source_ids))] if fact.source_ids else []
    return [(name, moment(at)) for name, at in dates if at is not None] + sources


def _value(value: object) -> str:
    """Return a text as it is, and everything else as JSON."""
    return value if isinstance(value, str) and value else dumps(value, indent=None)


def hit_lines(hit: "Hit", width: int, *, full: bool, shows_scope: bool = False) -> "list[Text]":
    """Return what a hit says and why it was found; *full* has every reason with its points."""
    passage = one_line(hit.passage) or said(hit.item)
    points = f"  {hit.score:.2f} points" if full else ""
    head = styled(
        (shortened(passage, 4 * width), "bold"),
        (f"  {hit.relevance:.2f}", "green"),
        (points, "cyan"),
    )
    lines = [head, facts(hit.item, shows_scope=shows_scope)]
    reasons = hit.why if full else _shortly(hit)
    if full:
        lines += [
            styled((f"{each.points:+6.2f}  ", "cyan"), one_line(each.text)) for each in reasons
        ]
    elif reasons:
        lines.append(styled(("; ".join(one_line(each.text) for each in reasons), "cyan")))
    if hit.repeats:
        lines.append(styled((f"said {len(hit.repeats) + 1} times", "dim")))
    return lines


def hit_text(hit: "Hit") -> str:
    """Return all that a hit says on one line; of a fact, when it held and what it was, too.

    Without it, a program would take what was replaced for what is so.
    """
    is_fact = hit.item.memory_type == "fact"
    return (one_line(hit.passage) if is_fact else "") or said(hit.item)


def _shortly(hit: "Hit") -> "list[Reason]":
    """Return what a hit is replaced by, if it is, and its strongest reasons."""
    replaced = [each for each in hit.why if each.part == "replaced"]
    return [*replaced, *(each for each in hit.why if each.points > 0.05)][:2]


def left_out_lines(each: "Excluded") -> "list[Text]":
    """Return what a candidate says that is no hit, and why it is none."""
    reason = one_line(each.told)
    return [styled((shortened(said(each.item), 80), "dim")), styled((reason, "dim yellow"))]


def left_out_json(each: "Excluded") -> dict[str, object]:
    """Return a candidate that is no hit as JSON values."""
    why = [{"part": one.part, "points": one.points, "text": one.text} for one in each.why]
    return {
        "score": each.score,
        "relevance": each.relevance,
        "reason": each.reason,
        "why": why,
        "item": as_json(each.item),
    }


def hit_json(hit: "Hit") -> dict[str, object]:
    """Return a hit as JSON values."""
    why = [{"part": each.part, "points": each.points, "text": each.text} for each in hit.why]
    repeats = [item.id for item in hit.repeats]
    return {
        "score": hit.score,
        "relevance": hit.relevance,
        "why": why,
        "repeats": repeats,
        "replaced_by": hit.replaced_by,
        "item": as_json(hit.item),
    }


_CONFLICTS = {
    "same time": "both are valid at the same time",
    "less trusted": "its replacement comes from a less trusted source",
}


def value_of(fact: "FactMemory") -> str:
    """Return what a fact says, on one line: a text as it is, everything else as JSON."""
    if fact.is_end:
        return "ended"
    from orbiter.memory.model.facts.assertion import op_of  # noqa: PLC0415 - `--help` needs it not

    text = fact.value if isinstance(fact.value, str) else dumps(fact.value, indent=None)
    op = op_of(fact)
    return one_line(text if op == "set" or fact.status != "draft" else f"{op} {text}")


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


def print_facts(out: Output, facts: Sequence["FactMemory"], notes: Sequence[str]) -> None:
    """Print facts with what is *notes* of each; not for JSON."""
    if out.is_plain():
        out.table(
            (fact.id, fact.key, value_of(fact), note)
            for fact, note in zip(facts, notes, strict=True)
        )
        return
    for fact, note in zip(facts, notes, strict=True):
        mark = styled(("●", "blue"))
        out.show(entry(mark, _fact_lines(fact, note, 4 * out.console.width)))


def _fact_lines(fact: "FactMemory", note: str, width: int) -> "list[Text]":
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
    lines = [styled((one_line(each.key), "bold"), (f"  {_CONFLICTS[each.reason]}", "yellow"))]
    for fact in (each.earlier, each.later):
        span = f"  {when(fact)}".rstrip()
        lines.append(styled(f"{shortened(value_of(fact), 200)}", (span, "cyan")))
        origin = f"{fact.id} · recorded {ago(fact.recorded_at)} · {source_of(fact)}"
        lines.append(styled((origin, "dim")))
    return lines


CHANGES = {"added": "green", "updated": "yellow", "deleted": "red", "restored": "cyan"}
"""The colour of each kind of change."""


def differences(before: "MemoryItem | None", after: "MemoryItem") -> "list[Text]":
    """Return what *after* has that *before* had not: words, then the rest."""
    if before is None:
        return [styled(one_line(after.content))]
    lines = [] if before.content == after.content else [_words(before.content, after.content)]
    had, has = dict(parts_of(before)), dict(parts_of(after))
    for name in [*had, *(name for name in has if name not in had)]:
        if name not in ("version", "changed") and had.get(name) != has.get(name):
            change = f"{had.get(name, 'none')} → {has.get(name, 'none')}"
            lines.append(styled((f"{name}: ", "dim"), change))
    return lines


def _words(before: str, after: str) -> "Text":
    line = styled()
    for piece in word_diff(before, after, context=None):
        if piece.kind == "same":
            line.append_text(styled(piece.text.replace("\n", " ")))
        elif piece.kind == "removed":
            line.append_text(styled((f"[-{piece.text}-]", "red")))
        else:
            line.append_text(styled((f"{{+{piece.text}+}}", "green")))
    return line
