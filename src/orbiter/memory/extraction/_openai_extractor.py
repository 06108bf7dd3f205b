"""An extractor on any OpenAI-compatible chat endpoint, hosted or local.

Every call ends within `deadline` seconds, retries included. Remembered text is data: it stands in
the prompt fenced, and what comes back is checked as strictly as if a stranger had written it:
an answer is taken as a whole, or not at all.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from orbiter.memory.context.prompt_fence import NOTICE, Entry, new_mark, render
from orbiter.memory.errors import ExtractionError, QueryError
from orbiter.memory.extraction._extractor import MAX_PROPOSALS, ProposedFact
from orbiter.memory.model.facts import FactMemory, dated
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import check_size
from orbiter.memory.model.trust import Trust, trust_of
from orbiter.memory.model.validation import to_utc
from orbiter.memory.summarizers.openai_summarizer import ChatService
from orbiter.memory.summary import without_thoughts
from orbiter.memory.text import words

__all__ = ["OpenAIExtractor"]

_TASK = """\
You keep the long-term memory of an assistant. You are given messages of a conversation, and what
is known already. Find lasting facts about the user and the user's world that the messages state:
where they live, what they do, like, own, avoid, plan, whom they know. Leave out what holds only
for this conversation, guesses, questions, and what is known already with the same value.

Answer with one JSON object and nothing else, no text around it, no code fence:
{"facts": [{"key": "home_city", "value": "Munich", "valid_from": "2024-03-01", "valid_to": null,
"messages": ["m3"], "confidence": 0.9}]}

key: short, lower case, with underscores; take a known key where one fits.
value: any JSON value, as short as it can be.
valid_from, valid_to: since when and until when it is true, as a date or ISO 8601 time, if the
messages say so, else null. Reckon "last March" from the time of the message.
messages: the names of the messages that state it, at least one, only names that are given.
confidence: from 0 to 1.
Without any such fact, answer {"facts": []}."""

_TRUST = {Trust.USER: "high", Trust.AGENT: "medium", Trust.TOOL: "medium"}


class OpenAIExtractor(ChatService):
    """Asks a chat model for facts.

    Without `api_key` the variable `OPENAI_API_KEY` is read; a server of your own, named by
    `base_url`, needs none. `timeout` bounds one attempt, `deadline` all of them. Of a message, the
    first `max_chars` characters are sent; of what is known already, at most 100 facts, first those
    that the messages speak of, then the newest. An answer of more than `max_facts` is refused.
    """

    def __init__(
        self,
        *,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
        deadline: float = 90.0,
        max_facts: int = 50,
        max_chars: int = 8_000,
    ) -> None:
        super().__init__(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            max_retries=max_retries,
            deadline=deadline,
        )
        if not 0 < check_size("max_facts", max_facts) <= MAX_PROPOSALS:
            raise QueryError(f"`max_facts` must be from 1 to {MAX_PROPOSALS}, not {max_facts}")
        self._max_facts = max_facts
        self._max_chars = check_size("max_chars", max_chars)

    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        """Return the facts that the model finds in *messages*; anything else is an error."""
        names = {f"m{number}": item for number, item in enumerate(messages, start=1)}
        prompt = _prompt(names, known, self._max_chars)
        answer = await self._ask(prompt)
        model = f"`{self.model}` at {self._where()}"
        ids = {name: item.id for name, item in names.items()}
        return read_answer(
            text_of(answer, model),
            messages=ids,
            max_facts=self._max_facts,
            model=model,
        )

    async def _ask(self, prompt: str) -> object:
        openai, model = self._openai, f"`{self.model}` at {self._where()}"
        try:
            async with asyncio.timeout(self.deadline), self._client() as client:
                return await client.chat.completions.create(
                    model=self.model,
                    messages=[
                        {"role": "system", "content": f"{_TASK}\n\n{NOTICE}"},
                        {"role": "user", "content": prompt},
                    ],
                )
        except (TimeoutError, openai.APITimeoutError) as exc:
            raise ExtractionError(
                f"{model} gave no answer in time ({self._timeout:g} s a try, {self.deadline:g} s "
                "in all); raise `timeout` or `deadline`"
            ) from exc
        except openai.APIStatusError as exc:
            way = {401: "check `api_key`", 403: "check `api_key`", 404: "check `model`"}
            cure = way.get(exc.status_code, "try again later")
            raise ExtractionError(
                f"{model} answered {exc.status_code}{self._reason(exc)}; {cure}"
            ) from exc
        except openai.APIConnectionError as exc:
            raise ExtractionError(f"cannot reach {self._where()} for `{self.model}`") from exc
        except openai.OpenAIError as exc:  # there is no key at all
            raise ExtractionError(f"{model}: {exc}") from exc
        except ValueError as exc:
            raise ExtractionError(f"{model} answered with something that is not JSON") from exc


def _prompt(
    names: Mapping[str, MemoryItem], known: Mapping[str, FactMemory], max_chars: int
) -> str:
    """Return messages and facts as fenced entries; whatever stands in them stays an entry."""
    mark = new_mark()
    facts = [
        Entry(text, source="known fact", time=fact.recorded_at)
        for fact, text in known_facts(known, names.values())
    ]
    said = [
        Entry(
            item.content if len(item.content) <= max_chars else f"{item.content[:max_chars]} […]",
            source=f"{name} {item.memory_type}",
            time=item.created_at,
            trust=_TRUST.get(trust_of(item), "low"),  # type: ignore[arg-type]  # our three words
        )
        for name, item in names.items()
    ]
    return render([*facts, *said], mark=mark)


MAX_ANSWER = 2**18
"""Longest answer that is read, in characters."""

_FIELDS = {"key", "value", "messages", "valid_from", "valid_to", "confidence"}
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


def text_of(answer: object, model: str) -> str:
    """Return the text of a chat completion; *model* names the model in errors."""
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise ExtractionError(f"{model} answered without any choice; check `base_url`")
    message = getattr(choices[0], "message", None)
    refusal = getattr(message, "refusal", None)
    if refusal:
        raise ExtractionError(f"{model} refused: {_excerpt(refusal)}")
    reason = getattr(choices[0], "finish_reason", None)
    if reason == "content_filter":
        raise ExtractionError(f"{model} refused: its filter blocked the answer")
    if reason == "length":
        raise ExtractionError(f"{model} was cut off in its answer; give it fewer messages")
    text = getattr(message, "content", None)
    if not isinstance(text, str) or not text.strip():
        raise ExtractionError(f"{model} answered nothing")
    return without_thoughts(text)


def read_answer(
    text: str, *, messages: Mapping[str, str], max_facts: int, model: str
) -> list[ProposedFact]:
    """Return the facts of an answer; *messages* are the names in it, and the ids they stand for."""
    if len(text) > MAX_ANSWER:
        raise ExtractionError(f"{model} answered {len(text):,} characters; {MAX_ANSWER:,} are read")
    answer = _json(text, model)
    if (
        not isinstance(answer, dict)
        or set(answer) != {"facts"}
        or type(answer["facts"]) is not list
    ):
        raise ExtractionError(
            f'{model} answered something other than {{"facts": […]}}: {_excerpt(text)}'
        )
    if len(answer["facts"]) > max_facts:
        raise ExtractionError(
            f"{model} answered {len(answer['facts'])} facts, at most {max_facts} are taken; give "
            "it fewer messages, or raise `max_facts`"
        )
    return [
        _fact(each, number, messages, model) for number, each in enumerate(answer["facts"], start=1)
    ]


def _json(text: str, model: str) -> object:
    stripped = text.strip()
    try:
        return json.loads(stripped, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        what = "JSON with something around it" if "{" in stripped[1:] else "no JSON"
        if stripped.startswith("{"):
            what = "damaged JSON"
        raise ExtractionError(f"{model} answered {what} ({exc}): {_excerpt(text)}") from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _fact(each: object, number: int, messages: Mapping[str, str], model: str) -> ProposedFact:
    where = f"{model}, fact {number} of its answer:"
    if not isinstance(each, dict):
        raise ExtractionError(f"{where} it is not an object, but {_excerpt(each)}")
    for name in ("key", "value", "messages"):
        if name not in each:
            raise ExtractionError(f"{where} it has no `{name}`")
    more = sorted(set(each) - _FIELDS)
    if more:
        raise ExtractionError(f"{where} it has `{_excerpt(more[0])}`, which was not asked for")
    names = each["messages"]
    if not isinstance(names, list) or not names:
        raise ExtractionError(
            f"{where} `messages` is not a list of messages, but {_excerpt(names)}"
        )
    unknown = [name for name in names if not isinstance(name, str) or name not in messages]
    if unknown:
        raise ExtractionError(f"{where} there is no message {_excerpt(unknown[0])}")
    try:
        return ProposedFact(
            key=each["key"],
            value=each["value"],
            message_ids=tuple(messages[name] for name in names),
            valid_from=_time(each, "valid_from"),
            valid_to=_time(each, "valid_to"),
            confidence=each.get("confidence"),
        )
    except (ExtractionError, ValueError) as exc:
        raise ExtractionError(f"{where} {exc}") from exc


def _time(each: dict[str, Any], name: str) -> datetime | None:
    """Return a time: `2024`, `2024-03`, `2024-03-01` or an ISO 8601 instant, UTC without a zone."""
    value = each.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ExtractionError(f"`{name}` is not a valid time: {_excerpt(value)}")
    text = f"{value}-01-01"[:10] if _DATE.fullmatch(value) else value
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ExtractionError(f"`{name}` is not a valid time: {_excerpt(value)}") from None


def _excerpt(value: object) -> str:
    """Return a little of what was answered, on one line."""
    text = value if isinstance(value, str) else repr(value)
    return " ".join(text.split())[:80].encode(errors="replace").decode()


MAX_FACTS = 100
"""Most known facts in a prompt."""
MAX_CHARS = 16_000
"""Most characters of them, all together."""
_LONGEST = 400
"""Characters of one value; a longer one is cut."""


def known_facts(
    known: Mapping[str, FactMemory], messages: Iterable[MemoryItem]
) -> list[tuple[FactMemory, str]]:
    """Return facts and their lines, by key: those the messages speak of, then the newest."""
    if not known:
        return []
    said = frozenset(term for item in messages for term in words.terms(item.content))
    lines = {key: _fact_line(key, fact) for key, fact in known.items()}

    def order(key: str) -> tuple[bool, float, str]:
        terms = words.terms(lines[key].replace("_", " "))
        return said.isdisjoint(terms), -known[key].recorded_at.timestamp(), key

    chosen: list[str] = []
    room = MAX_CHARS
    for key in sorted(known, key=order)[:MAX_FACTS]:
        room -= len(lines[key])
        if room < 0:
            break
        chosen.append(key)
    return [(known[key], lines[key]) for key in sorted(chosen)]


def _fact_line(key: str, fact: FactMemory) -> str:
    value = json.dumps(fact.value, ensure_ascii=False)
    short_value = value if len(value) <= _LONGEST else f"{value[:_LONGEST]} […]"
    return f"{key} = {short_value} {dated(fact)}".rstrip()
