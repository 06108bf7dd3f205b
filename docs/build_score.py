"""Draws how a score is made to docs/score.svg, from a real recall: `python docs/build_score.py`.

A test keeps it current: where the weights change, so does the picture.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

from orbiter.memory import AgentMemory
from orbiter.memory.recall import Hit, Reason

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
COLOURS = {"answers": "e", "about": "e", "contains": "a", "similar": "b", "related": "c"}
"""By the first word of a reason."""
LEFT, BAR, ROW = 24, 28, 112
LONGEST = 700
"""How wide the longest bar is."""

_STYLE = """\
  .page { fill: #ffffff } .text { fill: #10233d; font: 600 15px system-ui, sans-serif }
  .note { fill: #4a5a70; font: 13px system-ui, sans-serif }
  .part { fill: #ffffff; font: 12px system-ui, sans-serif }
  .a { fill: #1f5fa8 } .b { fill: #2d7d5a } .c { fill: #8a5a18 } .d { fill: #6b4a9c }
  .e { fill: #0b6a72 } .against { fill: #9c3a34 }
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
    """Return the picture: two bars for each hit, a part for each reason."""
    height = 56 + ROW * len(found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height}" role="img">',
        "<title>How a score is made: the points of its reasons, added up</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="1000" height="{height}" rx="10"/>',
        f'<text class="text" x="{LEFT}" y="34">“{escape(QUESTION)}”</text>',
    ]
    sums = [_sum(reasons) for hit in found for reasons in _for_and_against(hit)]
    for number, hit in enumerate(found):
        lines += _row(hit, 56 + ROW * number, LONGEST / max(sums))
    return "\n".join([*lines, "</svg>", ""])


def _for_and_against(hit: Hit) -> tuple[list[Reason], list[Reason]]:
    pro = [reason for reason in hit.why if reason.points > 0]
    return pro, [reason for reason in hit.why if reason.points < 0]


def _sum(reasons: list[Reason]) -> float:
    return sum(abs(reason.points) for reason in reasons)


def _row(hit: Hit, top: int, scale: float) -> list[str]:
    """Return a bar of what speaks for a hit, and one of what speaks against it."""
    lines = [f'<text class="note" x="{LEFT}" y="{top + 14}">{escape(hit.item.content)}</text>']
    both = _for_and_against(hit)
    for number, reasons in enumerate(both):
        at, y = float(LEFT), top + 22 + (BAR + 3) * number
        for reason in reasons:
            kind = "against" if number else COLOURS.get(reason.text.split()[0], "d")
            width = abs(reason.points) * scale
            lines.append(
                f'<rect class="{kind}" x="{at:.0f}" y="{y}" width="{width:.0f}" height="{BAR}"/>'
            )
            inside = f"{reason.points:+.1f}  {reason.text.partition(' (')[0]}"
            lines.append(
                f'<svg x="{at:.0f}" y="{y}" width="{max(width - 6, 0):.0f}" height="{BAR}">'
                f'<text class="part" x="8" y="19">{escape(inside)}</text></svg>'
            )
            at += width
    end = LEFT + max(map(_sum, both)) * scale
    tail = f"= {hit.score:.1f} points, relevance {hit.relevance:.2f}"
    lines.append(f'<text class="note" x="{end + 12:.0f}" y="{top + 22 + BAR + 6}">{tail}</text>')
    return lines


def main() -> None:
    """Draw it."""
    PICTURE.write_text(draw(asyncio.run(hits())))


if __name__ == "__main__":
    main()
