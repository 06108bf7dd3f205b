"""Whose memories are taken of a file that holds those of several people, and what is left out."""

from collections import Counter

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.importer import SourceMemory
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["LeftOut", "Owners", "needs_a_user"]

_WAY = "import it with `memory.scope(user_id=…)` to say whose they are"
_MAX_OWNERS = 1_000
_SHOWN_OWNERS = 8


class LeftOut:
    """Counts what a file has of others than the wanted owner."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self._others: Counter[str | None] = Counter()

    def add(self, owner: str | None) -> None:
        """Count one memory of another."""
        if owner in self._others or len(self._others) < _MAX_OWNERS:
            self._others[owner] += 1

    @property
    def total(self) -> int:
        """How many there are."""
        return self._others.total()

    def report(self, complain: ReportProblem, file: object, *, is_any_taken: bool) -> None:
        """Say whose was left out; `TransferError` if that is all there is."""
        if self._others and not is_any_taken:
            raise TransferError(
                f"`{file}` has no memories of `{self._wanted}`, only of {_listed(self._others)}; "
                "choose whose memories to import with `owner=…`"
            )
        why = f"memories of others than `{self._wanted}` were not imported"
        for owner, count in self._others.items():
            complain(_called(owner), f"{count:,} {why}")


def _called(owner: str | None) -> str:
    return "no user" if owner is None else f"`{owner}`"


def _listed(owners: "Counter[str | None] | dict[str | None, None]") -> str:
    names = [_called(each) for each in owners]
    return ", ".join(names[:_SHOWN_OWNERS]) + (", …" if len(names) > _SHOWN_OWNERS else "")


class Owners:
    """Takes what is the wanted one's, or names nobody.

    With *needs_owner*, what would be nobody's is not taken either.
    """

    def __init__(
        self, owner: str | None, user_id: str | None, *, needs_owner: bool = False
    ) -> None:
        self._wanted = user_id if owner is None else owner
        self._user_id = user_id
        self._needs_owner = needs_owner
        self._is_any_taken = False
        self._session = owner
        self._sessions: dict[str | None, None] = {}
        """Those that were all taken, as nobody chose one."""
        self._others = LeftOut(self._wanted)
        self._unowned = 0

    def takes(self, memory: SourceMemory, *, has_sessions: bool = False) -> bool:
        """Tell whether a memory is taken; a handle that is for nobody takes everyone's.

        With *has_sessions*, it is the caller who may choose a session by its name.
        """
        wanted, owners = self._wanted, memory.owners
        if has_sessions:
            wanted, owners = self._session, (str(memory.item.metadata.session_id),)
            if wanted is None and len(self._sessions) <= _SHOWN_OWNERS:
                self._sessions[owners[0]] = None
        if wanted is not None and owners and wanted not in owners:
            self._others.add(".".join(owners))
            return False
        if self._needs_owner and self.user_of(memory) is None:
            self._unowned += 1
            return False
        self._is_any_taken = True
        return True

    def user_of(self, memory: SourceMemory) -> str | None:
        """Return whose it becomes: the handle's, or, if that is for nobody, the one it names."""
        if self._user_id is not None:
            return self._user_id
        if self._wanted is not None:
            return self._wanted if self._wanted in memory.owners else None
        return memory.owners[0] if len(memory.owners) == 1 else None

    def several_sessions(self) -> str:
        """Return the names of sessions that were taken without a choice; empty for only one."""
        return _listed(self._sessions) if len(self._sessions) > 1 else ""

    def report_left_out(self, complain: ReportProblem, name: str) -> None:
        """Say what was left out; `TransferError` if that is all there is."""
        if self._unowned and not self._is_any_taken:
            raise needs_a_user(name)
        if self._unowned:
            why = f"{self._unowned:,} memories without an owner were not imported; {_WAY}"
            complain(f"`{name}`", why)
        self._others.report(complain, name, is_any_taken=self._is_any_taken)


def needs_a_user(name: str) -> TransferError:
    """Return the error for a file that does not say whose it is, where the handle does not."""
    return TransferError(
        f"`{name}` does not say whose memories it has, and `unscoped()` names no user; {_WAY}"
    )
