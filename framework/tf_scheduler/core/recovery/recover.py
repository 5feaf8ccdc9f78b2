"""Relaunch a needed task that ended, with its dependent tasks, or fail the job.

The recovery is stored with the status that caused it. The recovery plan then stops the other tasks that restart, and
each is placed, at first only at its previous address.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tf_scheduler.core.state.backoff import exhausted, jitter_from_id, recent_failures, restart_delay
from tf_scheduler.core.state.reducer import decide, lost_at
from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.ids import NewId
from tf_scheduler.model.spec import Strategy
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import SILENT_STATES, Cause, LaunchEnd, Recovery, TaskRecord, TaskState, TaskStatus

from . import replacement, startup_timeout, success
from .failure_causes import blames_agent, cause_of, record_failure
from .startup_timeout import CHECK_INTERVAL

# --- Crash loops at one address
#
# Mesos offers ports and does not guard them: another process may listen there, and each launch at the previous address
# would fail at bind. No exit code tells this, so a launch counts as crashed if its program failed soon after its start
# and before it was ready. After two consecutive crashes at one address the next launch gets other ports.


#: Seconds after a launch within which a failure is a crash; importing TensorFlow takes some of them.
CRASH_WINDOW = 60.0
#: Maximum number of remembered bad addresses per task.
MAX_BAD_ADDRESSES = 16
#: How TensorFlow aborts, directly or in a shell.
_ABORTED = (signal.SIGABRT, 128 + signal.SIGABRT)


def record_crash(state: SchedulerState, recovery: Recovery, status: TaskStatus, ready: bool) -> Recovery:
    """Record a crash at the task's address; `ready`: the task served or made progress."""
    record, previous = state.stored.tasks[recovery.task], state.stored.recoveries.get(recovery.task)
    bad = previous.bad_addresses if previous else ()
    if state.spec.network is not None or not _has_crashed(record, recovery, status, ready):
        return replace(recovery, bad_addresses=bad)
    if previous is None or previous.crashed_at != record.address:
        return replace(recovery, bad_addresses=bad, crashed_at=record.address)
    why = f"{recovery.why}; crashed twice in a row at {record.address}, whose port another process may hold"
    return replace(recovery, why=why, bad_addresses=(*bad, record.address)[-MAX_BAD_ADDRESSES:])


def _has_crashed(record: TaskRecord, recovery: Recovery, status: TaskStatus, ready: bool) -> bool:
    if ready or status.healthy is False or recovery.since - record.launched_at >= CRASH_WINDOW:
        return False
    if status.signal in _ABORTED or status.exit_code in _ABORTED:
        return True
    return status.exit_code is not None and recovery.cause in (Cause.USER_ERROR, Cause.COLLATERAL)


# --- Ended tasks


#: Seconds after which a launch resets the back-off.
STEADY_SECONDS = 60.0
#: Seconds within which survivors of a lost peer exit with an error (measured with collective training).
COLLATERAL_SECONDS = 20.0
_SILENCE = {
    TaskState.UNREACHABLE: "its agent did not answer for {:g} s",
    TaskState.UNKNOWN: "Mesos did not know the task for {:g} s",
}
_BEFORE_THE_PROGRAM = frozenset({TaskState.STAGING, TaskState.STARTING})


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A stored status of a launch, and what handlers need in addition to the state."""

    record: TaskRecord
    status: TaskStatus
    #: Previous status of the launch; `None` if this is the first.
    before: TaskStatus | None
    #: Unix time.
    now: float
    new_id: NewId

    @property
    def has_run(self) -> bool:
        """Whether the program had started before."""
        return self.before is not None and self.before.state not in _BEFORE_THE_PROGRAM


def on_task_end(state: SchedulerState, change: StatusChange) -> Decision:
    """Decide on the end of a needed task that has not finished."""
    record, status, now = change.record, change.status, change.now
    served = change.before is not None and change.before.healthy is True
    cause = _cause(state, change)
    recovery = _recovery(state, change, cause)
    recovery = record_crash(state, recovery, status, ready=served or record.id in state.process.progress)
    # A launch that never started moves to another agent if possible.
    must_move = status.is_dropped_by_agent or (status.state is TaskState.LOST and not change.has_run)
    recovery = replace(recovery, must_move=must_move, has_served=recovery.has_served or served)
    policy, message = replacement.restart_policy(state.spec, record), status.message or status.reason
    if final := replacement.no_retry_reason(policy, cause, status):
        message += f" (collateral: {_first(state, recovery).why})" if cause is Cause.COLLATERAL else ""
        return _failed(state, f"{message}; {final}", record, now)
    if replacement.counts_as_failure(policy, cause) and exhausted(policy, recovery.failures, now):
        limit = f"restart.max_failures is {policy.max_failures} in {policy.window:g} s"
        return _failed(state, f"{message} (failure {len(recovery.failures)}: {limit})", record, now)
    if finished := replacement.finished_peers(state, record):
        why = f"{message}; {' and '.join(finished)} had already finished, and this strategy needs all tasks"
        return _failed(state, why, record, now)
    others = tuple(_others(state, record, recovery))
    failures = record_failure(state, record, now) if blames_agent(status, cause, change.has_run) else None
    return replacement.relaunch(state, (recovery, *others), failures, _outcome(state, recovery, others))


def mark_ready(state: SchedulerState, now: float) -> SchedulerState:
    """Update the tasks whose back-off is over."""
    if now < state.derived.next_ready_at:
        return state
    delayed = {name: ready_at for name, ready_at in state.derived.delayed_tasks.items() if now < ready_at}
    return state.with_derived(delayed_tasks=delayed, next_ready_at=min(delayed.values(), default=math.inf))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the ends of back-offs, address waits, unreachable and start-up timeouts."""
    yield state.derived.next_ready_at
    yield from (state.session.address_wait_until,) if state.session.offers else ()
    yield from (state.derived.next_lost_at,) if _has_unreachable(state) else ()
    yield from startup_timeout.deadlines(state)


def unreachable_too_long(state: SchedulerState, now: float) -> tuple[SchedulerState, tuple[TaskStatus, ...]]:
    """Return the statuses of tasks silent for `recovery.unreachable_timeout`.

    The state gets the time of the next check of all tasks. Tasks whose status Mesos has not reported on this connection
    are checked after it has.
    """
    if now < state.derived.next_lost_at or not _has_unreachable(state):
        return state, ()
    awaits, tasks = state.session.reconciliation.awaits, state.stored.tasks
    silent = (status for status in state.stored.statuses.values() if status.state in SILENT_STATES)
    times = [(status, lost_at(state.spec, tasks, status)) for status in silent if not awaits(status.id)]
    # Mesos cannot be asked about a task without an agent, so no answer makes it due again.
    later = min((at for status, at in times if now < at or status.agent_id is None), default=math.inf)
    due = tuple(status for status, at in times if now >= at)
    return state.with_derived(next_lost_at=max(later, now + CHECK_INTERVAL)), due


def lost(state: SchedulerState, status: TaskStatus) -> TaskStatus:
    """Return the status LOST that follows a silent one."""
    message = _SILENCE[status.state].format(lost_at(state.spec, state.stored.tasks, status) - status.timestamp)
    return replace(status, state=TaskState.LOST, reason="REASON_AGENT_REMOVED", message=message, uuid="")


def _has_unreachable(state: SchedulerState) -> bool:
    is_silent = not SILENT_STATES.isdisjoint(state.derived.state_counts)
    return is_silent and state.session.connected and state.stored.result is None


def _cause(state: SchedulerState, change: StatusChange) -> Cause:
    status, ran, hung = change.status, change.has_run, change.status.healthy is False
    end = LaunchEnd(
        status.state.value,
        status.reason,
        status.exit_code,
        status.signal,
        has_run=ran,
        was_unhealthy=hung,
        out_of_memory=status.out_of_memory,
    )
    cause = cause_of(end, replacement.restart_policy(state.spec, change.record).uncounted_exit_codes)
    is_excused = cause is Cause.USER_ERROR and _is_excused(state, change.record, change.now)
    return Cause.COLLATERAL if is_excused else cause


def _is_excused(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Return whether the end of the task follows from another task's loss just before.

    Losses together with the task's previous launch do not count: the tasks would excuse each other forever.
    """
    if state.spec.strategy is Strategy.INDEPENDENT:
        return False
    own = state.stored.recoveries.get(record.name)
    return any(
        now - item.since < COLLATERAL_SECONDS and item.cause is not Cause.COLLATERAL
        for name, item in state.stored.recoveries.items()
        if name != record.name
        if own is None or own.since != item.since or record.launched_at <= item.since
    )


def _recovery(state: SchedulerState, change: StatusChange, cause: Cause) -> Recovery:
    record, status, now = change.record, change.status, change.now
    policy, before = replacement.restart_policy(state.spec, record), state.stored.recoveries.get(record.name)
    failures = recent_failures(before.failures if before else (), policy.window, now)
    is_steady = now - record.launched_at >= STEADY_SECONDS
    streak = 1 if before is None or is_steady else before.consecutive_failures + 1
    ready_at = now + restart_delay(policy, streak, jitter_from_id(change.new_id()))
    gone = replacement.is_agent_gone(status)
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=f"{record.name} {status.state.phrase}: {status.message or status.reason or 'no reason given'}",
        since=now,
        ready_at=ready_at,
        previous_address_until=now if gone else ready_at + replacement.PREVIOUS_ADDRESS_WAIT,
        failures=(*failures, now) if replacement.counts_as_failure(policy, cause) else failures,
        consecutive_failures=streak,
        start_timeouts=0 if before is None or _has_joined(state, record, now) else before.start_timeouts,
        has_served=before is not None and before.has_served,
    )


def _has_joined(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Return whether the launch outlived the start-up timeout; true without a timeout."""
    timeout = state.spec.recovery.start_timeout
    return timeout is None or now - record.launched_at >= STEADY_SECONDS + timeout


def _others(state: SchedulerState, record: TaskRecord, recovery: Recovery) -> Iterator[Recovery]:
    """Yield recoveries of the lost task's restart group; none for a placeholder."""
    if record.is_placeholder:
        return
    until = recovery.ready_at + replacement.PREVIOUS_ADDRESS_WAIT
    for item in replacement.restart_group(state, [record.name], recovery.since, recovery.cause, moved=False):
        yield replace(item, ready_at=recovery.ready_at, previous_address_until=until)


def _outcome(state: SchedulerState, recovery: Recovery, others: tuple[Recovery, ...]) -> Outcome:
    wait = recovery.ready_at - recovery.since
    when = f"in {wait:.1f} s" if wait else "now"
    together = f", together with {', '.join(item.task for item in others)}" if others else ""
    cause = recovery.cause.value
    if recovery.cause is Cause.COLLATERAL:
        cause += f" of the end of {_first(state, recovery).task}"
    return Outcome(
        "TaskRecovers", f"{recovery.why} ({cause}): launched again {when}{together}", recovery.task, warning=True
    )


def _first(state: SchedulerState, recovery: Recovery) -> Recovery:
    """Return the likely root cause (plain loop, because a thousand tasks may be lost)."""
    best, after, name = recovery, recovery.since - COLLATERAL_SECONDS, recovery.task
    for item in state.stored.recoveries.values():
        if item.since <= after or item.task == name:
            continue
        mine, others = item.cause is Cause.COLLATERAL, best.cause is Cause.COLLATERAL
        if best is recovery or mine < others or (mine is others and item.since < best.since):
            best = item
    return best


def _failed(state: SchedulerState, why: str, record: TaskRecord, now: float) -> Decision:
    sentence = f"{record.name} on {record.hostname} failed: {why}"
    if success.is_survivable(state, record):
        outcome = Outcome("TaskGivenUp", f"{sentence}; the job continues without it", record.name, warning=True)
        return decide(state, outcomes=(outcome,))
    return replacement.fail_job(state, sentence, record.name, now)
