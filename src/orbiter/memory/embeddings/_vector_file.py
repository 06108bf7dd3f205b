"""A SQLite file of vectors by model and text, which may fail at any time without harm.

It belongs to nobody else: a file with other tables in it is left as it is. No text is in it, only
what SHA-256 makes of it.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Lock
from time import monotonic, sleep

from orbiter.memory.embeddings.responses import pack, points_somewhere, unpack
from orbiter.memory.tasks.worker_threads import Forkable

_OURS = 0x6F626D76  # "obmv"
_TABLE = """
CREATE TABLE IF NOT EXISTS vectors (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  dimension INTEGER NOT NULL,
  digest BLOB NOT NULL,
  vector BLOB NOT NULL,
  detail_dimension INTEGER,
  details BLOB,
  UNIQUE (model, dimension, digest)
) STRICT
"""
_WIDEN = (
    "ALTER TABLE vectors ADD COLUMN detail_dimension INTEGER",
    "ALTER TABLE vectors ADD COLUMN details BLOB",
)
_IS_WIDE = "SELECT count(*) FROM pragma_table_info('vectors') WHERE name = 'details'"
_FIND = "SELECT vector FROM vectors WHERE model = ? AND dimension = ? AND digest = ?"
_FIND_DETAILS = """
SELECT vector, details FROM vectors
WHERE model = ? AND dimension = ? AND digest = ? AND detail_dimension = ?
"""
_KEEP = """
INSERT OR REPLACE INTO vectors (model, dimension, digest, vector, detail_dimension, details)
VALUES (?, ?, ?, ?, ?, ?)
"""
_FORGET = "DELETE FROM vectors WHERE model = ? AND dimension = ? AND digest = ?"
# Numbers grow with time, so the smallest are the oldest.
_DROP = """
DELETE FROM vectors WHERE id <= (SELECT id FROM vectors ORDER BY id DESC LIMIT 1 OFFSET ?)
"""


Detailed = tuple[list[float], bytes]
"""The vector of a text, and those of its words."""

_Key = tuple[str, int, bytes]
_Row = tuple[str, int, bytes, bytes, int | None, bytes | None]


class VectorFile(Forkable):
    """The vectors of one model. Its methods block, and any thread may call them."""

    def __init__(
        self,
        path: str,
        *,
        model: str,
        dimension: int,
        detail_dimension: int,
        max_entries: int,
        busy_timeout: float,
    ) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._model = model
        self._dimension = dimension
        self._detail_dimension = detail_dimension
        self._max_entries = max_entries
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None
        self._lock = Lock()
        super().__init__()

    def find(self, texts: Sequence[str]) -> dict[str, list[float]]:
        """Return the vectors that are there, by text."""
        rows = self._rows(_FIND, {text: self._key(text) for text in texts})
        return {text: unpack(row[0]) for text, row in rows.items()}

    def find_details(self, texts: Sequence[str]) -> dict[str, Detailed]:
        """Return the vectors that are there with their details, by text."""
        size = self._detail_dimension
        rows = self._rows(_FIND_DETAILS, {text: (*self._key(text), size) for text in texts})
        return {text: (unpack(row[0]), row[1]) for text, row in rows.items()}

    def keep(self, vectors: Mapping[str, Sequence[float]]) -> None:
        """Write *vectors* by text, and let the oldest go if there are too many."""
        self._write([(*self._key(text), pack(one), None, None) for text, one in vectors.items()])

    def keep_details(self, details: Mapping[str, Detailed]) -> None:
        """Do what `keep` does, with vectors and their details."""
        size = self._detail_dimension
        self._write(
            [(*self._key(text), pack(one), size, rows) for text, (one, rows) in details.items()]
        )

    def forget(self, texts: Sequence[str]) -> int:
        """Remove the vectors of *texts*, of every model, with their bytes; return how many."""
        if not os.path.exists(self.path):  # noqa: PTH110 - a path as SQLite takes it
            return 0
        with self._lock:
            connection = self._open()
            models = connection.execute("SELECT DISTINCT model, dimension FROM vectors").fetchall()
            digests = [self._key(text)[2] for text in dict.fromkeys(texts)]
            keys = [(*model, digest) for model in models for digest in digests]
            connection.execute("PRAGMA secure_delete = ON")  # else they stay where they were
            with _transaction(connection):
                removed = connection.executemany(_FORGET, keys).rowcount if keys else 0
            # Others may be reading; then the journal is written back when they are done.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return max(0, removed)

    def close(self) -> None:
        """Close the file; another call opens it again."""
        with self._lock:
            self._close()

    def before_fork(self) -> None:
        """Wait for whoever is using the connection."""
        self._lock.acquire()

    def after_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_in_child(self) -> None:
        """Close the copy: SQLite believes it holds locks that only the parent holds."""
        self._close()
        self._lock.release()

    def __del__(self) -> None:
        # A cache need not be closed, and its owner not be warned.
        if self._connection is not None:
            self._connection.close()

    def _rows(
        self, query: str, keys: Mapping[str, tuple[str | int | bytes, ...]]
    ) -> dict[str, tuple[bytes, ...]]:
        """Return the rows that are there and sound, by text, and count them."""
        rows: dict[str, tuple[bytes, ...]] = {}
        with self._lock:
            try:
                connection = self._open()
                for text, key in keys.items():
                    row = connection.execute(query, key).fetchone()
                    if row is not None and self._is_sound(*row):
                        rows[text] = row
            finally:
                self.hits += len(rows)
                self.misses += len(keys) - len(rows)
        return rows

    def _is_sound(self, vector: bytes, details: bytes | None = b"") -> bool:
        if details is None or len(vector) != 4 * self._dimension:
            return False
        if not points_somewhere(unpack(vector)):
            return False
        return not details or len(details) % self._detail_dimension == 0

    def _write(self, rows: Sequence[_Row]) -> None:
        with self._lock:
            connection = self._open()
            with _transaction(connection):
                connection.executemany(_KEEP, rows)
                connection.execute(_DROP, (self._max_entries,))

    def _key(self, text: str) -> _Key:
        digest = sha256(text.encode(errors="surrogatepass")).digest()
        return self._model, self._dimension, digest

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _open(self.path, self._busy_timeout)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _open(path: str, busy_timeout: float) -> sqlite3.Connection:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(
        path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection)
        _journal(connection, monotonic() + busy_timeout)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:  # whatever it was, no file stays open
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table in a new file, or the columns in an old one; leave another program's as is."""
    if _owner(connection) == _OURS and _is_wide(connection):
        return
    with _transaction(connection):
        owner = _owner(connection)  # another process may have been faster
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != _OURS and (owner or tables):
            raise sqlite3.DatabaseError("it is another program's database; name a new file")
        connection.execute(_TABLE)
        if not _is_wide(connection):
            for statement in _WIDEN:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_OURS}")


def _owner(connection: sqlite3.Connection) -> int:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    return int(owner)


def _is_wide(connection: sqlite3.Connection) -> bool:
    (count,) = connection.execute(_IS_WIDE).fetchone()
    return bool(count)


def _journal(connection: sqlite3.Connection, until: float) -> None:
    """Have readers and a writer not wait for each other."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as exc:
            # SQLite itself does not wait when two processes switch at the same time.
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(0.01)
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:  # whatever it was, no transaction stays open
        with suppress(sqlite3.Error):  # a full disk may have rolled back already
            connection.execute("ROLLBACK")
        raise
