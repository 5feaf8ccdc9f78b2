"""SQLite store: file, locks and errors. Crashes are in test_sqlite_crash.py."""

from __future__ import annotations

import fcntl
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, run_program
from kit.namespaces import mount_namespace
from tf_scheduler.store import sqlite
from tf_scheduler.store.interface import (
    Put,
    StoreConflictError,
    StoreCorruptError,
    StoreError,
    StoreUnavailableError,
    StoreVersionError,
)
from tf_scheduler.store.sqlite import SqliteStore

BIG = [Put(f"big/{number}", bytes(50_000)) for number in range(20)]


def sql(file: Path, *statements: str) -> list[Any]:
    """Execute the statements as another program would; return the last one's rows."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def stored(store: SqliteStore, *writes: Put) -> SqliteStore:
    """Return the store with the writes applied."""
    store.load()
    store.apply(writes)
    return store


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make the kernel refuse writes of this process beyond `size` bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """Drop root's right to ignore permissions: become the user `nobody`."""
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        yield
        tmp_path.chmod(0o700)
        return
    parents = [parent for parent in (tmp_path, *tmp_path.parents) if not parent.stat().st_mode & stat.S_IXOTH]
    modes = {parent: stat.S_IMODE(parent.stat().st_mode) for parent in parents}
    for parent, mode in modes.items():
        parent.chmod(mode | stat.S_IXOTH | stat.S_IROTH)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for parent, mode in modes.items():
            parent.chmod(mode)


def test_folders_and_file_are_private(tmp_path: Path, open_sqlite) -> None:
    """Only the owner can read the created folder, the file, its log and its index."""
    file = tmp_path / "deep" / "er" / "state.db"
    stored(open_sqlite(file), Put("a", b"1"))

    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in file.parent.iterdir()} == {
        "state.db": 0o600,
        "state.db-wal": 0o600,
        "state.db-shm": 0o600,
    }


def test_readable_file_becomes_private(tmp_path: Path, open_sqlite) -> None:
    """Opening restricts the state file and the files next to it."""
    stored(open_sqlite(), Put("a", b"1"))
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    open_sqlite()

    assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}


def test_closing_leaves_one_file(tmp_path: Path, open_sqlite) -> None:
    """After the last close the state is one file, and no descriptor is left."""
    before = set(Path("/proc/self/fd").iterdir())
    store = stored(open_sqlite(), Put("a", b"1"))
    store.close()

    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]
    assert before >= set(Path("/proc/self/fd").iterdir())


def test_first_starts_are_serialized(tmp_path: Path, open_sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is locked when SQLite opens the file for the first time."""
    seen = []
    connect = sqlite3.connect

    def watched(path, **options):
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            seen.append(("locked", stat.S_IMODE(path.stat().st_mode)))
        finally:
            os.close(folder)
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", watched)
    open_sqlite()

    assert seen == [("locked", 0o600)]


def test_every_commit_is_synced(open_sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """In WAL mode with synchronous=FULL, SQLite syncs the log at each commit."""
    made = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: made.append(connect(*args, **options)) or made[-1])
    open_sqlite()

    assert made[0].execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert made[0].execute("PRAGMA synchronous").fetchone() == (2,)


def test_locked_file_is_unavailable(tmp_path: Path, open_sqlite) -> None:
    """Another process, perhaps a stopped one, holds the write lock."""
    store = stored(open_sqlite(busy_timeout=0.01), Put("a", b"1"))
    lock = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); file.execute('BEGIN IMMEDIATE'); print(); input()"
    command = [sys.executable, "-u", "-c", lock, tmp_path / "state.db"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        with pytest.raises(
            StoreUnavailableError, match=rf"database is locked by process {other.pid}; if it is stopped"
        ):
            store.apply([Put("a", b"2")])
        assert store.load() == {"a": b"1"}
        other.communicate(b"\n")
    store.apply([Put("a", b"2")])

    assert store.load() == {"a": b"2"}


def test_full_database_stores_nothing(open_sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole transaction fails; smaller writes still succeed."""
    connect = sqlite3.connect

    def limited(*args, **options):
        connection = connect(*args, **options)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    store = stored(open_sqlite(), Put("a", b"1"))
    with pytest.raises(StoreUnavailableError, match="full"):
        store.apply([Put("a", b"2"), *BIG])
    assert store.load() == {"a": b"1"}
    store.apply([Put("a", b"3")])

    assert store.load() == {"a": b"3"}


def test_io_error_stores_nothing(open_sqlite) -> None:
    """A transaction whose log cannot be written is absent, also after reopening."""
    store = stored(open_sqlite(), Put("a", b"1"))
    with file_size_limit(100_000), pytest.raises(StoreUnavailableError, match="is unavailable"):
        store.apply([Put("a", b"2"), *BIG])
    assert store.load() == {"a": b"1"}
    store.apply([Put("a", b"3")])

    assert open_sqlite().load() == {"a": b"3"}


FULL_DISK = """
import subprocess, sys
from pathlib import Path
from tf_scheduler.store.interface import Put, StoreUnavailableError
from tf_scheduler.store.sqlite import SqliteStore

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
store = SqliteStore(folder / "state.db", "tensorflow")
store.load()
store.apply([Put("a", b"1")])
stored = 0
try:
    while True:
        store.apply([Put("a", b"%d" % (stored + 1)), Put("fill", bytes(10_000))])
        stored += 1
except StoreUnavailableError as error:
    assert "disk" in str(error) or "full" in str(error), error
before = store.load()
store.close()
after = SqliteStore(folder / "state.db", "tensorflow").load()
print(stored > 0, before["a"] == after["a"] == b"%d" % stored)
"""


def run_with_mounts(program: str, folder: Path) -> tuple[str, str]:
    """Run it in a mount namespace of its own; return output and errors."""
    done = run_program(*mount_namespace(folder), sys.executable, "-c", program, folder, env=ENVIRONMENT)
    return done.stdout, done.stderr


def test_full_disk_stores_nothing(tmp_path: Path) -> None:
    """On a full disk an apply fails as a whole; earlier ones survive reopening."""
    assert run_with_mounts(FULL_DISK, tmp_path) == ("True True\n", "")


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from tf_scheduler.store.interface import StoreUnavailableError
from tf_scheduler.store.sqlite import SqliteStore

subprocess.run(["mount", "--bind", "-o", "ro", sys.argv[1], sys.argv[1]], check=True)
try:
    SqliteStore(Path(sys.argv[1]) / "state.db", "tensorflow")
except StoreUnavailableError as error:
    print(error)
"""


def test_read_only_file_system_is_reported_at_start(tmp_path: Path, open_sqlite) -> None:
    """With its log, SQLite could read the file, but it would never write again."""
    stored(open_sqlite(), Put("a", b"1"))
    assert (tmp_path / "state.db-wal").exists()

    out, err = run_with_mounts(READ_ONLY, tmp_path)

    assert ("Read-only file system" in out, err) == (True, "")


def test_read_only_folder_is_reported(tmp_path: Path, unprivileged) -> None:
    """With the name of the file."""
    with pytest.raises(StoreError, match=r"cannot open state file .*state\.db: .*Permission denied"):
        SqliteStore(tmp_path / "state.db", "tensorflow")


def test_file_of_another_user_is_rejected(tmp_path: Path, request, open_sqlite) -> None:
    stored(open_sqlite(), Put("a", b"1")).close()
    (tmp_path / "state.db").chmod(0)
    request.getfixturevalue("unprivileged")
    with pytest.raises(StoreError, match=r"state\.db"):
        SqliteStore(tmp_path / "state.db", "tensorflow")


@pytest.mark.parametrize("path", ["", "file/state.db", "nul\0"])
def test_invalid_path_is_reported(tmp_path: Path, path: str) -> None:
    """A folder, a file used as a folder and an impossible name; nothing is changed."""
    (tmp_path / "file").write_text("mine")
    mode = tmp_path.stat().st_mode
    with pytest.raises(StoreError, match="state file"):
        SqliteStore(tmp_path / path, "tensorflow")

    assert (mode, ["file"]) == (tmp_path.stat().st_mode, [file.name for file in tmp_path.iterdir()])


@pytest.mark.parametrize("content", [b"{}", b"no database " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_non_database_file_is_unchanged(tmp_path: Path, content: bytes) -> None:
    """The error names the file and a remedy; its bytes and mode stay."""
    file = tmp_path / "state.db"
    file.write_bytes(content)
    file.chmod(0o644)
    with pytest.raises(StoreCorruptError, match=r"state\.db is not a usable state file: .* move it aside"):
        SqliteStore(file, "tensorflow")

    assert (content, 0o644) == (file.read_bytes(), stat.S_IMODE(file.stat().st_mode))


def test_database_of_another_program_is_unchanged(tmp_path: Path) -> None:
    """Not even its journal mode changes."""
    file = tmp_path / "state.db"
    sql(file, "CREATE TABLE schema_version (number)", "CREATE TABLE songs (title)")
    content = file.read_bytes()
    with pytest.raises(StoreCorruptError, match="another program"):
        SqliteStore(file, "tensorflow")

    assert content == file.read_bytes()


def test_damage_is_detected_when_opened(tmp_path: Path, open_sqlite) -> None:
    """In any page, also for a service without data in that page."""
    values = {f"key/{number}": b"%d" % number * 300 for number in range(60)}
    stored(open_sqlite(), *(Put(key, value) for key, value in values.items())).close()
    file = tmp_path / "state.db"
    content = file.read_bytes()
    for start in range(0, len(content), 4096):
        file.write_bytes(content[:start] + b"\xa5" * 4096 + content[start + 4096 :])
        with pytest.raises(StoreCorruptError, match=r"state\.db is not a usable state file"):
            SqliteStore(file, "another").close()


def test_truncated_file_is_corrupt(tmp_path: Path, open_sqlite) -> None:
    """A damaged file must not count as a smaller state."""
    stored(open_sqlite(), *BIG).close()
    os.truncate(tmp_path / "state.db", 8192)
    with pytest.raises(StoreCorruptError, match="move it aside"):
        open_sqlite().load()


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_file_stores_nothing(tmp_path: Path, open_sqlite, replaced: bool) -> None:
    """A store whose file was removed or replaced reports an error."""
    store = stored(open_sqlite(), Put("a", b"1"))
    for file in tmp_path.iterdir():
        file.unlink()
    if replaced:
        open_sqlite().load()
    for call in (store.load, store.erase, lambda: store.apply([Put("a", b"2")])):
        with pytest.raises(StoreError, match=r"state\.db was removed or replaced"):
            call()

    assert open_sqlite().load() == {}


def test_newer_schema_is_rejected_unchanged(tmp_path: Path, open_sqlite) -> None:
    stored(open_sqlite(), Put("a", b"1")).close()
    newer = len(sqlite.MIGRATIONS) + 1
    sql(tmp_path / "state.db", f"UPDATE schema_version SET version = {newer}")
    content = (tmp_path / "state.db").read_bytes()
    with pytest.raises(StoreVersionError, match=rf"state\.db .*newer version.*schema {newer}"):
        open_sqlite()

    assert content == (tmp_path / "state.db").read_bytes()


def test_older_schema_is_migrated_once(tmp_path: Path, open_sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new migration runs once and preserves the state."""
    stored(open_sqlite(), Put("a", b"1")).close()
    step = ("CREATE TABLE added (runs)", "INSERT INTO added VALUES (1)")
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, step))
    for _ in range(2):
        assert open_sqlite().load() == {"a": b"1"}

    rows = sql(tmp_path / "state.db", "SELECT runs, version FROM added, schema_version")
    assert [(1, len(sqlite.MIGRATIONS))] == rows


def test_failed_migration_changes_nothing(tmp_path: Path, open_sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays at its old version, usable by the old program."""
    stored(open_sqlite(), Put("a", b"1")).close()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, ("CREATE TABLE half (a)", "NONSENSE")))
        with pytest.raises(StoreError, match="NONSENSE"):
            open_sqlite()

    assert open_sqlite().load() == {"a": b"1"}
    assert sql(tmp_path / "state.db", "SELECT name FROM sqlite_master WHERE name = 'half'") == []


def test_value_must_be_bytes(open_sqlite) -> None:
    """A value of another type is rejected with its whole transaction."""
    store = stored(open_sqlite(), Put("a", b"1"))
    for value in ("text", 1, None, object()):
        with pytest.raises(StoreError):
            store.apply([Put("a", b"2"), Put("b", value)])

    assert store.load() == {"a": b"1"}


OPEN_AND_COUNT = """
import sys
from pathlib import Path
from tf_scheduler.store.interface import Put, StoreConflictError
from tf_scheduler.store.sqlite import SqliteStore

store = SqliteStore(Path(sys.argv[1]), "tensorflow", busy_timeout=60)
done = 0
while done < 5:
    try:
        store.apply([Put("count", b"%d" % (int(store.load().get("count", b"0")) + 1))])
        done += 1
    except StoreConflictError:
        pass
store.close()
"""


def test_concurrent_starts_succeed(tmp_path: Path, open_sqlite) -> None:
    """Several processes may create, open, write and close one new file."""
    file = tmp_path / "state.db"
    command = [sys.executable, "-c", OPEN_AND_COUNT, str(file)]
    started = []
    try:
        started += [subprocess.Popen(command, env=ENVIRONMENT) for _ in range(4)]
        assert [process.wait() for process in started] == [0] * 4
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()

    assert open_sqlite(file).load() == {"count": b"20"}


def test_conflict_names_file_and_service(open_sqlite) -> None:
    first, second = open_sqlite(), open_sqlite()
    first.load()
    second.load()
    first.apply([Put("a", b"1")])
    with pytest.raises(StoreConflictError, match=r"service tensorflow in .*state\.db; if two schedulers run"):
        second.apply([Put("a", b"2")])
