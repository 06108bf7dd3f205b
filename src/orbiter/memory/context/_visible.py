"""What of the parts of a context may be shown, and why the rest may not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from orbiter.memory.context.entries import Candidate, Reason
from orbiter.memory.context.prompt_fence import Entry
from orbiter.memory.conversation.windows import Unit, newest_first, stands_alone, walk_units
from orbiter.memory.model.items import MemoryItem, MemoryStatus, role_of


@dataclass(frozen=True, slots=True)
class Parts:
    """What a context is made of."""

    persona: str
    """Empty where the agent has none."""
    summary: str
    """What was said before `history`, in short; empty where there is nothing to say."""
    task: str
    history: list[MemoryItem]
    foreign: list[MemoryItem]
    """What the conversation holds of others, and is not shown."""
    remembered: Mapping[str, list[Candidate]]
    """What to show in the sections `recent` and `memories`."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What may be shown, and what may not."""

    units: list[Unit]
    """The conversation's whole units, oldest first, without the task if nothing has followed it."""
    question: MemoryItem | None
    """The message that asks the task, if the model has not answered it."""
    candidates: dict[str, list[Candidate]]
    """What wants to be shown as entries, by section."""
    refused_items: list[tuple[MemoryItem, Reason]]
    refused: list[tuple[str, Candidate, Reason]]


def find_visible(parts: Parts) -> Visible:
    """Return what of *parts* may be shown."""
    units, refused_items = _sift_history(parts)
    question = _open_question(units, parts.task)
    if question is not None and not question.native:
        place = next(place for place, unit in enumerate(units) if unit[0] is question)
        # Where nobody has answered it is asked last, as the task, and not here. With a picture or
        # the like it stays where it is.
        if all(role_of(unit[0]) == "system" for unit in units[place + 1 :]):
            units.pop(place)
    candidates, refused = _sift_remembered(parts.remembered)
    # A summary is derived from all that was said, and no more reliable than the least of it.
    summary = Candidate(Entry(parts.summary, "summary", trust="low"))
    candidates["summary"] = [summary] if parts.summary else []
    return Visible(units, question, candidates, refused_items, refused)


def _sift_history(parts: Parts) -> tuple[list[Unit], list[tuple[MemoryItem, Reason]]]:
    refused: list[tuple[MemoryItem, Reason]] = [(item, "scope") for item in parts.foreign]
    accepted = [item for item in parts.history if item.status is MemoryStatus.ACCEPTED]
    if len(accepted) == len(parts.history) and all(map(stands_alone, accepted)):  # as most do
        return [[item] for item in accepted], refused
    messages = [item for item in accepted if role_of(item) is not None]
    units = [unit for _, unit in walk_units(newest_first(messages))][::-1]
    whole = {id(item) for unit in units for item in unit}
    for item in parts.history:
        if id(item) not in whole:
            kind: Reason = "incomplete" if role_of(item) else "kind"
            is_accepted = item.status is MemoryStatus.ACCEPTED
            refused.append((item, kind if is_accepted else "status"))
    return units, refused


def _sift_remembered(
    remembered: Mapping[str, list[Candidate]],
) -> tuple[dict[str, list[Candidate]], list[tuple[str, Candidate, Reason]]]:
    seen: set[str] = set()
    candidates: dict[str, list[Candidate]] = {}
    refused: list[tuple[str, Candidate, Reason]] = []
    for name, listed in remembered.items():
        candidates[name] = []
        for each in listed:
            reason = each.refused or ("duplicate" if each.id in seen else None)
            if reason:
                refused.append((name, each, reason))
                continue
            candidates[name].append(each)
            if each.id is not None:
                seen.add(each.id)
    return candidates, refused


def _open_question(units: Sequence[Unit], task: str) -> MemoryItem | None:
    """Return the newest message of a person if it asks the task and only tools have spoken since.

    A model that is asked the same again after its tools' results may well call them again. In the
    text the task stays: there, the conversation is data.
    """
    spoken = (unit for unit in reversed(units) if role_of(unit[0]) != "system")
    last = next(spoken, None)
    if last is None or role_of(last[-1]) not in ("human", "tool"):
        return None
    question = next(
        (unit[0] for unit in chain([last], spoken) if role_of(unit[0]) == "human"), None
    )
    return question if question is not None and question.content == task else None
