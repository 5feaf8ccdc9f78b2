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
from tf_scheduler.model.offer import MAX_EVALUATIONS, AgentSnapshot, Offer, OfferRound
from tf_scheduler.model.reasons import AwaitsPreviousAddress, NoOffers, Reason, WaitsFor
from tf_scheduler.model.state import SchedulerState

from .matcher import MatchResult, match_gangs, usable_agents

#: Refusal time of unusable offers: long, so that other frameworks get them (Mesos documentation, framework guide).
#: REVIVE clears the filter, and Mesos offers an agent again when more of it becomes free.
REFUSE_LONG = 3600.0
#: Refusal time of offers that only lack the executors' login: its agent may be restarted with another flag.
REFUSE_UNSAFE = 30.0
#: Refusal time of leftovers while tasks are pending.
REFUSE_SHORT = 1.0


def declines(offer_ids: Collection[OfferId], refuse_seconds: float) -> tuple[Call, ...]:
    """Return one DECLINE for all offers."""
    return (Decline(tuple(offer_ids), refuse_seconds),) if offer_ids else ()


#: Seconds without offers before a warning.
NO_OFFER_WARNING_SECONDS = 10.0


def warn_no_offers(state: SchedulerState, now: float, gangs: Sequence[Gang]) -> Decision:
    """Warn of missing offers. Causes: full agents, exhausted quota, unmet constraints."""
    since = state.session.no_offers_since
    if since is None or now < since + NO_OFFER_WARNING_SECONDS:
        return decide(state)
    demands = demands_of((task for gang in gangs for task in gang.tasks), state.spec.executor.needs)
    pending: dict[TaskName, tuple[Reason, ...]] = {}
    for demand in demands:
        reasons = (NoOffers(demand.needs, demand.job.constraints),)
        pending.update({task.name: reasons for task in demand.tasks})
    after = state.with_session(no_offers_since=None, round=replace(state.session.round, reasons=pending))
    return decide(after, outcomes=_pending_outcomes(pending))


def expire(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """End a round that has lasted too long, and decline offers during a back-off."""
    held = state.session.round
    if not held.offers or now < held.since + state.spec.hold_seconds:
        return decide(state)
    wait = round_delay(held.failures + 1, state.spec.hold_seconds, jitter_from_id(new_id()))
    after = state.with_round(held.end(now, wait))
    return decide(after, calls=declines(held.offers, wait), outcomes=_pending_outcomes(held.reasons))


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


def update_demand(state: SchedulerState, now: float, names: frozenset[TaskName], gangs: tuple[Gang, ...]) -> Decision:
    """Revive offers for new pending tasks; decline offers that no gang waits for."""
    if not names:
        return _suppress(state)
    unused = () if gangs else tuple(state.session.round.offers)
    after = state.with_round(OfferRound()) if unused else with_gangs(state, gangs, now)
    declined = decide(after, calls=declines(unused, REFUSE_SHORT))
    return declined.then(lambda after: _revive(after, names, now))


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
    fresh = replace(state.session.round, failures=0, back_off_until=0.0)
    after = state.with_session(
        requested_tasks=names, suppressed=False, revive_at=None, no_offers_since=now, round=fresh
    )
    return decide(after.with_process(revives_used_until=used_until), calls=(Revive(),))


def _suppress(state: SchedulerState) -> Decision:
    after = state.with_session(
        round=OfferRound(),
        suppressed=True,
        requested_tasks=frozenset(),
        revive_at=None,
        no_offers_since=None,
    )
    declined = declines(state.session.round.offers, REFUSE_LONG)
    return decide(after, calls=declined if state.session.suppressed else (*declined, Suppress()))


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


def on_offers(state: SchedulerState, event: OffersReceived, now: float, gangs: Sequence[Gang]) -> Decision:
    """Hold offers if gangs wait for some; decline them during a back-off."""
    offers = event.offers
    state = state.with_session(no_offers_since=None) if offers else state
    state = record_offers(state, offers, now)
    state = _without_unprotected(state, {offer.agent_id for offer in offers if offer.login.is_required})
    calls, wait = declines(event.malformed, REFUSE_LONG), state.session.round.back_off_until - now
    if offers and gangs and wait <= 0:
        return decide(state.with_round(state.session.round.hold(offers, now)), calls=calls)
    declined = declines([offer.id for offer in offers], wait if gangs else REFUSE_LONG)
    return decide(state, calls=(*calls, *declined))


def on_rescinded(state: SchedulerState, offer_id: OfferId) -> Decision:
    """Forget the offer; a launch on it fails with TASK_DROPPED."""
    return decide(state.with_round(state.session.round.without({offer_id})))


def on_agent_failed(state: SchedulerState, agent_id: AgentId) -> Decision:
    """Forget the offers of a removed agent."""
    unusable = {key: offer for key, offer in state.session.round.unusable.items() if key != agent_id}
    snapshots = {key: item for key, item in state.session.agent_snapshots.items() if key != agent_id}
    after = state.with_session(round=replace(state.session.round, unusable=unusable), agent_snapshots=snapshots)
    after = _without_unprotected(after, {agent_id})
    records = (record.hostname for record in state.stored.tasks.values() if record.agent_id == agent_id)
    snapshot = state.session.agent_snapshots.get(agent_id)
    name = next(records, agent_id) if snapshot is None else snapshot.hostname
    return decide(after, outcomes=(Outcome("AgentRemoved", f"agent {name} was removed", warning=True),))


def _without_unprotected(state: SchedulerState, agents: Collection[AgentId]) -> SchedulerState:
    """Forget the warnings that these agents may lack the login of executors."""
    warned_agents = state.process.unprotected_agents
    remaining = {key: name for key, name in warned_agents.items() if key not in agents}
    return state.with_process(unprotected_agents=remaining) if len(remaining) < len(warned_agents) else state


def with_gangs(state: SchedulerState, gangs: tuple[Gang, ...], now: float) -> SchedulerState:
    """Let held offers be matched if these are not the gangs of the last match."""
    held = state.session.round
    if not held.offers or held.gangs == gangs:
        return state
    return state.with_round(replace(held, gangs=gangs, match_at=now))


def match(state: SchedulerState, view: PlanView, now: float, new_id: NewId) -> Decision:
    """Launch gangs that fit on the held offers; decline offers of no use."""
    gangs, offers = view.gangs, state.session.round.offers
    result = match_gangs(state, gangs, offers.values(), now)
    evaluations = (*state.process.evaluations, result.evaluation(now, len(offers)))[-MAX_EVALUATIONS:]
    launched = _launch(state.with_process(evaluations=evaluations), result, view, now, new_id)
    return launched.then(lambda after: _after_match(after, gangs, result.reasons, now))


def _launch(state: SchedulerState, match: MatchResult, view: PlanView, now: float, new_id: NewId) -> Decision:
    """Launch complete gangs."""
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
            after.with_round(after.session.round.without(used)),
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


def _awaits_own_address(state: SchedulerState, name: TaskName, reasons: Mapping[TaskName, tuple[Reason, ...]]) -> bool:
    """Return whether the task itself waits for its address, not only its gang."""
    first, *_ = reasons.get(name) or (None,)
    return isinstance(first, AwaitsPreviousAddress) and first.address == state.stored.tasks[name].address


def _after_match(
    state: SchedulerState, gangs: Sequence[Gang], reasons: Mapping[TaskName, tuple[Reason, ...]], now: float
) -> Decision:
    """Keep the offers that the remaining gangs may use, and decline the others."""
    held = state.session.round
    waiting = tuple(gang for gang in gangs if any(task.name in reasons for task in gang.tasks))
    if not waiting:
        return decide(state.with_round(held.launched(now)))
    # Match offers again when the first wait for a previous address ends.
    names = (name for name in state.derived.launches_to_replace if _awaits_own_address(state, name, reasons))
    until = min((state.stored.recoveries[name].previous_address_until for name in names), default=math.inf)
    failed = held.failed(waiting, reasons, now, until)
    jobs = {task.job.group: task.job for gang in waiting for task in gang.tasks}
    agents = usable_agents(state, jobs.values(), held.offers.values(), now)
    useless = {key: offer for key, offer in held.offers.items() if offer.agent_id not in agents}
    unusable = {**held.unusable, **{offer.agent_id: offer for offer in useless.values()}}
    after = state.with_round(replace(failed.without(useless), unusable=unusable))
    protects = bool(protected_sections(state.spec))
    unsafe = {key for key, offer in useless.items() if protects and not offer.login.is_required}
    refusals: dict[float, list[OfferId]] = {}
    for key, offer in useless.items():
        seconds = REFUSE_UNSAFE if key in unsafe else _refuse_seconds(offer, now)
        refusals.setdefault(seconds, []).append(key)
    calls = tuple(Decline(tuple(keys), seconds) for seconds, keys in refusals.items())
    decision = _warn_unsafe(after, [held.offers[key] for key in useless if key in unsafe])
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
