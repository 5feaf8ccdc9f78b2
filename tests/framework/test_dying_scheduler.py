"""On a real Mesos: the scheduler is killed at each kind of point, and the job ends as if nothing had been."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tf_scheduler
from jobs import PATIENCE, options, wait_for
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local import master_api
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status

PROGRAM = Path(__file__).parents[1] / "dying_scheduler.py"
SOURCES = Path(tf_scheduler.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, SOURCES.parent / "executor")))}
NAME = "dying"
#: Each start of a task leaves a line; worker 0 ends, and so the job, when there is a file `end`.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")
#: What every job calls, and a scheduler that starts again.
CALLS = ("Accept", "Acknowledge", "Kill", "Reconcile", "Revive", "ShutdownExecutor", "Suppress", "Teardown")


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a scheduler keeps its state."""
    if request.param == "sqlite":
        yield str(tmp_path / "state.db")
        return
    with ZooKeeperEnsemble() as ensemble:
        yield f"zk://{ensemble.addresses}/frameworks"


@pytest.mark.mesos
def test_a_scheduler_that_is_killed_at_every_kind_of_point(local_cluster: LocalCluster, state: str, tmp_path: Path):
    """The job succeeds, no task was started twice, nothing of it is left in Mesos."""
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
    shown = read_status(local_cluster.master.address)
    # Other tests' services, with tasks of the same names, may be in this cluster.
    ours = framework.removeprefix("framework ")
    assert ours not in [*(item.framework_id for item in shown.frameworks), *(task.framework_id for task in shown.tasks)]
    # The first life died before it could store who Mesos said it is: Mesos waits for that one, with nothing, in vain.
    (nobody,) = [item for item in shown.frameworks if item.name == NAME]
    assert (False, {}) == (nobody.connected, nobody.used)
    master_api.teardown(local_cluster.master.address, nobody.framework_id)
