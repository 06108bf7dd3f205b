"""False positives of the redactor of secrets on ordinary text.

`python -m benchmarks.secret_false_positives --data DIR` reads every text of the files `*.json`,
`*.jsonl` and their `.gz` in a folder, such as LoCoMo and LongMemEval, in which nobody tells a
secret. It prints how many were changed, each with what was taken for one, and what the redactor
costs. Nothing of the data is kept.
"""

import argparse
import gzip
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from orbiter.memory.text.secret_patterns import redact_secrets

_SHORTEST = 20
"""Texts below are names, dates and ids."""


def texts(value: object) -> Iterator[str]:
    """Yield the texts of JSON, whatever holds them."""
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def read(path: Path) -> Iterator[str]:
    """Yield the texts of a file."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".jsonl" in path.name:
        for line in raw.splitlines():
            yield from texts(json.loads(line))
    else:
        yield from texts(json.loads(raw))


def main() -> int:
    """Print the figures; the exit code is 1 above one in 10,000."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of JSON files")
    files = sorted(each for each in parser.parse_args().data.rglob("*.json*") if each.is_file())
    said = dict.fromkeys(text for path in files for text in read(path))
    start = time.process_time()
    changed = [(text, new) for text in said if (new := redact_secrets(text)) != text]
    seconds = time.process_time() - start
    for text, new in changed:
        at = next(place for place, (a, b) in enumerate(zip(text, new, strict=False)) if a != b)
        print(f"  …{text[max(0, at - 40) : at + 40]!r} → {new[at : at + 30]!r}")
    count, size = len(said), sum(map(len, said))
    print(f"{count:,} texts, {size:,} characters: {len(changed)} changed", end="")
    print(f", {1e6 * seconds / max(count, 1):.1f} µs for each")
    return int(len(changed) * 10_000 > count)


if __name__ == "__main__":
    sys.exit(main())
