"""The end of a launch -> what is held against its agent."""

from __future__ import annotations

import signal

from tf_scheduler.model.effects import Outcome
from tf_scheduler.model.failure import Cause
from tf_scheduler.model.recovery import Suspect
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

from .causes import DRAINED
from .waiting import recent

#: Seconds: what fails together on one agent has one reason, and counts once.
TOGETHER = 5.0
#: A program that ends itself so says nothing of its agent: it has a fault, or was interrupted.
_OWN_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
)


def held_against(state: SchedulerState, record: TaskRecord, now: float) -> Suspect | None:
    """One more failure on the agent of `record`; None: it does not count."""
    policy, before = state.spec.recovery, state.suspects.get(record.agent_id)
    failures = recent(before.failures if before else (), policy.avoid_for, now)
    if not policy.avoid_after or (failures and now < failures[-1] + TOGETHER):
        return None
    failures = (*failures, now)
    avoided = now + policy.avoid_for if len(failures) >= policy.avoid_after else 0.0
    return Suspect(record.agent_id, record.hostname, failures, max(avoided, before.avoided_until if before else 0.0))


def blames_agent(status: TaskStatus, cause: Cause, ran: bool) -> bool:
    """Whether the end may be the agent's fault: its program could not be started, or was lost."""
    if not ran:
        return cause in (Cause.USER_ERROR, Cause.INFRASTRUCTURE) and status.reason not in DRAINED
    if cause is not Cause.INFRASTRUCTURE or status.reason in DRAINED or status.exit_code is not None:
        return False
    return status.signal not in _OWN_SIGNALS


def told_of(suspect: Suspect | None, now: float) -> tuple[Outcome, ...]:
    """That the agent is avoided from now on, if it is."""
    if suspect is None or suspect.avoided_until <= now:
        return ()
    count, wait = len(suspect.failures), suspect.avoided_until - now
    sentence = f"{suspect.hostname} is avoided for {wait:g} s: {count} launches have failed there"
    return (Outcome(sentence, warning=True),)
