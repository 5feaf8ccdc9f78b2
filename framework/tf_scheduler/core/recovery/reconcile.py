"""Reconcile task statuses with Mesos (Mesos documentation, reconciliation).

after subscribing, and every 15 minutes   request the status of each task, then of all tasks
without an answer, or TASK_UNKNOWN        request it again, with back-off
no status for 30 s after a launch         request the status of that launch
before a launch is given up as lost       request the status of that launch
after a launch was given up               request its status while it may still run
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_executor.contract.states import TaskState
from tf_scheduler.core.state.reducer import decide, lost_at
from tf_scheduler.model.effects import Decision, EntryForgotten, Reconcile
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.state import FIRST_WAIT, PendingReconciliation, SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

#: Maximum seconds until unanswered requests are repeated; the first wait is FIRST_WAIT, doubled each time.
LONGEST_WAIT = 60.0
#: Seconds between requests for all tasks.
FULL_INTERVAL = 900.0
#: Seconds between requests for abandoned launches, after which their agent's return is noticed at the latest.
ABANDONED_INTERVAL = 30.0
#: Seconds until they are forgotten: then the master forgets the agent, too (Mesos flag --registry_max_agent_age).
MAX_ABANDONED_AGE = 14 * 86_400.0
#: Maximum number of them; the newest are kept.
MAX_ABANDONED = 1000


def request(state: SchedulerState, now: float) -> Decision:
    """Request the status of live tasks with their agents, then of all tasks.

    The master ignores tasks on missing agents if the request does not name the agents. The second, empty request
    reveals tasks that the scheduler does not know.
    """
    tasks = _agents(state.live())
    pending = PendingReconciliation(frozenset(tasks), now, started_at=now, abandoned_asked_at=now)
    after = state.with_session(reconciliation=pending)
    named = {**tasks, **{item.id: item.agent_id for item in state.stored.abandoned.values()}}
    return decide(after, calls=((Reconcile(named),) if named else ()) + (Reconcile({}),))


def mark_answered(state: SchedulerState, launch: TaskId) -> SchedulerState:
    """Record that Mesos has reported a status of the launch."""
    pending, status = state.session.reconciliation, state.stored.statuses.get(launch)
    if status is not None and status.state.is_silent:
        at = lost_at(state.spec, state.stored.tasks, state.stored.recoveries, status)
        state = state.with_derived(next_check_at=min(state.derived.next_check_at, at))
    return state.with_session(reconciliation=pending.with_answer(launch))


def ask_again(state: SchedulerState, silent: Iterable[TaskStatus], now: float) -> Decision:
    """Request the status of launches before they are given up; wait for the answer.

    Their last status may be old, because the scheduler itself may have been stopped for longer than their timeout.
    """
    statuses = {status.id: status for status in silent}
    agents = {launch: status.agent_id for launch, status in statuses.items() if status.agent_id is not None}
    pending = state.session.reconciliation
    still = {launch: since for launch, since in pending.asked_again.items() if launch in state.stored.statuses}
    pending = replace(
        pending,
        unanswered=(pending.unanswered - pending.answered) | set(agents),
        answered=frozenset(),
        asked_at=now,
        retry_after=FIRST_WAIT,
        asked_again=still | {launch: status.timestamp for launch, status in statuses.items()},
    )
    return decide(state.with_session(reconciliation=pending), calls=(Reconcile(agents),) if agents else ())


def was_asked_again(state: SchedulerState, status: TaskStatus) -> bool:
    """Return whether `ask_again` has requested the status during this silence."""
    return state.session.reconciliation.asked_again.get(status.id) == status.timestamp


def poll(state: SchedulerState, now: float) -> Decision:
    """Repeat due requests, because agents may be missing after a master's failover."""
    if not state.session.connected:
        return decide(state)
    return _poll_current(state, now).then(lambda after: _poll_abandoned(after, now))


def _poll_current(state: SchedulerState, now: float) -> Decision:
    pending = state.session.reconciliation
    if state.live_count() and now >= pending.started_at + FULL_INTERVAL:
        return request(state, now)
    if not _must_repeat(state) or now < pending.asked_at + pending.retry_after:
        return decide(state)
    unknown = {status.id for status in state.stored.statuses.values() if status.state is TaskState.UNKNOWN}
    missing = _agents(record for record in state.live() if pending.awaits(record.id) or record.id in unknown)
    retry_after = min(2 * pending.retry_after, LONGEST_WAIT)
    missing_only = replace(pending, unanswered=frozenset(missing), answered=frozenset())
    pending = replace(missing_only, asked_at=now, retry_after=retry_after)
    calls = (Reconcile(missing),) if missing else ()
    return decide(state.with_session(reconciliation=pending), calls=calls)


def _poll_abandoned(state: SchedulerState, now: float) -> Decision:
    """Request the status of abandoned launches: a launch that runs is then killed."""
    pending, items = state.session.reconciliation, state.stored.abandoned
    if not items or now < pending.abandoned_asked_at + ABANDONED_INTERVAL:
        return decide(state)
    newest = sorted(items.values(), key=lambda item: item.since)[-MAX_ABANDONED:]
    agents = {item.id: item.agent_id for item in newest if now < item.since + MAX_ABANDONED_AGE}
    after = state.with_session(reconciliation=replace(pending, abandoned_asked_at=now))
    dropped = (EntryForgotten("abandoned", launch) for launch in items if launch not in agents)
    return decide(after, *dropped, calls=(Reconcile(agents),) if agents else ())


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the times at which `poll` may have something to do."""
    pending = state.session.reconciliation
    if state.stored.abandoned:
        yield pending.abandoned_asked_at + ABANDONED_INTERVAL
    if _must_repeat(state):
        yield pending.asked_at + pending.retry_after
    if state.live_count():
        yield pending.started_at + FULL_INTERVAL


def _must_repeat(state: SchedulerState) -> bool:
    """Return whether a launch has no answer, or its agent is unknown to the master."""
    return bool(state.session.reconciliation.unanswered) or TaskState.UNKNOWN in state.derived.state_counts


def _agents(records: Iterable[TaskRecord]) -> dict[TaskId, AgentId]:
    return {record.id: record.agent_id for record in records}


def ask_about(state: SchedulerState, records: Iterable[TaskRecord], now: float) -> Decision:
    """Request the statuses of silent launches; ACCEPT or an answer may be lost."""
    silent = [record for record in records if record.id not in state.stored.statuses]
    queries = {**state.of_current_launches(state.process.launch_queries), **{record.id: now for record in silent}}
    return decide(state.with_process(launch_queries=queries), calls=(Reconcile(_agents(silent)),) if silent else ())
