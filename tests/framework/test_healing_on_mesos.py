"""Recovery on a real Mesos: start-up timeouts, stalls, crashes, operator commands."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from builders import a_job, a_spec, needs
from kit.freezing import freeze, thaw
from kit.payloads import GRPC_SERVER
from kit.reasons import assert_shown
from kit.scheduler_process import WatchedScheduler
from kit.shared import SharedServers
from kit.waiting import wait_until
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import read_stat
from mesos_local.master_api import read_status
from tf_executor.contract.states import Override, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state import spec_index
from tf_scheduler.model.events import PodCommand
from tf_scheduler.model.ids import TaskName, executor_of
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.spec import ExecutorSpec, JobKind, RecoveryPolicy, RestartPolicy, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, PodVerb, TaskRecord
from tf_scheduler.zipapp_builder import build_bundle

#: The master's access list refuses tasks of this user.
FORBIDDEN = "games"
MASTER_FLAGS = {
    "allocation_interval": "100ms",
    "allocator_agent_recovery_factor": "0",
    "allocator_recovery_timeout": "1secs",
    "agent_ping_timeout": "1secs",
    "max_agent_ping_timeouts": "3",
    "acls": json.dumps({"run_tasks": [{"principals": {"type": "NONE"}, "users": {"values": [FORBIDDEN]}}]}),
}
AGENTS = tuple(AgentSpec(name, "cpus:2;mem:2048;disk:1000") for name in ("h-1", "h-2", "h-3"))
WORKER_1 = TaskName("worker-1")


class Watched(WatchedScheduler):
    """Waits for its tasks, and commands for worker-1."""

    def joined(self, name: TaskName, after: TaskRecord | None = None) -> TaskRecord:
        """Wait for a launch after `after` with an answering server; return its record."""

        def has_joined(state: SchedulerState) -> bool:
            record, status = state.stored.tasks.get(name), state.status(name)
            fresh = record is not None and (after is None or record.id != after.id)
            return fresh and status is not None and status.state is TaskState.RUNNING and bool(status.healthy)

        return self.until(has_joined).stored.tasks[name]

    def paused(self, name: TaskName) -> TaskRecord:
        """Wait until the task is paused; return the record of its placeholder."""
        return self.until(lambda state: spec_index.override_of(state, name) is Override.PAUSED).stored.tasks[name]

    def order(self, verb: PodVerb) -> None:
        """Send a command for worker-1, and wait until it is accepted."""
        count = len(self.answers)
        self.process.runner.put(lambda: PodCommand(verb, WORKER_1))
        self.until(lambda _: len(self.answers) > count)
        assert Reply.OK is self.answers[-1]


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    """Three agents. Their tasks listen, so no other cluster has these ports."""
    return module_servers.cluster(AGENTS, master_flags=MASTER_FLAGS)


@pytest.fixture
def start_service(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[ServiceSpec], Watched]]:
    """Start services; stop those that still run at the end."""
    with ExitStack() as stack:
        yield lambda spec: Watched(stack, spec, cluster.master.address, tmp_path / "state.db")


def a_service(*jobs: Any, **options: Any) -> ServiceSpec:
    """Options of small programs, run as the current user."""
    executor = ExecutorSpec(str(build_bundle()), python=sys.executable, needs=needs(0.01, 32, ports=0))
    return a_spec(**{"name": "healing", "jobs": jobs, "executor": executor, "user": getpass.getuser(), **options})


@pytest.fixture
def watched(start_service: Callable[[ServiceSpec], Watched], tmp_path: Path) -> Watched:
    """A ps and two workers; worker-1 first has no server, the evaluator falls silent."""
    (tmp_path / "server.py").write_text(GRPC_SERVER)
    serve = f"exec {sys.executable} {tmp_path}/server.py {{port}}"
    first = f'[ "$TASK_NAME" = worker-1 ] && mkdir {tmp_path}/started-1 2>/dev/null'
    silent = f"mkdir {tmp_path}/started-2 && echo once && exec sleep 1000; while :; do echo again; sleep 0.1; done"
    small = {"needs": needs(0.1, 64), "kill_grace": 1.0}
    return start_service(
        a_service(
            a_job(JobKind.PS, 1, command=serve, **small),
            a_job(JobKind.WORKER, 2, command=f"{first} && echo waits for data && exec sleep 1000; {serve}", **small),
            a_job(JobKind.EVALUATOR, 1, command=silent, stalled_after=2.0, stall_grace=0.0, **small),
            recovery=RecoveryPolicy(start_timeout=10.0, avoid_after=1, avoid_for=3600.0),
        )
    )


def test_stopped_worker_is_named_and_replaced(start_service: Callable[[ServiceSpec], Watched], tmp_path: Path) -> None:
    """Mesos and its peer see nothing wrong: it is in state TASK_RUNNING."""
    (tmp_path / "server.py").write_text(GRPC_SERVER)
    serve = f"echo $$ > {tmp_path}/$TASK_NAME; exec {sys.executable} {tmp_path}/server.py {{port}}"
    small = {"needs": needs(0.1, 64), "kill_grace": 1.0}
    jobs = (a_job(JobKind.WORKER, 2, command=serve, frozen_after=4.0, **small),)
    watched = start_service(a_service(*jobs, strategy=Strategy.MULTI_WORKER_MIRRORED))
    first, peer = watched.joined(WORKER_1), watched.joined(TaskName("worker-0"))

    os.kill(int((tmp_path / "worker-1").read_text()), signal.SIGSTOP)

    sentence = watched.until_message("is frozen")
    assert sentence.startswith(f"worker-1 on {first.hostname} is frozen: process "), sentence
    recovery = watched.until(lambda state: WORKER_1 in state.stored.recoveries).stored.recoveries[WORKER_1]
    assert (Cause.INFRASTRUCTURE, ()) == (recovery.cause, recovery.failures)
    assert recovery.why.startswith("worker-1 has failed: frozen for "), recovery.why
    watched.joined(WORKER_1, after=first)
    assert not watched.process.runner.state.stored.recoveries.get(peer.name, recovery).failures


def test_recovery_and_operator_commands_on_mesos(watched, cluster) -> None:
    """Late start, avoided agent, stall; restart, pause, resume, replace; busy port.

    No other task restarts.
    """
    late = watched.until(lambda state: WORKER_1 in state.stored.recoveries)
    first = late.stored.tasks[WORKER_1]
    assert Cause.NOT_JOINED is late.stored.recoveries[WORKER_1].cause
    assert "waits for data" in watched.until_message(f"worker-1 on {first.hostname} was stopped: stopped on request")

    second = watched.joined(WORKER_1, after=first)
    assert first.hostname != second.hostname, "its agent is avoided now"
    assert f"{first.hostname} is avoided for 1 h" in watched.until_message("is avoided")

    stalled = watched.until(lambda state: "evaluator-0" in state.stored.recoveries).stored.recoveries["evaluator-0"]
    assert "stalled: no progress and no output for 2 s" in stalled.why
    assert (Cause.USER_ERROR, 1) == (stalled.cause, len(stalled.failures))

    watched.order(PodVerb.RESTART)
    third = watched.joined(WORKER_1, after=second)
    assert second.address == third.address

    watched.order(PodVerb.PAUSE)
    resting = watched.paused(WORKER_1)
    assert third.address == resting.address
    assert third.id != resting.id
    assert int(third.address.rpartition(":")[2]) in used_ports(cluster, watched), "to Mesos its place is not free"
    assert {resting.id} == {task.task_id for task in cluster.state().tasks if task.name == WORKER_1}
    wait_until(lambda: "pod resume worker-1" in output(cluster, watched, resting))
    watched.order(PodVerb.RESUME)
    fourth = watched.joined(WORKER_1, after=resting)
    assert (third.address, third.agent_id) == (fourth.address, fourth.agent_id)

    watched.order(PodVerb.REPLACE)
    fifth = watched.joined(WORKER_1, after=fourth)
    assert fifth.hostname not in (first.hostname, fourth.hostname)

    watched.order(PodVerb.PAUSE)
    watched.paused(WORKER_1)
    with socket.create_server(("", int(fifth.address.rpartition(":")[2]))):
        watched.order(PodVerb.RESUME)
        watched.until_message(f" of the task is in use by process {os.getpid()} ")
        sixth = watched.joined(WORKER_1, after=fifth)
    assert fifth.address != sixth.address
    assert {1} == {watched.state.stored.tasks[TaskName(name)].serial for name in ("ps-0", "worker-0")}


def used_ports(cluster: LocalCluster, watched: Watched) -> set[int]:
    """Return the ports that the master counts as used by the service."""
    framework = watched.state.stored.framework_id
    used = next(item.used for item in cluster.state().frameworks if item.framework_id == framework)
    ends = [[int(end) for end in part.split("-")] for part in str(used["ports"]).split(",")]
    return {port for first, last in ends for port in range(first, last + 1)}


def output(cluster: LocalCluster, watched: Watched, record: TaskRecord) -> str:
    """Return the stdout of a launch."""
    framework = str(watched.state.stored.framework_id)
    return (cluster.sandbox(record.agent_id, framework, executor_of(record.id)) / "stdout").read_text()


def operate(cluster: LocalCluster, kind: str, agent_id: str) -> None:
    """Call the master's operator API about one agent."""
    master_api.call(cluster.master.address, kind, **{kind.lower(): {"agent_id": {"value": agent_id}}})


def runs(state: SchedulerState, count: int) -> bool:
    """Return whether exactly `count` workers run."""
    statuses = [state.stored.statuses.get(record.id) for record in state.live()]
    return len(statuses) == count and all(status and status.state is TaskState.RUNNING for status in statuses)


def test_collective_training_leaves_drained_agent(cluster, start_service, tmp_path: Path) -> None:
    """The drained worker saves a checkpoint; two of three train on; a restart adds it."""
    save = f"trap 'sleep 2; echo saved > {tmp_path}/checkpoint; exit 143' TERM"
    command = (
        f'printf "%s" "$TF_CONFIG" > {tmp_path}/$TASK_NAME; '
        f'[ "$TASK_NAME" = worker-2 ] && [ ! -e {tmp_path}/checkpoint ] && {save}; '
        f"sleep 1000 & touch {tmp_path}/$TASK_NAME.ready; wait"
    )
    # Each needs an agent of its own.
    job = a_job(JobKind.WORKER, 3, needs=needs(1.5, 64), command=command, kill_grace=60.0, min_count=2)
    recovery = RecoveryPolicy(shrink_after=4.0)
    service = start_service(
        a_service(job, strategy=Strategy.MULTI_WORKER_MIRRORED, recovery=recovery, hold_seconds=1.0)
    )
    state = service.until(lambda state: runs(state, 3))
    wait_until((tmp_path / "worker-2.ready").exists)
    drained = state.stored.tasks[TaskName("worker-2")]
    try:
        operate(cluster, "DRAIN_AGENT", drained.agent_id)
        service.until_message("the cluster restarts with 2 of 3 workers")
        state = service.until(lambda state: runs(state, 2))
        assert (tmp_path / "checkpoint").exists()
        assert drained.agent_id not in {record.agent_id for record in state.live()}
        assert [2, 2] == [workers_of(tmp_path, task) for task in ("worker-0", "worker-1")]
        assert all(() == item.failures for item in state.stored.recoveries.values())
    finally:
        operate(cluster, "REACTIVATE_AGENT", drained.agent_id)

    service.order(PodVerb.RESTART)
    service.until(lambda state: runs(state, 3))
    assert [3, 3, 3] == [workers_of(tmp_path, task) for task in ("worker-0", "worker-1", "worker-2")]


def test_task_that_returns_too_late_is_killed(cluster, start_service, tmp_path: Path) -> None:
    """An agent exceeds its timeout: the task is relaunched on another and stays there."""
    job = a_job(JobKind.WORKER, 1, needs=needs(0.1, 64), command=f"echo $$ >> {tmp_path}/programs; exec sleep 1000")
    recovery = RecoveryPolicy(unreachable_timeout=3.0)
    service = start_service(a_service(job, strategy=Strategy.INDEPENDENT, recovery=recovery))
    first = service.until(lambda state: runs(state, 1)).stored.tasks[TaskName("worker-0")]
    agent = cluster.agents[first.hostname]
    freeze(agent)
    try:
        service.until(lambda state: state.has_silent_tasks())
        assert_shown(service.process.settings.url, 205, "unreachable", "worker-0 is unreachable: ")
        state = service.until(lambda state: state.stored.tasks["worker-0"].id != first.id and runs(state, 1))
    finally:
        thaw(agent)
    second = state.stored.tasks[TaskName("worker-0")]
    assert first.hostname != second.hostname

    wait_until(lambda: (tmp_path / "programs").read_text().count("\n") == 2)
    old, new = (Path("/proc", pid) for pid in (tmp_path / "programs").read_text().split())
    wait_until(lambda: not old.exists())
    wait_until(lambda: known_tasks(cluster) == [(second.id, "TASK_RUNNING")])
    wait_until(lambda: [True] * 3 == [agent.active for agent in read_status(cluster.master.address).agents])
    assert new.exists()
    assert second.id == service.state.stored.tasks[TaskName("worker-0")].id


def test_job_end_waits_for_agent_of_replaced_task(cluster, start_service, tmp_path: Path) -> None:
    """A Mesos 1.11 master aborts if an executor of a removed framework ends."""
    first_only = f"mkdir {tmp_path}/first 2>/dev/null && echo $$ > {tmp_path}/program && exec sleep 1000"
    command = f"{first_only}; until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    job = a_job(JobKind.WORKER, 1, needs=needs(0.1, 64), command=command, kill_grace=1.0)
    recovery = RecoveryPolicy(unreachable_timeout=1.0)
    service = start_service(a_service(job, strategy=Strategy.INDEPENDENT, recovery=recovery))
    first = service.until(lambda state: runs(state, 1)).stored.tasks[TaskName("worker-0")]
    wait_until(lambda: (tmp_path / "program").exists() and (tmp_path / "program").read_text())
    agent, program = cluster.agents[first.hostname], Path("/proc", (tmp_path / "program").read_text().strip())
    executor = Path("/proc", str(parent_of(program)))
    freeze(agent)
    try:
        service.until(lambda state: state.stored.tasks["worker-0"].id != first.id and runs(state, 1))
        (tmp_path / "end").touch()
        waits = service.until_message("the removal of the framework waits up to 600 s for agents that do not answer")
        assert f"worker-0 may still run on {first.hostname}" in waits
    finally:
        thaw(agent)

    state = service.until(lambda state: state.process.finished)
    assert Verdict.SUCCEEDED is state.stored.result.verdict
    assert ({}, ()) == (state.stored.abandoned, state.process.left_behind)
    wait_until(lambda: not program.exists() and not executor.exists())
    wait_until(lambda: [True] * 3 == [agent.active for agent in read_status(cluster.master.address).agents])


def parent_of(process: Path) -> int:
    """Return the id of the parent of a process in /proc."""
    stat = read_stat(int(process.name))
    assert stat is not None
    return stat.parent


def known_tasks(cluster: LocalCluster) -> list[tuple[str, str]]:
    """Return ids and states of tasks that run, or whose end has no acknowledgement."""
    return [(task.task_id, task.state) for task in read_status(cluster.master.address).tasks]


def workers_of(folder: Path, task: str) -> int:
    """Return the number of workers in the ClusterSpec of the task's last program."""
    return len(json.loads((folder / task).read_text())["cluster"]["worker"])


@pytest.mark.parametrize(
    ("options", "ends", "starts", "why"),
    [
        ({"restart": RestartPolicy(backoff=0.1)}, "exit 3", 2, "the same error twice before the first step"),
        ({"user": FORBIDDEN}, "exit 0", 0, "a relaunch would end in the same way"),
    ],
    ids=["silent", "refused by Mesos"],
)
def test_task_without_restarts_left_ends_job(start_service, tmp_path: Path, options, ends, starts, why) -> None:
    """By its restart policy, or as Mesos would refuse it again; the result says why."""
    log = tmp_path / "starts"
    log.touch()
    command = f"echo started >> {log}; {ends.replace('starts', str(log))}"
    job = a_job(JobKind.WORKER, 1, needs=needs(0.1, 64), command=command)
    service = start_service(a_service(job, strategy=Strategy.INDEPENDENT, **options))

    state = service.until(lambda state: state.process.finished)

    assert Verdict.FAILED is state.stored.result.verdict
    assert why in state.stored.result.reason
    assert starts == len(log.read_text().splitlines())
