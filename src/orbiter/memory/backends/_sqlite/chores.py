"""What the writer does when there is nothing to write: indexing, and removing what is over."""

import sqlite3

from orbiter.memory.backends._sqlite import expiry, terms, vectors, words


def chore(connection: sqlite3.Connection, *, is_idle: bool) -> bool:
    """Do a chunk of what is to be done; tell whether there may be more."""
    if is_idle and expiry.sweep_some(connection):
        return True
    if words.chore(connection):
        return True
    if not is_idle:
        # Terms can wait, since who asks for them has them listed; writers shall not wait for them.
        return terms.waits(connection) >= terms.CHUNK
    if terms.waits(connection) >= terms.CHUNK and terms.list_some(connection):
        return True
    return vectors.tidy(connection)
