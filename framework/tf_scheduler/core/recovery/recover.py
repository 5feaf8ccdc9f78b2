"""Relaunch ended tasks and their dependents, or fail the job; move drained tasks.

The recovery is stored with the status that caused it. The recovery plan then stops the other tasks that restart. Each
task is placed again, at first only at its previous address.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.states import TaskState
from tf_scheduler.core.placement.constraints import move_ahead
from tf_scheduler.core.recovery import replacement
from tf_scheduler.core.recovery.failure_causes import NOT_SENT, blames_agent, cause_of, record_failure
from tf_scheduler.core.recovery.replacement import EARLY_SECONDS, REJECTED, last_report, replace_launch, restart_group
from tf_scheduler.core.state.backoff import jitter_from_id, recent_failures, restart_delay
from tf_scheduler.core.state.reducer import COLLATERAL_SECONDS, decide, lost_at
from tf_scheduler.core.state.spec_index import affects
from tf_scheduler.model import events
from tf_scheduler.model.effects import AcceptInverseOffers, Decision, Outcome, RecoveryDecided
from tf_scheduler.model.ids import NewId, OfferId, TaskId, TaskName, UnixTime, executor_of, name_of
from tf_scheduler.model.offer import InverseOffer, Offer
from tf_scheduler.model.spec import RestartWhen
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, LaunchEnd, Recovery, TaskRecord, TaskStatus

# --- Evidence about an end: the port, and whether it is like a former one
#
# Mesos offers ports and does not guard them: another process may listen there, and each launch at the previous address
# would fail at bind. So the executor checks the ports before the program starts, and after an error that names a port.


#: Maximum number of remembered bad addresses per task.
MAX_BAD_ADDRESSES = 16
#: Errors of programs whose peers are gone.
_LOST_PEER = re.compile(
    r"UnavailableError|Connection (refused|reset|closed)|[Ss]ocket closed|Broken pipe|[Tt]ime(d )?out"
)
#: Numbers differ between two ends with one reason: process ids, ports, times.
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def end_signature(end: TaskEnd) -> str:
    """Return a text that is equal for equal errors; empty if the error is unknown."""
    if end.crash:
        return f"signal {end.crash}"
    is_known = end.error and (end.exit_code or end.cannot_start)
    return f"{end.exit_code}: {_NUMBER.sub('#', end.error)}" if is_known else ""


def _is_repeated(state: SchedulerState, change: StatusChange) -> bool:
    """Return whether the launch ended like the one that it replaced."""
    own, signature = state.stored.recoveries.get(change.record.name), end_signature(change.status.end)
    return bool(signature) and own is not None and own.last_end == signature


def _with_evidence(state: SchedulerState, recovery: Recovery, change: StatusChange) -> Recovery:
    """Add to the recovery what the end shows: training, the error, a taken port."""
    record, status = change.record, change.status
    before = state.stored.recoveries.get(record.name)
    bad = before.bad_addresses if before else ()
    served = change.before is not None and change.before.healthy is True
    began = record.id in state.process.progress or change.seconds_run >= EARLY_SECONDS
    is_counted = recovery.cause is Cause.USER_ERROR or (recovery.cause is Cause.COLLATERAL and not began)
    is_own = is_counted or _has_crashed(status, recovery)
    recovery = replace(
        recovery,
        bad_addresses=bad,
        has_served=served or (before is not None and before.has_served),
        has_begun=began or (before is not None and before.has_begun),
        step=last_report(state, record).step,
        saved_step=last_report(state, record).saved_step,
        last_end=REJECTED if _is_rejected(change) else end_signature(status.end) if is_own else "",
    )
    if not status.end.lacks_port or state.spec.network is not None:
        return recovery
    host = record.address.rpartition(":")[0]
    used = (record.address, *(f"{host}:{port}" for port in record.more_ports))
    return replace(recovery, bad_addresses=(*bad, *used)[-MAX_BAD_ADDRESSES:])


# --- Ended tasks


#: Seconds after which a launch resets the back-off.
STEADY_SECONDS = 60.0
_SILENCE = {
    TaskState.UNREACHABLE: "its agent did not answer for {:g} s",
    TaskState.UNKNOWN: "Mesos did not know the task for {:g} s",
}
#: Last states of launches that their agent could not start.
_REFUSED = (TaskState.FAILED, TaskState.LOST, TaskState.DROPPED)


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A stored status of a launch, and what handlers need in addition to the state."""

    record: TaskRecord
    status: TaskStatus
    #: Previous status of the launch; `None` if this is the first.
    before: TaskStatus | None
    now: UnixTime
    new_id: NewId

    @property
    def has_run(self) -> bool:
        """Whether the program had started before this status."""
        return self.before is not None and self.before.state.has_program

    @property
    def seconds_run(self) -> float:
        """Seconds from the program's start to its end, or from the launch to its silence."""
        if self.before is None or not self.has_run:
            return 0.0
        if self.before.state.is_silent:
            return self.before.timestamp - self.record.launched_at
        return self.now - self.before.timestamp


def on_task_end(state: SchedulerState, change: StatusChange) -> Decision:
    """Decide what follows when a needed task has ended without success."""
    record, status, now = change.record, change.status, change.now
    cause = _cause(state, change)
    recovery = _with_evidence(state, _recovery(state, change, cause), change)
    # What never started moves to another agent if possible: a disk may be full, or a module missing, on one only.
    is_blamed = blames_agent(status, cause, change.has_run)
    is_refused = is_blamed and not change.has_run and status.state in _REFUSED
    recovery = replace(recovery, must_move=is_refused or cause is Cause.INVALID_TASK or status.end.cannot_start)
    if why := _final_sentence(state, change, recovery):
        return _failed(state, why, record, now)
    others = tuple(_others(state, record, recovery))
    killed = change.has_run and status.end.signal is not None
    failures = record_failure(state, record, now, killed=killed) if is_blamed else None
    return replacement.store_recoveries(state, (recovery, *others), failures, _outcome(state, recovery, others))


def on_executor_refused(state: SchedulerState, event: events.ExecutorFailed, now: float) -> Decision:
    """Fail the job if the bundle's digest is wrong, or the image lacks the Python."""
    record, executor = state.stored.tasks.get(name_of(TaskId(event.executor_id))), state.spec.executor
    if record is None or executor_of(record.id) != event.executor_id or state.stored.result is not None:
        return decide(state)
    job = state.spec.job_of(record.job, record.index)
    if event.has_wrong_digest:
        problem = (
            f"{executor.uri}: wrong SHA-256 digest; expected {executor.sha256}; "
            f"stderr of the task has the digest of the fetched file"
        )
    elif job is not None and job.image:
        problem = (
            f"executor.python: `{executor.python}`: cannot be started in the image `{job.image}`; "
            f"name a Python of the image, 3.8 or newer"
        )
    else:
        return decide(state)  # another agent may have the interpreter
    return _failed(state, f"{record.name} on {record.hostname} failed: {problem}", record, now)


def _names_cause(status: TaskStatus) -> bool:
    """Return whether the message begins with the error of the program."""
    return bool(status.end.error) and status.message.startswith(status.end.error)


def _final_sentence(state: SchedulerState, change: StatusChange, recovery: Recovery) -> str:
    """Return why the task is not relaunched; empty if it is."""
    record, status, cause = change.record, change.status, recovery.cause
    policy, message = replacement.restart_policy(state.spec, record), status.message or status.reason
    place = "" if _names_cause(status) else f" on {record.hostname} failed"
    failed = f"{record.name}{place}: {message}"
    counts = replacement.counts_as_failure(policy, cause)
    if _is_first_rejection(state, change, cause):
        return ""
    if final := replacement.no_retry_reason(policy, cause, status):
        failed += f" (collateral: {_first(state, recovery).why})" if cause is Cause.COLLATERAL else ""
        return f"{failed}; {final}"
    # Without any progress of the job, the program may be unable to run.
    is_own = counts or (_has_crashed(status, recovery) and policy.when is not RestartWhen.ALWAYS)
    if policy.fail_fast and is_own and state.process.last_progress is None:
        if status.end.cannot_start and (_is_repeated(state, change) or not _has_other_machine(state, record)):
            return f"{failed}; each launch would fail in this way (restart.fail_fast)"
        if _is_broken(state, change, recovery):
            # The earlier launch may be that of a peer, with which the task restarted.
            return f"{failed}; the same error twice before the first step (restart.fail_fast)"
    if counts and (failures := len(replacement.failures_alike(state, recovery))) > policy.max_failures:
        limit = f"restart.max_failures is {policy.max_failures} in {policy.window:g} s"
        return f"{failed}; failure {failures}, {limit}"
    if (
        policy.max_uncounted
        and len(recovery.uncounted) > policy.max_uncounted
        and policy.when is not RestartWhen.ALWAYS
    ):
        ended = f"ended {len(recovery.uncounted)} times in {policy.window:g} s without being counted as a failure"
        return f"{failed}; {ended}, restart.max_uncounted is {policy.max_uncounted}"
    if finished := replacement.finished_peers(state, record):
        needs = "this strategy needs all tasks to the end, also in model.save"
        return f"{failed}; {' and '.join(finished)} had already finished, and {needs}"
    return ""


def _has_crashed(status: TaskStatus, recovery: Recovery) -> bool:
    """Return whether the program ended by a signal of its own, which is not counted."""
    return recovery.cause is Cause.INFRASTRUCTURE and status.end.crash is not None


def _is_first_rejection(state: SchedulerState, change: StatusChange, cause: Cause) -> bool:
    """Return whether Mesos has rejected the task once; another agent may accept it.

    Mesos also rejects a launch if the agent's resources have changed since the offer.
    """
    before = state.stored.recoveries.get(change.record.name)
    return _is_rejected(change) and cause is Cause.INVALID_TASK and (before is None or before.last_end != REJECTED)


def _is_rejected(change: StatusChange) -> bool:
    return change.status.state is TaskState.ERROR and change.status.reason != "REASON_TASK_UNAUTHORIZED"


def _has_other_machine(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether another machine offers resources.

    Agents on one machine have the same files.
    """
    own = record.agent_address or record.address.rpartition(":")[0]
    return any(agent.address != own for agent in state.session.agent_snapshots.values())


def _is_broken(state: SchedulerState, change: StatusChange, recovery: Recovery) -> bool:
    """Return whether the program can never run: it failed twice alike before training.

    False if something else may be the reason: a peer that was lost with another error, a lack of memory, or the agent.
    """
    status, agent = change.status, state.stored.agent_failures.get(change.record.agent_id)
    if recovery.has_begun or status.healthy is False or status.end.out_of_memory or not _is_repeated(state, change):
        return False
    if _LOST_PEER.search(status.end.error):
        return False
    if agent is not None and recent_failures(agent.failures, state.spec.recovery.avoid_for, change.now):
        return False
    return not _lacks_peer(state, recovery) and all(
        item.last_end == recovery.last_end for item in _losses_before(state, change)
    )


def _lacks_peer(state: SchedulerState, recovery: Recovery) -> bool:
    """Return whether a peer is silent, or was lost with another error and is not up."""
    if not state.spec.strategy.traits.has_peers:
        return False
    if state.has_silent_tasks():
        return True
    others = (item for item in state.stored.recoveries.values() if item.last_end != recovery.last_end)
    return any(_is_missing(state, state.stored.tasks.get(item.task)) for item in others if item.task != recovery.task)


def _is_missing(state: SchedulerState, record: TaskRecord | None) -> bool:
    if record is None or record.job.is_side_job:
        return False
    status = state.stored.statuses.get(record.id)
    runs = status is not None and status.state in (TaskState.RUNNING, TaskState.FINISHED)
    return not runs or state.is_replaced(record)


def mark_ready(state: SchedulerState, now: float) -> SchedulerState:
    """Return the state in which tasks whose back-off is over may be launched."""
    if now < state.derived.next_ready_at:
        return state
    delayed = {name: ready_at for name, ready_at in state.derived.delayed_tasks.items() if now < ready_at}
    return state.with_derived(delayed_tasks=delayed, next_ready_at=min(delayed.values(), default=math.inf))


def hold_back(state: SchedulerState, name: TaskName, until: float) -> SchedulerState:
    """Return the state in which the task is not launched before this time."""
    delayed = {**state.derived.delayed_tasks, name: until}
    return state.with_derived(delayed_tasks=delayed, next_ready_at=min(state.derived.next_ready_at, until))


def release(state: SchedulerState, name: TaskName, now: float) -> SchedulerState:
    """Return the state in which only its back-off delays the task."""
    recovery = state.stored.recoveries.get(name)
    is_pending = recovery is not None and state.derived.launches_to_replace.get(name) == recovery.launch
    return hold_back(state, name, recovery.ready_at if recovery is not None and is_pending else now)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the ends of back-offs, and when tasks leave their agents."""
    yield from (state.derived.next_ready_at,) if state.derived.delayed_tasks else ()
    # Tasks on agents with a window move once, so windows before the last check of all tasks are over.
    leave_at = (_tasks_leave_at(state, window) for window in state.session.windows.values())
    yield from (at for at in leave_at if at > state.session.drained_at)


def lost(state: SchedulerState, status: TaskStatus) -> TaskStatus:
    """Return the status LOST that replaces the status of a silent launch."""
    at = lost_at(state.spec, state.stored.tasks, state.stored.recoveries, status)
    message = _SILENCE[status.state].format(round(at - status.timestamp, 1))
    return replace(status, state=TaskState.LOST, reason="REASON_AGENT_REMOVED", message=message, uuid="")


def _cause(state: SchedulerState, change: StatusChange) -> Cause:
    status, ran, hung = change.status, change.has_run, change.status.healthy is False
    end = LaunchEnd(
        status.state.value,
        status.reason,
        status.end,
        has_run=ran,
        was_unhealthy=hung,
        awaited_peer=_awaits_peer(state, change),
    )
    cause = cause_of(end, replacement.restart_policy(state.spec, change.record).uncounted_exit_codes)
    return Cause.COLLATERAL if cause is Cause.USER_ERROR and _is_excused(state, change) else cause


def _awaits_peer(state: SchedulerState, change: StatusChange) -> bool:
    """Return whether a connection failed while a peer was starting or had failed."""
    if not state.spec.strategy.traits.has_peers or not _LOST_PEER.search(change.status.end.error):
        return False
    own = change.record.name
    peers = [item for item in state.stored.tasks.values() if item.job.in_cluster and item.name != own]
    ends = (status.end for item in peers if (status := state.status(item.name)) and status.state is TaskState.RUNNING)
    # The program of a running task has failed if its executor still works.
    failed = any(end.exit_code or end.signal for end in ends)
    return failed or any(_is_coming_up(state, item, change.now) for item in peers)


def _is_coming_up(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Return whether a task restarts, or starts and its server does not answer yet.

    Programs may have no server, so a running task counts only until its start timeout.
    """
    status, limit = state.stored.statuses.get(record.id), state.spec.recovery.start_timeout or STEADY_SECONDS
    if record.is_placeholder or record.id in state.process.progress:
        return False
    if status is None or not status.state.has_program or status.state.is_silent or state.is_replaced(record):
        return True
    return status.state is TaskState.RUNNING and status.healthy is None and now - status.timestamp < limit


def _is_excused(state: SchedulerState, change: StatusChange) -> bool:
    """Return whether the task's end follows from the loss of another task just before.

    If the task repeats its previous error, the error of another program does not excuse the task.
    """
    if change.status.end.cannot_start:
        return False
    is_repeated = _is_repeated(state, change)
    return any(not is_repeated or item.cause is not Cause.USER_ERROR for item in _losses_before(state, change))


def _losses_before(state: SchedulerState, change: StatusChange) -> Iterator[Recovery]:
    """Yield losses of other tasks that the end may follow from.

    Losses at the time of the task's own last loss do not count: otherwise tasks would excuse each other forever.
    """
    if not state.spec.strategy.traits.has_peers:
        return
    record, after = change.record, change.now - COLLATERAL_SECONDS
    own = state.stored.recoveries.get(record.name)
    for name, since in _recent_losses(state, record.name, after):
        if own is None or own.since != since or record.launched_at <= since:
            yield state.stored.recoveries[name]


def _recent_losses(state: SchedulerState, name: TaskName, after: float) -> Iterator[tuple[TaskName, UnixTime]]:
    """Yield tasks, lost after this time, because of which the task may have failed."""
    job = state.stored.tasks[name].job
    for other, since in state.derived.recent_losses.items():
        record = state.stored.tasks.get(other)
        if since > after and other != name and record is not None and affects(record.job, job):
            yield other, since


def _recovery(state: SchedulerState, change: StatusChange, cause: Cause) -> Recovery:
    record, status, now = change.record, change.status, change.now
    policy, before = replacement.restart_policy(state.spec, record), state.stored.recoveries.get(record.name)
    failures = recent_failures(before.failures if before else (), policy.window, now)
    is_steady = change.has_run and now - record.launched_at >= STEADY_SECONDS
    streak = (0 if before is None or is_steady else before.consecutive_failures) + (status.reason != NOT_SENT)
    ready_at = now + restart_delay(policy, streak, jitter_from_id(change.new_id()))
    is_gone = replacement.is_agent_gone(status)
    uncounted = recent_failures(before.uncounted if before else (), policy.window, now)
    if cause is Cause.INFRASTRUCTURE and (change.has_run or status.end.lacks_port) and not is_gone:
        uncounted = (*uncounted, now)
    timeout = state.spec.recovery.start_timeout
    has_joined = timeout is None or now - record.launched_at >= STEADY_SECONDS + timeout
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=f"{record.name}: {status.message}"
        if _names_cause(status)
        else f"{record.name} {status.state.phrase}: {status.message or status.reason or 'no reason given'}",
        since=now,
        ready_at=ready_at,
        previous_address_until=now if is_gone else ready_at + replacement.PREVIOUS_ADDRESS_WAIT,
        failures=(*failures, now) if replacement.counts_as_failure(policy, cause) else failures,
        uncounted=uncounted,
        consecutive_failures=streak,
        start_timeouts=0 if before is None or has_joined else before.start_timeouts,
        unstarted_since=0.0 if change.has_run else replacement.unstarted_since(state, record),
    )


def _others(state: SchedulerState, record: TaskRecord, recovery: Recovery) -> Iterator[Recovery]:
    """Yield recoveries of the lost task's restart group; none for a placeholder."""
    if record.is_placeholder:
        return
    until = recovery.ready_at + replacement.PREVIOUS_ADDRESS_WAIT
    for item in replacement.restart_group(state, [record.name], recovery.since, recovery.cause, moved=False):
        # Their own ends, of the same program, are not read any more. Mesos rejects one task, not its peers.
        end = item.last_end if recovery.last_end == REJECTED else recovery.last_end or item.last_end
        yield replace(item, ready_at=recovery.ready_at, previous_address_until=until, last_end=end)


def _outcome(state: SchedulerState, recovery: Recovery, others: tuple[Recovery, ...]) -> Outcome:
    wait = recovery.ready_at - recovery.since
    when = f"in {wait:.1f} s" if wait else "now"
    together = f", together with {', '.join(item.task for item in others)}" if others else ""
    cause = recovery.cause.value
    if recovery.cause is Cause.INVALID_TASK:
        cause = "final if repeated"
    if recovery.cause is Cause.COLLATERAL:
        cause += f" of the end of {_first(state, recovery).task}"
    return Outcome(
        "TaskRecovers", f"{recovery.why} ({cause}): launched again {when}{together}", recovery.task, warning=True
    )


def _first(state: SchedulerState, recovery: Recovery) -> Recovery:
    """Return the likely root cause of a collateral loss."""
    losses = _recent_losses(state, recovery.task, recovery.since - COLLATERAL_SECONDS)
    first, _ = min(losses, key=lambda item: item[1], default=(recovery.task, 0.0))
    return state.stored.recoveries.get(first, recovery)


def _failed(state: SchedulerState, sentence: str, record: TaskRecord, now: float) -> Decision:
    if replacement.is_survivable(state, record):
        outcome = Outcome("TaskGivenUp", f"{sentence}; the job continues without it", record.name, warning=True)
        return decide(state, outcomes=(outcome,))
    return replacement.fail_job(state, sentence, record.name, now)


# --- Maintenance: accept inverse offers, remember windows, move tasks in time
#
# Draining agents need nothing here: Mesos stops offering them, and ends their tasks with its own reason (Mesos
# documentation, maintenance).


#: Seconds until Mesos asks again, unless the window was cancelled.
ASK_INTERVAL = 30.0


def on_inverse_offers(state: SchedulerState, offers: Iterable[InverseOffer]) -> Decision:
    """Accept maintenance windows; tasks are moved before a window starts."""
    offers = tuple(offers)
    hosts = {record.agent_id: record.hostname for record in state.live()}
    windows = {key: window.unavailability for key, window in state.session.windows.items()}
    new = [offer for offer in offers if offer.agent_id in hosts and windows.get(offer.agent_id) != offer.unavailability]
    return decide(
        state.with_session(windows={**state.session.windows, **{offer.agent_id: offer for offer in offers}}),
        calls=(AcceptInverseOffers(tuple(offer.id for offer in offers), ASK_INTERVAL),) if offers else (),
        outcomes=tuple(
            Outcome("MaintenanceScheduled", f"maintenance of agent {hosts[offer.agent_id]} is scheduled", warning=True)
            for offer in new
        ),
    )


def on_inverse_offer_rescinded(state: SchedulerState, offer_id: OfferId) -> Decision:
    """Forget a cancelled or replaced window."""
    windows = {key: window for key, window in state.session.windows.items() if window.id != offer_id}
    return decide(state.with_session(windows=windows))


def forget_windows(state: SchedulerState, offers: Iterable[Offer]) -> SchedulerState:
    """Forget the windows of agents that are offered without one."""
    safe = {offer.agent_id for offer in offers if offer.unavailability is None}
    windows = {key: window for key, window in state.session.windows.items() if key not in safe}
    return state.with_session(windows=windows)


def drain(state: SchedulerState, now: float) -> Decision:
    """Move tasks off agents whose window is near, and restart their dependent tasks."""
    agents = {key for key, window in state.session.windows.items() if now >= _tasks_leave_at(state, window)}
    state = state.with_session(drained_at=now)
    if not agents or state.stored.result is not None:
        return decide(state)
    due = [record for record in state.live() if record.agent_id in agents and not state.is_replaced(record)]
    if not due:
        return decide(state)
    moves = [replace_launch(state, item, f"maintenance of agent {item.hostname} starts soon", now) for item in due]
    moves = [replace(item, previous_address_until=now) for item in moves]
    moves += restart_group(state, [record.name for record in due], now, moved=True)
    outcomes = (
        Outcome("TaskRecovers", f"{item.task} is launched again: {item.why}", item.task, warning=True) for item in moves
    )
    return decide(state, *map(RecoveryDecided, moves), outcomes=tuple(outcomes))


def _tasks_leave_at(state: SchedulerState, window: InverseOffer) -> float:
    return window.unavailability.start - move_ahead(state.spec)
