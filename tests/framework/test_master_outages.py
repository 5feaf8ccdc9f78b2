"""A scheduler on a real Mesos with a frozen or killed master: tasks keep running."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import PATIENCE, options, wait_for
from kit.freezing import freeze, thaw
from kit.reasons import assert_shown
from kit.scheduler_process import RunningScheduler
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_executor.contract.states import TaskState
from tf_scheduler.cli.common.options_file import load_options

#: Each start of a task writes a line; worker 0 exits, and ends the job, when the file `end` exists.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; touch $CHECKPOINT_DIR/$TASK_NAME; '
    'case "$TASK_NAME" in worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; *) exec sleep 1000;; esac'
)
TASKS = ("ps-0", "worker-0", "worker-1")
AGENTS = [AgentSpec("agent-1", "cpus:2;mem:2048;ports:[31950-31969]")]
#: A restarted master has the agent back after its missed pings.
QUICK = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}


class EventCounter:
    """An observer that counts events, with a wait for more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[str] = []

    def __call__(self, event: object, decision: object) -> None:
        with self._changed:
            self._events.append(type(event).__name__)
            self._changed.notify_all()

    def wait(self, kind: str, count: int, do: Callable[[], object] = lambda: None) -> None:
        """Call `do`, then wait until `count` more events have occurred."""
        with self._changed:
            expected = self._events.count(kind) + count
        do()
        with self._changed:
            assert self._changed.wait_for(lambda: self._events.count(kind) >= expected, PATIENCE), kind


@pytest.mark.usefixtures("real_mesos")
def test_tasks_keep_running_during_master_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen beyond the heartbeat timeout, then killed: each task is started once."""
    checkpoints, events, ended = tmp_path / "checkpoints", EventCounter(), threading.Event()
    checkpoints.mkdir()
    path = options(tmp_path, COMMAND, service={"checkpoint_dir": str(checkpoints), "failover_timeout": 600})
    with LocalCluster(AGENTS, master_flags=QUICK, die_with_parent=True) as cluster:
        master = cluster.master
        with RunningScheduler(
            load_options(path), master.address, tmp_path / "state.db", observers=[events], on_end=ended.set
        ) as service:
            wait_for(*(checkpoints / name for name in TASKS))
            before = service.state

            with monkeypatch.context() as patched:
                # Shorten the timeout of 75 s, from the next subscription on.
                patched.setattr("mesos_client.scheduler.HEARTBEATS_MISSED", 0.05)
                events.wait("Subscribed", 1, service.process.connection.driver._driver.restart_stream)
                events.wait("Disconnected", 1, lambda: freeze(master))
            assert_shown(service.process.settings.url, 316, "master", "not connected to a master since ")
            events.wait("Subscribed", 1, lambda: thaw(master))

            events.wait("Disconnected", 1, master.kill)
            events.wait("Subscribed", 1, master.restart)
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


@pytest.mark.usefixtures("real_mesos")
def test_tasks_keep_running_when_master_loses_its_registry(tmp_path: Path) -> None:
    """Each task is started once; TASK_UNKNOWN only means that its agent is away."""
    checkpoints, events, ended = tmp_path / "checkpoints", EventCounter(), threading.Event()
    checkpoints.mkdir()
    path = options(tmp_path, COMMAND, service={"checkpoint_dir": str(checkpoints), "failover_timeout": 600})
    with (
        LocalCluster(AGENTS, master_flags=QUICK, die_with_parent=True) as cluster,
        RunningScheduler(
            load_options(path), cluster.master.address, tmp_path / "state.db", observers=[events], on_end=ended.set
        ) as service,
    ):
        wait_for(*(checkpoints / name for name in TASKS))
        before = service.state.stored.tasks

        events.wait("Disconnected", 1, cluster.master.kill)
        shutil.rmtree(Path(cluster.directory) / "master")
        events.wait("Subscribed", 1, cluster.master.restart)
        wait_until(
            lambda: (
                {TaskState.RUNNING} == {service.state.status(name).state for name in TASKS}
                and not service.state.session.reconciliation.unanswered
            )
        )
        (checkpoints / "end").touch()
        assert ended.wait(PATIENCE)
        after = service.state.stored

    assert service.error is None
    assert "succeeded" == after.result.verdict.value
    assert sorted(TASKS) == sorted((checkpoints / "starts").read_text().split())
    assert {record.id for record in before.values()} == {record.id for record in after.tasks.values()}
