"""The settings file: TOML with the names of options, `port = 8765`, in no table.

`serve` reads all of it with `--config`. Of the file that `ORBITER_MEMORY_CONFIG` names, every
command reads where the store is.
"""

import os
from pathlib import Path
from typing import Any

from click import UsageError

__all__ = ["CONFIG_VARIABLE", "SHARED", "load_settings", "shared_settings"]

CONFIG_VARIABLE = "ORBITER_MEMORY_CONFIG"
SHARED = ("url", "token", "model", "redact", "pii")
"""Settings that every command reads."""


def load_settings(path: Path) -> dict[str, Any]:
    """Return what the file says, by the names of options."""
    import tomllib  # noqa: PLC0415 - few have such a file

    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows writes a mark
    except OSError as exc:
        raise UsageError(f"`{path}` cannot be read: {exc.strerror}") from None
    except ValueError as exc:
        raise UsageError(f"`{path}` is not TOML: {exc}") from None
    tables = [name for name, value in settings.items() if isinstance(value, dict)]
    if tables:
        raise UsageError(
            f"`{path}` has a table `[{tables[0]}]`, and settings are in no table; remove that line"
        )
    return settings


def shared_settings() -> dict[str, Any]:
    """Return what the file of the environment says of the store."""
    path = os.environ.get(CONFIG_VARIABLE)
    settings = load_settings(Path(path)) if path else {}
    return {name: value for name, value in settings.items() if name in SHARED}
