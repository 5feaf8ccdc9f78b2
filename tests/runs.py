"""Recorded runs for tests of the history."""

from __future__ import annotations

from dataclasses import replace

from tf_executor.contract.reports import Progress
from tf_scheduler.history.model import RecordedLaunch, Run, RunWarning, best_values

T0 = 1_800_000_000.0


def a_launch(task="worker-0", generation=1, launched=1.0, running=2.0, ended=9.0, state="finished", **others):
    """Times in seconds after T0."""
    times = {"launched": T0 + launched, "running": running and T0 + running, "ended": ended and T0 + ended}
    place = {"agent": "agent-1", "address": "10.0.0.1:31000", "cpus": 1.0, "gpus": 0.0, "mem": 512.0}
    return RecordedLaunch(
        task=task, id=f"{task}-{launched}", generation=generation, state=state, **{**place, **times, **others}
    )


def a_point(at, step=None, loss=None, *, speed=None, unit="examples", **others):
    """A point, some seconds after T0."""
    return Progress(time=T0 + at, step=step, loss=loss, **{f"{unit}_per_second": speed}, **others)


def a_run(**others):
    """Two tasks, one of them launched twice; a curve of three points."""
    known = {
        "id": "mnist-1",
        "service": "mnist",
        "state": "succeeded",
        "reason": "worker-0 finished",
        "submitted": T0,
        "seconds": 10.0,
        "folder": "/runs/mnist-1",
        "options": {"service": {"name": "mnist", "command": "python train.py"}, "worker": {"count": 2}},
        "environment": {"python": "3.11.7", "tensorflow": "2.20.0"},
        "agents": {"agent-1": "cpus 2"},
        "launches": (
            a_launch(),
            a_launch("worker-1", ended=4.0, state="failed", exit_code=137, replaced="agent-2 was lost"),
            a_launch("worker-1", 2, 5.0, 6.0, None, "running"),
        ),
        "curves": {"worker-0": tuple(a_point(at, int(at), 1 / at, speed=100 * at) for at in (3.0, 4.0, 8.0))},
        "warnings": (RunWarning(T0 + 4, "worker-1 failed"),),
    }
    run = Run(**{**known, **others})
    return run if "best" in others else replace(run, best=best_values(run.curves.get(run.leader or "", ())))
