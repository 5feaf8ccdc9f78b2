"""Output that nobody reads any more: the work goes on, and its exit code is its own."""

import os
import subprocess
import sys

import pytest

from jobs import PATIENCE, WORKER_0, options
from tf_scheduler.history.database import RunDatabase

UNREAD = """
import sys, click
from tf_scheduler.cli.common.output import ignore_broken_pipe
with ignore_broken_pipe():
    for number in range(3):
        click.echo("told")
        click.echo("told", err=True)
        print("shown", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def closed():
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        yield pipe


def test_what_nobody_reads_is_dropped(closed):
    """Both outputs, as often as one writes; nothing is left that Python would fail with at its end."""
    assert 7 == subprocess.run([sys.executable, "-c", UNREAD], stdout=closed, stderr=closed, check=False).returncode


def test_one_output_that_is_read_stays(closed):
    """As of `2>&1 >/dev/null | head`, and without a standard output at all."""
    told = subprocess.run([sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, stderr=closed, text=True, check=False)
    shell = ["sh", "-c", f"exec \"{sys.executable}\" -c '{UNREAD}' >&-"]
    bare = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)

    assert (7, "told\n" * 3) == (told.returncode, told.stdout)
    assert (7, "told\nshown\n" * 3) == (bare.returncode, bare.stderr)


def test_an_error_that_nobody_reads_keeps_its_exit_code(closed):
    """3: nothing answers."""
    command = [sys.executable, "-m", "tf_scheduler", "--url", "http://127.0.0.1:1", "plan", "list"]

    assert 3 == subprocess.run(command, stdout=closed, stderr=closed, check=False).returncode


@pytest.mark.mesos
def test_a_job_that_nobody_watches_any_more_goes_on_to_its_end(tmp_path, home, closed):
    """As of `... 2>&1 | head -1` and of a full disk's `2> FILE`: exit code, history, page and result are the job's."""
    command = WORKER_0.format("echo there >> $CHECKPOINT_DIR/there; exit 3")
    path = options(tmp_path, command, restart={"max_failures": 1, "backoff": 0})
    arguments = [sys.executable, "-m", "tf_scheduler", "local", "run", path, "--report", tmp_path / "page.html"]

    done = subprocess.run(arguments, env=home, stdout=closed, stderr=closed, timeout=PATIENCE, check=False)

    assert 1 == done.returncode
    (found,) = RunDatabase(tmp_path / "state" / "dcos-tensorflow" / "history.db").runs()
    assert ("failed", 1) == (found.state, found.restarts)
    run = tmp_path / "state" / "dcos-tensorflow" / "runs" / found.id
    assert "there\nthere\n" == (run / "checkpoints" / "there").read_text()
    assert (run / "result.json").exists()
    assert "failed" in (tmp_path / "page.html").read_text()
