"""What to ask Mesos, and when (Mesos documentation, reconciliation).

after a subscription   for each of our tasks, then for everything; and so again every 15 minutes
no answer              for the tasks that were not answered for, later and later
a silent launch        for that one
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.model.effects import Decision, Reconcile
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.inquiry import Inquiry
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .reduce import decide, then

#: Seconds after a launch without any update, after which Mesos is asked; and between two such questions.
LAUNCH_TIMEOUT = 30.0


#: Seconds until Mesos is asked again for what it has not answered; doubled each time, up to the second number.
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0
#: Seconds between two questions for everything.
ALL_AGAIN = 900.0


def ask(state: SchedulerState, now: float) -> Decision:
    """Ask for our live tasks, with their agents: without them the master stays silent while an agent is missing.

    Then ask for everything (an empty list), which brings up tasks that we do not know. An earlier question is void.
    """
    ours = _agents(state.live())
    asked = replace(state, inquiry=Inquiry(frozenset(ours), now, FIRST_WAIT, now))
    return decide(asked, calls=((Reconcile(ours),) if ours else ()) + (Reconcile({}),))


def heard(state: SchedulerState, launch: TaskId) -> SchedulerState:
    """Whatever Mesos says of a launch answers for it."""
    known = state.inquiry
    if launch not in known.unanswered:
        return state
    return replace(state, inquiry=replace(known, unanswered=known.unanswered - {launch}))


def due(state: SchedulerState, now: float) -> Decision:
    """Ask for what is due. No answer means "not yet": an agent may still be missing after a master's failover."""
    if not state.connected:
        return decide(state)
    known = state.inquiry
    if state.live_count() and now >= known.began_at + ALL_AGAIN:
        return ask(state, now)
    if not known.unanswered or now < known.asked_at + known.wait:
        return silent_launches(state, now)
    missing = _agents(record for record in state.live() if record.id in known.unanswered)
    later = replace(known, unanswered=frozenset(missing), asked_at=now, wait=min(2 * known.wait, LONGEST_WAIT))
    asked = decide(replace(state, inquiry=later), calls=(Reconcile(missing),) if missing else ())
    return then(asked, lambda after: silent_launches(after, now))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When something of this is due."""
    if state.inquiry.unanswered:
        yield state.inquiry.asked_at + state.inquiry.wait
    if state.live_count():
        yield state.inquiry.began_at + ALL_AGAIN
    if (silent := silent_until(state)) is not None:
        yield silent


def _agents(records: Iterable[TaskRecord]) -> dict[TaskId, AgentId]:
    return {record.id: record.agent_id for record in records}


def silent_launches(state: SchedulerState, now: float) -> Decision:
    """Ask about launches that are due: the ACCEPT or its answer may be lost."""
    deadline = silent_until(state)
    if deadline is None or now < deadline or not state.connected:
        return decide(state)
    unheard = [record for record in state.tasks.values() if record.id not in state.statuses]
    late = [record for record in unheard if now >= _asked_at(state, record) + LAUNCH_TIMEOUT]
    asked = replace(state, inquiries={**state.inquiries, **{record.id: now for record in late}})
    since = min((_asked_at(asked, record) for record in unheard), default=0.0)
    return decide(replace(asked, silent_since=since), calls=(Reconcile(_agents(late)),) if late else ())


def silent_until(state: SchedulerState) -> float | None:
    """When launches without any status are to be looked at, at the latest; None: there is none.

    It may be too early, as the launch that it was for has been heard of since: then the next look says when.
    """
    return state.silent_since + LAUNCH_TIMEOUT if len(state.statuses) < len(state.tasks) else None


def _asked_at(state: SchedulerState, record: TaskRecord) -> float:
    """When Mesos was last told of, or asked about, this launch."""
    return max(record.launched_at, state.inquiries.get(record.id, 0.0))
