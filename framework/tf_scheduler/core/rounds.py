"""The end of a round: its offers are given back, or, with `gang.mode: reserve`, what it found is reserved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat, starmap

from tf_scheduler.model.effects import Decision, Outcome, ReservationDropped
from tf_scheduler.model.evaluation import Gathering
from tf_scheduler.model.ids import OfferId, TaskName
from tf_scheduler.model.offer import HeldOffer, Offer
from tf_scheduler.model.placement import GangMode
from tf_scheduler.model.reasons import NoOffers, Reason, Reserved, WaitsFor
from tf_scheduler.model.state import SchedulerState

from . import reserve
from .attempt import attempt
from .back_off import back_off, chance
from .declines import REFUSE_SHORT, declines
from .placement.demand import demands_of
from .plans import Gang, wanted
from .reduce import decide, then

NewId = Callable[[], str]

#: Seconds without any offer after which that is told.
SILENCE = 10.0


def release(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """End a round that is over, and a gang's reservations when their time is."""
    if state.unoffered_since is not None and now >= state.unoffered_since + SILENCE:
        return _silent(state)
    started = state.gathering.started
    expired = any(now >= item.deadline for item in state.reservations.values() if item.id not in state.expired)
    decision = then(_drop_lost(state, now), lambda after: _expire(after, now, new_id) if expired else decide(after))
    if expired or started is None or now < started + state.spec.gang.hold_seconds:
        return decision
    return then(decision, lambda after: _end_round(after, now, new_id))


def _silent(state: SchedulerState) -> Decision:
    """Nothing was offered: no agent is free, or the role's quota is used up, or none is as the constraints want it."""
    demands = demands_of((task for gang in wanted(state) for task in gang.tasks), state.spec.executor.needs)
    pending: dict[TaskName, tuple[Reason, ...]] = {}
    for demand in demands:
        reasons = (NoOffers(demand.needs, demand.job.constraints),)
        pending.update({task.name: reasons for task in demand.tasks})
    return decide(replace(state, unoffered_since=None, pending=pending), outcomes=_told(pending))


def _end_round(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    if state.spec.gang.mode is not GangMode.RESERVE:
        return _give_up(state, now, new_id)
    found = attempt(state, wanted(state), [held.offer for held in state.offers.values()], now)
    kept = reserve.live(state, now)
    deadline = min((item.deadline for item in kept.values()), default=now + state.spec.gang.reserve_timeout)
    calls, changes = reserve.reserve(state, found.part, deadline, starmap(new_id, repeat(())))
    if not calls and not kept:
        return _give_up(state, now, new_id)
    used = {offer_id for call in calls for offer_id in call.offer_ids}
    rest = [key for key in state.offers if key not in used]
    after = replace(holding(state, {}), operations_at=now)
    return decide(after, *changes, calls=(*calls, *declines(rest, REFUSE_SHORT)), outcomes=_told(found.reasons))


def _give_up(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """As a round without success ends."""
    away = keep_away(state, now, new_id)
    return then(away, lambda after: decide(after, outcomes=_told(after.pending)))


def keep_away(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """Give all offers back, and take none for a while."""
    failures = state.gathering.failures + 1
    wait = back_off(failures, state.spec.gang.hold_seconds, chance(new_id()))
    after = replace(state, offers={}, gathering=Gathering(None, failures, now + wait))
    return decide(after, calls=declines(list(state.offers), wait))


def _expire(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """The gang was not complete in time: what is offered now is given back at once, the rest when it comes."""
    late = frozenset(item.id for item in state.reservations.values() if now >= item.deadline)
    told = Outcome(f"the gang was not complete in time: {len(late)} reservations are given back", warning=True)
    state = replace(state, expired=late)
    given_back = give_back(state, [held.offer for held in state.offers.values()], wanted(state), now)
    given_back = then(given_back, lambda after: decide(after, outcomes=(told,)))
    return then(given_back, lambda after: _give_up(after, now, new_id))


def give_back(state: SchedulerState, offers: Sequence[Offer], gangs: Sequence[Gang], now: float) -> Decision:
    """UNRESERVE what is ours on these offers and does not serve (any more)."""
    tasks = {task.name: task for gang in gangs for task in gang.tasks}
    calls, gone = reserve.give_back(state, offers, tasks, now), reserve.gone(state, offers, now)
    if not calls:
        return decide(state, *gone)
    used = {offer_id for call in calls for offer_id in call.offer_ids}
    kept = {key: held for key, held in state.offers.items() if key not in used}
    after = replace(holding(state, kept), given_back_at=now, returned=state.returned | reserve.named(calls))
    return decide(after, *gone, calls=calls)


def holding(state: SchedulerState, offers: Mapping[OfferId, HeldOffer], now: float | None = None) -> SchedulerState:
    """With these offers; a round begins with the first one and ends with the last."""
    started = state.gathering.started
    if not offers:
        started = None
    elif started is None:
        started = now
    return replace(state, offers=offers, gathering=replace(state.gathering, started=started))


def _drop_lost(state: SchedulerState, now: float) -> Decision:
    gone = reserve.lost(state, now)
    told = (
        Outcome(
            f"agent {item.place.hostname} was not heard of: what was reserved there for {item.task} may still be so",
            item.task,
            warning=True,
        )
        for item in gone
    )
    changes = (*reserve.settled(state, now), *(ReservationDropped(item.id) for item in gone))
    if gone and state.result is not None:
        still = (f"what was reserved for {item.task} on {item.place.hostname}, which did not answer" for item in gone)
        state = replace(state, left=(*state.left, *still))
    return decide(state, *changes, outcomes=tuple(told))


def _told(pending: Mapping[TaskName, tuple[Reason, ...]]) -> tuple[Outcome, ...]:
    """One sentence per kind of task: those of a section have the same reasons."""
    groups: dict[tuple[Reason, ...], list[TaskName]] = {}
    for name, reasons in pending.items():
        if not isinstance(reasons[0], WaitsFor | Reserved):
            groups.setdefault(reasons, []).append(name)
    return tuple(_pending(names, reasons) for reasons, names in groups.items())


def _pending(names: Sequence[TaskName], reasons: Iterable[Reason]) -> Outcome:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    verb = "are" if others else "is"
    return Outcome(f"{names[0]}{others} {verb} pending: {'; '.join(map(str, reasons))}", names[0], warning=True)
