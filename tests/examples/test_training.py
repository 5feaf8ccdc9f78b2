"""The examples train as bare processes with only TF_CONFIG and their arguments."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("real_tensorflow")


def test_digits_goes_on_after_a_kill_and_is_judged_by_its_target(make_cluster: Callable[..., Any]) -> None:
    """A killed chief resumes, with ps and workers untouched, and saves the model.

    Below its target it exits 1, and says why. ps and workers go on serving, so somebody else has to end them. How good
    the model gets with all its epochs is seen on Mesos.

    Slow: five processes import TensorFlow.
    """
    cluster = make_cluster("digits", {"chief": 1, "ps": 1, "worker": 2})
    servers = [cluster.start("ps", 0), cluster.start("worker", 0), cluster.start("worker", 1)]
    first = cluster.start("chief", 0, "--epochs", "1000")
    read_until(first, "epoch 2:")
    first.kill()
    done = max([2, *epochs(first.communicate()[0])])

    second = cluster.start("chief", 0, "--epochs", str(done + 3), "--target", "0.2")
    output, _ = second.communicate()

    assert second.returncode == 0, cluster.stderr_of("chief", 0).read_text()
    resumed = int(re.search(r"^resumed after epoch (\d+)$", output, re.MULTILINE)[1])
    # The chief may die between writing a checkpoint and reporting the epoch, never the other way round.
    assert resumed in (done, done + 1)
    assert list(range(resumed + 1, done + 4)) == epochs(output)
    assert accuracy(output) >= 0.2
    assert (cluster.model_dir / "digits.keras").is_file()

    third = cluster.start("chief", 0, "--epochs", str(done + 4), "--target", "1")
    output, _ = third.communicate()

    assert third.returncode == 1
    assert [done + 4] == epochs(output)
    reason = cluster.stderr_of("chief", 0).read_text().splitlines()[-1]
    assert f"the test accuracy {accuracy(output):.4f} is below the target 1.0" == reason
    assert [server.poll() for server in servers] == [None, None, None]


def test_coordinator_has_checkpoints_of_the_chief_alone(make_cluster: Callable[..., Any]) -> None:
    """A relative folder is that of each task; TensorFlow would write parts on the ps.

    Slow: each launch imports TensorFlow.
    """
    cluster = make_cluster("coordinator", {"chief": 1, "ps": 1, "worker": 1})
    servers = [cluster.start("ps", 0), cluster.start("worker", 0)]
    options = ("--model-dir", "model", "--target", "0")
    first, _ = cluster.start("chief", 0, *options, "--epochs", "2").communicate()
    second, _ = cluster.start("chief", 0, *options, "--epochs", "3").communicate()

    assert [1, 2] == epochs(first), cluster.stderr_of("chief", 0).read_text()
    assert [3] == epochs(second), cluster.stderr_of("chief", 0).read_text()
    assert "resumed after epoch 2\n" in second
    assert [] == list(cluster.folder_of("ps", 0).iterdir())
    assert [None, None] == [server.poll() for server in servers]


def accuracy(output: str) -> float:
    """The test accuracy that a task printed, 0 to 1."""
    return float(re.search(r"^test accuracy ([\d.]+)\b", output, re.MULTILINE)[1].rstrip("."))


def epochs(output: str) -> list[int]:
    """The numbers of the epochs that the chief reported."""
    return [int(number) for number in re.findall(r"^epoch (\d+): loss ", output, re.MULTILINE)]


def read_until(process: subprocess.Popen[str], start: str) -> None:
    """Read output up to a line with this start; fail if the process ends before."""
    for line in process.stdout:
        if line.startswith(start):
            return
    pytest.fail(f"the process ended with status {process.wait()} before it printed {start!r}")
