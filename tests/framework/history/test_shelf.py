"""Runs are kept, found, bounded."""

import os
import stat

import pytest

from runs import T0, a_run
from tf_scheduler.errors import JobError
from tf_scheduler.history.database import RunDatabase
from tf_scheduler.history.model import from_json, to_json


def test_a_run_comes_back_as_it_was(tmp_path):
    """With launches, curves and what was told."""
    shelf = RunDatabase(tmp_path / "state" / "history.db")

    shelf.save(a_run())

    assert [a_run()] == shelf.runs()


def test_only_its_owner_reads_it(tmp_path):
    """Whatever the umask is, and was when it was made."""
    path, before = tmp_path / "history.db", os.umask(0)
    try:
        RunDatabase(path).save(a_run())
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        path.chmod(0o644)
        RunDatabase(path).runs()
    finally:
        os.umask(before)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_the_oldest_runs_are_forgotten(tmp_path):
    """Newest first, at most so many."""
    shelf = RunDatabase(tmp_path / "history.db", limit=2)

    for number in (2, 3, 1):
        shelf.save(a_run(id=f"run-{number}", submitted=T0 + number))

    assert ["run-3", "run-2"] == [run.id for run in shelf.runs()]


def test_a_run_is_found_by_what_its_id_begins_with(tmp_path):
    """Or as the last; what is ambiguous or unknown is told with what there is."""
    shelf = RunDatabase(tmp_path / "history.db")
    with pytest.raises(JobError, match="no run is remembered yet"):
        shelf.find("last")
    for number, name in enumerate(("a-1", "a-2", "b-1")):
        shelf.save(a_run(id=name, submitted=T0 + number))

    assert ("b-1", "a-2", "b-1") == tuple(shelf.find(name).id for name in ("last", "a-2", "b"))
    with pytest.raises(JobError, match="several runs begin with a; the newest: a-2, a-1"):
        shelf.find("a")
    with pytest.raises(JobError, match="no run that begins with c; the newest: b-1, a-2, a-1"):
        shelf.find("c")


def test_a_file_that_is_no_database_is_told(tmp_path):
    """And left as it is."""
    path = tmp_path / "history.db"
    path.write_text("something else, and long enough to be read as a header of a database file" * 20)

    with pytest.raises(JobError, match=r"history\.db cannot be used"):
        RunDatabase(path).runs()


def test_records_of_other_versions_are_read_as_far_as_they_are_known():
    """Fields that are missing have their defaults, others are left out."""
    old = {**to_json(a_run()), "version": 99, "surprise": 1}
    del old["told"]
    old["launches"][0]["surprise"] = 1

    assert a_run(warnings=()) == from_json(old)
