"""Refuses new names that say nothing or are not usual: `told`, `whose`, and modules in -ing.

    python -m benchmarks.names [--update]

`told`, `shown`, `found`, `given` and `asked` do not say what they hold; `hits`, `reasons`, `rows`
or `request` do. `whose` is a `scope`, `anew` is `rebuild` or `restart`, `_MOST` is `_MAX_…` with
what it limits. What is there already is counted for each file in `names.json`, and only ever
shrinks: `--update` writes the list again after files moved, unless there are more than before.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ALLOWED = Path(__file__).with_name("names.json")

_NO_CODE = re.compile(
    r'"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*',
    re.DOTALL,
)
# An attribute is named where its class is; there it stands without a dot, and is counted.
_NAME = re.compile(
    r"(?<![.\w])_*(?:(?:told|shown|found|given|asked|whose|anew)\b|(?-i:MOST(?![A-Za-z])))",
    re.IGNORECASE,
)


def vague_names(code: str) -> int:
    """Return how often *code* has such a name, outside of strings and comments."""
    return len(_NAME.findall(_NO_CODE.sub("''", code)))


def count(source: Path) -> dict[str, int]:
    """Return how many there are in each file below *source*; a module in -ing is one more."""
    counts: dict[str, int] = {}
    for path in sorted(source.rglob("*.py")):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if number := vague_names(path.read_text(encoding="utf-8")) + name.endswith("ing"):
            counts[path.relative_to(source).as_posix()] = number
    return counts


def problems(counts: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Return a line for each file that has more than it may."""
    return [
        f"{path}: {number} vague names (told, shown, found, given, asked, whose, anew, _MOST; "
        f"or a module in -ing), {allowed.get(path, 0)} allowed"
        for path, number in counts.items()
        if number > allowed.get(path, 0)
    ]


def main(arguments: list[str], *, source: Path = SOURCE, listed: Path = ALLOWED) -> int:
    """Check the names below *source*, or write the list; return the exit code."""
    counts = count(source)
    allowed: dict[str, int] = json.loads(listed.read_text(encoding="utf-8"))
    if "--update" in arguments:
        if sum(counts.values()) > sum(allowed.values()):
            more = Counter(counts)
            more.subtract(allowed)
            print(*(f"{path}: {n} more" for path, n in more.items() if n > 0), sep="\n")
            return 1
        listed.write_text(json.dumps(counts, indent=0) + "\n", encoding="utf-8")
        return 0
    lines = problems(counts, allowed)
    if lines:
        print(*lines, sep="\n")
        print("Name them by what they hold. Moved a file? python -m benchmarks.names --update")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
