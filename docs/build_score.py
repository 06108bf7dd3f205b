"""Draws how a score is made to docs/score.svg, from a real recall: `python docs/build_score.py`.

A test keeps it current: where the weights change, so does the picture.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

from orbiter.memory import AgentMemory
from orbiter.memory.recall import Hit

PICTURE = Path(__file__).with_name("score.svg")

QUESTION = "Where will Eva live?"
NOTES = (
    "My sister Eva moves to Oslo in May",
    "I love hiking in the mountains",
    "Eva works as a nurse in Bergen",
    "The door code of the office is 4711",
    "Oslo was cold when I was there last winter",
)
WHEN = datetime(2026, 3, 1, tzinfo=UTC)
COLOURS = {"contains": "a", "similar": "b", "related": "c"}
"""By the first word of a reason."""
LEFT, BAR, ROW = 24, 32, 80
LONGEST = 700
"""How wide the bar of the best is."""

_STYLE = """\
  .page { fill: #ffffff } .text { fill: #10233d; font: 600 15px system-ui, sans-serif }
  .note { fill: #4a5a70; font: 13px system-ui, sans-serif }
  .part { fill: #ffffff; font: 12px system-ui, sans-serif }
  .a { fill: #1f5fa8 } .b { fill: #2d7d5a } .c { fill: #8a5a18 } .d { fill: #6b4a9c }
  @media (prefers-color-scheme: dark) {
    .page { fill: #10151d } .text { fill: #eaf1fb } .note { fill: #a9b6c8 }
  }"""


async def hits() -> list[Hit]:
    """Return what is recalled of the notes."""
    async with AgentMemory("memory://") as memory:
        alice = memory.scope(user_id="alice")
        for note in NOTES:
            await alice.remember(note, created_at=WHEN)
        return [*await alice.recall(QUESTION, k=3, explain=True)]


def draw(found: list[Hit]) -> str:
    """Return the picture: a bar for each hit, a part for each reason that speaks for it."""
    height = 56 + ROW * len(found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height}" role="img">',
        "<title>How a score is made: the points of its reasons, added up</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="1000" height="{height}" rx="10"/>',
        f'<text class="text" x="{LEFT}" y="34">“{escape(QUESTION)}”</text>',
    ]
    for number, hit in enumerate(found):
        lines += _row(hit, 56 + ROW * number, LONGEST / found[0].score)
    return "\n".join([*lines, "</svg>", ""])


def _row(hit: Hit, top: int, scale: float) -> list[str]:
    lines = [f'<text class="note" x="{LEFT}" y="{top + 14}">{escape(hit.item.content)}</text>']
    at = float(LEFT)
    reasons = [reason for reason in hit.why if reason.points > 0]
    for reason in reasons:
        kind = COLOURS.get(reason.text.split()[0], "d")
        width = reason.points * scale
        lines.append(
            f'<rect class="{kind}" x="{at:.0f}" y="{top + 22}" width="{width:.0f}" height="{BAR}"/>'
        )
        inside = f"{reason.points:.1f}  {reason.text.partition(' (')[0]}"
        lines.append(
            f'<svg x="{at:.0f}" y="{top + 22}" width="{max(width - 6, 0):.0f}" height="{BAR}">'
            f'<text class="part" x="8" y="21">{escape(inside)}</text></svg>'
        )
        at += width
    tail = f"= {hit.score:.1f} points, relevance {hit.relevance:.2f}"
    lines.append(f'<text class="note" x="{at + 12:.0f}" y="{top + 44}">{tail}</text>')
    return lines


def main() -> None:
    """Draw it."""
    PICTURE.write_text(draw(asyncio.run(hits())))


if __name__ == "__main__":
    main()
