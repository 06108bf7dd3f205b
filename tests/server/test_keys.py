"""Keys: what they open, how they are kept, and that nothing else opens anything."""

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory, ShortTermMemory
from orbiter.memory.auth import KeyFile, Role, key_file, key_file_for
from orbiter.memory.backends import registry
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.errors import ItemNotFoundError, QueryError, StorageError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.api.job_files import folder_for

ANN = MemoryMetadata(user_id="ann")
ODD = (
    b'{"format":1,"keys":[{"id":"../../x","role":"admin","scope":{},"name":"x","created_at":'
    b'"2026-01-01T00:00:00+00:00","expires_at":null,"revoked_at":null,"sha256":"00"}]}'
)


def test_a_key_is_who_it_was_made_for(keys: KeyFile) -> None:
    key, token = keys.create(
        scope=MemoryMetadata(user_id="ann", agent_id="a"), role="read", name="Ann's laptop"
    )

    found = KeyFile(keys.path).check(token)

    assert found is not None
    assert (found.role, found.name, found.key_id) == ("read", "Ann's laptop", key.id)
    assert found.scope == MemoryMetadata(user_id="ann", agent_id="a")
    assert re.fullmatch(r"om_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", token)


def test_the_file_holds_no_key_and_is_for_its_owner_alone(keys: KeyFile) -> None:
    tokens = [keys.create(scope=ANN, role="write")[1] for _ in range(3)]

    kept = b"".join(path.read_bytes() for path in keys.path.parent.iterdir())

    assert all(token.split("_", 2)[2].encode() not in kept for token in tokens)
    assert keys.path.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in keys.path.parent.iterdir()} == {
        keys.path.name,
        f"{keys.path.name}.lock",
    }


def test_what_is_no_key_opens_nothing(keys: KeyFile) -> None:
    key, token = keys.create(scope=ANN, role="write")
    other = keys.create(scope=ANN, role="write")[1]
    head, secret = token[:12], token[12:]
    wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    tried = [
        "", " ", "om_", token[:-1], token + "A", f"{token} ", f" {token}", token.upper(),
        head + wrong, f"om_00000000_{secret}", head + other[12:], secret, key.id, "é" * 55,
        "\udcff" * 55, token.replace("om_", "OM_"), f"{token}\n",
    ]  # fmt: skip

    assert [each for each in tried if keys.check(each) is not None] == []
    assert keys.check(token) is not None


def test_a_revoked_key_opens_nothing_at_once_and_in_every_process(keys: KeyFile) -> None:
    key, token = keys.create(scope=ANN, role="write")
    assert keys.current(key.id) == keys.check(token)

    KeyFile(keys.path).revoke(key.id)

    assert keys.check(token) is None
    assert keys.current(key.id) is None
    assert [each.revoked_at is not None for each in keys.list()] == [True]


def test_what_is_kept_of_a_revoked_key_can_be_removed(keys: KeyFile) -> None:
    key, token = keys.create(scope=ANN, role="write", name="Ann's phone")
    other, _ = keys.create(scope=MemoryMetadata(user_id="bob"), role="read")
    with pytest.raises(QueryError, match=f"`{key.id}` still opens something; revoke it first"):
        keys.remove(key.id)

    keys.revoke(key.id)
    assert keys.remove(key.id).id == key.id

    assert [each.id for each in keys.list()] == [other.id]
    assert b"ann" not in keys.path.read_bytes().lower()
    assert keys.check(token) is None
    with pytest.raises(ItemNotFoundError, match=key.id):
        keys.remove(key.id)


def test_the_last_key_stays_so_that_the_server_stays_closed(keys: KeyFile) -> None:
    key, _ = keys.create(scope=ANN, role="write")
    keys.revoke(key.id)

    with pytest.raises(QueryError, match="the last one.*create another first"):
        keys.remove(key.id)

    assert KeyFile(keys.path).has_keys


def test_an_expired_key_opens_nothing(keys: KeyFile) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    _, token = keys.create(scope=ANN, role="write", expires=soon)
    assert keys.check(token) is not None
    told = json.loads(keys.path.read_text())
    told["keys"][0]["expires_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    keys.path.write_text(json.dumps(told))

    assert keys.check(token) is None


def test_a_server_whose_last_key_is_revoked_or_removed_stays_closed(keys: KeyFile) -> None:
    assert KeyFile(keys.path).has_keys is False
    key, _ = keys.create(scope=ANN, role="write")
    keys.revoke(key.id)
    assert KeyFile(keys.path).has_keys
    assert keys.has_keys

    keys.path.unlink()
    assert keys.has_keys
    keys.path.write_text('{"format": 1, "keys": []}')
    keys.path.chmod(0o600)

    assert keys.has_keys


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"format": 2, "keys": []}', b'{"format": 1}',
     b'{"format": 1, "keys": [{}]}', b'{"format": 1, "keys": [1]}', b"\xff\xfe", b"[" * 10_000,
     ODD],
)  # fmt: skip
def test_a_broken_file_is_refused_and_never_means_no_keys(keys: KeyFile, content: bytes) -> None:
    keys.path.write_bytes(content)
    keys.path.chmod(0o600)

    for use in (lambda: keys.has_keys, keys.list, lambda: keys.check("om_x")):
        with pytest.raises(StorageError, match="not a key file"):
            use()
    with pytest.raises(StorageError):
        keys.create(scope=ANN, role="write")
    assert keys.path.read_bytes() == content


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_open_is_refused(keys: KeyFile, mode: int) -> None:
    token = new_key(keys, user="ann")
    keys.path.chmod(mode)

    with pytest.raises(StorageError, match="chmod 600"):
        KeyFile(keys.path).check(token)


@pytest.mark.skipif(sys.platform == "win32", reason="owners of POSIX")
def test_a_file_of_another_user_is_refused(keys: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_key(keys, user="ann")
    if os.geteuid() == 0:
        os.chown(keys.path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)

    with pytest.raises(StorageError, match="another user's"):
        KeyFile(keys.path).check(token)


@pytest.mark.skipif(sys.platform == "win32", reason="owners of POSIX")
def test_what_root_writes_belongs_to_whom_the_folder_belongs(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    owner = 12345 if os.geteuid() == 0 else os.getuid()  # only root may give files away
    os.chown(folder, owner, -1)
    keys = KeyFile(folder / "agent.db.keys.json")

    first, token = keys.create(scope=ANN, role="write")
    new, _, _ = keys.rotate(first.id, overlap=timedelta(hours=1))
    KeyFile(keys.path).revoke(first.id)

    assert KeyFile(keys.path).check(token) is None
    assert {key.id for key in KeyFile(keys.path).list()} == {first.id, new.id}
    assert {each.name: each.stat().st_uid for each in folder.iterdir()} == {
        "agent.db.keys.json": owner,
        "agent.db.keys.json.lock": owner,
    }
    assert keys.path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links of POSIX")
def test_a_lock_that_cannot_be_given_away_is_closed_and_removed(
    keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def refuse(handle: int, *_: object) -> None:
        opened.append(handle)
        raise PermissionError("a container without CAP_CHOWN")

    with monkeypatch.context() as root:
        root.setattr(os, "geteuid", lambda: 0)
        root.setattr(os, "fchown", refuse)
        with pytest.raises(StorageError, match="CAP_CHOWN"):
            keys.create(scope=ANN, role="write")

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
    assert list(keys.path.parent.iterdir()) == []  # a service could not open root's lock
    keys.create(scope=ANN, role="write")


def test_a_lock_that_was_removed_is_waited_for_no_more(
    keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.create(scope=ANN, role="write")
    lock = Path(f"{keys.path}.lock")
    inodes: list[int] = []

    def take(handle: int) -> None:
        inodes.append(os.fstat(handle).st_ino)
        if len(inodes) == 1:
            lock.rename(f"{lock}.old")  # else its inode could come again at once
            lock.touch(0o600)

    monkeypatch.setattr(key_file, "_lock", take)
    keys.create(scope=ANN, role="write")

    assert len(inodes) == 2
    assert inodes[1] == lock.stat().st_ino


def test_a_key_revoked_through_a_link_opens_nothing(keys: KeyFile, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(keys.path.name)
    key, token = KeyFile(link).create(scope=ANN, role="write")
    assert keys.check(token) is not None

    KeyFile(link).revoke(key.id)

    assert keys.check(token) is None
    assert link.is_symlink()
    assert not Path(f"{link}.lock").exists()  # both wait for one lock


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links of POSIX")
def test_a_lock_that_is_a_link_makes_no_file_elsewhere(keys: KeyFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    Path(f"{keys.path}.lock").symlink_to(elsewhere)

    with pytest.raises(StorageError, match="cannot be changed"):
        keys.create(scope=ANN, role="write")
    assert not elsewhere.exists()


def test_a_folder_in_place_of_the_file_is_refused(keys: KeyFile) -> None:
    keys.path.mkdir()

    with pytest.raises(StorageError):
        keys.list()


def test_only_an_administrator_may_be_for_everyone(keys: KeyFile) -> None:
    roles: tuple[Role, ...] = ("read", "write")
    for role in roles:
        with pytest.raises(QueryError, match="needs a scope"):
            keys.create(scope=MemoryMetadata(), role=role)
    with pytest.raises(QueryError, match="no role `root`"):
        keys.create(scope=ANN, role="root")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="reserved"):
        keys.create(scope=ANN, role="read", name="~orbiter")
    with pytest.raises(QueryError, match="future"):
        keys.create(scope=ANN, role="read", expires=datetime.now(UTC))
    assert not keys.has_keys

    assert keys.create(scope=MemoryMetadata(), role="admin")[0].role == "admin"


def test_a_rotated_key_works_until_its_overlap_is_over(keys: KeyFile) -> None:
    first, old_token = keys.create(scope=ANN, role="write", name="agent")

    new, token, old = keys.rotate("agent", overlap=timedelta(hours=24))

    assert (new.name, new.role, new.scope) == (first.name, first.role, first.scope)
    assert (old.id, old.replaced_by) == (first.id, new.id)
    assert old.expires_at is not None
    assert timedelta(hours=23) < old.expires_at - datetime.now(UTC) < timedelta(hours=25)
    for each in (old_token, token):
        assert KeyFile(keys.path).check(each) is not None
    assert [key.replaced_by for key in KeyFile(keys.path).list()] == [new.id, None]
    keys.rotate(new.id, overlap=timedelta())
    assert keys.check(token) is None
    assert keys.check(old_token) is not None


def test_a_key_that_expires_is_rotated_for_as_long_again(keys: KeyFile) -> None:
    day = timedelta(days=1)
    first, _ = keys.create(scope=ANN, role="write", expires=datetime.now(UTC) + 90 * day)

    second, _, old = keys.rotate(first.id, overlap=200 * day)
    third, _, _ = keys.rotate(second.id, overlap=day, expires=datetime.now(UTC) + 7 * day)

    assert old.expires_at == first.expires_at, "an overlap never makes a key live longer"
    assert second.expires_at is not None
    assert third.expires_at is not None
    assert 89 * day < second.expires_at - second.created_at < 91 * day
    assert 6 * day < third.expires_at - third.created_at < 8 * day


def test_only_a_key_that_opens_something_can_be_rotated(keys: KeyFile) -> None:
    revoked, _ = keys.create(scope=ANN, role="write", name="old")
    keys.revoke(revoked.id)
    replaced, _ = keys.create(scope=ANN, role="write", name="agent")
    new, _, _ = keys.rotate(replaced.id, overlap=timedelta(hours=1))
    keys.create(scope=ANN, role="write", name="agent")
    before = keys.path.read_bytes()

    for which, way in (
        ("old", "create a new one"),
        (replaced.id, f"replaced by `{new.id}`"),
        ("agent", "give the id of one"),
    ):
        with pytest.raises(QueryError, match=way):
            keys.rotate(which, overlap=timedelta(hours=1))
    with pytest.raises(ItemNotFoundError, match="keys list"):
        keys.rotate("nobody", overlap=timedelta(hours=1))
    for overlap in (timedelta(seconds=-1), timedelta.max):
        with pytest.raises(QueryError, match="`overlap`"):
            keys.rotate(new.id, overlap=overlap)
    assert keys.path.read_bytes() == before


def test_a_key_that_is_not_there_cannot_be_revoked(keys: KeyFile) -> None:
    with pytest.raises(ItemNotFoundError, match="keys list"):
        keys.revoke("12345678")


def test_processes_that_make_keys_at_once_lose_none(keys: KeyFile) -> None:
    code = (
        "import sys\nfrom orbiter.memory.auth import KeyFile\n"
        "from orbiter.memory.model.items import MemoryMetadata\n"
        "for n in range(10):\n"
        "    scope = MemoryMetadata(user_id='u')\n"
        "    print(KeyFile(sys.argv[1]).create(scope=scope, role='read')[1])\n"
    )
    makers = [
        subprocess.Popen([sys.executable, "-c", code, keys.path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    made = [line for maker in makers for line in maker.communicate()[0].split()]

    assert len(made) == len(keys.list()) == 20
    assert all(keys.check(token) is not None for token in made)


def test_the_keys_stand_beside_the_file_and_know_no_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one = key_file_for("postgresql://me:secret@db/x")

    assert key_file_for("agent.db") == Path.cwd() / "agent.db.keys.json"
    assert key_file_for(f"sqlite:///{tmp_path}/a.db") == tmp_path / "a.db.keys.json"
    assert one == key_file_for("postgresql://me:another@db/x")
    assert one != key_file_for("postgresql://me:secret@db/y")
    assert "secret" not in str(one)
    for url in ("memory://", ":memory:", "http://127.0.0.1:1"):
        with pytest.raises(QueryError):
            key_file_for(url)
    with pytest.raises(QueryError, match="`%2F`") as told:  # they would all share one file
        key_file_for("postgresql://me:sec/ret@db/x")
    assert "ret" not in str(told.value).replace("written", "")


@pytest.mark.parametrize(
    "spellings",
    [
        ("a.db", "./a.db", "sqlite:///a.db", "sqlite:///./a.db", "SQLITE:///a.db",
         "sqlite:///{here}/a.db", "{here}/a.db", "link.db", "sqlite:///link.db", "there/a.db"),
        ("postgresql://u:p@h/d", "postgres://u:p@h/d", "POSTGRES://u:q@H:5432/d",
         "postgresql://h/d?user=u", "postgresql://u@h/d?sslmode=require",
         "postgresql:///d?host=h&user=u&port=5432", "postgresql://u@h?dbname=d"),
        ("postgresql://u@h/u", "postgresql://u@h", "postgresql://u@h:5432"),
        ("postgresql://u@h1,h2/d", "postgresql://u@h2:5432,h1/d"),
        ("redis://h", "redis://h/", "redis://h/0", "redis://:p@h:6379", "redis://h?db=0",
         "Redis://default:p@h"),
        ("redis+sentinel://h/name", "redis+sentinel://h:26379/name/0"),
        ("redis+cluster://h1,h2", "redis+cluster://h2:6379,h1:6379/0"),
    ],
)  # fmt: skip
def test_however_a_store_is_called_it_has_one_file_of_keys(
    spellings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to("a.db")
    (tmp_path / "there").symlink_to(tmp_path)

    found = {each: key_file_for(each.format(here=tmp_path)) for each in spellings}

    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize(
    "urls",
    [("a.db", "A.db", "a.db?timeout=5"),  # which is a file of that name
     ("postgresql://u@h/d", "postgresql://v@h/d", "postgresql://u@h/e", "postgresql://u@i/d",
      "postgresql://u@h:5433/d"),
     ("redis://h", "redis://h/1", "redis://h?db=2", "redis://h:1", "redis+cluster://h",
      "redis+sentinel://h/a", "redis+sentinel://h/b", "redis+sentinel://h/b/1")],
)  # fmt: skip
def test_other_stores_have_other_files_of_keys(
    urls: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert len({key_file_for(url) for url in urls}) == len(urls)


class _Named(ShortTermMemory):
    """A store of another package that says which one it is."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.identity = url.partition("://")[2].rpartition("@")[2].lower()


class _Unnamed(ShortTermMemory):
    def __init__(self, url: str) -> None:
        super().__init__()


def test_a_store_of_another_package_names_itself_for_its_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    others = {"named": _Named, "twin": _Named, "unnamed": _Unnamed}
    monkeypatch.setattr(registry, "_schemes", {**registry._schemes, **others})
    one = key_file_for("named://ann:s3cret@host/a")

    assert one == key_file_for("named://HOST/a")
    assert one.name.startswith("named-")
    others_too = {key_file_for("named://host/b"), key_file_for("twin://host/a"), one}
    assert len(others_too) == 3
    for url in ("unnamed://ann:s3cret@host/a", "<Unnamed>"):
        with pytest.raises(QueryError, match="name a file for its keys") as told:
            key_file_for(url)
        assert "s3cret" not in str(told.value)
        assert "%2F" not in str(told.value)
    with pytest.raises(QueryError, match="`nobody://…` is not a valid store URL"):
        key_file_for("nobody://host")


async def test_jobs_over_a_store_without_a_url_are_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert folder_for(AgentMemory(store=ShortTermMemory(), embeddings=None), None) is None
    given = AgentMemory(store=SQLiteMemoryStore(tmp_path / "a.db"))
    assert folder_for(given, None) == tmp_path / "a.db.jobs"


async def test_a_server_notices_a_revoked_key_with_the_next_request(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key, token = keys.create(scope=ANN, role="read")
    http = client(await served(keys=keys), token)
    assert (await http.get("/v1/openapi.json")).status_code == 200

    await asyncio.to_thread(KeyFile(keys.path).revoke, key.id)

    assert (await http.get("/v1/openapi.json")).status_code == 401


async def test_a_server_whose_keys_cannot_be_read_opens_nothing(
    served: Served, client: Client, keys: KeyFile
) -> None:
    token = new_key(keys, user="ann")
    http = client(await served(keys=keys), token)
    keys.path.write_text("{")
    os.utime(keys.path)

    assert (await http.get("/v1/openapi.json")).status_code == 503
