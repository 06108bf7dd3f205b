"""Writes the types of `orbiter.memory` from its table of names: `python docs/build_names.py`.

A test keeps what is written here current.
"""

from pathlib import Path

import orbiter.memory

STUB = Path(orbiter.memory.__file__).with_suffix(".pyi")


def stub() -> str:
    """Return the text of the stub."""
    lines = [
        '"""Written by `docs/build_names.py` from the table of names."""',
        "",
    ]
    for module, names in orbiter.memory._NAMES.items():  # noqa: SLF001 - ours
        lines += [f"from orbiter.memory.{module} import {name} as {name}" for name in names]
    listed = [f'    "{name}",' for name in orbiter.memory.__all__]
    lines += ["", "__all__ = [", *listed, "]", ""]
    return "\n".join([*lines, "_NAMES: dict[str, tuple[str, ...]]", "__version__: str", ""])


if __name__ == "__main__":
    STUB.write_text(stub())
