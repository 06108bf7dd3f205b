"""What `import orbiter.memory` costs, against starting Python at all.

CPU time of fresh processes, taking turns, with bytecode already compiled. The peers need
`pip install langchain-core llama-index-core openai-agents`.

    python -m benchmarks.import_time
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from statistics import median

from benchmarks._timing import Table, duration, exit_code

BAR = 8.0
REPEATS = 20
PEER_REPEATS = 3  # seconds each, and far from any bar

BARE = "pass"
PACKAGE = "import orbiter.memory"
OTHERS = (
    "from orbiter.memory import ShortTermMemory, HumanMemory",
    "import pydantic; pydantic.BaseModel",
    "import asyncio",
)
PEERS = ("import langchain_core.messages", "import llama_index.core", "import agents")


def cpu_seconds(code: str, env: Mapping[str, str]) -> float | None:
    """Return the CPU time of `python -c code`; `None` if it fails."""
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], env, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    return None if status else usage.ru_utime + usage.ru_stime


def medians(codes: Mapping[str, int]) -> dict[str, float]:
    """Return the median CPU time of each code that works, run so many times in turns."""
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache
        for code in codes:
            if cpu_seconds(code, env) is not None:
                samples[code] = []
        for turn in range(max(codes.values())):
            for code, taken in samples.items():
                if turn < codes[code] and (spent := cpu_seconds(code, env)) is not None:
                    taken.append(spent)
    return {code: median(taken) for code, taken in samples.items()}


def main() -> int:
    wanted = {BARE: REPEATS, PACKAGE: REPEATS}
    wanted |= dict.fromkeys(OTHERS, REPEATS) | dict.fromkeys(PEERS, PEER_REPEATS)
    found = medians(wanted)
    bare = found[BARE]
    table = Table("Import: CPU time against a bare `python -c pass`", "python -c", "CPU")
    for code in wanted:
        if code not in found:
            table.add(code, "absent")
            continue
        ratio = found[code] / bare
        cells = (code, duration(found[code]))
        if code == PACKAGE:
            table.add(*cells, measured=f"{ratio:.1f}x", bar=f"<= {BAR:.0f}x", ok=ratio <= BAR)
        else:
            table.add(*cells, measured=f"{ratio:.1f}x")
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
