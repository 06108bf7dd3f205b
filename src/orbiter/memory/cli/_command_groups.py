"""Groups of commands that do something when none of them is named."""

from collections.abc import Callable
from typing import Any

from typer.core import TyperGroup

__all__ = ["without_a_name"]


def without_a_name(usual: Callable[[], str]) -> type[TyperGroup]:
    """Return a kind of group that calls the command which *usual* names if nobody names one.

    Its options may follow at once: `facts --json` is `facts list --json`.
    """

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Put the usual command first, unless a command or help is asked for."""
            is_named = bool(args) and (not args[0].startswith("-") or args[0] in ("--help", "-h"))
            if not is_named and not ctx.resilient_parsing:  # a shell completes what there is
                args = [usual(), *args]
            return super().parse_args(ctx, args)

    return Group
