"""Does it keep what matters? Six conversations with marked key facts, against a plain baseline.

A fact counts as kept when its marked words stand in the summary. The baseline takes sentences
from the start and the end in turn, up to the same number of characters.
"""

import re
import threading
from typing import Any

import pytest

from orbiter.memory import HumanMemory, MemoryItem, Summarizer, SummaryConfig, generate_summary
from orbiter.memory.summarizers import ExtractiveSummarizer, extractive
from orbiter.memory.summary import roll_summary

# Marked between ** **: what a reader would want to know a month later.
DIALOGUES = {
    "trip": """
Hi there! How are you today?
I'm good, thanks. Lovely weather, isn't it?
It really is. I was thinking about a holiday.
Oh nice! Tell me more about that.
We want to fly to **Lisbon on 14 May** with the kids.
That sounds great. Anything I should keep in mind?
Yes, my daughter Mia is **allergic to peanuts**.
Okay, good to know. I will remember that.
And the hotel must cost at most **120 euros** a night.
Sure. I can look around for you.
Great, thank you so much. You are very helpful.
You are welcome! Is there anything else?
No, that is all for now. Have a nice day!
Same to you. Bye!
""",
    "incident": """
Morning. Did you sleep well?
Not really, the pager went off all night.
Oh no. What happened?
The checkout service **returned 502 errors from 02:10 to 02:55**.
That is quite long. Do we know why?
Yes. The **connection pool was limited to 20** and filled up.
Hmm, I see. And now?
Anna raised it to **80 in release 4.3.1**.
Good. What about the customers?
We refunded **312 orders**. It was not that bad in the end.
Okay. Let us talk about it in the meeting.
Sure. Do you want some coffee?
Yes please, that would be great.
Here you go.
""",
    "health": """
Hello doctor.
Hello, please sit down. What can I do for you?
Well, I am just a bit tired these days.
I see. Since when do you feel that way?
Since I changed my medicine, I think.
Which medicine do you take at the moment?
I take **metformin 500 mg twice a day**.
Okay. Any other problems?
My knee hurts when I climb stairs, and I **cannot take ibuprofen**.
Understood. We will do a blood test.
Alright. When will that be?
The lab has time on **Tuesday at 8:15**.
That works well for me.
Good. See you then, and get some rest.
""",
    "project": """
Hey, do you have a minute?
Sure, what is up?
I wanted to talk about the new app.
Okay, go on, I am listening.
We decided to **build it with Flutter instead of React Native**.
Interesting. Why is that?
The team knows it better, that is all.
Fine with me. And what does it cost?
The budget is **45,000 dollars until March**.
That should be enough, I think.
Yes. **Priya Raman leads the design**.
Cool, I like working with her.
Me too. The first demo is **on 3 February for Nordwind**.
Alright, talk to you later then.
""",
    "german": """
Guten Morgen, wie geht es dir?
Danke, ganz gut, und dir?
Auch gut. Ich wollte dir etwas erzählen.
Ja, was denn?
Ich ziehe am **1. September nach Leipzig** um.
Ach, das ist ja schön.
Ja, ich freue mich sehr darauf.
Und was machst du dort?
Ich fange bei der **Firma Kranich als Bauingenieurin** an.
Das klingt wirklich gut.
Finde ich auch. Die Miete kostet **640 Euro warm**.
Das geht ja noch.
Ja, das stimmt. Bis bald!
Bis bald, mach es gut!
""",
    "shopping": """
Hi, can you help me find something?
Of course! What are you looking for?
I need a present for my father.
How nice. What does he like?
He loves gardening and **old jazz records by Thelonious Monk**.
Great choice. Anything else about him?
He will turn **70 on 9 November**.
Oh, that is a big one!
Yes it is. We are all very excited.
What size does he wear, in case of clothes?
He wears **size XL**, but please **nothing made of wool**.
Okay, no problem at all.
Thank you, you are a star.
My pleasure. Talk to you soon!
""",
}


def _lines(dialogue: str) -> list[str]:
    return [line for line in dialogue.replace("**", "").splitlines() if line]


def _facts(dialogue: str) -> list[str]:
    return re.findall(r"\*\*(.+?)\*\*", dialogue)


def _first_and_last(dialogue: str, characters: int) -> str:
    sentences = [s for line in _lines(dialogue) for s in re.split(r"(?<=[.!?]) ", line)]
    turns = sorted(range(len(sentences)), key=lambda i: min(i, len(sentences) - 1 - i))
    chosen: list[int] = []
    for index in turns:
        if sum(len(sentences[i]) + 1 for i in chosen) + len(sentences[index]) <= characters:
            chosen.append(index)
    return "\n".join(sentences[i] for i in sorted(chosen))


async def _summary(dialogue: str, **settings: int) -> str:
    items = [HumanMemory(content=line) for line in _lines(dialogue)]
    result = await generate_summary(
        items, SummaryConfig(keep_recent=0), ExtractiveSummarizer(**settings)
    )
    return result.summaries["conversation"]


async def test_it_keeps_far_more_key_facts_than_first_and_last_sentences() -> None:
    ours = baseline = total = 0
    for dialogue in DIALOGUES.values():
        summary = await _summary(dialogue, max_sentences=5)
        plain = _first_and_last(dialogue, len(summary))
        facts = _facts(dialogue)
        total += len(facts)
        ours += sum(fact in summary for fact in facts)
        baseline += sum(fact in plain for fact in facts)

    assert total == 21
    assert ours >= 17
    assert ours >= 3 * baseline


async def test_it_is_a_summarizer_and_always_says_the_same() -> None:
    assert isinstance(ExtractiveSummarizer(), Summarizer)
    assert await _summary(DIALOGUES["trip"]) == await _summary(DIALOGUES["trip"])


async def test_sentences_are_kept_word_for_word_and_in_order() -> None:
    dialogue = DIALOGUES["incident"]
    summary = await _summary(dialogue, max_sentences=4)
    text = " ".join(_lines(dialogue))

    places = [text.index(line.removeprefix("User: ")) for line in summary.splitlines()]

    assert len(places) == 4
    assert places == sorted(places)


@pytest.mark.parametrize(("sentences", "characters"), [(0, 100), (1, 1000), (3, 80), (50, 60)])
async def test_it_keeps_within_its_limits(sentences: int, characters: int) -> None:
    summary = await _summary(
        DIALOGUES["health"], max_sentences=max(1, sentences), max_chars=characters
    )

    assert 0 < len(summary) <= characters
    assert len(summary.splitlines()) <= max(1, sentences)


async def test_a_single_sentence_too_long_is_cut() -> None:
    summary = await ExtractiveSummarizer(max_chars=20).summarize("[HUMAN]: " + "word " * 50)

    assert len(summary) == 20
    assert summary.endswith("…")


async def test_long_texts_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int]] = []
    ended = extractive._SENTENCE_END

    class Watched:
        def split(self, text: str) -> list[str | Any]:
            seen.append((threading.current_thread() is threading.main_thread(), len(text)))
            return ended.split(text)

    monkeypatch.setattr(extractive, "_SENTENCE_END", Watched())
    await ExtractiveSummarizer().summarize("[HUMAN]: " + "y" * 900_000)

    assert not any(on_loop for on_loop, _ in seen)
    assert max(length for _, length in seen) < 100_000  # the interpreter's lock is held for each


async def test_repetition_takes_one_place() -> None:
    lines = ["The launch is on 7 July 2026."] * 10 + ["Bring the contract.", "Call Maria Lopez."]
    text = "\n".join(f"[HUMAN]: {line}" for line in lines)

    summary = await ExtractiveSummarizer(max_sentences=3).summarize(text)

    assert summary.splitlines() == [
        "User: The launch is on 7 July 2026.",
        "User: Bring the contract.",
        "User: Call Maria Lopez.",
    ]


@pytest.mark.parametrize("prompt", ["", "   ", "[HUMAN]: "])
async def test_nothing_said_gives_nothing(prompt: str) -> None:
    assert await ExtractiveSummarizer().summarize(prompt) == ""


async def test_something_is_said_without_words_too() -> None:
    items = [HumanMemory(content="👍") for _ in range(25)]

    result = await generate_summary(items, SummaryConfig(), ExtractiveSummarizer())

    assert result.summaries["conversation"].startswith("User: 👍")


async def test_chinese_sentences_are_told_apart() -> None:
    text = "[HUMAN]: 你好。我下周三去上海出差。谢谢！\n[AI]: 好的。\n[HUMAN]: 酒店预算是800元。"

    summary = await ExtractiveSummarizer(max_sentences=2).summarize(text)

    assert summary.splitlines() == ["User: 我下周三去上海出差。", "User: 酒店预算是800元。"]


async def test_a_tool_call_tells_less_than_a_person() -> None:
    text = '[HUMAN]: I live in Oslo.\n[AI]: → get_weather({"city": "Oslo", "unit": "C"})'

    assert await ExtractiveSummarizer(max_sentences=1).summarize(text) == "User: I live in Oslo."


async def test_data_of_a_tool_leaves_its_place_to_what_people_say() -> None:
    data = (
        '{"hotels": [' + ", ".join(f'{{"name": "Hotel {n}", "id": {n}}}' for n in range(30)) + "]}"
    )
    said = "\n".join(f"[HUMAN]: We decided on item {n} of the kitchen plan." for n in range(12))

    summary = await ExtractiveSummarizer().summarize(f"[TOOL]: {data}\n{said}")

    assert "Hotel" not in summary
    assert "kitchen plan" in summary


async def test_a_summary_so_far_is_read_line_by_line() -> None:
    config, summarizer = SummaryConfig(keep_recent=0), ExtractiveSummarizer(max_sentences=2)
    first = [HumanMemory(content="My room is 12."), HumanMemory(content="My name is Ada.")]
    once = await generate_summary(first, config, summarizer)

    twice = await roll_summary(once.summaries, [HumanMemory(content="Ok?")], config, summarizer)

    said = ["User: My room is 12.", "User: My name is Ada."]
    assert twice.summaries["conversation"].splitlines() == said


async def test_facts_live_through_many_rolling_summaries() -> None:
    config = SummaryConfig(keep_recent=0)
    summarizer = ExtractiveSummarizer()
    summaries: dict[str, str] = {}
    facts = ["Mia is allergic to peanuts.", "The alarm code is 4711."]
    small_talk = ["How are you?", "Fine, thanks.", "Nice weather today.", "Yes, very nice."]
    for turn in range(12):
        said = facts if turn == 0 else small_talk
        items: list[MemoryItem] = [HumanMemory(content=line) for line in said]
        summaries = (await roll_summary(summaries, items, config, summarizer)).summaries

    assert all(fact in summaries["conversation"] for fact in facts)


async def test_each_line_names_who_said_it_and_politeness_is_left_out() -> None:
    text = (
        "[HUMAN]: We fly to Lisbon on 14 May.\n[AI]: Lovely! Tram 28 is empty before nine.\n"
        "[HUMAN]: Good. Thanks!\n[AI]: You're welcome.\n[TOOL]: 24 °C, sunny\n"
        "[Priya Raman]: I lead the design."
    )

    summary = await ExtractiveSummarizer().summarize(text)

    assert summary.splitlines() == [
        "User: We fly to Lisbon on 14 May.",
        "Assistant: Tram 28 is empty before nine.",
        "Tool: 24 °C, sunny.",
        "Priya Raman: I lead the design.",
    ]


async def test_what_was_said_last_has_a_place_after_many_rounds() -> None:
    config, summarizer = SummaryConfig(keep_recent=0), ExtractiveSummarizer(max_sentences=4)
    summaries: dict[str, str] = {}
    for month in ("March", "April", "May", "June", "July", "August", "October"):
        items: list[MemoryItem] = [HumanMemory(content=f"The {month} budget is paid to Anna")]
        items.append(HumanMemory(content=f"Our {month} meeting is in the garden room"))
        summaries = (await roll_summary(summaries, items, config, summarizer)).summaries

    kept = summaries["conversation"].splitlines()
    assert "October" in kept[-1]
    assert sum("User: " in line for line in kept) == len(kept) == 4


async def test_a_long_result_of_a_tool_is_not_quoted_at_length() -> None:
    prices = "price " + "x" * 700 + " " + "of a thing " * 60
    text = f"[HUMAN]: What does it cost?\n[TOOL]: {prices}\n[AI]: It costs 12 euros."

    once = await ExtractiveSummarizer().summarize(text)
    twice = await ExtractiveSummarizer().summarize(
        "".join(f"[SUMMARY]: {line}\n" for line in [*once.splitlines(), f"Tool: {prices}"])
    )

    for summary in (once, twice):
        assert "Assistant: It costs 12 euros." in summary
        results = [line for line in summary.splitlines() if line.startswith("Tool: price")]
        assert results
        assert all(len(line) <= 170 and line.endswith("…") for line in results)


async def test_a_sentence_is_in_a_summary_once() -> None:
    text = "\n".join(
        f"[{kind}]: The launch is on 7 July 2026{end}"
        for end in (".", "")
        for kind in ("SUMMARY", "HUMAN", "AI", "HUMAN", "TOOL")
    )

    summary = await ExtractiveSummarizer().summarize(text)

    assert summary == "The launch is on 7 July 2026."
