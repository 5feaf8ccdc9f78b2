"""The end of a task that is still needed -> what starts again, when and where; or the end of the job.

A recovery is stored with the status that caused it. The recovery plan then tells the launches of the unit to end, and
offers find each a place: at first only its old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tf_scheduler.core import success
from tf_scheduler.core.back_off import chance
from tf_scheduler.core.reduce import decide
from tf_scheduler.model.effects import AgentSuspected, Change, Decision, Outcome, RecoveryDecided, ResultDecided
from tf_scheduler.model.failure import Cause, Ended
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.reasons import AwaitsHome
from tf_scheduler.model.recovery import Recovery
from tf_scheduler.model.spec import Strategy
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from . import joining, starting, stumbling
from .anew import HOME_WAIT, anew, finished_mates, is_gone, mates
from .causes import cause_of
from .policies import counts, is_final, restart_policy, unreachable_timeout
from .suspects import blames_agent, held_against, told_of
from .waiting import delay, gives_up, recent

#: A launch that lasted so many seconds ends a row of failures: the back-off begins anew.
STEADY = 60.0
#: Survivors of a lost peer exit with an error up to so many seconds later (measured with collective training).
COLLATERAL = 20.0
_BEFORE_THE_PROGRAM = frozenset({TaskState.STAGING, TaskState.STARTING})


def ended(
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
    found = stumbling.noted(state, found, status, ready=served or record.id in state.progress)
    # A launch that never began is not tried on that agent again, as long as another one will do.
    found = replace(found, leaves=status.state is TaskState.LOST and not ran, served=found.served or served)
    policy, said = restart_policy(state.spec, record), status.message or status.reason
    if final := is_final(policy, cause, status):
        said += f" (collateral: {_first(state, found).why})" if cause is Cause.COLLATERAL else ""
        return _failed(state, f"{said}; {final}", record, now)
    if counts(policy, cause) and gives_up(policy, found.failures, now):
        limit = f"restart.max_failures is {policy.max_failures} in {policy.window:g} s"
        return _failed(state, f"{said} (failure {len(found.failures)}: {limit})", record, now)
    if done := finished_mates(state, record):
        return _failed(
            state, f"{said}; {', '.join(done)} has finished, and nobody here trains without the others", record, now
        )
    others = tuple(_others(state, record, found))
    changes: list[Change] = [*map(RecoveryDecided, (found, *others))]
    suspect = held_against(state, record, now) if blames_agent(status, cause, ran) else None
    changes += [AgentSuspected(suspect)] if suspect else []
    return decide(state, *changes, outcomes=(_told(state, found, others), *told_of(suspect, now)))


def ripen(state: SchedulerState, now: float) -> SchedulerState:
    """With every recovery whose back-off is over among those that may be launched."""
    if not state.recoveries:
        return state
    ripe = frozenset(
        item.launch for item in state.recoveries.values() if item.ready_at <= now and _in_force(state, item)
    )
    return state if ripe == state.ripe else replace(state, ripe=ripe)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When a back-off ends, when a task stops to wait for its old address, when an unreachable one counts as lost."""
    for item in state.recoveries.values():
        if _in_force(state, item):
            yield from (item.ready_at,) if item.launch not in state.ripe else ()
            yield from (item.home_until,) if _awaits_home(state, item) else ()
    yield from (_lost_at(state, status) for status in _unreachable(state))
    yield from joining.deadlines(state)
    yield from starting.deadlines(state)


def give_up_unreachable(state: SchedulerState, now: float) -> tuple[TaskStatus, ...]:
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
    if state.result is None and state.tally.get(TaskState.UNREACHABLE):
        yield from (status for status in state.statuses.values() if status.state is TaskState.UNREACHABLE)


def _lost_at(state: SchedulerState, status: TaskStatus) -> float:
    return status.timestamp + _patience(state, status)


def _patience(state: SchedulerState, status: TaskStatus) -> float:
    record = state.tasks.get(name_of(status.id))
    return state.spec.recovery.unreachable_timeout if record is None else unreachable_timeout(state.spec, record)


def _awaits_home(state: SchedulerState, item: Recovery) -> bool:
    """Whether held offers are to be looked at once more when the wait is over, and have not been since."""
    own = state.tasks[item.task].address
    reasons = state.pending.get(item.task, ()) if state.offers else ()
    return any(isinstance(why, AwaitsHome) and why.address == own for why in reasons)


def _in_force(state: SchedulerState, item: Recovery) -> bool:
    record = state.tasks.get(item.task)
    return record is not None and record.id == item.launch


def _cause(state: SchedulerState, record: TaskRecord, status: TaskStatus, ran: bool, now: float) -> Cause:
    hung = status.healthy is False
    end = Ended(status.state.value, status.reason, status.exit_code, status.signal, ran=ran, hung=hung)
    cause = cause_of(end, restart_policy(state.spec, record).uncounted_exit_codes)
    return Cause.COLLATERAL if cause is Cause.USER_ERROR and _is_excused(state, record, now) else cause


def _is_excused(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Another task was lost just before, for a reason of its own, and not together with this one's former launch.

    Else tasks that crash would excuse each other for ever, and those that know nothing of each other would do, too.
    """
    if state.spec.strategy is Strategy.INDEPENDENT:
        return False
    own = state.recoveries.get(record.name)
    return any(
        now - item.since < COLLATERAL and item.cause is not Cause.COLLATERAL
        for name, item in state.recoveries.items()
        if name != record.name
        if own is None or own.since != item.since or record.launched_at <= item.since
    )


def _recovery(
    state: SchedulerState, record: TaskRecord, status: TaskStatus, cause: Cause, now: float, unique: Callable[[], str]
) -> Recovery:
    policy, before = restart_policy(state.spec, record), state.recoveries.get(record.name)
    failures = recent(before.failures if before else (), policy.window, now)
    steady = now - record.launched_at >= STEADY
    streak = 1 if before is None or steady else before.streak + 1
    ready_at = now + delay(policy, streak, chance(unique()))
    gone = is_gone(status)
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=f"{record.name} is {status.state.spoken}: {status.message or status.reason or 'no reason given'}",
        since=now,
        ready_at=ready_at,
        home_until=now if gone else ready_at + HOME_WAIT,
        failures=(*failures, now) if counts(policy, cause) else failures,
        streak=streak,
        unjoined=0 if before is None or _has_joined(state, record, now) else before.unjoined,
        served=before is not None and before.served,
    )


def _has_joined(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """It has lived so long that it was not late."""
    patience = state.spec.recovery.start_timeout
    return patience is None or now - record.launched_at >= STEADY + patience


def _others(state: SchedulerState, record: TaskRecord, found: Recovery) -> Iterator[Recovery]:
    """The rest of the unit: started again with the lost task, at no cost to themselves. Of one that sleeps: nobody."""
    if record.idle:
        return
    for other in mates(state, [record.name], moved=False):
        item = anew(state, other, f"starts again with {record.name}", found.since, found.cause)
        yield replace(item, ready_at=found.ready_at, home_until=found.ready_at + HOME_WAIT)


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
    best, after, name = found, found.since - COLLATERAL, found.task
    for item in state.recoveries.values():
        if item.since <= after or item.task == name:
            continue
        mine, known = item.cause is Cause.COLLATERAL, best.cause is Cause.COLLATERAL
        if best is found or mine < known or (mine is known and item.since < best.since):
            best = item
    return best


def _failed(state: SchedulerState, why: str, record: TaskRecord, now: float) -> Decision:
    sentence = f"{record.name} on {record.hostname} failed: {why}"
    if success.survives(state, record):
        told = Outcome(f"{sentence}; the job goes on without it", record.name, warning=True)
        return decide(state, outcomes=(told,))
    return decide(
        state, ResultDecided(Result(Verdict.FAILED, sentence, now)), outcomes=(Outcome(sentence, record.name, True),)
    )
