"""What to ask Mesos, and when (Mesos documentation, reconciliation).

after a subscription   for each of our tasks, then for everything; and so again every 15 minutes
no answer              for the tasks that were not answered for, later and later
a silent launch        for that one
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Decision, Reconcile
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.state import PendingReconciliation, SchedulerState
from tf_scheduler.model.task import TaskRecord

#: Seconds after a launch without any update, after which Mesos is asked; and between two such questions.
LAUNCH_TIMEOUT = 30.0


#: Seconds until Mesos is asked again for what it has not answered; doubled each time, up to the second number.
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0
#: Seconds between two questions for everything.
FULL_INTERVAL = 900.0


def request(state: SchedulerState, now: float) -> Decision:
    """Ask for our live tasks, with their agents: without them the master stays silent while an agent is missing.

    Then ask for everything (an empty list), which brings up tasks that we do not know. An earlier question is void.
    """
    ours = _agents(state.live())
    asked = replace(
        state,
        session=replace(state.session, reconciliation=PendingReconciliation(frozenset(ours), now, FIRST_WAIT, now)),
    )
    return decide(asked, calls=((Reconcile(ours),) if ours else ()) + (Reconcile({}),))


def mark_answered(state: SchedulerState, launch: TaskId) -> SchedulerState:
    """Whatever Mesos says of a launch answers for it."""
    known = state.session.reconciliation
    return replace(
        state, session=replace(state.session, reconciliation=replace(known, unanswered=known.unanswered - {launch}))
    )


def poll(state: SchedulerState, now: float) -> Decision:
    """Ask for what is due. No answer means "not yet": an agent may still be missing after a master's failover."""
    if not state.session.connected:
        return decide(state)
    known = state.session.reconciliation
    if state.live_count() and now >= known.started_at + FULL_INTERVAL:
        return request(state, now)
    if not known.unanswered or now < known.asked_at + known.retry_after:
        return poll_silent_launches(state, now)
    missing = _agents(record for record in state.live() if record.id in known.unanswered)
    later = replace(
        known, unanswered=frozenset(missing), asked_at=now, retry_after=min(2 * known.retry_after, LONGEST_WAIT)
    )
    asked = decide(
        replace(state, session=replace(state.session, reconciliation=later)),
        calls=(Reconcile(missing),) if missing else (),
    )
    return asked.then(lambda after: poll_silent_launches(after, now))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When something of this is due."""
    if state.session.reconciliation.unanswered:
        yield state.session.reconciliation.asked_at + state.session.reconciliation.retry_after
    if state.live_count():
        yield state.session.reconciliation.started_at + FULL_INTERVAL
    if (silent := silent_until(state)) is not None:
        yield silent


def _agents(records: Iterable[TaskRecord]) -> dict[TaskId, AgentId]:
    return {record.id: record.agent_id for record in records}


def poll_silent_launches(state: SchedulerState, now: float) -> Decision:
    """Ask about launches that are due: the ACCEPT or its answer may be lost."""
    deadline = silent_until(state)
    if deadline is None or now < deadline or not state.session.connected:
        return decide(state)
    unheard = [record for record in state.stored.tasks.values() if record.id not in state.stored.statuses]
    late = [record for record in unheard if now >= _asked_at(state, record) + LAUNCH_TIMEOUT]
    asked = replace(
        state,
        process=replace(
            state.process, launch_queries={**state.process.launch_queries, **{record.id: now for record in late}}
        ),
    )
    since = min((_asked_at(asked, record) for record in unheard), default=0.0)
    return decide(
        replace(asked, derived=replace(asked.derived, oldest_silent_launch=since)),
        calls=(Reconcile(_agents(late)),) if late else (),
    )


def silent_until(state: SchedulerState) -> float | None:
    """When launches without any status are to be looked at, at the latest; None: there is none.

    It may be too early, as the launch that it was for has been heard of since: then the next look says when.
    """
    return (
        state.derived.oldest_silent_launch + LAUNCH_TIMEOUT
        if len(state.stored.statuses) < len(state.stored.tasks)
        else None
    )


def _asked_at(state: SchedulerState, record: TaskRecord) -> float:
    """When Mesos was last told of, or asked about, this launch."""
    return max(record.launched_at, state.process.launch_queries.get(record.id, 0.0))
