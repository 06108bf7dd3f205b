"""What the writer does when there is nothing to write: indexing, and removing what is over."""

import sqlite3

from orbiter.memory.backends.sqlite import expiry, term_index, trigram_index, vectors

__all__ = ["chore"]


def chore(connection: sqlite3.Connection, *, is_idle: bool) -> bool:
    """Do a chunk of what is to be done; tell whether there may be more."""
    if is_idle and expiry.sweep_some(connection):
        return True
    if trigram_index.chore(connection):
        return True
    if not is_idle:
        # Terms can wait, since who asks for them has them listed; writers shall not wait for them.
        return term_index.waits(connection) >= term_index.CHUNK
    if term_index.waits(connection) >= term_index.CHUNK and term_index.list_some(connection):
        return True
    return vectors.tidy(connection)
