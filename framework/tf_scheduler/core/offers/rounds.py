"""Offer rounds: hold offers until a whole gang fits, otherwise decline them.

A round starts with the first held offer and lasts `gang.hold_seconds`. After a failed round, offers are declined during
a back-off, so that other frameworks can use them. Every offer is answered once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from tf_scheduler.core.launch.launch import accepts, plan_launches
from tf_scheduler.core.launch.secret_tokens import protected_sections
from tf_scheduler.core.placement.agents import demands_of
from tf_scheduler.core.plans.scheduling import Gang, PlanView
from tf_scheduler.core.state.backoff import jitter_from_id, round_delay
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Call, Decision, Decline, Launch, Outcome, Revive, Suppress, TaskLaunched
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.ids import AgentId, NewId, OfferId, TaskName
from tf_scheduler.model.offer import MAX_EVALUATIONS, AgentSnapshot, FailedMatch, Offer, OfferRound
from tf_scheduler.model.reasons import AwaitsPreviousAddress, NoOffers, Reason, WaitsFor
from tf_scheduler.model.state import SchedulerState

from .matcher import MatchResult, failed_match, match_gangs, usable_agents, with_offers

#: Refusal time of unusable offers: long, so that other frameworks get them (Mesos documentation, framework guide).
#: REVIVE clears the filter, and Mesos offers an agent again when more of it becomes free.
REFUSE_LONG = 3600.0
#: Refusal time of offers that only lack the executors' login: its agent may be restarted with another flag.
REFUSE_UNSAFE = 30.0
#: Refusal time of leftovers while tasks are pending.
REFUSE_SHORT = 1.0


def declines(offer_ids: Sequence[OfferId], refuse_seconds: float) -> tuple[Call, ...]:
    """Return one DECLINE for all offers."""
    return (Decline(tuple(offer_ids), refuse_seconds),) if offer_ids else ()


#: Seconds without offers before a warning.
NO_OFFER_WARNING_SECONDS = 10.0


def expire_round(state: SchedulerState, now: float, new_id: NewId, gangs: Sequence[Gang]) -> Decision:
    """End a round after its timeout, or warn of missing offers."""
    if state.session.no_offers_since is not None and now >= state.session.no_offers_since + NO_OFFER_WARNING_SECONDS:
        return _warn_no_offers(state, gangs)
    started = state.session.round_started
    if started is None or now < started + state.spec.hold_seconds:
        return decide(state)
    return decline_and_wait(state, now, new_id)


def _warn_no_offers(state: SchedulerState, gangs: Sequence[Gang]) -> Decision:
    """Warn of missing offers. Causes: full agents, exhausted quota, unmet constraints."""
    demands = demands_of((task for gang in gangs for task in gang.tasks), state.spec.executor.needs)
    pending: dict[TaskName, tuple[Reason, ...]] = {}
    for demand in demands:
        reasons = (NoOffers(demand.needs, demand.job.constraints),)
        pending.update({task.name: reasons for task in demand.tasks})
    return decide(state.with_session(no_offers_since=None, pending=pending), outcomes=_pending_outcomes(pending))


def decline_and_wait(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """End a failed round: decline all offers, and all new ones during a back-off."""
    failures = state.process.offer_round.failures + 1
    wait = round_delay(failures, state.spec.hold_seconds, jitter_from_id(new_id()))
    after = state.with_session(offers={}, round_started=None)
    after = after.with_process(offer_round=OfferRound(failures, now + wait))
    calls, outcomes = declines(list(state.session.offers), wait), _pending_outcomes(state.session.pending)
    return decide(after, calls=calls, outcomes=outcomes)


def hold(state: SchedulerState, offers: Mapping[OfferId, Offer], now: float | None = None) -> SchedulerState:
    """Return the state with these held offers; a round lasts while an offer is held."""
    started = now if state.session.round_started is None else state.session.round_started
    return state.with_session(offers=offers, round_started=started if offers else None)


def _pending_outcomes(pending: Mapping[TaskName, tuple[Reason, ...]]) -> tuple[Outcome, ...]:
    """Return one outcome for all tasks that have the same reasons."""
    groups: dict[tuple[Reason, ...], list[TaskName]] = {}
    for name, reasons in pending.items():
        if not isinstance(reasons[0], WaitsFor):
            groups.setdefault(reasons, []).append(name)
    return tuple(_pending_outcome(names, reasons) for reasons, names in groups.items())


def _pending_outcome(names: Sequence[TaskName], reasons: Iterable[Reason]) -> Outcome:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    verb = "are" if others else "is"
    message = f"{names[0]}{others} {verb} pending: {'; '.join(map(str, reasons))}"
    return Outcome("TaskPending", message, names[0], warning=True)


# --- Suppress offers while no task is pending, and revive them for new pending tasks


def update_demand(state: SchedulerState, now: float, names: frozenset[TaskName]) -> Decision:
    """Revive offers for new pending tasks; if none is pending, decline and suppress."""
    if not names:
        return _suppress(state)
    unused = list(state.session.offers) if has_leftovers(state) else []
    declined = decide(state.with_session(offers={}) if unused else state, calls=declines(unused, REFUSE_SHORT))
    return declined.then(lambda after: _revive(after, names, now))


def has_leftovers(state: SchedulerState) -> bool:
    """Return whether offers are held that a launch has left: no round is for them."""
    return bool(state.session.offers) and state.session.round_started is None


#: REVIVE costs the master much: up to 8 calls immediately, because each of several losses needs offers while its
#: previous address may be free, then one in 5 s.
REVIVE_BURST, REVIVE_INTERVAL = 8, 5.0


def _revive(state: SchedulerState, names: frozenset[TaskName], now: float) -> Decision:
    """Revive if offers are suppressed, or if declined offers may fit new tasks."""
    before = state.session.requested_tasks
    new_names = frozenset() if names is before else names - before  # most often the same set, which may be large
    if not new_names and not state.session.suppressed:
        return decide(state.with_session(requested_tasks=names, revive_at=None))
    due = state.process.revives_used_until - (REVIVE_BURST - 1) * REVIVE_INTERVAL
    if now < due:
        return decide(state.with_session(revive_at=due))
    used_until = max(now, state.process.revives_used_until) + REVIVE_INTERVAL
    fresh = replace(state.process.offer_round, failures=0, back_off_until=0.0)
    after = state.with_session(requested_tasks=names, suppressed=False, revive_at=None, no_offers_since=now)
    return decide(after.with_process(revives_used_until=used_until, offer_round=fresh), calls=(Revive(),))


def _suppress(state: SchedulerState) -> Decision:
    after = state.with_session(
        offers={},
        pending={},
        failed_match=None,
        round_started=None,
        suppressed=True,
        requested_tasks=frozenset(),
        revive_at=None,
        no_offers_since=None,
        rejected_offers={},
    )
    declined = declines(list(state.session.offers), REFUSE_LONG)
    suppressed = () if state.session.suppressed else (Suppress(),)
    return decide(after.with_process(offer_round=OfferRound()), calls=(*declined, *suppressed))


# --- Agent snapshots, for display only
#
# Mesos reports agents only through offers and removals. The last snapshot of an agent is kept while it offers nothing,
# and all are dropped with the connection, because removals would be missed.


#: Maximum number of snapshots; the most recent are kept.
MAX_AGENT_SNAPSHOTS = 2000


def record_offers(state: SchedulerState, offers: Iterable[Offer], now: float) -> SchedulerState:
    """Return the state with snapshots of the offers, summed over roles per agent."""
    fresh: dict[AgentId, AgentSnapshot] = {}
    for offer in offers:
        fresh[offer.agent_id] = _snapshot(fresh.get(offer.agent_id), offer, now)
    if not fresh:
        return state
    snapshots = {key: item for key, item in state.session.agent_snapshots.items() if key not in fresh} | fresh
    excess = max(0, len(snapshots) - MAX_AGENT_SNAPSHOTS)
    return state.with_session(agent_snapshots=dict(islice(snapshots.items(), excess, None)))


def _snapshot(before: AgentSnapshot | None, offer: Offer, now: float) -> AgentSnapshot:
    amounts = {"cpus": 0, "mem": 0, "gpus": 0}
    for item in offer.resources:
        if item.name in amounts and isinstance(item.value, int):
            amounts[item.name] += item.value
    if before is not None:
        amounts = {name: amount + int(getattr(before, name)) for name, amount in amounts.items()}
    return AgentSnapshot(offer.hostname, offer.region, offer.zone, **amounts, at=now, address=offer.address)


# --- Events


def on_offers(state: SchedulerState, event: OffersReceived, now: float, new_id: NewId, view: PlanView) -> Decision:
    """Launch gangs that fit, hold useful offers for the others, decline the rest."""
    offers = event.offers
    state = state.with_session(no_offers_since=None) if offers else state
    state = record_offers(state, offers, now)
    state = _without_unprotected(state, {offer.agent_id for offer in offers if offer.login.is_required})
    declined = decide(state, calls=declines(event.malformed, REFUSE_LONG))
    return declined.then(lambda after: _place(after, offers, view, now, new_id))


def on_rescinded(state: SchedulerState, offer_id: OfferId) -> Decision:
    """Forget the offer; a launch on it fails with TASK_DROPPED."""
    return decide(hold(state, {key: offer for key, offer in state.session.offers.items() if key != offer_id}))


def on_agent_failed(state: SchedulerState, agent_id: AgentId) -> Decision:
    """Forget the offers of a removed agent."""
    rejected_offers = {key: offer for key, offer in state.session.rejected_offers.items() if key != agent_id}
    snapshots = {key: item for key, item in state.session.agent_snapshots.items() if key != agent_id}
    after = state.with_session(rejected_offers=rejected_offers, agent_snapshots=snapshots)
    after = _without_unprotected(after, {agent_id})
    return decide(after, outcomes=(Outcome("AgentRemoved", f"agent {agent_id} was removed", warning=True),))


def _without_unprotected(state: SchedulerState, agents: Collection[AgentId]) -> SchedulerState:
    """Forget the warnings that these agents may lack the login of executors."""
    warned_agents = state.process.unprotected_agents
    remaining = {key: name for key, name in warned_agents.items() if key not in agents}
    return state.with_process(unprotected_agents=remaining) if len(remaining) < len(warned_agents) else state


def _place(state: SchedulerState, offers: Sequence[Offer], view: PlanView, now: float, new_id: NewId) -> Decision:
    gangs = view.gangs
    wait = state.process.offer_round.back_off_until - now
    if not gangs or wait > 0:
        state = state.with_session(failed_match=None)
        return decide(state, calls=declines([offer.id for offer in offers], wait if gangs else REFUSE_LONG))
    offers_held = {**state.session.offers, **{offer.id: offer for offer in offers}}
    failed = with_offers(state, gangs, offers, now)
    if failed is not None:
        return _decline_useless(hold(state, offers_held, now).with_session(failed_match=failed), failed, offers, now)
    match = match_gangs(state, gangs, offers_held.values(), now)
    evaluations = (*state.process.evaluations, match.evaluation(now, len(offers_held)))[-MAX_EVALUATIONS:]
    state = hold(state, offers_held, now).with_process(evaluations=evaluations)
    return _launch(state, match, view, now, new_id).then(lambda after: _after_match(after, gangs, offers, now))


def _launch(state: SchedulerState, match: MatchResult, view: PlanView, now: float, new_id: NewId) -> Decision:
    """Launch complete gangs, and report why the others wait."""
    state = state.with_session(pending=match.reasons, address_wait_until=_address_wait_until(state, match.reasons))
    if not match.placements:
        return decide(state)
    launches = plan_launches(state, match.placements, now, new_id, view.launching_plans)
    calls = accepts(match.placements, launches, REFUSE_SHORT if match.reasons else REFUSE_LONG)
    used = {offer_id for call in calls for offer_id in call.offer_ids}
    message = "{0.task.name} is placed on {0.agent.hostname} at {1.record.address}: {0.why}"
    pairs = zip(match.placements, launches, strict=True)
    outcomes = (Outcome("TaskPlaced", message.format(item, launch), item.task.name) for item, launch in pairs)
    decision = _warn_unprotected(state, match, launches)
    return decision.then(
        lambda after: decide(
            hold(after, {key: offer for key, offer in state.session.offers.items() if key not in used}),
            *(TaskLaunched(launch.record) for launch in launches),
            calls=calls,
            outcomes=tuple(outcomes),
        )
    )


def _warn_unprotected(state: SchedulerState, match: MatchResult, launches: Iterable[Launch]) -> Decision:
    """Warn once of each agent that gets secrets, but may lack the login of executors."""
    warned_agents, outcomes = state.process.unprotected_agents, list[Outcome]()
    for item, launch in zip(match.placements, launches, strict=True):
        agent = item.agent
        if launch.record.token and not agent.login.is_required and agent.id not in warned_agents:
            warned_agents = {**warned_agents, agent.id: agent.hostname}
            why = agent.login.problem if agent.login.is_required is None else "its flag is not set"
            message = (
                f"agent {agent.hostname} gets secrets, but may not authenticate executors: {why}; any process there "
                "can take the secrets (option secret_delivery.executor_authentication is optional)"
            )
            outcomes.append(Outcome("SecretsUnprotected", message, item.task.name, warning=True))
    return decide(state.with_process(unprotected_agents=warned_agents) if outcomes else state, outcomes=tuple(outcomes))


def _address_wait_until(state: SchedulerState, reasons: Mapping[TaskName, tuple[Reason, ...]]) -> float:
    """Return when the first wait for a previous address ends, to match offers again."""
    waiting = (name for name in state.derived.launches_to_replace if _awaits_own_address(state, name, reasons))
    return min((state.stored.recoveries[name].previous_address_until for name in waiting), default=math.inf)


def _awaits_own_address(state: SchedulerState, name: TaskName, reasons: Mapping[TaskName, tuple[Reason, ...]]) -> bool:
    """Return whether the task itself waits for its address, not only its gang."""
    first, *_ = reasons.get(name) or (None,)
    return isinstance(first, AwaitsPreviousAddress) and first.address == state.stored.tasks[name].address


def _after_match(state: SchedulerState, gangs: Iterable[Gang], fresh: Sequence[Offer], now: float) -> Decision:
    """End the round if no task is pending, otherwise decline useless new offers."""
    failed = failed_match(state, gangs, now)
    after = state.with_session(failed_match=failed)
    if failed is not None:
        return _decline_useless(after, failed, fresh, now)
    after = after.with_session(round_started=None, rejected_offers={})
    return decide(after.with_process(offer_round=OfferRound()))


def _decline_useless(state: SchedulerState, failed: FailedMatch, fresh: Sequence[Offer], now: float) -> Decision:
    agents = usable_agents(state, failed.jobs, fresh, now)
    rejected = {offer.agent_id: offer for offer in fresh if offer.agent_id not in agents}
    if not rejected:
        return decide(state)
    useless = [offer.id for offer in fresh if offer.id in state.session.offers and offer.agent_id not in agents]
    remaining = {key: offer for key, offer in state.session.offers.items() if key not in set(useless)}
    after = hold(state, remaining).with_session(rejected_offers={**state.session.rejected_offers, **rejected})
    protects = bool(protected_sections(state.spec))
    unsafe = {key for key in useless if protects and not state.session.offers[key].login.is_required}
    refusals: dict[float, list[OfferId]] = {}
    for key in useless:
        seconds = REFUSE_UNSAFE if key in unsafe else _refuse_seconds(state.session.offers[key], now)
        refusals.setdefault(seconds, []).append(key)
    calls = tuple(Decline(tuple(keys), seconds) for seconds, keys in refusals.items())
    decision = _warn_unsafe(after, [state.session.offers[key] for key in useless if key in unsafe])
    return decision.then(lambda after: decide(after, calls=calls))


def _refuse_seconds(offer: Offer, now: float) -> float:
    """Return how long to refuse an unusable offer: at most until its maintenance ends."""
    end = None if offer.unavailability is None else offer.unavailability.end
    return REFUSE_LONG if end is None else min(REFUSE_LONG, max(REFUSE_SHORT, end - now))


def _warn_unsafe(state: SchedulerState, offers: Iterable[Offer]) -> Decision:
    """Warn once of agents that get no tasks with secrets."""
    warned_agents = state.process.unprotected_agents
    new_agents = {offer.agent_id: offer.hostname for offer in offers if offer.agent_id not in warned_agents}
    if not new_agents:
        return decide(state)
    first, *others = new_agents.values()
    message = (
        f"agent {first}{f' and {len(others)} more' if others else ''} may not authenticate executors (agent flag "
        "--authenticate_http_executors): no task with secrets is placed there"
    )
    outcome = Outcome("SecretsUnprotected", message, warning=True)
    return decide(state.with_process(unprotected_agents={**warned_agents, **new_agents}), outcomes=(outcome,))
