"""Whether Mesos is to offer us anything: suppress when nothing is to be placed, revive when something new is."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.effects import Decision, Revive, Suppress
from tf_scheduler.model.evaluation import Gathering
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import SchedulerState

from .bucket import take, token_at
from .declines import REFUSE_LONG, REFUSE_SHORT, declines
from .plans import wanted
from .reduce import decide, then
from .rounds import give_back


def demand(state: SchedulerState, now: float) -> Decision:
    """One REVIVE per new wish; without one, hold nothing, and suppress when no reservation is to be given back."""
    if not state.connected:
        return decide(state)
    names = names_wanted(state)
    if names:
        return _ask(state, names, now)
    return then(
        _hold_nothing(state, now), lambda after: _ask(after, names, now) if after.reservations else _hush(after)
    )


def names_wanted(state: SchedulerState) -> frozenset[TaskName]:
    """The tasks that are to be placed now."""
    return frozenset(task.name for gang in wanted(state) for task in gang.tasks)


def _ask(state: SchedulerState, names: frozenset[TaskName], now: float) -> Decision:
    """Offers for these: Mesos makes them anyway unless we suppressed, or declined some before we had this wish."""
    news = names - state.asked_for
    if not news and not state.suppressed:
        return decide(replace(state, asked_for=names, revive_at=None))
    bucket = take(state.bucket, now)
    if bucket is None:
        return decide(replace(state, revive_at=token_at(state.bucket, now)))
    fresh = replace(state.gathering, failures=0, back_off_until=0.0)
    asked = replace(state, bucket=bucket, asked_for=names, suppressed=False, revive_at=None, unoffered_since=now)
    after = replace(asked, gathering=fresh)
    return decide(after, calls=(Revive(),))


def _hold_nothing(state: SchedulerState, now: float) -> Decision:
    given_back = give_back(state, [held.offer for held in state.offers.values()], (), now)
    return then(given_back, _let_go)


def _let_go(state: SchedulerState) -> Decision:
    quiet = replace(state, offers={}, pending={}, gathering=Gathering())
    return decide(quiet, calls=declines(list(state.offers), REFUSE_SHORT if state.reservations else REFUSE_LONG))


def _hush(state: SchedulerState) -> Decision:
    quiet = replace(state, suppressed=True, asked_for=frozenset(), revive_at=None, unoffered_since=None, passed={})
    return decide(quiet, calls=() if state.suppressed else (Suppress(),))
