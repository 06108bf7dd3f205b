"""Writes the types of `orbiter.memory` from its table of names: `python docs/build_names.py`.

A test keeps what is written here current.
"""

from pathlib import Path

import orbiter.memory
from orbiter.memory.deprecation import MOVED, RENAMED

STUB = Path(orbiter.memory.__file__).with_suffix(".pyi")


def stub() -> str:
    """Return the text of the stub."""
    lines = [
        '"""Written by `docs/build_names.py` from the tables of names, old ones included."""',
        "# ruff: noqa: I001 - in the order of the tables",
        "",
    ]
    aliases: list[str] = []
    for module, names in orbiter.memory._NAMES.items():  # noqa: SLF001 - ours
        lines += [f"from orbiter.memory.{module} import {name} as {name}" for name in names]
    lines += ["", "# Old names, which load with a warning: programs that have them stay typed."]
    for name, module in MOVED.items():
        new = RENAMED.get(module, {}).get(name)
        if new is None:
            lines += [f"from orbiter.memory.{module} import {name} as {name}"]
        else:  # a stub hands on what it imports by its own name alone
            aliases += [f"{name} = _{new}"]
            lines += [f"from orbiter.memory.{module} import {new} as _{new}"]
    listed = [f'    "{name}",' for name in orbiter.memory.__all__]
    lines += ["", *aliases, "", "__all__ = [", *listed, "]", ""]
    return "\n".join([*lines, "_NAMES: dict[str, tuple[str, ...]]", "__version__: str", ""])


if __name__ == "__main__":
    STUB.write_text(stub())
