"""Healing on the real master and agents: who does not join, who hangs, what operators order, agents to avoid."""

from __future__ import annotations

import getpass
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import a_job, a_spec, needs
from jobs import PATIENCE
from mesos_local import AgentSpec, LocalCluster
from tf_scheduler.bundle import build_bundle
from tf_scheduler.cli.service import Service
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, PodCommand
from tf_scheduler.model.failure import Cause
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.policy import RecoveryPolicy
from tf_scheduler.model.recovery import PodVerb
from tf_scheduler.model.spec import ExecutorSpec, JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

pytestmark = pytest.mark.mesos

MASTER_FLAGS = {
    "allocation_interval": "100ms",
    "allocator_agent_recovery_factor": "0",
    "allocator_recovery_timeout": "1secs",
}
AGENTS = tuple(
    AgentSpec(name, f"cpus:2;mem:2048;disk:1000;ports:[{port}-{port + 9}]")
    for name, port in (("h-1", 31600), ("h-2", 31610), ("h-3", 31620))
)
#: Greets as a gRPC server does.
SERVER = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            connection.recv(100)
"""
WORKER_1 = TaskName("worker-1")


class Watched:
    """A service; its state and what it tells can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.told: list[str] = []
        self.answers: list[Reply] = []
        self.service: Service

    def see(self, _event: Event, decision: Decision) -> None:
        with self._changed:
            self.told += [outcome.message for outcome in decision.outcomes]
            self.answers += [decision.answer.reply] if decision.answer else []
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, what: Callable[[SchedulerState], object]) -> SchedulerState:
        with self._changed:
            assert self._changed.wait_for(lambda: what(self.service.state), PATIENCE), "\n".join(self.told)
        return self.service.state

    def until_told(self, words: str) -> str:
        self.until(lambda _: any(words in sentence for sentence in self.told))
        return next(sentence for sentence in self.told if words in sentence)

    def joined(self, name: TaskName, after: TaskRecord | None = None) -> TaskRecord:
        """The record of a launch of this task, a later one than `after`, whose server answers."""

        def has_joined(state: SchedulerState) -> bool:
            record, status = state.tasks.get(name), state.status(name)
            fresh = record is not None and (after is None or record.id != after.id)
            return fresh and status is not None and status.state is TaskState.RUNNING and bool(status.healthy)

        return self.until(has_joined).tasks[name]

    def order(self, verb: PodVerb) -> None:
        """Of worker-1; it is done."""
        count = len(self.answers)
        self.service.runner.put(lambda: PodCommand(verb, WORKER_1))
        self.until(lambda _: len(self.answers) > count)
        assert Reply.OK is self.answers[-1]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A ps and two workers with servers; at its first start worker-1 has none, and the evaluator falls silent."""
    (tmp_path / "server.py").write_text(SERVER)
    serve = f"exec {sys.executable} {tmp_path}/server.py {{port}}"
    first = f'[ "$TASK_NAME" = worker-1 ] && mkdir {tmp_path}/started-1 2>/dev/null'
    silent = f"mkdir {tmp_path}/started-2 && echo once && exec sleep 1000; while :; do echo again; sleep 0.1; done"
    small = {"needs": needs(0.1, 64), "kill_grace": 1.0}
    spec = a_spec(
        name="healing",
        jobs=(
            a_job(JobKind.PS, 1, command=serve, **small),
            a_job(JobKind.WORKER, 2, command=f"{first} && echo waits for data && exec sleep 1000; {serve}", **small),
            a_job(JobKind.EVALUATOR, 1, command=silent, stalled_after=1.0, **small),
        ),
        executor=ExecutorSpec(str(build_bundle()), python=sys.executable, needs=needs(0.01, 32, ports=0)),
        user=getpass.getuser(),
        recovery=RecoveryPolicy(start_timeout=4.0, avoid_after=1, avoid_for=3600.0),
    )
    found = Watched()
    with LocalCluster(AGENTS, master_flags=MASTER_FLAGS, die_with_parent=True) as cluster:
        found.service = Service(
            spec, cluster.master.address, tmp_path / "state.db", observers=[found.see], on_end=found.end
        )
        with found.service:
            yield found
            found.service.runner.request_stop("the test is over")
            found.until(lambda state: state.over)


def test_tasks_are_healed_and_ordered_about(watched):
    """In one go: late, avoided, stalled; restarted, paused, resumed, replaced. Nobody else is ever started again."""
    late = watched.until(lambda state: WORKER_1 in state.recoveries)
    first = late.tasks[WORKER_1]
    assert Cause.NOT_JOINED is late.recoveries[WORKER_1].cause
    assert "waits for data" in watched.until_told(f"worker-1 on {first.hostname} is killed: killed on request")

    second = watched.joined(WORKER_1, after=first)
    assert first.hostname != second.hostname, "its agent is avoided now"
    assert f"{first.hostname} is avoided for 3600 s" in watched.until_told("is avoided")

    stalled = watched.until(lambda state: "evaluator-0" in state.recoveries).recoveries["evaluator-0"]
    assert "stalled: no progress and no output for 1 s" in stalled.why
    assert (Cause.USER_ERROR, 1) == (stalled.cause, len(stalled.failures))

    watched.order(PodVerb.RESTART)
    third = watched.joined(WORKER_1, after=second)
    assert second.address == third.address

    watched.order(PodVerb.PAUSE)
    watched.until(lambda state: not state.is_live(third))
    watched.order(PodVerb.RESUME)
    fourth = watched.joined(WORKER_1, after=third)
    assert third.address == fourth.address

    watched.order(PodVerb.REPLACE)
    fifth = watched.joined(WORKER_1, after=fourth)
    assert fifth.hostname not in (first.hostname, fourth.hostname)
    assert {1} == {watched.service.state.tasks[TaskName(name)].serial for name in ("ps-0", "worker-0")}
