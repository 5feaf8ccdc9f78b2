"""The end of a task that is still needed -> what starts again, when and where; or the end of the job.

A recovery is stored with the status that caused it. The recovery plan then tells the launches of the unit to end, and
offers find each a place: at first only its old one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

from tf_scheduler.core.state.backoff import exhausted, jitter_from_id, recent_failures, restart_delay
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import AgentFailureRecorded, Change, Decision, Outcome, RecoveryDecided, ResultDecided
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.reasons import AwaitsPreviousAddress
from tf_scheduler.model.spec import Strategy
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import Cause, LaunchEnd, Recovery, TaskRecord, TaskState, TaskStatus

from . import startup_timeout, success
from .failure_causes import blames_agent, cause_of, failure_message, record_failure
from .replacement import (
    PREVIOUS_ADDRESS_WAIT,
    counts_as_failure,
    finished_peers,
    is_agent_gone,
    no_retry_reason,
    replace_launch,
    restart_group,
    restart_policy,
    unreachable_timeout,
)

# --- stumbling
# A program that fails at once, again and again, at one address: the port may be somebody else's.
#
# Mesos offers ports, it does not guard them: a process that is no task of Mesos may listen there. Each launch at the
# old
# address then fails at bind, at once, for ever. No exit code says so; what can be seen is that the program ended with
# an
# error of its own soon after its launch, before it was ready, twice in a row at the same address. Whatever the reason:
# the third launch gets other ports.


#: Seconds after its launch in which an end is at once: importing TensorFlow takes some of them.
CRASH_WINDOW = 60.0
#: Addresses that are remembered for each task, the last ones.
MAX_BAD_ADDRESSES = 16
#: TensorFlow's way to end where it cannot go on; the same from a shell.
_ABORTED = (signal.SIGABRT, 128 + signal.SIGABRT)


def record_crash(state: SchedulerState, found: Recovery, status: TaskStatus, ready: bool) -> Recovery:
    """The recovery of a launch that has just ended, with what is held against its address.

    `ready`: whether its server had answered, or it had told progress.
    """
    record, known = state.stored.tasks[found.task], state.stored.recoveries.get(found.task)
    shuns = known.bad_addresses if known else ()
    if state.spec.network is not None or not _at_once(record, found, status, ready):
        return replace(found, bad_addresses=shuns)
    if known is None or known.crashed_at != record.address:
        return replace(found, bad_addresses=shuns, crashed_at=record.address)
    why = f"{found.why}; at once, twice in a row at {record.address}, so not there again: somebody may have its port"
    return replace(found, why=why, bad_addresses=(*shuns, record.address)[-MAX_BAD_ADDRESSES:])


def _at_once(record: TaskRecord, found: Recovery, status: TaskStatus, ready: bool) -> bool:
    if ready or status.healthy is False or found.since - record.launched_at >= CRASH_WINDOW:
        return False
    if status.signal in _ABORTED or status.exit_code in _ABORTED:
        return True
    return status.exit_code is not None and found.cause in (Cause.USER_ERROR, Cause.COLLATERAL)


# --- heal


#: A launch that lasted so many seconds ends a row of failures: the back-off begins anew.
STEADY_SECONDS = 60.0
#: Survivors of a lost peer exit with an error up to so many seconds later (measured with collective training).
COLLATERAL_SECONDS = 20.0
_BEFORE_THE_PROGRAM = frozenset({TaskState.STAGING, TaskState.STARTING})


def on_task_end(
    state: SchedulerState,
    record: TaskRecord,
    status: TaskStatus,
    before: TaskStatus | None,
    now: float,
    unique: Callable[[], str],
) -> Decision:
    """What the end of `record`, needed and not finished, means. The status itself is stored by the caller.

    `before`: what was known of the launch until then.
    """
    ran = before is not None and before.state not in _BEFORE_THE_PROGRAM
    served = before is not None and before.healthy is True
    cause = _cause(state, record, status, ran, now)
    found = _recovery(state, record, status, cause, now, unique)
    found = record_crash(state, found, status, ready=served or record.id in state.process.progress)
    # A launch that never began is not tried on that agent again, as long as another one will do.
    found = replace(found, must_move=status.state is TaskState.LOST and not ran, has_served=found.has_served or served)
    policy, said = restart_policy(state.spec, record), status.message or status.reason
    if final := no_retry_reason(policy, cause, status):
        said += f" (collateral: {_first(state, found).why})" if cause is Cause.COLLATERAL else ""
        return _failed(state, f"{said}; {final}", record, now)
    if counts_as_failure(policy, cause) and exhausted(policy, found.failures, now):
        limit = f"restart.max_failures is {policy.max_failures} in {policy.window:g} s"
        return _failed(state, f"{said} (failure {len(found.failures)}: {limit})", record, now)
    if done := finished_peers(state, record):
        return _failed(
            state, f"{said}; {', '.join(done)} has finished, and nobody here trains without the others", record, now
        )
    others = tuple(_others(state, record, found))
    changes: list[Change] = [*map(RecoveryDecided, (found, *others))]
    suspect = record_failure(state, record, now) if blames_agent(status, cause, ran) else None
    changes += [AgentFailureRecorded(suspect)] if suspect else []
    return decide(state, *changes, outcomes=(_told(state, found, others), *failure_message(suspect, now)))


def mark_ready(state: SchedulerState, now: float) -> SchedulerState:
    """With every recovery whose back-off is over among those that may be launched."""
    if not state.stored.recoveries:
        return state
    ripe = frozenset(
        item.launch for item in state.stored.recoveries.values() if item.ready_at <= now and _in_force(state, item)
    )
    return (
        state
        if ripe == state.process.ready_launches
        else replace(state, process=replace(state.process, ready_launches=ripe))
    )


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When a back-off ends, when a task stops to wait for its old address, when an unreachable one counts as lost."""
    for item in state.stored.recoveries.values():
        if _in_force(state, item):
            yield from (item.ready_at,) if item.launch not in state.process.ready_launches else ()
            yield from (item.previous_address_until,) if _awaits_home(state, item) else ()
    yield from (_lost_at(state, status) for status in _unreachable(state))
    yield from startup_timeout.deadlines(state)
    yield from startup_timeout.start_deadlines(state)


def unreachable_too_long(state: SchedulerState, now: float) -> tuple[TaskStatus, ...]:
    """What to believe of tasks whose agent has not answered for `recovery.unreachable_timeout`."""
    return tuple(
        replace(
            status,
            state=TaskState.LOST,
            reason="REASON_AGENT_REMOVED",
            message=f"its agent did not answer for {_patience(state, status):g} s",
            uuid="",
        )
        for status in _unreachable(state)
        if now >= _lost_at(state, status)
    )


def _unreachable(state: SchedulerState) -> Iterator[TaskStatus]:
    if state.stored.result is None and state.derived.state_counts.get(TaskState.UNREACHABLE):
        yield from (status for status in state.stored.statuses.values() if status.state is TaskState.UNREACHABLE)


def _lost_at(state: SchedulerState, status: TaskStatus) -> float:
    return status.timestamp + _patience(state, status)


def _patience(state: SchedulerState, status: TaskStatus) -> float:
    record = state.stored.tasks.get(name_of(status.id))
    return state.spec.recovery.unreachable_timeout if record is None else unreachable_timeout(state.spec, record)


def _awaits_home(state: SchedulerState, item: Recovery) -> bool:
    """Whether held offers are to be looked at once more when the wait is over, and have not been since."""
    own = state.stored.tasks[item.task].address
    reasons = state.session.pending.get(item.task, ()) if state.session.offers else ()
    return any(isinstance(why, AwaitsPreviousAddress) and why.address == own for why in reasons)


def _in_force(state: SchedulerState, item: Recovery) -> bool:
    record = state.stored.tasks.get(item.task)
    return record is not None and record.id == item.launch


def _cause(state: SchedulerState, record: TaskRecord, status: TaskStatus, ran: bool, now: float) -> Cause:
    hung = status.healthy is False
    end = LaunchEnd(status.state.value, status.reason, status.exit_code, status.signal, has_run=ran, was_unhealthy=hung)
    cause = cause_of(end, restart_policy(state.spec, record).uncounted_exit_codes)
    return Cause.COLLATERAL if cause is Cause.USER_ERROR and _is_excused(state, record, now) else cause


def _is_excused(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Another task was lost just before, for a reason of its own, and not together with this one's former launch.

    Else tasks that crash would excuse each other for ever, and those that know nothing of each other would do, too.
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


def _recovery(
    state: SchedulerState, record: TaskRecord, status: TaskStatus, cause: Cause, now: float, unique: Callable[[], str]
) -> Recovery:
    policy, before = restart_policy(state.spec, record), state.stored.recoveries.get(record.name)
    failures = recent_failures(before.failures if before else (), policy.window, now)
    steady = now - record.launched_at >= STEADY_SECONDS
    streak = 1 if before is None or steady else before.consecutive_failures + 1
    ready_at = now + restart_delay(policy, streak, jitter_from_id(unique()))
    gone = is_agent_gone(status)
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=f"{record.name} is {status.state.label}: {status.message or status.reason or 'no reason given'}",
        since=now,
        ready_at=ready_at,
        previous_address_until=now if gone else ready_at + PREVIOUS_ADDRESS_WAIT,
        failures=(*failures, now) if counts_as_failure(policy, cause) else failures,
        consecutive_failures=streak,
        start_timeouts=0 if before is None or _has_joined(state, record, now) else before.start_timeouts,
        has_served=before is not None and before.has_served,
    )


def _has_joined(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """It has lived so long that it was not late."""
    patience = state.spec.recovery.start_timeout
    return patience is None or now - record.launched_at >= STEADY_SECONDS + patience


def _others(state: SchedulerState, record: TaskRecord, found: Recovery) -> Iterator[Recovery]:
    """The rest of the unit: started again with the lost task, at no cost to themselves. Of one that sleeps: nobody."""
    if record.is_placeholder:
        return
    for other in restart_group(state, [record.name], moved=False):
        item = replace_launch(state, other, f"starts again with {record.name}", found.since, found.cause)
        yield replace(item, ready_at=found.ready_at, previous_address_until=found.ready_at + PREVIOUS_ADDRESS_WAIT)


def _told(state: SchedulerState, found: Recovery, others: tuple[Recovery, ...]) -> Outcome:
    wait = found.ready_at - found.since
    when = f"in {wait:.1f} s" if wait else "now"
    together = f", together with {', '.join(item.task for item in others)}" if others else ""
    cause = found.cause.value
    if found.cause is Cause.COLLATERAL:
        cause += f" of the end of {_first(state, found).task}"
    return Outcome(f"{found.why} ({cause}): launched again {when}{together}", found.task, warning=True)


def _first(state: SchedulerState, found: Recovery) -> Recovery:
    """Whose end it most likely was that others followed. A plain loop: a thousand may ask, one after the other."""
    best, after, name = found, found.since - COLLATERAL_SECONDS, found.task
    for item in state.stored.recoveries.values():
        if item.since <= after or item.task == name:
            continue
        mine, known = item.cause is Cause.COLLATERAL, best.cause is Cause.COLLATERAL
        if best is found or mine < known or (mine is known and item.since < best.since):
            best = item
    return best


def _failed(state: SchedulerState, why: str, record: TaskRecord, now: float) -> Decision:
    sentence = f"{record.name} on {record.hostname} failed: {why}"
    if success.is_survivable(state, record):
        told = Outcome(f"{sentence}; the job goes on without it", record.name, warning=True)
        return decide(state, outcomes=(told,))
    return decide(
        state, ResultDecided(Result(Verdict.FAILED, sentence, now)), outcomes=(Outcome(sentence, record.name, True),)
    )
