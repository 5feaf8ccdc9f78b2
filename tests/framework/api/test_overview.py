"""Overview of a service: view, and parsing by its readers."""

import json
from dataclasses import asdict, replace

import pytest

from builders import a_job, a_running_state, a_spec, with_fields
from kit.api import a_record
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Activity, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import AgentRow, from_json, overview, restart_text
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, ResultDecided, StatusStored, TaskLaunched
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import Cause, Recovery, TaskStatus


@pytest.fixture
def state():
    chief = a_record(a_spec(), "chief-0")
    others = {AgentId(name): AgentSnapshot(name, "", "", 4000, 1_024_000, 2000, 5.0) for name in ("agent-1", "agent-2")}
    return apply(with_fields(SchedulerState(a_spec()), connected=True, agent_snapshots=others), TaskLaunched(chief))


def test_overview_round_trip(state) -> None:
    """Also with fields of a newer scheduler."""
    view = overview(Snapshot(state))
    document = json.loads(json.dumps(asdict(view)))

    assert view == from_json(document)
    assert view == from_json({**document, "new": 1, "tasks": [{**task, "new": 1} for task in document["tasks"]]})


def test_leader_is_launched_chief(state) -> None:
    assert "chief-0" == overview(Snapshot(state)).leader
    assert None is overview(Snapshot(SchedulerState(a_spec()))).leader


def test_unused_agents_have_last_offer(state) -> None:
    """While connected, because Mesos reports lost agents only then."""
    agent = AgentRow("agent-2", "", "", 4.0, 1024.0, 2.0, 5.0, "4 cpus, 1 GB, 2 GPUs")
    assert (agent,) == overview(Snapshot(state)).agents
    assert () == overview(Snapshot(with_fields(state, connected=False))).agents


def test_agents_have_the_resources_of_their_running_tasks() -> None:
    """Without those of tasks that have ended."""
    resources = (Resource("cpus", 600), Resource("mem", 1_088_000))
    records = [a_record(a_spec(), name, resources=resources) for name in ("ps-0", "worker-0", "chief-0")]
    states = (TaskState.FAILED, TaskState.RUNNING, TaskState.RUNNING)
    statuses = [TaskStatus(record.id, state) for record, state in zip(records, states, strict=True)]
    state = apply(SchedulerState(a_spec()), *map(TaskLaunched, records), *map(StatusStored, statuses))

    assert {"agent-1": "1.2 cpus, 2.12 GB"} == overview(Snapshot(state)).in_use


def test_unused_agents_are_limited(state) -> None:
    names = [f"host-{number:03}" for number in reversed(range(60))]
    agents = {AgentId(name): AgentSnapshot(name, "", "", 1, 1, 0, 5.0) for name in names}
    view = overview(Snapshot(with_fields(state, agent_snapshots=agents)))

    assert [f"host-{number:03}" for number in range(50)] == [agent.hostname for agent in view.agents]
    assert 10 == view.more_agents


def running(**status):
    """A state in which all tasks run, with these fields of their statuses."""
    spec = a_spec()
    records = [a_record(spec, task.name) for task in spec.tasks()]
    statuses = [TaskStatus(record.id, **{"state": TaskState.RUNNING, **status}) for record in records]
    state = apply(SchedulerState(spec), *map(TaskLaunched, records), *map(StatusStored, statuses))
    return with_fields(state, connected=True)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"state": TaskState.STAGING}, Activity.FETCHING),
        ({"state": TaskState.STARTING}, Activity.FETCHING),
        ({"healthy": None}, Activity.IMPORTING),
        ({"healthy": True}, Activity.RUNNING),
        ({"healthy": False}, Activity.FROZEN),
        ({"state": TaskState.KILLING}, Activity.STOPPING),
        ({"state": TaskState.UNREACHABLE}, Activity.UNREACHABLE),
    ],
)
def test_job_and_tasks_have_an_activity(status, expected) -> None:
    shown = overview(Snapshot(running(**status)))

    assert {expected.value} == {task.activity for task in shown.tasks}
    assert (expected.value, "") == (shown.activity, shown.detail)


def test_tensorboard_does_not_train() -> None:
    """It reads the event files of the others."""
    spec = a_spec(jobs=(a_job(), a_job(JobKind.TENSORBOARD)))
    record = a_record(spec, "tensorboard-0")
    state = apply(SchedulerState(spec), TaskLaunched(record), StatusStored(TaskStatus(record.id, TaskState.RUNNING)))
    shown = overview(Snapshot(with_fields(state, progress={record.id: Progress(step=7)})))

    assert Activity.RUNNING.value == shown.task("tensorboard-0").activity


def test_one_late_server_keeps_the_others_connecting() -> None:
    state = running(healthy=True)
    late = state.stored.tasks["worker-1"]
    state = apply(state, StatusStored(TaskStatus(late.id, TaskState.RUNNING)))
    shown = overview(Snapshot(state))

    assert (Activity.IMPORTING.value, "worker-1") == (shown.activity, shown.detail)
    assert Activity.CONNECTING.value == shown.task("chief-0").activity


def test_job_without_launches_is_queued() -> None:
    shown = overview(Snapshot(SchedulerState(a_spec())))

    assert Activity.QUEUED.value == shown.activity
    assert shown.detail.startswith("ps-0")


def test_progress_decides_that_a_job_trains_or_is_stalled() -> None:
    state = running(healthy=True)
    chief = state.stored.tasks["chief-0"]
    reported = Progress(1, 9.0, step=3, total=6, loss=float("nan"), seconds_left=2.0, saved_step=2)
    state = with_fields(state, progress={chief.id: reported}, last_progress=("chief-0", 0.0))
    shown = overview(Snapshot(state, now=1.0))
    row = shown.task("chief-0")

    assert Activity.TRAINING.value == shown.activity == row.activity
    assert replace(reported, loss=None) == Progress.from_json(asdict(row))
    assert row == shown.trainer
    stalled = overview(Snapshot(state, now=10_000.0))
    assert (Activity.STALLED.value, None) == (stalled.activity, stalled.task("chief-0").seconds_left)
    names = {state.stored.tasks[name].id: Progress(1, 9.0, step=3) for name in ("chief-0", "worker-1", "ps-0")}
    ended = apply(with_fields(state, progress=names), StatusStored(TaskStatus(chief.id, TaskState.FINISHED)))
    assert "worker-1" == overview(Snapshot(ended)).reporter


def test_lost_task_restarts_with_number_of_failure() -> None:
    state = running(healthy=True)
    record = state.stored.tasks["worker-1"]
    recovery = Recovery(
        record.name, record.id, Cause.USER_ERROR, "worker-1 has failed: exit code 1", 0.0, 2.0, 0.0, failures=(1.0,)
    )
    state = with_fields(state, progress={record.id: Progress(1, 0.0, step=48, total=100, saved_step=20)})
    shown = overview(Snapshot(apply(state, RecoveryDecided(recovery))))

    assert (48, 100, 20) == (shown.restart.step, shown.restart.total, shown.restart.saved_step)
    text = "worker-1 has failed: exit code 1, at step 48 of 100; its last checkpoint is of step 20 or later"
    assert text == restart_text(shown.restart)
    assert (Activity.RESTARTING.value, f"1 of 3: {text}") == (shown.activity, shown.detail)
    assert Activity.RESTARTING.value == shown.task("worker-1").activity


def test_last_restart_is_the_latest_own_cause() -> None:
    """Also after the relaunch, when the progress of the ended launch is forgotten."""
    state = running(healthy=True)
    reasons = {
        "worker-0": ("worker-0: killed", 5.0),
        "worker-1": ("worker-1: failed", 3.0),
        "ps-0": ("restarts with w", 9.0),
    }
    for name, (why, since) in reasons.items():
        record = state.stored.tasks[name]
        recovery = Recovery(name, record.id, Cause.USER_ERROR, why, since, 2.0, 0.0, step=214, saved_step=200)
        again = replace(record, id=f"{record.id}-2", restarts=int(name != "ps-0"))
        state = apply(state, RecoveryDecided(recovery), TaskLaunched(again))
    shown = overview(Snapshot(state))

    text = "worker-0: killed, at step 214; its last checkpoint is of step 200 or later"
    assert (None, 2, text) == (shown.restart, shown.restarts, shown.last_restart)
    launch = state.stored.tasks["worker-0"].id
    for first_step, words in ((201, "continued at step 201"), (7, "the program did not restore its checkpoint of")):
        again = with_fields(state, progress={launch: Progress(1, 0.0, step=300, first_step=first_step)})
        assert f"worker-0: killed, at step 214; {words}" in overview(Snapshot(again)).last_restart


@pytest.mark.parametrize(
    ("strategy", "others"), [(Strategy.MULTI_WORKER_MIRRORED, ("worker-0",)), (Strategy.INDEPENDENT, ())]
)
def test_restart_names_its_cause_first(strategy: Strategy, others: tuple[str, ...]) -> None:
    """Not a task that restarts with it, although that has failed more often."""
    state = a_running_state(a_spec(strategy=strategy, chief=0, ps=0))
    reasons = {"worker-0": "restarts with worker-1", "worker-1": "worker-1: ValueError: bad batch"}
    for name, why in reasons.items():
        failures = (1.0, 7.0) if name == "worker-0" else (14.0,)
        launch = state.stored.tasks[name].id
        recovery = Recovery(name, launch, Cause.USER_ERROR, why, 14.0, 15.0, 0.0, failures=failures, last_end="alike")
        state = apply(state, RecoveryDecided(recovery))

    restart = overview(Snapshot(state)).restart

    assert ("worker-1", others, "ValueError: bad batch", 3) == (
        restart.task,
        restart.others,
        restart.why,
        restart.failures,
    )


@pytest.mark.parametrize("verdict", list(Verdict))
def test_ended_job_has_its_verdict_once_all_tasks_have_ended(verdict) -> None:
    result = ResultDecided(Result(verdict, "because", 1.0))

    assert Activity.STOPPING.value == overview(Snapshot(apply(running(healthy=True), result))).activity
    assert verdict.value == overview(Snapshot(apply(running(state=TaskState.KILLED), result))).activity
