"""What the tour tells: a family plans a trip, and the agent helps with tools."""

__all__ = ["CHAT", "FACTS", "SECRET", "SOUL", "TASK"]

SOUL = """\
---
name: Nova
voice: brief and warm
rules:
  - Ask before you book anything.
---
You plan trips.
"""

FACTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Mia is allergic to peanuts", ("health", "family")),
    ("Leo gets sick on long bus rides", ("health", "family")),
    ("We prefer small family-run restaurants by the sea", ("taste",)),
    ("The budget for hotels is 120 euros a night", ("money",)),
    ("Last summer we loved the night train to Vienna", ("travel",)),
    ("Passports are valid until March 2031", ("papers",)),
)
"""What alice has told over the months, with tags."""

SECRET = "My door code is 4711"  # noqa: S105 - of a door that is nowhere

TASK = "Where could we have dinner on the first evening?"


def _call(call_id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CHAT: tuple[dict[str, object], ...] = (
    {"role": "user", "content": "We fly to Lisbon on 14 May, with Mia and Leo."},
    {"role": "assistant", "content": "Lovely! How long will you stay?"},
    {"role": "user", "content": "Five days, and we land at noon. Leo wants to see the trams."},
    {
        "role": "assistant",
        "content": "Tram 28 starts near Martim Moniz; before nine it is still empty. I can put it "
        "on your second morning and keep the afternoon free for the aquarium.",
    },
    {"role": "user", "content": "Good. What will the weather be like, and is the sea warm?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            _call("call_1", "get_weather", '{"city": "Lisbon", "day": "14 May"}'),
            _call("call_2", "get_sea", '{"city": "Lisbon"}'),
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "24 °C, sunny, wind from the west"},
    {"role": "tool", "tool_call_id": "call_2", "content": "17 °C"},
    {"role": "assistant", "content": "Sunny and 24 °C. The sea has 17 °C: for brave feet only."},
)
