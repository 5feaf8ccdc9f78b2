"""Leader and standby scheduler of one service, on a real Mesos and ZooKeeper."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import PATIENCE, options, wait_for
from kit.commands import ENVIRONMENT, processes, run_command
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("real_zookeeper")

SCHEDULER = Path(__file__).parents[1] / "one_scheduler.py"
#: Each start of a task writes a line; worker 0 exits, and ends the job, when the file `end` exists.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")


class PrintingScheduler:
    """A process whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, beginning: str) -> str:
        """Return the rest of the first line that begins with `beginning`."""
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()
        raise AssertionError(f"it exited without printing {beginning!r}")


@pytest.fixture
def schedulers(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[tuple[Callable[[], PrintingScheduler], str]]:
    """Start schedulers of one service; its tasks write files to `checkpoints`."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    path = options(tmp_path, COMMAND, service={"checkpoint_dir": str(checkpoints), "failover_timeout": 600})
    with ZooKeeperEnsemble() as zookeeper, processes() as start_program:
        state = f"zk://{zookeeper.addresses}/frameworks?session_timeout=3"

        def launch() -> PrintingScheduler:
            command = [sys.executable, "-u", str(SCHEDULER), str(path), local_cluster.master.address, state]
            return PrintingScheduler(start_program(*command, env=ENVIRONMENT))

        yield launch, state


def stored(state: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run_command("state", "show", state, "--service", "small", "--json").stdout)
    return document


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_standby_takes_over_tasks(schedulers, tmp_path: Path, how) -> None:
    """A killed or frozen leader is replaced: same framework, each task started once."""
    checkpoints = tmp_path / "checkpoints"
    launch, state = schedulers
    first = launch()
    first.until("leads")
    second = launch()
    assert "process" in second.until("standby: the leading scheduler is")
    wait_for(*(checkpoints / name for name in TASKS))
    before = stored(state)
    first.process.send_signal(how)
    second.until("leads")
    if how == signal.SIGSTOP:
        first.process.send_signal(signal.SIGCONT)
        first.until("leadership lost")
        assert 0 != first.process.wait(PATIENCE)
    after = stored(state)
    (checkpoints / "end").touch()

    assert "succeeded" == second.until("verdict")
    assert sorted(TASKS) == sorted((checkpoints / "starts").read_text().split())
    assert before["framework_id"] == after["framework_id"]
    assert [task["id"] for task in before["tasks"]] == [task["id"] for task in after["tasks"]]
