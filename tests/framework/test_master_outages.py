"""A whole scheduler on a real Mesos whose master falls silent, and is killed and started again: the tasks go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jobs import PATIENCE, options, wait_for
from kit.scheduler_process import RunningScheduler
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_scheduler.cli.common.options_file import load_options

#: Each start of a task leaves a line; worker 0 ends, and so the job, when there is a file `end`.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")
AGENTS = [AgentSpec("agent-1", "cpus:2;mem:2048;ports:[31950-31969]")]
#: A master that starts again has the agent back after its missed pings.
QUICK = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}


class Seen:
    """An observer that knows what has happened, and can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[str] = []

    def __call__(self, event: object, decision: object) -> None:
        with self._changed:
            self._events.append(type(event).__name__)
            self._changed.notify_all()

    def wait(self, kind: str, count: int, do: Callable[[], object] = lambda: None) -> None:
        """Do something, then wait until it has happened so many times more."""
        with self._changed:
            wanted = self._events.count(kind) + count
        do()
        with self._changed:
            assert self._changed.wait_for(lambda: self._events.count(kind) >= wanted, PATIENCE), kind


@pytest.mark.mesos
def test_tasks_run_on_while_the_master_is_away(tmp_path, monkeypatch):
    """Frozen for longer than the heartbeats last, then killed: the same framework, each task started once."""
    checkpoints, seen, ended = tmp_path / "checkpoints", Seen(), threading.Event()
    checkpoints.mkdir()
    path = options(tmp_path, COMMAND, service={"checkpoint_dir": str(checkpoints), "failover_timeout": 600})
    with LocalCluster(AGENTS, master_flags=QUICK, die_with_parent=True) as cluster:
        master = cluster.master
        with RunningScheduler(
            load_options(path), master.address, tmp_path / "state.db", observers=[seen], on_end=ended.set
        ) as service:
            wait_for(*(checkpoints / name for name in TASKS))
            before = service.state

            with monkeypatch.context() as patched:
                # The limit, 75 s, is a short one here, from the next subscription on.
                patched.setattr("mesos_client.scheduler.HEARTBEATS_MISSED", 0.05)
                seen.wait("Subscribed", 1, service.process.connection.driver._driver.restart_stream)
                seen.wait("Disconnected", 1, master.freeze)
            seen.wait("Subscribed", 1, master.thaw)

            seen.wait("Disconnected", 1, master.kill)
            seen.wait("Subscribed", 1, master.restart)
            (checkpoints / "end").touch()
            assert ended.wait(PATIENCE)
            after = service.state

    assert service.error is None
    assert "succeeded" == after.stored.result.verdict.value
    assert sorted(TASKS) == sorted((checkpoints / "starts").read_text().split())
    assert before.stored.framework_id == after.stored.framework_id
    assert {record.id for record in before.stored.tasks.values()} == {
        record.id for record in after.stored.tasks.values()
    }
