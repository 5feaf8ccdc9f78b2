"""On a real Mesos: the scheduler is killed at each kind of point, and the job ends as if nothing had been."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tf_scheduler
from jobs import PATIENCE, options, wait_for
from mesos_local import LocalCluster
from mesos_local.status import read_status

PROGRAM = Path(__file__).parents[1] / "dying_scheduler.py"
SOURCES = Path(tf_scheduler.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, SOURCES.parent / "executor")))}
#: Each start of a task leaves a line; worker 0 ends, and so the job, when there is a file `end`.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")
#: What every job calls, and a scheduler that starts again.
CALLS = ("Accept", "Acknowledge", "Kill", "Reconcile", "Revive", "ShutdownExecutor", "Suppress", "Teardown")


@pytest.mark.mesos
def test_a_scheduler_that_is_killed_at_every_kind_of_point(local_cluster: LocalCluster, tmp_path):
    """The job succeeds, no task was started twice, nothing of it is left in Mesos."""
    checkpoints, points = tmp_path / "checkpoints", tmp_path / "points"
    checkpoints.mkdir()
    points.mkdir()
    path = options(tmp_path, COMMAND, service={"checkpoint_dir": str(checkpoints), "failover_timeout": 600})
    command = [sys.executable, PROGRAM, path, local_cluster.master.address, tmp_path / "state.db", points]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for(*(checkpoints / name for name in TASKS))
            (checkpoints / "end").touch()
            told, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()

    assert "verdict succeeded" == told.splitlines()[-1]
    assert sorted(TASKS) == sorted((checkpoints / "starts").read_text().split())
    died = {point.name for point in points.iterdir()}
    assert {f"{moment} {what}" for moment in ("before", "after") for what in ("store", *CALLS)} <= died
    assert told.splitlines().count("died") == len(died)
    assert [] == [task for task in read_status(local_cluster.master.address).tasks if task.name in TASKS]
