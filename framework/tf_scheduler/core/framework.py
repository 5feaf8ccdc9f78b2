"""Life of the framework in Mesos: subscription, adoption, removal and reset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_executor.contract.states import TaskState
from tf_scheduler.core import connection_problems, job_end
from tf_scheduler.core.elastic import cluster_size
from tf_scheduler.core.plans.scheduling import PlanView
from tf_scheduler.core.recovery import reconcile, status
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import scalable_job
from tf_scheduler.model import effects, events
from tf_scheduler.model.effects import Decision, FrameworkRegistered, Outcome
from tf_scheduler.model.events import FoundTask, FrameworkAdopted
from tf_scheduler.model.ids import NewId, TaskName
from tf_scheduler.model.state import PendingReconciliation, SchedulerState, SessionState
from tf_scheduler.model.task import Resized, TaskRecord, TaskStatus

# --- Subscription


def on_disconnected(
    state: SchedulerState, event: events.Disconnected | events.SubscriptionRefused | events.TornDown, now: float
) -> Decision:
    """Handle a connection that is lost temporarily or permanently."""
    if isinstance(event, events.TornDown):
        return on_removed(state)
    after = replace(state, session=SessionState()).with_process(
        disconnected_at=now if state.process.disconnected_at is None else state.process.disconnected_at
    )
    if isinstance(event, events.Disconnected):
        # After TEARDOWN, too: the call may be lost with the connection. The next subscription shows whether it was.
        outcome = Outcome("ConnectionLost", f"the connection to Mesos is lost: {event.reason}", warning=True)
        return decide(after, outcomes=(outcome,))
    reason = f"Mesos refused the framework: {event.message}" if event.by_master else event.message
    has_rival = event.message == "Framework failed over"  # Mesos, src/master/master.cpp
    if has_rival:
        reason = (
            f"another scheduler has subscribed as framework {state.stored.framework_id} of {state.spec.name} at "
            f"{connection_problems.clock_time(now)}: both control its tasks, with different stored states; stop one"
        )
    after = after.with_process(refused=reason, has_rival=has_rival)
    if event.message == "Framework has been removed":  # Mesos, src/master/master.cpp
        return on_removed(after)
    refused = Outcome("SubscriptionRefused", reason, warning=True)
    return decide(after.with_process(finished=True), outcomes=(refused,))


def on_subscribed(state: SchedulerState, event: events.Subscribed, now: float, view: PlanView) -> Decision:
    """Start a session: a new subscription has no offers and is not suppressed."""
    is_known = state.stored.framework_id == event.framework_id
    # Mesos may still apply filters of an earlier process whose end it did not notice: only REVIVE clears them.
    requested_tasks = frozenset[TaskName]() if is_known else view.pending_tasks
    session = SessionState(
        connected=True,
        connected_at=now,
        region=event.region,
        requested_tasks=requested_tasks,
        no_offers_since=now,
        reconciliation=PendingReconciliation(started_at=now),
    )
    registered = () if is_known else (FrameworkRegistered(event.framework_id),)
    outcome = Outcome("Subscribed", f"subscribed as framework {event.framework_id}")
    after = replace(state, session=session).with_process(disconnected_at=None)
    subscribed = decide(after, *registered, outcomes=(outcome,))
    if not is_known:
        return subscribed
    decision = subscribed.then(lambda after: reconcile.request(after, now))
    # The first subscription of a scheduler with other options.
    return decision.then(lambda after: cluster_size.keep_size(after, now))


# --- Adoption: continue a live framework that the state store does not know, with its tasks
#
# The records come from the labels of the tasks, so that no program restarts and the ClusterSpec stays. Commands of
# operators, failure counts and avoided agents are not in Mesos: they are lost.

#: Maximum number of task names in one message.
_NAMED = 5


def adopt(state: SchedulerState, event: FrameworkAdopted, now: float, new_id: NewId, view: PlanView) -> Decision:
    """Store the adopted framework with its tasks; with `event.reset`, stop the job."""
    launches = [replace(item, record=_dated(item.record, now)) for item in event.tasks]
    tasks = _current(launches)
    changes = (
        FrameworkRegistered(event.framework_id),
        *_resized(state, launches, tasks, now),
        *(effects.TaskLaunched(item.record) for item in tasks),
    )
    decision = decide(state, *changes, outcomes=tuple(_outcomes(event, tasks)))
    for item in tasks:
        reported = replace(item.status, uuid="")
        decision = decision.followed_by(status.on_update(decision.state, reported, now, new_id, view))
    if not event.reset:
        return decision
    return decision.then(lambda after: job_end.request_stop(after, reset_reason(event.framework_id), now))


def reset_reason(framework_id: str) -> str:
    """Return why the job of a framework stops before a new framework replaces it."""
    return f"an operator requested the end of framework {framework_id}"


def _dated(record: TaskRecord, now: float) -> TaskRecord:
    """Return the record with launch times that are known and not in the future."""
    return replace(
        record, launched_at=min(record.launched_at or now, now), job_started_at=min(record.job_started_at, now)
    )


def _current(tasks: Iterable[FoundTask]) -> list[FoundTask]:
    """Return the last launch of each task, unless it has ended without success.

    A task without a returned launch is launched again. The scheduler treats every launch left out here as unknown, and
    kills it when Mesos reports it.
    """
    latest: dict[TaskName, FoundTask] = {}
    for item in tasks:
        before = latest.get(item.record.name)
        if before is None or _order(before) < _order(item):
            latest[item.record.name] = item
    usable = (item for item in latest.values() if not item.status.state.has_ended or _has_finished(item))
    return sorted(usable, key=_order)


def _order(item: FoundTask) -> tuple[int, float, bool]:
    return item.record.serial, item.record.launched_at, not item.status.state.has_ended


def _has_finished(item: FoundTask) -> bool:
    return item.status.state is TaskState.FINISHED


def _resized(
    state: SchedulerState, launches: Iterable[FoundTask], tasks: Iterable[FoundTask], now: float
) -> tuple[effects.Change, ...]:
    """Return the size of an elastic cluster that has only its first workers.

    An ended worker counts, too, if it was launched with the others: collective training restarts as a whole.
    """
    job = scalable_job(state.spec)
    if job is None:
        return ()
    since = min((item.record.serial for item in tasks if item.record.job is job.kind), default=0)
    workers = {item.record.index for item in launches if item.record.job is job.kind and item.record.serial >= since}
    is_smaller = job.min_count <= len(workers) < job.count and max(workers) == len(workers) - 1
    return (Resized(len(workers), now),) if is_smaller else ()


def _outcomes(event: FrameworkAdopted, tasks: list[FoundTask]) -> Iterator[Outcome]:
    if not event.tasks:
        yield Outcome("FrameworkAdopted", f"continuing framework {event.framework_id}, which has no tasks")
        return
    count = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    message = (
        f"adopted framework {event.framework_id} with {count}; not restored: interrupted plans, paused tasks, failure "
        f"counts, avoided agents and tokens for secrets"
    )
    yield Outcome("FrameworkAdopted", message, warning=True)
    partial = sorted(item.record.name for item in tasks if not item.record.config and not _has_finished(item))
    if partial and not event.reset:
        names = ", ".join(partial[:_NAMED]) + (", ..." if len(partial) > _NAMED else "")
        message = f"restarting tasks without a readable label `record`: {names}"
        yield Outcome("FrameworkAdopted", message, warning=True)
    if event.others:
        message = f"further live frameworks of this service, whose tasks run in addition: {', '.join(event.others)}"
        yield Outcome("FrameworkAdopted", f"{message}; tear them down in Mesos", warning=True)


# --- Removal by Mesos, and an operator's reset afterwards
#
# Mesos removes it after the job, or while no scheduler is connected. The stored id stays unusable; a reset forgets it.


def on_removed(state: SchedulerState) -> Decision:
    """Handle the removal of the framework: its tasks are gone, the scheduler is done."""
    after = state.with_session(connected=False).with_process(finished=True)
    if state.stored.framework_id is None or state.stored.removed:
        return decide(after)
    statuses = (
        TaskStatus(record.id, TaskState.GONE, record.agent_id, message="its framework was removed")
        for record in state.live()
    )
    outcome = Outcome("FrameworkRemoved", removal_message(state), warning=True)
    return decide(
        after,
        FrameworkRegistered(state.stored.framework_id, removed=True),
        *map(effects.StatusStored, statuses),
        outcomes=() if state.stored.result is not None else (outcome,),
    )


def reset_framework(state: SchedulerState) -> Decision:
    """Forget the framework if it was removed; operators' decisions are kept."""
    if not state.stored.removed:
        return decide(state)
    changes: list[effects.Change] = [effects.FrameworkForgotten()]
    # Plans were complete in the removed framework only.
    changes += [
        effects.PlanControlled(name, replace(item, completed="")) for name, item in state.stored.controls.items()
    ]
    message = f"framework {state.stored.framework_id} forgotten; the job starts again from its last checkpoint"
    return decide(
        state.with_process(
            finished=False,
            refused="",
            stop_requested=False,
            left_behind=(),
            waits_for_agents=False,
            last_progress=None,
            # The driver of the new framework reports neither that Mesos accepts calls nor that the clocks agree again.
            refused_calls=None,
            reported_refusals={},
            clock_drift=0.0,
        ),
        *changes,
        outcomes=(Outcome("FrameworkReset", message),),
    )


def removal_message(state: SchedulerState) -> str:
    """Return what happened to the removed framework, what is lost, and what to do."""
    spec = state.spec
    return (
        f"Mesos has removed the framework {state.stored.framework_id} of {spec.name}: no scheduler was connected for "
        f"longer than service.failover_timeout ({spec.failover_timeout:g} s), or an operator tore it down. Its tasks "
        f"have ended; training since the last checkpoint is lost, checkpoints are kept. To resume from this checkpoint "
        f"as a new framework: dcos-tensorflow scheduler run --reset {state.stored.framework_id}; "
        f"under Marathon, set RESET_FRAMEWORK={state.stored.framework_id} in the environment of the app"
    )
