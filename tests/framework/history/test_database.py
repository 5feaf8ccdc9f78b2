"""Database of runs."""

import os
import stat
from pathlib import Path

import pytest

from runs import T0, a_run
from tf_scheduler.errors import JobError
from tf_scheduler.history.database import RunDatabase
from tf_scheduler.history.model import WARNING_KEY, from_json, to_json


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
    del old[WARNING_KEY]
    old["launches"][0]["surprise"] = 1

    assert a_run(warnings=()) == from_json(old)
