"""What to ask Mesos, and when: after every subscription, and about launches that it says nothing of."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.effects import Decision, Reconcile
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .reduce import decide

#: Seconds after a launch without any update, after which Mesos is asked; and between two such questions.
LAUNCH_TIMEOUT = 30.0


def after_subscribe(state: SchedulerState) -> Decision:
    """Ask for our live tasks, with their agents: without them the master stays silent while an agent is missing.

    Then ask for everything (an empty list), which brings up tasks that we do not know
    (Mesos documentation, reconciliation).
    """
    if not state.tasks:
        return decide(state)
    ours = {record.id: record.agent_id for record in state.live()}
    return decide(state, calls=((Reconcile(ours),) if ours else ()) + (Reconcile({}),))


def silent_launches(state: SchedulerState, now: float) -> Decision:
    """Ask about launches that are due: the ACCEPT or its answer may be lost."""
    deadline = silent_until(state)
    if deadline is None or now < deadline or not state.connected:
        return decide(state)
    unheard = [record for record in state.tasks.values() if record.id not in state.statuses]
    due = [record for record in unheard if now >= _asked_at(state, record) + LAUNCH_TIMEOUT]
    asked = replace(state, inquiries={**state.inquiries, **{record.id: now for record in due}})
    since = min((_asked_at(asked, record) for record in unheard), default=0.0)
    question = Reconcile({record.id: record.agent_id for record in due})
    return decide(replace(asked, silent_since=since), calls=(question,) if due else ())


def silent_until(state: SchedulerState) -> float | None:
    """When launches without any status are to be looked at, at the latest; None: there is none.

    It may be too early, as the launch that it was for has been heard of since: then the next look says when.
    """
    return state.silent_since + LAUNCH_TIMEOUT if len(state.statuses) < len(state.tasks) else None


def _asked_at(state: SchedulerState, record: TaskRecord) -> float:
    """When Mesos was last told of, or asked about, this launch."""
    return max(record.launched_at, state.inquiries.get(record.id, 0.0))
