"""A scheduler killed at each kind of point: the job on a real Mesos succeeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import PATIENCE, options, wait_for
from kit import lanes
from kit.commands import ENVIRONMENT
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status

PROGRAM = Path(__file__).parents[1] / "dying_scheduler.py"
NAME = "dying"
#: Each start of a task writes a line; worker 0 exits, and ends the job, when the file `end` exists.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")
#: Calls that every job and every restarted scheduler makes.
CALLS = ("Accept", "Acknowledge", "Kill", "Reconcile", "Revive", "ShutdownExecutor", "Suppress", "Teardown")


@pytest.fixture(params=["sqlite", lanes.parameter("zookeeper", "zookeeper")])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of the scheduler's state store."""
    if request.param == "sqlite":
        yield str(tmp_path / "state.db")
        return
    with ZooKeeperEnsemble() as ensemble:
        yield f"zk://{ensemble.addresses}/frameworks"


def test_scheduler_killed_at_every_kind_of_point_completes(
    local_cluster: LocalCluster, state: str, tmp_path: Path
) -> None:
    """The job succeeds; each task started once, and nothing of it is left in Mesos."""
    checkpoints, points = tmp_path / "checkpoints", tmp_path / "points"
    checkpoints.mkdir()
    points.mkdir()
    path = options(
        tmp_path, COMMAND, service={"name": NAME, "checkpoint_dir": str(checkpoints), "failover_timeout": 600}
    )
    command = [sys.executable, PROGRAM, path, local_cluster.master.address, state, points]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for(*(checkpoints / name for name in TASKS))
            (checkpoints / "end").touch()
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()

    framework, verdict = output.splitlines()[-2:]
    assert "verdict succeeded" == verdict
    assert sorted(TASKS) == sorted((checkpoints / "starts").read_text().split())
    died = {point.name for point in points.iterdir()}
    assert {f"{moment} {what}" for moment in ("before", "after") for what in ("store", *CALLS)} <= died
    assert output.splitlines().count("died") == len(died)
    status = read_status(local_cluster.master.address)
    # Other tests' services, with tasks of the same names, may be in this cluster.
    ids = {item.framework_id for item in status.frameworks} | {task.framework_id for task in status.tasks}
    assert framework.removeprefix("framework ") not in ids
    # The first process died before it could store its framework id: the next one continued that framework.
    assert [] == [item for item in status.frameworks if item.name == NAME]
