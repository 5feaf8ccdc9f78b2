"""The fixtures of a test decide its lane, its rerun, and what it may start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kit.commands import ENVIRONMENT, run_program

FAIL_ONCE = """
import pathlib, pytest

@pytest.fixture
def server({fixture}):
    pass

@pytest.mark.parametrize("number", range({count}))
def test_fails_once(server, number):
    marker = pathlib.Path(__file__).with_name(str(number))
    exists = marker.exists()
    marker.touch()
    assert exists
"""
STARTS = """
import pathlib
from mesos_local.node import ZooKeeperNode

def test_starts():
    command = ["sleep", "infinity"]
    ZooKeeperNode("name", "127.0.0.1:1", pathlib.Path("log"), lambda: command, {}, lambda: None).launch()
"""


def run_pytest(folder: Path, source: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(source)
    # Schemathesis takes a second to import.
    plugins = [f"-p{name}" for name in ("kit.lanes", "kit.reruns", "no:schemathesis", "no:cacheprovider")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments, "."]
    done = run_program(*command, cwd=folder, env=ENVIRONMENT)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("count", "workers", "code"), [(1, (), 0), (1, ("-n", "2"), 0), (2, ("-n", "2"), 1)])
def test_more_than_one_rerun_fails_the_run(tmp_path: Path, count, workers, code) -> None:
    """All tests pass the second time; the count decides."""
    source = FAIL_ONCE.format(fixture="real_zookeeper", count=count)

    returned, output = run_pytest(tmp_path, source, "-m", "zookeeper", *workers)

    assert code == returned, output
    assert f"{count} tests needed a rerun; maximum 1" in output
    assert all(f"test_it.py::test_fails_once[{number}]" in output for number in range(count))
    assert "--randomly-seed=" in output


def test_pure_test_that_fails_is_not_rerun(tmp_path: Path) -> None:
    """A failure of a pure test is a defect, or a test that depends on timing or order."""
    returned, output = run_pytest(tmp_path, FAIL_ONCE.format(fixture="tmp_path", count=1), "-m", "not real")

    assert 1 == returned
    assert "rerun" not in output


def test_pure_test_that_starts_a_server_fails(tmp_path: Path) -> None:
    returned, output = run_pytest(tmp_path, STARTS)

    assert 1 == returned
    assert "a pure test starts real processes" in output
