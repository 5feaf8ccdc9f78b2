"""Recoveries of launches and restart groups; policies of restart and success."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tf_executor.contract.reports import Progress
from tf_executor.contract.states import WARNING, TaskState, Verdict
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import TRAINERS, index_of, trains_together
from tf_scheduler.model.effects import (
    Change,
    Decision,
    EntryForgotten,
    Outcome,
    RecoveryDecided,
    ResultDecided,
)
from tf_scheduler.model.ids import TaskName, task_name
from tf_scheduler.model.spec import JobKind, RestartPolicy, RestartWhen, ServiceSpec, SuccessPolicy
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import RESTARTS_WITH, AgentFailures, Cause, Recovery, TaskRecord, TaskStatus

from .failure_causes import DRAIN_REASONS, SAME_INCIDENT_SECONDS, failure_message, outdated_agents

#: Seconds that a task waits for its previous address, after its back-off.
PREVIOUS_ADDRESS_WAIT = 5.0
#: Seconds in which a program without progress has not begun to train: the default of `restart.window`.
EARLY_SECONDS = 3600.0
#: `Recovery.last_end` of a launch that Mesos has rejected (TASK_ERROR).
REJECTED = "TASK_ERROR"


_AGENT_GONE = frozenset(
    {TaskState.GONE, TaskState.GONE_BY_OPERATOR, TaskState.LOST, TaskState.UNKNOWN, TaskState.UNREACHABLE}
)


def is_agent_gone(status: TaskStatus) -> bool:
    """Return whether the agent is gone or draining, so that it is not offered soon."""
    return status.state in _AGENT_GONE or status.reason in DRAIN_REASONS


def replace_launch(
    state: SchedulerState, record: TaskRecord, why: str, now: float, cause: Cause = Cause.INFRASTRUCTURE
) -> Recovery:
    """Return a recovery that replaces the launch now; the history of failures stays."""
    before, status = state.stored.recoveries.get(record.name), state.stored.statuses.get(record.id)
    has_trained = record.id in state.process.progress
    is_joined = (status is not None and status.healthy is True) or has_trained
    is_old = status is not None and status.state is TaskState.RUNNING and now - status.timestamp >= EARLY_SECONDS
    last_end = before.last_end if before else ""
    is_accepted = status is not None and not status.state.has_ended
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=why,
        since=now,
        ready_at=now,
        previous_address_until=now + PREVIOUS_ADDRESS_WAIT,
        failures=before.failures if before else (),
        uncounted=before.uncounted if before else (),
        consecutive_failures=before.consecutive_failures if before else 0,
        last_end="" if last_end == REJECTED and is_accepted else last_end,
        bad_addresses=before.bad_addresses if before else (),
        start_timeouts=before.start_timeouts if before and not is_joined else 0,
        has_served=(before is not None and before.has_served) or (status is not None and status.healthy is True),
        has_begun=(before is not None and before.has_begun) or has_trained or is_old,
        step=last_report(state, record).step,
        saved_step=last_report(state, record).saved_step,
        unstarted_since=0.0 if state.has_run(record) else unstarted_since(state, record),
    )


def unstarted_since(state: SchedulerState, record: TaskRecord) -> float:
    """Return the time of the first of the consecutive launches that have not run."""
    before = state.stored.recoveries.get(record.name)
    return (before and before.unstarted_since) or record.launched_at


def last_report(state: SchedulerState, record: TaskRecord) -> Progress:
    """Return the last report of a launch; an empty one if it has not reported."""
    return state.process.progress.get(record.id) or Progress()


def restart_group(
    state: SchedulerState, names: Sequence[TaskName], now: float, cause: Cause = Cause.INFRASTRUCTURE, *, moved: bool
) -> Iterator[Recovery]:
    """Yield recoveries of tasks that must restart with `names`.

    Finished tasks and tasks that already restart are left out. `moved`: `names` get other addresses, of which their
    peers must learn, with two exceptions. If a worker of a live chief is moved, the chief does not restart: the worker
    leaves first, and joins at its new address. On a virtual network peers find a moved task by its name, but not while
    its agent is silent: connections to its previous address stay open, and TensorFlow waits for an answer (measured:
    longer than 120 s).
    """
    index, spared = index_of(state.spec), {name for name in names if _spares_chief(state, name)}
    if state.spec.network is not None:
        moved, spared = any(_is_cut_off(state, name) for name in names), set()
    peers = index.restarts(spared, moved=False) | index.restarts(set(names) - spared, moved=moved)
    first = next((name for name in names if name in index.tasks and not index.tasks[name].job.kind.is_side_job), "")
    for name in sorted(peers.difference(names)):
        record = state.stored.tasks.get(name)
        if record is not None and not state.is_finished(record) and not state.is_replaced(record):
            yield replace_launch(state, record, f"{RESTARTS_WITH}{first}", now, cause)


def _spares_chief(state: SchedulerState, name: TaskName) -> bool:
    """Return whether the chief can continue: the worker leaves first, or never joined."""
    record, members = state.stored.tasks.get(name), state.members_of_chief()
    if record is None or record.job is not JobKind.WORKER:
        return False
    status = state.stored.statuses.get(record.id)
    can_leave = state.chief_in_service() is None or (status is not None and status.healthy is True)
    return (can_leave and state.is_probably_used(record)) or (members is not None and name not in members.workers)


def _is_cut_off(state: SchedulerState, name: TaskName) -> bool:
    """Return whether peers may have open connections to the task that get no answer."""
    record = state.stored.tasks.get(name)
    status = None if record is None else state.stored.statuses.get(record.id)
    return status is not None and status.state in _AGENT_GONE


def restart_readers(state: SchedulerState, before: SchedulerState, now: float) -> Decision:
    """Restart the tasks that read from a dispatcher or data-worker that has changed."""
    tasks, old = state.stored.tasks, before.stored.tasks
    if tasks is old:
        return decide(state)
    new = [record for name, record in tasks.items() if name in old and old[name].id != record.id]
    changed = [record.name for record in new if _is_outdated_for_readers(state, record, old[record.name])]
    group = restart_group(before, changed, now, moved=True)
    # Readers that were launched together with the changed task know it.
    items = [item for item in group if tasks[item.task].id == item.launch]
    message = "{0.task} is launched again: {0.why}"
    outcomes = (Outcome("TaskRecovers", message.format(item), item.task, warning=True) for item in items)
    return decide(state, *map(RecoveryDecided, items), outcomes=tuple(outcomes))


def _is_outdated_for_readers(state: SchedulerState, record: TaskRecord, last: TaskRecord) -> bool:
    """Return whether readers still wait for this data service task's previous launch."""
    if record.job is JobKind.DISPATCHER:
        return record.journal != last.journal
    if record.job is not JobKind.DATA_WORKER or record.address == last.address:
        return False
    dispatchers = index_of(state.spec).by_kind.get(JobKind.DISPATCHER, frozenset())
    current = [state.stored.tasks[name] for name in dispatchers & state.stored.tasks.keys()]
    # A dispatcher that has started since then, with an empty journal or none, has not known the last launch.
    return any(item.serial <= last.serial or item.journal.rpartition("/")[2] not in ("", item.id) for item in current)


def failures_alike(state: SchedulerState, recovery: Recovery) -> list[float]:
    """Return times of the task's recent failures, and of its job's with its error.

    Only the last `restart.window` seconds count. Tasks that fail together, for example because a disk is full, count as
    one failure.
    """
    tasks, error, record = state.stored.tasks, recovery.last_end, state.stored.tasks[recovery.task]
    job, after = record.job, recovery.since - restart_policy(state.spec, record).window
    times = sorted(at for at in recovery.failures if at > after)
    alike = (item for item in state.stored.recoveries.values() if error and item.last_end == error)
    alike = (item for item in alike if item.task in tasks and tasks[item.task].job is job)
    others = sorted(at for item in alike for at in item.failures if at > after)
    first = 0
    while first < len(others):
        at = others[first]
        place = bisect_left(times, at)
        near = (one for one in times[max(place - 1, 0) : place + 1] if abs(at - one) < SAME_INCIDENT_SECONDS)
        if (incident := next(near, None)) is None:
            times.insert(place, at)
        first = max(first + 1, bisect_left(others, (incident or at) + SAME_INCIDENT_SECONDS))
    return times


def store_recoveries(
    state: SchedulerState, recoveries: Sequence[Recovery], failures: AgentFailures | None, outcome: Outcome
) -> Decision:
    """Store the recoveries, and the agent's failures if they have changed."""
    now = recoveries[0].since
    recorded: tuple[Change, ...] = ()
    if failures is not None:
        recorded = (*(EntryForgotten("agent_failures", agent) for agent in outdated_agents(state, now)), failures)
    outcomes = (outcome, *failure_message(failures, now))
    return decide(state, *map(RecoveryDecided, recoveries), *recorded, outcomes=outcomes)


def fail_job(state: SchedulerState, why: str, task: TaskName, now: float) -> Decision:
    """Fail the job because of a task."""
    failed = ResultDecided(Result(Verdict.FAILED, why + lone_warning(state), now))
    return decide(state, failed, outcomes=(Outcome("JobFailed", why, task, warning=True),))


_LONE = f"{WARNING}the workers did not train together"


def lone_warning(state: SchedulerState) -> str:
    """Return the warning about lone training, unless the result has it already."""
    if state.stored.result is not None and _LONE in state.stored.result.reason:
        return ""
    for name in state.stored.tasks:
        if (status := state.status(name)) is not None and status.end.alone:
            traits = state.spec.strategy.traits
            needed = f"{traits.joins}, and the {next(iter(traits.variables), 'TF_CONFIG')} that the scheduler sets"
            return f"{_LONE}: {name} had no connection to another task; it needs {needed}"
    return ""


def finished_peers(state: SchedulerState, record: TaskRecord) -> list[TaskName]:
    """Return the finished tasks without which this task cannot train."""
    if not trains_together(state.spec.strategy, record.job):
        return []
    members = (task.name for task in state.spec.tasks() if task.job.kind.in_cluster and task.name != record.name)
    others = (state.stored.tasks.get(name) for name in sorted(members))
    return [other.name for other in others if other is not None and state.is_finished(other)]


def renew_address_wait(state: SchedulerState, record: TaskRecord, status: TaskStatus, now: float) -> Recovery | None:
    """Wait again for an address that is free now, or not if its agent is gone.

    Return `None` if the task does not wait for it.
    """
    item = state.stored.recoveries.get(record.name)
    if item is None or item.launch != record.id or item.previous_address_until <= item.ready_at:
        return None
    until = item.ready_at if is_agent_gone(status) else max(now, item.ready_at) + PREVIOUS_ADDRESS_WAIT
    return replace(item, previous_address_until=until)


# --- Policies of one task: those of its job, otherwise of the service


def restart_policy(spec: ServiceSpec, record: TaskRecord) -> RestartPolicy:
    """Return the restart policy of a task."""
    job = spec.job_of(record.job, record.index)
    policy = spec.restart if job is None or job.restart is None else job.restart
    # Failures of a placeholder do not count.
    return replace(policy, when=RestartWhen.ALWAYS) if record.is_placeholder else policy


def counts_as_failure(policy: RestartPolicy, cause: Cause) -> bool:
    """Return whether an end with this cause counts as a failure."""
    return cause.is_counted and policy.when is not RestartWhen.ALWAYS


def no_retry_reason(policy: RestartPolicy, cause: Cause, status: TaskStatus) -> str:
    """Return why the task is not relaunched; empty if it may be."""
    if not cause.is_retryable:
        return "a relaunch would end in the same way"
    if policy.when is RestartWhen.NEVER and cause is not Cause.NOT_STARTED:
        return "its restart_policy is never"
    if policy.when is RestartWhen.EXIT_CODE and cause is Cause.USER_ERROR and status.end.exit_code in range(1, 128):
        return "its restart_policy is exit_code, and exit codes 1 to 127 are final"
    return ""


# --- Success policies, named as in Kubeflow and TonY: which tasks decide the result


def success_policy(spec: ServiceSpec) -> SuccessPolicy:
    """Return the effective policy, never DEFAULT."""
    if spec.finish.success is not SuccessPolicy.DEFAULT:
        return spec.finish.success
    return SuccessPolicy.ALL_WORKERS if spec.strategy.traits.ends_with_all else SuccessPolicy.CHIEF


def success(state: SchedulerState) -> TaskRecord | None:
    """Return the task whose end completes the job; `None` while a task must finish."""
    index, policy = index_of(state.spec), success_policy(state.spec)
    names: AbstractSet[TaskName] = index.trainers
    if policy is SuccessPolicy.CHIEF:
        names = index.tasks.keys() & {state.spec.leader}
    elif policy is SuccessPolicy.WORKER_0:
        names = index.tasks.keys() & {task_name(JobKind.WORKER.value, 0)}
    elif policy is SuccessPolicy.ANY_WORKER:
        names = frozenset().union(*(index.by_kind.get(kind, ()) for kind in TRAINERS))
    needed = min(1, len(names)) if policy is SuccessPolicy.ANY_WORKER else len(names)
    # The number of finished tasks is compared first: it costs nothing.
    if not needed or state.derived.state_counts.get(TaskState.FINISHED, 0) < needed:
        return None
    records = (state.stored.tasks.get(name) for name in names)
    finished = [record for record in records if record is not None and state.is_finished(record)]
    last = max(finished, key=lambda record: state.stored.statuses[record.id].timestamp, default=None)
    return last if len(finished) >= needed else None


def is_survivable(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether the job continues after this task has failed permanently."""
    if record.job.is_side_job:
        return True
    if record.job not in TRAINERS or success_policy(state.spec) is not SuccessPolicy.ANY_WORKER:
        return False
    others = (state.stored.tasks.get(name) for name in index_of(state.spec).trainers if name != record.name)
    return any(other is None or state.is_live(other) or state.is_replaced(other) for other in others)
