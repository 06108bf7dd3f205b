"""Run every benchmark, each in its own process; exit 1 if one misses a bar.

    python benchmarks/run.py [--data DIR] [--full]

DIR may hold `locomo_dev.json.gz`, for the parts that need real conversations. `--full` searches a
million rows, fills a Redis with a million memories, builds a graph of 200,000 vectors, takes an
agent's turns among a million memories and asks about every `*.json.gz` of DIR, for an hour or
more. The fuzz run of `benchmarks/legal.py` stands apart: `make fuzz`.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = (
    *("import_time", "short_term", "peers_legal", "tokens", "summary_coverage", "embeddings"),
    *("sql_write", "sql_read", "chat_read", "sql_search", "langgraph_state"),
    *("postgres_write", "postgres_read", "episodic"),
    *("vectors", "recall_speed", "recall_quality", "recall_languages"),
    *("first_use", "cli_start"),
    "agent_turn",
    "growth",
    "migrate",
    "server_cpu",
    "server_load",
)
TAKES_DATA = frozenset(("tokens", "summary_coverage"))
TAKES_FILES = frozenset(("recall_quality",))
TAKES_FULL = frozenset(
    ("sql_search", "chat_read", "postgres_read", "episodic", "vectors", "agent_turn", "growth")
)


def run(name: str, data: Path | None, *, full: bool) -> int:
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    if data is not None and name in TAKES_DATA:
        command += ["--data", str(data.resolve())]
    if name in TAKES_FILES:
        if data is None:
            print("    needs --data", file=sys.stderr)
            return 0
        pattern = "*.json.gz" if full else "locomo*.json.gz"
        command += ["--data", *map(str, sorted(data.resolve().glob(pattern)))]
    if full and name in TAKES_FULL:
        command.append("--full")
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with locomo_dev.json.gz")
    parser.add_argument("--full", action="store_true", help="a million rows where it matters")
    given = parser.parse_args()
    failed = []
    for number, name in enumerate(SCRIPTS, start=1):
        print(f"[{number}/{len(SCRIPTS)}] {name} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        if run(name, given.data, full=given.full):
            failed.append(name)
        print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print()
    print(f"missed: {', '.join(failed)}" if failed else "every bar is met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
