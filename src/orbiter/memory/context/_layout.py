"""Layout of a context within its token budget: sections in order, each with its room.

Stable parts first: persona, summary, conversation; then what was recalled for this task
alone; the task last. Sums are of parts and err high; the whole is counted before it leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from orbiter.memory.context._prices import TASK, Block, Costs, Prices, Section, join
from orbiter.memory.context._rounds import fit_rounds, flat, share_of
from orbiter.memory.context._visible import Parts, find_visible
from orbiter.memory.context.entries import (
    Candidate,
    Dropped,
    Reason,
    TrustRule,
    drop,
    fit_entries,
    round_down,
    speaker,
)
from orbiter.memory.context.prompt_fence import closing_line
from orbiter.memory.conversation.tokens import CONVERSATION_TOKENS, MESSAGE_TOKENS, TokenCounter
from orbiter.memory.conversation.windows import Unit
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import Format
from orbiter.memory.messages.costs import has_media, sent_tokens
from orbiter.memory.model.copying import copy_items, unchecked_item
from orbiter.memory.model.items import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
)

PRIORITY = ("memories", "recent", "conversation")
"""The sections that may shrink, the one kept longest first; the persona is never cut.

Each takes what it wants if the ones behind it still get all they want, otherwise at most half of
what is left, so none can starve the others; the last one takes the rest.
"""

_SLACK = 8  # a heading and a message that appear only beside other sections


@dataclass(frozen=True, slots=True)
class Draft:
    """A context as laid out for some room."""

    sections: tuple[Section, ...]
    prefix: str
    prefix_tokens: int
    items: tuple[MemoryItem, ...]
    dropped: tuple[Dropped, ...]
    marks: tuple[str, str]
    text: str
    tokens: int


def compose(
    parts: Parts,
    *,
    budget: int | None,
    counter: TokenCounter,
    priority: Sequence[str],
    trust: TrustRule,
    secret: bytes,
    costs: Costs,
    format: Format,
) -> Draft:
    """Return the fullest draft within *budget*; `QueryError` if persona and task do not fit.

    A task that is the newest message of the conversation's user is shortened where need be.
    """

    def layout_of(parts: Parts) -> _Layout:
        prices = Prices(parts, counter=counter, trust=trust, secret=secret, costs=costs)
        return _Layout(parts, prices, priority=priority, trust=trust, format=format)

    layout = layout_of(parts)
    if budget is None:
        return layout.draft(None)
    least = layout.draft(-1, is_trial=True)
    if least.tokens <= budget and not layout.is_crowded(budget - least.tokens):
        return _fullest(layout, least, budget)
    short = layout.with_short_task(least.tokens, budget)
    if short is not None:
        layout = layout_of(short[0])
        lesser = layout.draft(-1, is_trial=True)
        if lesser.tokens <= budget:
            draft = _fullest(layout, lesser, budget)
            return replace(draft, dropped=(*draft.dropped, short[1]))
    if least.tokens <= budget:
        return _fullest(layout, least, budget)
    who = f"the persona ({counter(parts.persona):,} tokens), " if parts.persona else ""
    raise QueryError(
        f"{who}the task ({counter(parts.task):,} tokens) and what always comes with it need "
        f"{least.tokens:,} tokens, the budget is {budget:,}; raise `budget`, or shorten "
        f"{'the persona or ' if who else ''}the task"
    )


def _fullest(layout: "_Layout", least: Draft, budget: int) -> Draft:
    """Return the fullest draft within *budget*, which holds the *least* one."""
    room = budget - least.tokens - _SLACK
    while room > 0:
        draft = layout.draft(room)
        if draft.tokens <= budget:
            return draft
        # A counter may find the whole longer than its parts, and a provider's form cost more than
        # its items: by about the same part of any room. An eighth at least ends that soon.
        fitting = room * (budget - least.tokens) // (draft.tokens - least.tokens)
        room = min(fitting, room - max(room // 8, 1))
    return layout.draft(-1)


class _Layout:
    """The parts that may be shown, what each costs, and how they are laid out."""

    def __init__(
        self,
        parts: Parts,
        prices: Prices,
        *,
        priority: Sequence[str],
        trust: TrustRule,
        format: Format,
    ) -> None:
        self._parts = parts
        self._prices = prices
        self._priority = priority
        self._trust = trust
        self._format = format
        self._wants: dict[str, int] = {}
        self._visible = find_visible(parts)
        self._refused = [self._drop_item(*each) for each in self._visible.refused_items]
        self._refused += [
            drop(name, each, reason, prices.entry(each.entry))
            for name, each, reason in self._visible.refused
        ]

    def is_crowded(self, room: int) -> bool:
        """Tell whether a picture that was sent with the task has no room beside its text.

        Such a message stands in the conversation, too, and its text is counted twice.
        """
        question = self._visible.question
        if question is None or not question.native:
            return False
        left = room - self._prices.frame("conversation") - _SLACK
        return self._prices.item(question) > left and has_media(question)

    def with_short_task(self, least: int, budget: int) -> tuple[Parts, Dropped] | None:
        """Return the parts with a task short enough for *budget*, and what was left out of it.

        `None` if it is no message of a user, or there is no room. All without it cost *least*.
        """
        question = self._visible.question
        if question is None:
            return None
        task = self._prices.text(self._parts.task)
        free = budget - (least - task) - _SLACK
        others = (self._want(name) for name in ("summary", *self._priority))
        # If tools have answered it already, it stands in the conversation, too.
        is_last = not any(unit[0] is question for unit in self._visible.units)
        copy = self._prices.shortened_item(
            question, share_of(free, others) if is_last else free // 4
        )
        if copy is None or copy.content == question.content:
            return None
        history = [copy if item is question else item for item in self._parts.history]
        parts = replace(self._parts, task=copy.content, history=history)
        left = task - self._prices.text(copy.content)
        return parts, Dropped("task", speaker(question), "shortened", left, question.id)

    def draft(self, room: int | None, *, is_trial: bool = False) -> Draft:
        """Return the layout with *room* tokens for all that may shrink; none if it is negative.

        A trial tells only what it costs, and not what was dropped.
        """
        items, chosen, dropped = self._fit(room, is_trial=is_trial)
        stable = [_plain("persona", self._parts.persona)] if self._parts.persona else []
        summary = [self._block("summary", chosen["summary"])] if chosen["summary"] else []
        volatile = [
            self._block(name, chosen[name]) for name in ("recent", "memories") if chosen[name]
        ]
        task = _plain("task", f"{TASK}\n{self._parts.task}")
        sent = self._sent(items, summary=summary, volatile=volatile, task=task)
        stable += summary
        prefix = [*stable, _plain("conversation", "")]
        if items:
            stable.append(self._prices.conversation(items))
            prefix[-1] = stable[-1].without_end(closing_line(self._prices.stable))
        blocks = [*stable, *volatile, task]
        sections = tuple(map(self._prices.section, blocks))
        text, tokens = self._counted(blocks)
        begin, begin_tokens = self._counted(prefix)
        as_text = CONVERSATION_TOKENS + MESSAGE_TOKENS + tokens
        as_messages = sent_tokens(sent, self._format, counter=self._prices.count)
        return Draft(
            sections=sections,
            prefix=begin,
            prefix_tokens=begin_tokens,
            items=tuple(sent),
            dropped=(*self._refused, *dropped),
            marks=self._prices.marks,
            text=text,
            tokens=max(as_text, as_messages),
        )

    def _sent(
        self,
        items: Sequence[MemoryItem],
        *,
        summary: Sequence[Block],
        volatile: Sequence[Block],
        task: Block,
    ) -> list[MemoryItem]:
        """Return the same as items to be sent as messages.

        What was recalled stands with the question that it was recalled for, whatever tools have
        answered since: so a model that calls tools reads on where it stopped, and nobody speaks
        between a tool and the model.
        """
        # Made without checks: the parts were checked, and no limit on one memory holds for all.
        made = partial(unchecked_item, metadata=MemoryMetadata())
        sent: list[MemoryItem] = []
        if self._parts.persona:
            sent.append(made(SystemMemory, self._parts.persona))
        if summary:
            # Not the system's: what was said does not gain authority by being summed up.
            sent.append(made(HumanMemory, self._counted(summary)[0]))
        question = self._visible.question
        for item, copy in zip(items, copy_items(items), strict=True):
            if item is not question or not volatile:
                sent.append(copy)
            elif copy.native:  # a picture or the like comes with it
                sent += [made(HumanMemory, self._counted(volatile)[0]), copy]
            else:
                sent.append(made(HumanMemory, self._counted([*volatile, task])[0]))
        if not any(item is question for item in items):
            last = self._counted([*volatile, task])[0] if volatile else self._parts.task
            sent.append(made(HumanMemory, last))
        return sent

    def _counted(self, blocks: Sequence[Block]) -> tuple[str, int]:
        text = join(block.text for block in blocks)
        return text, self._prices.tokens(text, blocks)

    def _block(self, name: str, candidates: Sequence[Candidate]) -> Block:
        return self._prices.block(name, [each.entry for each in candidates])

    def _fit(
        self, room: int | None, *, is_trial: bool
    ) -> tuple[list[MemoryItem], dict[str, list[Candidate]], list[Dropped]]:
        """Share *room*: first the summary's part of it, then by priority."""
        items: list[MemoryItem] = []
        chosen: dict[str, list[Candidate]] = {}
        dropped: list[Dropped] = []
        for place, name in enumerate(("summary", *self._priority)):
            share = None
            if room is not None and name == "summary":
                share = self._summary_share(room)
            elif room is not None:
                share = self._share(room, name, self._priority[place:])
                share -= self._prices.frame(name)
            if name == "conversation":
                items = self._fit_conversation(share)
                lost = [] if is_trial else self._lost(items)
            else:
                wanted = self._visible.candidates[name]
                chosen[name], lost = fit_entries(name, wanted, share, cost=self._prices.entry)
            dropped += lost
            if room is not None:
                taken = [self._prices.entry(each.entry) for each in chosen.get(name, ())]
                taken += map(self._prices.item, items if name == "conversation" else ())
                room -= sum(taken) + (self._prices.frame(name) if taken else 0)
        twice = self._duplicates(items, chosen)
        dropped += twice
        gone = {each.id for each in twice}
        chosen = {
            name: [each for each in kept if each.id is None or each.id not in gone]
            for name, kept in chosen.items()
        }
        return items, chosen, dropped

    def _duplicates(
        self, items: Sequence[MemoryItem], chosen: dict[str, list[Candidate]]
    ) -> list[Dropped]:
        """Return what was found and stands in the conversation, or is the task, already."""
        ids = {item.id for item in items}
        if self._visible.question is not None:
            ids.add(self._visible.question.id)
        return [
            drop(name, each, "duplicate", self._prices.entry(each.entry))
            for name, kept in chosen.items()
            for each in kept
            if each.id in ids
        ]

    def _summary_share(self, room: int) -> int:
        """Return the room for the summary's entry: a quarter of *room*, or what others leave.

        A summary that must be shortened gets a round number of tokens: the room differs from turn
        to turn with the task and the memories, and the summary is part of what stays the same.
        """
        want = self._want("summary")
        most = room // 4
        if want > most:
            most = max(most, room - sum(map(self._want, self._priority)))
        left = most - self._prices.frame("summary")
        return left if want <= most else round_down(left)

    def _share(self, room: int, name: str, behind: Sequence[str]) -> int:
        most = room // 2 if behind else room
        # What the others want is asked only when it matters: it counts the whole conversation.
        if self._want(name) > most:
            most = max(most, room - sum(map(self._want, behind)))
        return most

    def _want(self, name: str) -> int:
        if name not in self._wants:
            self._wants[name] = self._count_want(name)
        return self._wants[name]

    def _count_want(self, name: str) -> int:
        if name == "conversation":
            wants = [self._prices.item(item) for unit in self._visible.units for item in unit]
        else:
            wants = [self._prices.entry(each.entry) for each in self._visible.candidates[name]]
        return sum(wants) + self._prices.frame(name) if wants else 0

    def _fit_conversation(self, room: int | None) -> list[MemoryItem]:
        if room is None:
            return flat(self._visible.units)
        if room < 0:
            return []
        units, cost = self._visible.units, self._prices.item
        if units and units[-1][0] is self._visible.question and cost(units[-1][0]) > room:
            units = units[:-1]  # it is asked below, and takes the place of no round before it
        return fit_rounds(units, room, cost=cost, shorten=self._shortened)

    def _shortened(self, unit: Unit, room: int) -> Unit | None:
        # What is asked now stands below as the task, whole, if it has no room here.
        return None if unit[0] is self._visible.question else self._prices.shortened(unit, room)

    def _lost(self, kept: Sequence[MemoryItem]) -> list[Dropped]:
        """Return what is missing of the conversation if *kept* is shown."""
        copies = {id(self._prices.original(item)): item for item in kept}
        lost = []
        for item in flat(self._visible.units):
            copy = copies.get(id(item))
            if copy is None:
                lost.append(self._drop_item(item, "budget"))
            elif copy is not item:
                whole = self._drop_item(item, "shortened")
                lost.append(replace(whole, tokens=whole.tokens - self._prices.item(copy)))
        return lost

    def _drop_item(self, item: MemoryItem, reason: Reason) -> Dropped:
        return Dropped("conversation", speaker(item), reason, self._prices.item(item), item.id)


def _plain(name: str, text: str) -> Block:
    return Block(name, text, text)
