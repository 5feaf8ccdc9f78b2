"""Overview of the service, `GET /v1/tf/overview`: types and view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from tf_executor.contract.reports import REPORT_FIELDS, Progress, describe_progress, describe_restart_loss, format_step
from tf_executor.contract.states import Activity, Status, TaskState, assert_never
from tf_executor.contract.text import format_part, format_percent, format_resources, list_names
from tf_scheduler.api.views import plan_messages
from tf_scheduler.core.recovery.replacement import failures_alike, last_report, restart_policy
from tf_scheduler.core.state import after_job
from tf_scheduler.core.state.spec_index import override_of
from tf_scheduler.model.ids import UnixTime, executor_of
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.plan import DEPLOY, UPDATE, Plan
from tf_scheduler.model.redaction import redact_text
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Recovery, TaskRecord, TaskStatus, is_own_cause

from .base import Snapshot
from .reasons import reasons
from .tasks import job_speed, memory_of, resources_of, usage_of


@dataclass(frozen=True, slots=True)
class StepRow:
    """Step of the active plan."""

    phase: str
    name: str
    status: str
    message: str
    #: Task of the step, if any.
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow(Progress):
    """Last launch of a task, with the last report of its program."""

    name: str
    id: str
    executor_id: str
    agent_id: str
    hostname: str
    address: str
    generation: int
    #: Task state in words, such as "running"; "not heard of" before the first status.
    state: str
    message: str
    #: Whether the task may be running.
    live: bool
    #: Progress reported by the program, in words; empty if none.
    progress: str
    activity: str = Activity.QUEUED.value
    #: What its processes use; None if not reported, and after the end but for the peak.
    memory_used_mb: float | None = None
    memory_peak_mb: float | None = None
    cpus_used: float | None = None
    #: What its options grant, without the executor.
    memory_mb: float = 0.0
    #: Its step, such as `406 of 700`, and the complete share, such as `58 %`; empty: unknown.
    step_text: str = ""
    share_text: str = ""
    #: What its restart loses, to follow `restarts`.
    restart_loss: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """Tasks that are launched again, and why."""

    #: The task whose end is the reason, and the tasks that restart with it.
    task: str
    others: tuple[str, ...]
    why: str
    #: Failures of the task that count, this one included, and their maximum; 0: this one does not count.
    failures: int
    max_failures: int
    #: Last progress of the ended launch; None: not reported.
    step: int | None
    total: int | None
    #: Time of the earliest launch.
    ready_at: UnixTime
    #: Step at the last checkpoint; None if unknown.
    saved_step: int | None = None
    #: Last checkpoint, or where the program has continued; empty if unknown.
    continuation: str = ""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """Last offered resources of an agent without tasks of the service."""

    hostname: str
    region: str
    zone: str
    cpus: float
    #: Megabytes.
    mem: float
    gpus: float
    offered_at: UnixTime
    #: The resources as people read them.
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Overview of a service; all values have JSON types."""

    service: str
    checkpoint_dir: str
    framework_id: str | None
    #: Active plan and its status: `update` while that plan is incomplete, else `deploy`.
    plan: str
    status: str
    steps: tuple[StepRow, ...]
    tasks: tuple[TaskRow, ...]
    #: Agents without tasks of the service, sorted by name, and the number of further such agents.
    agents: tuple[AgentRow, ...]
    more_agents: int
    #: Reasons of tasks that were never placed.
    pending: Mapping[str, tuple[str, ...]]
    #: Whether tasks of the spec have never been launched.
    unplaced: bool
    #: Task whose log shows the training; None before its launch.
    leader: str | None
    #: `succeeded`, `failed` or `stopped`, with the reason; empty while the job runs.
    verdict: str
    reason: str
    #: The job has ended, and tasks or the service are kept (option `finish`).
    kept: bool
    #: Reason why Mesos refused the framework; empty for an accepted framework.
    refused: str
    #: The job has ended and the framework is removed from Mesos.
    over: bool
    activity: str = Activity.QUEUED.value
    #: Tasks that the activity concerns, and why they do not run; empty if that is clear.
    detail: str = ""
    restart: Restart | None = None
    #: Value of service.strategy, program of the first job, and time at which the service was started.
    strategy: str = ""
    program: str = ""
    started_at: UnixTime | None = None
    #: Number of relaunches of tasks for their own cause.
    restarts: int = 0
    #: Why tasks restarted last, and at which step; empty: none has.
    last_restart: str = ""
    #: Speed of all tasks together; None if not reported.
    examples_per_second: float | None = None
    #: Exposed secrets, and the reasons why the scheduler cannot act or the job does not run.
    notices: tuple[str, ...] = ()
    #: Agent -> resources of its running tasks, as people read them.
    in_use: Mapping[str, str] = field(default_factory=dict)
    #: Task whose progress counts: the leader, or the first other that reports. Those that have ended count at the end.
    reporter: str | None = None

    def task(self, name: str | None) -> TaskRow | None:
        """Return a task, or None if it was never launched."""
        return next((task for task in self.tasks if task.name == name), None)

    @property
    def trainer(self) -> TaskRow | None:
        """Return the task whose progress counts, or None before its launch."""
        return self.task(self.reporter)


def from_json(document: Mapping[str, Any]) -> Overview:
    """Parse an answer of the API; unknown fields of newer schedulers are ignored."""
    fields = {name: document[name] for name in Overview.__dataclass_fields__}
    kinds: dict[str, Any] = {"steps": StepRow, "tasks": TaskRow, "agents": AgentRow}
    for name, kind in kinds.items():
        fields[name] = tuple(kind(**{key: row[key] for key in kind.__dataclass_fields__}) for row in fields[name])
    fields["notices"] = tuple(fields["notices"])
    if restart := fields["restart"]:
        fields["restart"] = Restart(**{**restart, "others": tuple(restart["others"])})
    fields["pending"] = {name: tuple(why) for name, why in fields["pending"].items()}
    return Overview(**fields)


#: Maximum number of agents without tasks in the answer.
_MAX_AGENTS = 50
_ENDED = (Activity.SUCCEEDED, Activity.FAILED, Activity.STOPPED)


def overview(snapshot: Snapshot) -> Overview:
    """Return the overview of a snapshot."""
    state = snapshot.state
    plan, others, result, tasks = _active_plan(state), _unused_agents(state), state.stored.result, state.stored.tasks
    rows = tuple(_task(state, record, snapshot.silence) for record in tasks.values())
    restart = _restart(state, [item for item in state.stored.recoveries.values() if _is_due(state, item)])
    activity, detail = _job_activity(state, rows, restart)
    found = reasons(snapshot)
    leader = name if (name := state.spec.leader) in tasks else None
    return Overview(
        service=state.spec.name,
        checkpoint_dir=state.spec.checkpoint_dir,
        framework_id=state.stored.framework_id,
        strategy=state.spec.strategy.value,
        program=redact_text(
            next((job.command for job in state.spec.jobs if job.command), getattr(state.spec.program, "name", ""))
        ),
        started_at=min((item.at for item in state.stored.configurations.values()), default=None),
        plan=plan.name,
        status=plan.status.value,
        steps=tuple(
            StepRow(phase.name, step.name, step.display_status.value, step.message, step.task)
            for phase in plan.phases
            for step in phase.steps
        ),
        tasks=rows,
        agents=tuple(map(_agent, nsmallest(_MAX_AGENTS, others, key=lambda agent: agent.hostname))),
        more_agents=max(0, len(others) - _MAX_AGENTS),
        in_use=_in_use(state),
        reporter=_reporter(rows, leader, has_ended=result is not None),
        pending={name: tuple(map(str, why)) for name, why in state.session.round.reasons.items() if name not in tasks},
        unplaced=bool(state.unplaced()),
        leader=leader,
        verdict=result.verdict.value if result else "",
        reason=result.sentence if result else "",
        kept=result is not None and (after_job.keeps_service(state) or bool(after_job.retained_tasks(state))),
        refused=state.process.refused,
        over=state.process.finished,
        activity=activity.value,
        detail=next((each.text for each in found if each.stops_scheduler), detail),
        restart=restart if activity is Activity.RESTARTING else None,
        restarts=sum(record.restarts for record in tasks.values()),
        last_restart=_last_restart(state),
        examples_per_second=None if activity is Activity.STALLED else _job_speed(state, leader),
        notices=(*snapshot.exposures(), *(each.text for each in found if each.kind != "starting")),
    )


def _reporter(rows: Sequence[TaskRow], leader: str | None, *, has_ended: bool) -> str | None:
    names = [row.name for row in rows if row.progress and (has_ended or row.live)]
    names = names or [row.name for row in rows if row.progress]
    workers = [name for name in names if name.startswith(JobKind.WORKER.value)]
    return leader if leader in names else next(iter((*workers, *names)), leader)


def _job_speed(state: SchedulerState, leader: str | None) -> float | None:
    last = state.process.progress
    reports = {record.name: last[record.id] for record in state.stored.tasks.values() if record.id in last}
    return job_speed(reports, leader)


def _active_plan(state: SchedulerState) -> Plan:
    by_name = {plan.name: plan for plan in plan_messages.plans(state)}
    update = by_name.get(UPDATE)
    return update if update is not None and update.status is not Status.COMPLETE else by_name[DEPLOY]


def _task(state: SchedulerState, record: TaskRecord, silence: int) -> TaskRow:
    status, progress = state.status(record.name), state.process.progress.get(record.id)
    override, values = override_of(state, record.name), progress or Progress()
    activity = Activity.PAUSED if override else _activity(state, record, status, silence)
    if activity is Activity.STALLED:  # the last speed is not that of now
        values = values.without_speed()
    return TaskRow(
        name=record.name,
        id=record.id,
        executor_id=executor_of(record.id),
        agent_id=record.agent_id,
        hostname=record.hostname,
        address=record.address,
        generation=record.generation,
        state=override.value.lower() if override else status.state.label if status else "not heard of",
        message=status.message if status else "",
        live=state.is_live(record),
        progress=describe_progress(values),
        activity=activity.value,
        **values.to_json(("sequence", *REPORT_FIELDS)),
        **usage_of(state, record),  # type: ignore[arg-type]
        memory_mb=memory_of(state, record),
        step_text="" if values.position is None else format_step(values),
        share_text="" if values.step is None or not values.total else format_percent(values.step / values.total),
        restart_loss=describe_restart_loss(values.step, values.saved_step),
    )


def _activity(  # noqa: RET503 - assert_never does not return
    state: SchedulerState, record: TaskRecord, status: TaskStatus | None, silence: int
) -> Activity:
    """Return what a launch is doing."""
    recovery = state.stored.recoveries.get(record.name)
    if recovery is not None and _is_due(state, recovery):
        return Activity.RESTARTING
    if status is None:
        return Activity.FETCHING
    match status.state:
        case TaskState.STAGING | TaskState.STARTING:
            return Activity.FETCHING
        case TaskState.RUNNING:
            return _program_activity(state, record, status, silence)
        case TaskState.KILLING:
            return Activity.STOPPING
        case TaskState.FINISHED:
            return Activity.SUCCEEDED
        case TaskState.KILLED:
            return Activity.STOPPED
        case TaskState.UNREACHABLE | TaskState.UNKNOWN:
            return Activity.UNREACHABLE
        case TaskState.FAILED | TaskState.ERROR | TaskState.LOST | TaskState.DROPPED:
            return Activity.FAILED
        case TaskState.GONE | TaskState.GONE_BY_OPERATOR:
            return Activity.FAILED
        case _:
            assert_never(status.state)


def _program_activity(state: SchedulerState, record: TaskRecord, status: TaskStatus, silence: int) -> Activity:
    """Return what a running program is doing."""
    if status.is_frozen:
        return Activity.FROZEN
    # TensorBoard reads the event files of the others, which look like its own progress.
    if record.id in state.process.progress and record.job is not JobKind.TENSORBOARD:
        return Activity.STALLED if silence else Activity.TRAINING
    if not state.spec.strategy.traits.has_servers or record.job is JobKind.TENSORBOARD:
        return Activity.RUNNING
    if status.healthy is None:
        return Activity.IMPORTING
    return Activity.CONNECTING if state.derived.starting_count or state.unstarted_count() else Activity.RUNNING


def _job_activity(state: SchedulerState, rows: Sequence[TaskRow], restart: Restart | None) -> tuple[Activity, str]:
    """Return what the job is doing, and the tasks or the reason to show with it."""
    if state.stored.result is not None:
        live = [row.name for row in rows if row.live]
        return (Activity.STOPPING, list_names(live)) if live else (Activity.of(state.stored.result.verdict.value), "")
    if state.process.stop_requested:
        return Activity.STOPPING, list_names([row.name for row in rows if row.live])
    if restart is not None:
        attempt = f"{restart.failures} of {restart.max_failures}: " if restart.failures else ""
        more = f" (and {list_names(restart.others)} with it)" if restart.others else ""
        return Activity.RESTARTING, f"{attempt}{restart_text(restart)}{more}"
    tasks: dict[str, list[str]] = {}
    for row in rows:
        if row.activity not in _ENDED and not row.name.startswith(JobKind.TENSORBOARD.value):
            tasks.setdefault(row.activity, []).append(row.name)
    for activity in (Activity.TRAINING, Activity.STALLED):
        if activity in tasks:
            return activity, ""
    if unplaced := state.unplaced():
        return Activity.QUEUED, list_names(unplaced)
    first = next((activity for activity in Activity if activity in tasks), Activity.QUEUED)
    return first, list_names(tasks[first]) if len(tasks) > 1 else ""


def _is_due(state: SchedulerState, recovery: Recovery) -> bool:
    """Return whether the launch of a recovery is still to be replaced."""
    record = state.stored.tasks.get(recovery.task)
    return record is not None and record.id == recovery.launch and state.stored.result is None


def _last_restart(state: SchedulerState) -> str:
    """Return why a task was last relaunched for a cause of its own; empty: never."""
    launches = {record.name: record.id for record in state.stored.tasks.values()}
    past = [
        item
        for item in state.stored.recoveries.values()
        if is_own_cause(item.why) and launches.get(item.task, item.launch) != item.launch
    ]
    last = _restart(state, sorted(past, key=lambda item: item.since)[-1:])
    return restart_text(last) if last else ""


def _restart(state: SchedulerState, due: Sequence[Recovery]) -> Restart | None:
    """Return which tasks restart, why, and how often they have failed; None: no task."""
    if not due:
        return None
    causes = [recovery for recovery in due if is_own_cause(recovery.why)]
    first = max(causes or due, key=lambda recovery: len(recovery.failures))
    record = state.stored.tasks[first.task]
    others = () if not state.spec.strategy.traits.has_peers else due
    progress = state.process.progress.get(first.launch)
    saved_step = progress.saved_step if progress else first.saved_step
    after = Progress() if record.id == first.launch else last_report(state, record)
    return Restart(
        task=first.task,
        others=tuple(recovery.task for recovery in others if recovery is not first),
        why=first.why.removeprefix(f"{first.task}: "),
        failures=len(failures_alike(state, first)),
        max_failures=restart_policy(state.spec, record).max_failures,
        step=progress.step if progress else first.step,
        total=progress.total if progress else None,
        ready_at=first.ready_at,
        saved_step=saved_step,
        continuation=after.describe_continuation(saved_step),
    )


def restart_text(restart: Restart) -> str:
    """Return why tasks restart, the step of the failure, and the saved step."""
    task = "" if restart.why.startswith(restart.task) else f"{restart.task}: "
    if restart.step is None:
        return f"{task}{restart.why}"
    text = f"{task}{restart.why}, at step {format_part(restart.step, restart.total)}"
    return f"{text}; {restart.continuation}" if restart.continuation else text


def _unused_agents(state: SchedulerState) -> Sequence[AgentSnapshot]:
    """Return agents without tasks of the service; none while disconnected from Mesos."""
    if not state.session.connected:
        return ()
    hosts = {record.hostname for record in state.stored.tasks.values()}
    return [agent for agent in state.session.agent_snapshots.values() if agent.hostname not in hosts]


def _agent(agent: AgentSnapshot) -> AgentRow:
    amounts = agent.cpus / UNIT, agent.mem / UNIT, agent.gpus / UNIT
    text = format_resources(*amounts)
    return AgentRow(agent.hostname, agent.region, agent.zone, *amounts, offered_at=agent.at, text=text)


def _in_use(state: SchedulerState) -> dict[str, str]:
    """Return the resources of the running tasks of each agent."""
    sums: dict[str, Counter[str]] = {}
    for record in state.stored.tasks.values():
        if state.is_live(record):
            sums.setdefault(record.hostname, Counter()).update(resources_of(record))
    return {host: format_resources(item["cpus"], item["mem"], item["gpus"]) for host, item in sums.items()}
