"""Takes the pictures of README and docs from the real program: `make pictures`.

The terminal is what `orbiter-memory demo` prints, drawn by rich; the pages are those of the
dashboard on the sample data, in Chromium. Each is made for light and for dark, and loads nothing
from elsewhere.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from io import StringIO
from pathlib import Path
from urllib.parse import urlencode

from playwright.async_api import Browser, async_playwright, expect
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from tests.browser import _chromium

from orbiter.memory import AgentMemory
from orbiter.memory.cli._sample_data import SOUL, TASK, fill
from orbiter.memory.server import Settings, create_app, serving

FOLDER = Path(__file__).with_name("pictures")
WIDTH = 80
_TRIP = {"user_id": "alice", "agent_id": "planner", "chat": "lisbon", "budget": 480, "q": TASK}
PAGES = {
    "context-lab": f"/context?{urlencode(_TRIP)}",
    "dashboard": "/",
    "recall-lab": "/recall?user_id=alice&q=What+should+Mia+not+be+given+to+eat%3F",
}
"""The name of a picture, and the page of the dashboard that it shows."""

_NORMAL = ((60, 64, 72), (200, 40, 41), (30, 125, 60), (150, 100, 0), (33, 91, 190))
_BRIGHT = ((139, 148, 158), (255, 123, 114), (86, 211, 100), (227, 179, 65), (121, 192, 255))
THEMES = {
    "light": TerminalTheme(
        (255, 255, 255), (36, 41, 47), [*_NORMAL, (130, 60, 170), (10, 120, 130), (110, 118, 129)]
    ),
    "dark": TerminalTheme(
        (13, 17, 23), (230, 237, 243), [*_BRIGHT, (210, 168, 255), (86, 212, 221), (177, 186, 196)]
    ),
}
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def tour() -> list[str]:
    """Return the lines that the tour prints, with their colours, on a terminal of 80 columns."""
    program = Path(sys.executable).absolute().with_name("orbiter-memory")
    env = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    env["PATH"] = f"{program.parent}{os.pathsep}{env['PATH']}"  # so that it has a short name
    env.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own program
            [program, "demo"],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.splitlines()


def scenes(lines: list[str]) -> list[list[str]]:
    """Return the parts of the tour; each begins with its title."""
    starts = [n for n, line in enumerate(lines) if re.match(r"── +\w", Text.from_ansi(line).plain)]
    return [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]


def drawn(lines: list[str], *, theme: str, title: str) -> str:
    """Return lines of a terminal as an SVG."""
    console = Console(
        width=WIDTH, record=True, file=StringIO(), force_terminal=True, highlight=False
    )
    for line in lines:
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    svg = console.export_svg(
        title=title, theme=THEMES[theme], code_format=_SVG, unique_id=f"tour-{theme}"
    )
    # rich frames it in white, which nobody sees on a light page.
    return svg.replace("TITLE", title).replace("rgba(255,255,255,0.35)", "rgba(128,128,128,0.5)")


def recording(parts: list[list[str]], *, theme: str) -> str:
    """Return the tour as an SVG that moves: a part at a time, and its lines one after another."""
    height = max(len(part) for part in parts) + 1
    padded = [line for part in parts for line in part + [""] * (height - len(part))]
    svg = drawn(padded, theme=theme, title="orbiter-memory demo")
    name = f"tour-{theme}"
    pitch = 24.4  # of a line, as rich draws it
    seconds = 6 * len(parts)
    steps = "".join(
        f"{100 * n / len(parts):.3f}%,{100 * (n + 1) / len(parts) - 0.01:.3f}%"
        f"{{transform:translateY({-n * height * pitch:.1f}px)}}"
        for n in range(len(parts))
    )
    moves = (
        f"@media (prefers-reduced-motion:no-preference){{.{name}-matrix{{"
        f"animation:{name}-tour {seconds}s step-end infinite}}}}"
        f"@keyframes {name}-tour{{{steps}}}</style>"
    )
    shown = round(height * pitch + 50)
    svg = svg.replace("</style>", moves, 1)
    svg = re.sub(r'(viewBox="0 0 \S+) [\d.]+"', rf'\1 {shown}"', svg, count=1)
    svg = re.sub(
        r'(<rect x="0" y="0" width="[\d.]+") height="[\d.]+"',
        rf'\1 height="{height * pitch:.1f}"',
        svg,
        count=1,
    )
    return re.sub(
        r'(<rect fill="[^"]+" stroke[^>]*? height=)"[\d.]+"', rf'\1"{shown - 2}"', svg, count=1
    )


async def screenshots() -> None:
    """Take the pictures of pages."""
    with tempfile.TemporaryDirectory() as folder:
        soul = Path(folder) / "SOUL.md"
        soul.write_text(SOUL, encoding="utf-8")
        settings = Settings(port=0, with_mcp=False)
        async with AsyncExitStack() as stack:
            memory = await stack.enter_async_context(
                AgentMemory(Path(folder) / "sample.db", persona=soul)
            )
            await fill(memory)
            app = create_app(memory, settings=settings)
            site = await stack.enter_async_context(serving(app, settings=settings))
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(
                executable_path=_chromium.program(),
                args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            )
            for name, path in PAGES.items():
                for theme in THEMES:
                    await _take(browser, site + path, FOLDER / f"{name}-{theme}.png", theme=theme)
            await browser.close()


async def _take(browser: Browser, url: str, path: Path, *, theme: str) -> None:
    context = await browser.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": 1360, "height": 800},
        device_scale_factor=1.25,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    answer = await page.goto(url)
    if answer is None or not answer.ok:
        raise RuntimeError(f"{url} has no page to take a picture of: {answer}")
    await expect(page.get_by_text("Counting…")).to_have_count(0)  # what comes after the page
    await page.evaluate("document.activeElement.blur()")
    await page.screenshot(path=path)
    await context.close()


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    parts = scenes(tour())
    for theme in THEMES:
        still = drawn([*parts[1], *parts[2]], theme=theme, title="orbiter-memory demo")
        (FOLDER / f"terminal-{theme}.svg").write_text(still, encoding="utf-8")
        moving = recording(parts, theme=theme)
        (FOLDER / f"tour-{theme}.svg").write_text(moving, encoding="utf-8")
    asyncio.run(screenshots())


if __name__ == "__main__":
    main()
