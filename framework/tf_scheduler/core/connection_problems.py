"""Handle failed calls; report events that cannot be decoded, and wrong clocks.

A call failed if Mesos refused it or did not answer, or if it was not sent:

    refused, or certainly not sent   launches of an ACCEPT end as TASK_DROPPED, and are launched again
    sent, without an answer          Mesos may have acted on it: the status of its launches is requested

Other failed calls need no repair of the state. The driver sends them again, or subscribes again; the scheduler then
repeats KILL, RECONCILE and REVIVE if they are still needed. Mesos repeats updates that were not acknowledged.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

from tf_executor.contract.states import TaskState
from tf_executor.contract.text import format_duration
from tf_scheduler.model.effects import Accept, Call, Decision, Outcome, Reconcile
from tf_scheduler.model.events import (
    CallFailed,
    CallsAccepted,
    ClockDrifted,
    ClockStepped,
    EventSkipped,
    FrameworksHidden,
)
from tf_scheduler.model.ids import NewId
from tf_scheduler.model.state import RefusedCalls, SchedulerState
from tf_scheduler.model.task import TaskStatus

from .offers.rounds import REFUSE_SHORT, declines
from .plans.scheduling import PlanView
from .recovery import status
from .recovery.failure_causes import NOT_SENT
from .state.reducer import decide

#: Seconds without a refusal with the same HTTP status after which a refusal is reported again.
REPORT_AGAIN = 600.0
#: Maximum characters of a cause.
_MAX_CAUSE = 200


def handle(
    state: SchedulerState,
    event: CallFailed | CallsAccepted | ClockDrifted | ClockStepped | EventSkipped | FrameworksHidden,
    now: float,
    new_id: NewId,
    view: PlanView,
) -> Decision:
    """Report a problem or its end; drop launches of a failed ACCEPT, or ask for them."""
    if not isinstance(event, CallFailed):
        return _report(state, event)
    unanswered = Outcome("CallFailed", describe(event), warning=event.may_be_done)
    decision = _refused(state, event, now) if event.status else decide(state, outcomes=(unanswered,))
    call = event.call
    if not isinstance(call, Accept):
        return decision
    unreported = {launch.record.id: now for launch in call.launches if launch.record.id not in state.stored.statuses}
    current = state.of_current_launches(unreported)
    silent = [launch for launch in call.launches if launch.record.id in current]
    if state.session.connected:
        # The offers may be withheld from all frameworks. If the ACCEPT is only late, DECLINE makes its offers invalid,
        # so that the answer to RECONCILE holds: Mesos drops launches with invalid offers.
        release = declines(call.offer_ids, REFUSE_SHORT)
        decision = decision.then(lambda after: decide(after, calls=release))
    if event.may_be_done:
        requested = {launch.record.id: launch.record.agent_id for launch in silent}
        calls = (Reconcile(requested),) if requested and state.session.connected else ()
        return decision.then(lambda after: decide(after, calls=calls))
    about: dict[str, Any] = {"reason": "" if event.status else NOT_SENT, "message": describe(event), "timestamp": now}
    for launch in silent:
        dropped = TaskStatus(launch.record.id, TaskState.DROPPED, launch.record.agent_id, **about)
        decision = decision.then(partial(status.on_update, status=dropped, now=now, new_id=new_id, view=view))
    return decision


def _report(
    state: SchedulerState,
    event: CallsAccepted | ClockDrifted | ClockStepped | EventSkipped | FrameworksHidden,
) -> Decision:
    """Report a problem that changes nothing except what the health check shows."""
    if isinstance(event, CallsAccepted):
        return _accepted(state)
    if isinstance(event, ClockDrifted):
        state = state.with_process(clock_drift=event.seconds)
        message = drift_message(state) or "the clocks of this machine and of the Mesos master agree again"
        return decide(state, outcomes=(Outcome("ClockDrifted", message, warning=bool(event.seconds)),))
    if isinstance(event, EventSkipped):
        message = f"skipped an event of Mesos that cannot be decoded: {event.type}: {event.problem}"
        return decide(state, outcomes=(Outcome("EventSkipped", message, warning=True),))
    if isinstance(event, FrameworksHidden):
        message = (
            f"the master does not show frameworks: {event.reason}; if the stored state was lost, tasks may run twice; "
            f"grant the principal of the scheduler the permission view_frameworks"
        )
        return decide(state, outcomes=(Outcome("FrameworksHidden", message, warning=True),))
    step = f"{'forward' if event.seconds > 0 else 'back'} by {format_duration(round(abs(event.seconds)))}"
    message = f"the clock of this machine was set {step}; deadlines do not change"
    return decide(state, outcomes=(Outcome("ClockStepped", message, warning=True),))


def _accepted(state: SchedulerState) -> Decision:
    """End the series of refused calls; report the end if the series was reported."""
    refused = state.process.refused_calls
    after = state.with_process(refused_calls=None)
    if refused is None or not refused.is_reported:
        return decide(after)
    message = f"Mesos accepts calls again; it had refused {refused.count} since {clock_time(refused.since)}"
    return decide(after, outcomes=(Outcome("CallsAccepted", message),))


def refusal_message(state: SchedulerState) -> str:
    """Return since when and why Mesos refuses calls; empty if it does not."""
    refused = state.process.refused_calls
    return "" if refused is None else f"Mesos has refused calls since {clock_time(refused.since)}: {refused.cause}"


def drift_message(state: SchedulerState) -> str:
    """Return by how much the clocks differ; empty if the difference is tolerable."""
    seconds = state.process.clock_drift
    side = "behind" if seconds > 0 else "ahead of"
    difference = format_duration(round(abs(seconds)))
    return f"the clock of this machine is {difference} {side} that of the Mesos master" if seconds else ""


def describe(event: CallFailed) -> str:
    """Return a message such as `Mesos refused ACCEPT: 401 Unauthorized`."""
    if event.status:
        return f"Mesos refused {call_name(event.call)}: {_cause(event)}"
    return f"{call_name(event.call)} was not {'answered' if event.may_be_done else 'sent'}: {event.problem}"


def call_name(call: Call) -> str:
    """Return the name of a call, such as `ACCEPT` or `ACCEPT_INVERSE_OFFERS`."""
    return re.sub(r"\B(?=[A-Z])", "_", type(call).__name__).upper()


def _refused(state: SchedulerState, event: CallFailed, now: float) -> Decision:
    """Count a refused call; warn if its status has not occurred for REPORT_AGAIN s."""
    cause, reported, before = _cause(event), state.process.reported_refusals, state.process.refused_calls
    is_new = now >= reported.get(event.status, -REPORT_AGAIN) + REPORT_AGAIN
    refused = before or RefusedCalls(cause, now, 0)
    refused = replace(refused, cause=cause, count=refused.count + 1, is_reported=refused.is_reported or is_new)
    after = state.with_process(refused_calls=refused, reported_refusals={**reported, event.status: now})
    message = f"{describe(event)}; further refusals are counted in tensorflow_failed_calls_total"
    return decide(after, outcomes=(Outcome("CallRefused", message, warning=True),) if is_new else ())


def _cause(event: CallFailed) -> str:
    return f"{event.status} {event.problem}".strip()[:_MAX_CAUSE]


def clock_time(at: float) -> str:
    """Return a time of day such as `21:33 UTC`."""
    return f"{int(at // 3600 % 24):02}:{int(at // 60 % 60):02} UTC"
