"""Which tests are rerun, and how a run with too many reruns ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAIL_ONCE = """
import pathlib, pytest

@pytest.mark.{marker}
@pytest.mark.parametrize("number", range({count}))
def test_fails_once(number):
    marker = pathlib.Path(__file__).with_name(str(number))
    exists = marker.exists()
    marker.touch()
    assert exists
"""


def run_pytest(folder: Path, marker: str, count: int, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(FAIL_ONCE.format(marker=marker, count=count))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kit.reruns", "-p", "no:cacheprovider", *arguments, "."]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize(("count", "code"), [(3, 0), (4, 1)])
def test_real_process_reruns_above_three_fail_the_run(tmp_path: Path, count, code, workers) -> None:
    """All tests pass the second time; the count decides."""
    returned, output = run_pytest(tmp_path, "zookeeper", count, *workers)

    assert code == returned
    assert f"{count} tests needed a rerun; maximum 3" in output
    assert all(f"test_it.py::test_fails_once[{number}]" in output for number in range(count))
    assert "--randomly-seed=" in output


def test_pure_test_that_fails_is_not_rerun(tmp_path: Path) -> None:
    """A failure of a pure test is a defect, or a test that depends on timing or order."""
    returned, output = run_pytest(tmp_path, "timeout(60)", 1)

    assert 1 == returned
    assert "rerun" not in output
