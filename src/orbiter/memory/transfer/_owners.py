"""Whose memories are taken of a file that holds those of several people.

Nothing of one person may come into another's scope because both stand in one file.
"""

from collections import Counter

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.protocol import Complain, Found

__all__ = ["Owners", "needs_a_user"]

_WAY = "import it with `memory.scope(user_id=…)` to say whose they are"
_MOST_NAMES = 1_000
_SHOWN = 8


class Owners:
    """Takes what is the asked one's, or names nobody; counts the others.

    With *needs_owner*, what would be nobody's is not taken either.
    """

    def __init__(
        self, owner: str | None, user_id: str | None, *, needs_owner: bool = False
    ) -> None:
        self._wanted = user_id if owner is None else owner
        self._user_id = user_id
        self._needs_owner = needs_owner
        self._is_any_taken = False
        self._others: Counter[str] = Counter()
        self._unowned = 0

    def takes(self, found: Found) -> bool:
        """Tell whether a memory is taken; a handle that is for nobody takes everyone's."""
        if self._wanted is None or not found.owners or self._wanted in found.owners:
            if self._needs_owner and self.user_of(found) is None:
                self._unowned += 1
                return False
            self._is_any_taken = True
            return True
        name = ".".join(found.owners)
        if name in self._others or len(self._others) < _MOST_NAMES:
            self._others[name] += 1
        return False

    def user_of(self, found: Found) -> str | None:
        """Return whose it becomes: the handle's, or, if that is for nobody, the one it names."""
        if self._user_id is not None:
            return self._user_id
        if self._wanted is not None:
            return self._wanted if self._wanted in found.owners else None
        return found.owners[0] if len(found.owners) == 1 else None

    def tell(self, complain: Complain, name: str) -> None:
        """Say what was left out; `TransferError` if that is all there is."""
        if self._unowned and not self._is_any_taken:
            raise needs_a_user(name)
        if self._unowned:
            why = f"{self._unowned:,} memories that name nobody; not taken: {_WAY}"
            complain(f"`{name}`", why)
        if self._others and not self._is_any_taken:
            names = "`, `".join(list(self._others)[:_SHOWN])
            more = ", …" if len(self._others) > _SHOWN else ""
            raise TransferError(
                f"`{name}` holds nothing of `{self._wanted}`, only of `{names}`{more}; say whose "
                "memories to take, with `owner=…`"
            )
        for other, count in self._others.items():
            complain(f"`{other}`", f"{count:,} memories that are not `{self._wanted}`'s; not taken")


def needs_a_user(name: str) -> TransferError:
    """Return the error for a file that does not say whose it is, where the handle does not."""
    return TransferError(
        f"`{name}` does not say whose memories it holds, and `unscoped()` is nobody; {_WAY}"
    )
