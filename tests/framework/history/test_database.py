"""Database of runs, and the folder of a team."""

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from runs import T0, a_run
from tf_scheduler.errors import JobError
from tf_scheduler.history.database import RunDatabase, SharedRuns, find_run
from tf_scheduler.history.model import from_json, to_json


def test_stored_run_is_read_back(tmp_path: Path) -> None:
    """With launches, curves and warnings."""
    database = RunDatabase(tmp_path / "state" / "history.db")

    database.save(a_run())

    assert [a_run()] == database.runs()


def test_database_is_private(tmp_path: Path) -> None:
    """Whatever the umask, and even if it was readable before."""
    path, before = tmp_path / "history.db", os.umask(0)
    try:
        RunDatabase(path).save(a_run())
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        path.chmod(0o644)
        RunDatabase(path).runs()
    finally:
        os.umask(before)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_oldest_runs_are_deleted(tmp_path: Path) -> None:
    database = RunDatabase(tmp_path / "history.db", limit=2)

    for number in (2, 3, 1):
        database.save(a_run(id=f"run-{number}", submitted=T0 + number))

    assert ["run-3", "run-2"] == [run.id for run in database.runs()]


def test_run_is_found_by_prefix_of_its_id(tmp_path: Path) -> None:
    """Or as `last`. Errors list the newest ids."""
    database = RunDatabase(tmp_path / "history.db")
    with pytest.raises(JobError, match="no runs recorded yet"):
        database.find("last")
    for number, name in enumerate(("a-1", "a-2", "b-1")):
        database.save(a_run(id=name, submitted=T0 + number))

    assert ("b-1", "a-2", "b-1") == tuple(database.find(name).id for name in ("last", "a-2", "b"))
    assert ("a-2", "a-1", "b-1") == tuple(database.find(name).id for name in ("last-1", "last-2", "mnist"))
    with pytest.raises(JobError, match="last-3: unknown run; the newest runs are b-1, a-2, a-1"):
        database.find("last-3")
    with pytest.raises(JobError, match="a: ambiguous; it matches a-2, a-1"):
        database.find("a")
    with pytest.raises(JobError, match="c: unknown run; the newest runs are b-1, a-2, a-1"):
        database.find("c")


def test_invalid_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_text("something else, and long enough to be read as a header of a database file" * 20)

    with pytest.raises(JobError, match=r"history\.db: cannot use the history"):
        RunDatabase(path).runs()


def test_records_of_other_versions_are_readable() -> None:
    """Missing fields have their defaults, unknown fields are ignored."""
    old = {**to_json(a_run()), "version": 99, "surprise": 1}
    del old["warnings"]
    old["launches"][0]["surprise"] = 1

    assert a_run(warnings=()) == from_json(old)


def test_end_of_killed_run_is_stored(tmp_path: Path) -> None:
    """Its folder may be removed later."""
    database = RunDatabase(tmp_path / "history.db", now=lambda run: replace(run, state="lost", process=""))
    database.save(a_run(state="running", process="1:1"))

    assert ["lost"] == [run.state for run in database.runs()]

    assert ["lost"] == [run.state for run in RunDatabase(tmp_path / "history.db").runs()]


FIRST, SECOND, OTHER = "mnist-20270115-080000-00000a", "mnist-20270116-080000-00000b", "dev-x-20270117-080000-00000c"


def test_team_reads_records_of_shared_folder(tmp_path: Path) -> None:
    """Newest first, whatever the umask of the writer; nothing else is left."""
    shared, before = SharedRuns(tmp_path), os.umask(0o077)
    try:
        for name in (SECOND, FIRST):
            shared.save(a_run(id=name))
        shared.save(a_run(id=OTHER, service="/dev/x"))
    finally:
        os.umask(before)

    runs, unreadable = shared.runs()

    assert ([OTHER, SECOND, FIRST], []) == ([run.id for run in runs], unreadable)
    assert a_run(id=FIRST) == shared.find(FIRST) == find_run(runs, FIRST)
    assert [FIRST, SECOND] == [run.id for run in reversed(shared.runs("mnist")[0])]
    assert [OTHER] == [run.id for run in shared.runs("/dev/x")[0]]
    assert [SECOND] == [run.id for run in shared.runs("mnist", 1)[0]]
    assert {0o644} == {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert 3 == len(list(tmp_path.iterdir()))


RECORD = to_json(a_run(id=FIRST))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "9" * 90_000, "[" * 100_000, '{"id": "x"}'),
        *(json.dumps({**RECORD, name: None}) for name in ("id", "submitted", "launches", "curves", "options", "best")),
        *(json.dumps({**RECORD, name: 10**400}) for name in ("id", "submitted", "seconds", "reason", "environment")),
        json.dumps({**RECORD, "submitted": 1e300}),
        json.dumps({**RECORD, "id": SECOND}),
        json.dumps({**RECORD, "curves": {"worker-0": [1]}}),
    ],
)
def test_broken_files_of_shared_folder_are_skipped(tmp_path: Path, text: str) -> None:
    """Other programs and other users write there, too."""
    shared = SharedRuns(tmp_path)
    shared.save(a_run(id=SECOND))
    (tmp_path / f"{FIRST}.json").write_text(text)
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / f"{OTHER}.json").mkdir()
    os.mkfifo(tmp_path / "mnist-20270118-080000-00000d.json")

    runs, unreadable = shared.runs()

    assert [SECOND] == [run.id for run in runs]
    assert 4 == len(unreadable)
    assert None is shared.find("../etc/passwd")


def test_only_a_fuller_record_replaces_that_of_the_service(tmp_path: Path) -> None:
    """A scheduler in a new sandbox knows less; it may also know the start less well."""
    shared = SharedRuns(tmp_path)
    shared.save(a_run(id=FIRST))

    shared.save(a_run(id="mnist-20270119-080000-00000a", curves={}), replace=False)
    assert [a_run(id=FIRST)] == shared.runs()[0]
    shared.save(a_run(id="mnist-20270119-080000-00000a", reason="again"), replace=False)
    shared.save(a_run(id="other-20270119-080000-00000a", service="other", curves={}), replace=False)

    assert ["worker-0 finished", "again"] == [run.reason for run in shared.runs()[0]]
    assert {FIRST, "other-20270119-080000-00000a"} == {run.id for run in shared.runs()[0]}


def test_unusable_shared_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is missing or full; a full one keeps what it has."""
    for use in (SharedRuns(tmp_path / "missing").check, SharedRuns(tmp_path / "missing").runs):
        with pytest.raises(JobError, match=r"missing: cannot .*: No such file or directory"):
            use()
    shared = SharedRuns(tmp_path)
    shared.check()
    assert [] == list(tmp_path.iterdir())
    shared.save(a_run(id=FIRST))

    def fail(path: Path, _text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(JobError, match=r"history\.store .*: cannot be written: No space left on device"):
        shared.save(a_run(id=FIRST, reason="later"))

    assert [a_run(id=FIRST)] == shared.runs()[0]
    assert [f"{FIRST}.json"] == [path.name for path in tmp_path.iterdir()]
