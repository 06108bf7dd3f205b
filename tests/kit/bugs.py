"""What a planted bug is: a change to a store's source, and the contract that must catch it."""

from typing import NamedTuple


class Bug(NamedTuple):
    contract: str
    """Words of the name of a contract that must fail."""
    right: str
    """What stands in the source."""
    wrong: str
    """What a careless hand might write in its place."""
    more: tuple[tuple[str, str], ...] = ()
    """Further places to change."""

    def plant(self, source: str) -> str:
        for right, wrong in ((self.right, self.wrong), *self.more):
            assert right in source, f"the store has changed; plant the bug anew: {right}"
            source = source.replace(right, wrong)
        return source
