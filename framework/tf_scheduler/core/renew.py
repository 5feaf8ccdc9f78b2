"""Secrets that are to be read again now, because an operator has changed them and says so.

Executors ask for new values by themselves, now and then (core/handover.py). This only tells them to do so at once: a
message carries no value and no right, and whoever gets none asks at the usual time.
"""

from __future__ import annotations

from tf_scheduler.model.effects import Decision, Outcome, TellExecutor
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.plan import Answer, Reply
from tf_scheduler.model.state import SchedulerState

from .handover import reloads_now


def renew(state: SchedulerState) -> Decision:
    """Tell every executor whose program runs with secrets that reload."""
    if not any(item.reloads for item in state.spec.secrets):
        why = "no secret has reload: a new value is delivered at the next start of a task, as by pod restart"
        return Decision(state, answer=Answer(Reply.BAD_REQUEST, why))
    found = [record for record in state.tasks.values() if reloads_now(state, record)]
    if not found:
        return Decision(state, answer=Answer(Reply.ALREADY, "no task runs that has secrets which reload"))
    told = f"Told {', '.join(sorted(record.name for record in found))} to read secrets again"
    calls = tuple(TellExecutor(executor_of(record.id), record.agent_id) for record in found)
    return Decision(state, calls=calls, outcomes=(Outcome(told),), answer=Answer(Reply.OK, told))
