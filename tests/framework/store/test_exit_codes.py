"""Exit codes for a state that cannot be used: the table in state.md."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from builders import a_spec
from kit.stored_samples import recorded
from tf_scheduler.runner import restore
from tf_scheduler.service.store import open_store
from tf_scheduler.store import records
from tf_scheduler.store.interface import LeadershipLostError, Put, StoreError
from tf_scheduler.store.sqlite import SqliteStore
from tf_scheduler.store.zookeeper.address import ZooKeeperAddress
from tf_scheduler.store.zookeeper.session import ZooKeeperSession

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "reference" / "state.md"
Patch = pytest.MonkeyPatch


def rows() -> dict[str, int]:
    """Reason -> exit code, of the table."""
    section = DOCUMENT.read_text().partition("### Exit codes\n")[2].partition("\n#")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {reason: int(code) for reason, code, *_ in cells if code.isdecimal()}


def load_and_write(file: Path) -> None:
    """Load the state as a scheduler does when it starts, and write to it."""
    with closing(SqliteStore(file, "tf", busy_timeout=0.01)) as store:
        restore(a_spec(), store)
        store.apply([Put("a", b"1")])


def store_value(file: Path, **changed: object) -> None:
    value = {**recorded(records.SCHEMA)["values"]["framework"], **changed}
    with closing(SqliteStore(file, "tf")) as store:
        store.load()
        store.apply([Put("framework", repr(value).replace("'", '"').replace("True", "true").encode())])


def zookeeper_is_away(_: Path, __: Patch) -> None:
    open_store("zk://127.0.0.1:1/?request_timeout=1", "tf")


def leadership_is_lost(_: Path, __: Patch) -> None:
    raise LeadershipLostError("this scheduler no longer leads service tf")


def state_is_changed(file: Path, _: Patch) -> None:
    with closing(SqliteStore(file, "tf")) as first:
        first.load()
        load_and_write(file)
        first.apply([Put("a", b"2")])


def file_is_locked(file: Path, _: Patch) -> None:
    load_and_write(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        load_and_write(file)


def system_error(number: int) -> Callable[[Path, Patch], None]:
    def fail(file: Path, patch: Patch) -> None:
        def refuse(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        with patch.context() as patched:
            patched.setattr(os, "open", refuse)
            load_and_write(file)

    return fail


def file_is_removed(file: Path, _: Patch) -> None:
    with closing(SqliteStore(file, "tf")) as store:
        store.load()
        for path in file.parent.iterdir():
            path.unlink()
        store.apply([Put("a", b"2")])


def path_is_a_folder(file: Path, _: Patch) -> None:
    load_and_write(file.parent)


def file_is_foreign(file: Path, _: Patch) -> None:
    file.write_bytes(b"no database " * 1000)
    load_and_write(file)


def value_is_damaged(file: Path, _: Patch) -> None:
    store_value(file, id="another framework")
    load_and_write(file)


def value_is_newer(file: Path, _: Patch) -> None:
    store_value(file, schema=records.SCHEMA + 1)
    load_and_write(file)


def zookeeper_denies(_: Path, __: Patch) -> None:
    session = ZooKeeperSession.__new__(ZooKeeperSession)
    session.address = ZooKeeperAddress(("127.0.0.1:2181",))
    with session.translate_errors():
        raise NoAuthError


def tls_file_is_missing(_: Path, __: Patch) -> None:
    open_store("zks://127.0.0.1:1/?ca=/nowhere/ca.pem", "tf")


CAUSES = {
    "no ZooKeeper server answers": zookeeper_is_away,
    "the scheduler lost its leadership": leadership_is_lost,
    "another process changed the state": state_is_changed,
    "another process locks the state file": file_is_locked,
    "the disk is full": system_error(errno.ENOSPC),
    "the file system is read-only": system_error(errno.EROFS),
    "the state file was removed or replaced": file_is_removed,
    "the user of the scheduler has no access to the file or its folder": system_error(errno.EACCES),
    "the path does not lead to a file": path_is_a_folder,
    "the file is damaged, or belongs to another program": file_is_foreign,
    "a stored value is damaged": value_is_damaged,
    "a newer version stored the state": value_is_newer,
    "ZooKeeper denies access to the nodes": zookeeper_denies,
    "a TLS file is missing or invalid": tls_file_is_missing,
}


@pytest.mark.parametrize("reason", CAUSES)
def test_exit_code_is_that_of_the_table(tmp_path: Path, monkeypatch: Patch, reason: str) -> None:
    """The command exits with `exit_code` of the error."""
    with pytest.raises(StoreError) as caught:
        CAUSES[reason](tmp_path / "state.db", monkeypatch)

    assert rows()[reason] == caught.value.exit_code, caught.value


def test_each_row_of_the_table_is_tested() -> None:
    assert list(CAUSES) == list(rows())
