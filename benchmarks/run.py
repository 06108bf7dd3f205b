"""Run every benchmark, each in its own process; exit 1 if one misses a bar.

    python benchmarks/run.py [--data DIR]

DIR may hold `locomo_dev.json.gz`, for the parts that need real conversations. The fuzz run of
`benchmarks/legal.py` stands apart: `make fuzz`.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("import_time", "short_term", "peers_legal", "tokens", "summary_coverage")
TAKES_DATA = frozenset(("tokens", "summary_coverage"))


def run(name: str, data: Path | None) -> int:
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    if data is not None and name in TAKES_DATA:
        command += ["--data", str(data.resolve())]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with locomo_dev.json.gz")
    data = parser.parse_args().data
    failed = []
    for number, name in enumerate(SCRIPTS, start=1):
        print(f"[{number}/{len(SCRIPTS)}] {name} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        if run(name, data):
            failed.append(name)
        print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print()
    print(f"missed: {', '.join(failed)}" if failed else "every bar is met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
