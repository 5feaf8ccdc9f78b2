"""Commands with closed output: they continue, and keep their exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobs import PATIENCE, WORKER_0, options
from tf_scheduler.history.database import RunDatabase

UNREAD = """
import sys, click
from tf_scheduler.cli.common.output import ignore_broken_pipe
with ignore_broken_pipe():
    for number in range(3):
        click.echo("out")
        click.echo("err", err=True)
        print("printed", file=sys.stderr)
sys.exit(7)
"""


def test_output_to_closed_pipe_is_dropped(closed) -> None:
    """On both streams; Python has nothing to flush when it exits."""
    assert 7 == subprocess.run([sys.executable, "-c", UNREAD], stdout=closed, stderr=closed, check=False).returncode


def test_open_stream_gets_all_output(closed) -> None:
    """As in `2>&1 >/dev/null | head`, and without a standard output."""
    piped = subprocess.run(
        [sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, stderr=closed, text=True, check=False
    )
    shell = ["sh", "-c", f"exec \"{sys.executable}\" -c '{UNREAD}' >&-"]
    bare = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)

    assert (7, "out\n" * 3) == (piped.returncode, piped.stdout)
    assert (7, "err\nprinted\n" * 3) == (bare.returncode, bare.stderr)


@pytest.mark.usefixtures("real_mesos")
def test_job_with_closed_output_continues(start_process, tmp_path: Path, state_folder: Path, closed) -> None:
    """For `2>&1 | head -1` or a full disk: exit code, history and result are complete."""
    command = WORKER_0.format("echo there >> $CHECKPOINT_DIR/there; exit 3")
    path = options(tmp_path, command, restart={"max_failures": 1, "backoff": 0})

    process = start_process("local", "run", path, "--report", tmp_path / "page.html", stdout=closed, stderr=closed)

    assert 1 == process.wait(PATIENCE)
    (record,) = RunDatabase(state_folder / "history.db").runs()
    assert ("failed", 1) == (record.state, record.restarts)
    run = state_folder / "runs" / record.id
    assert "there\nthere\n" == (run / "checkpoints" / "there").read_text()
    assert (run / "result.json").exists()
    assert "failed" in (tmp_path / "page.html").read_text()
