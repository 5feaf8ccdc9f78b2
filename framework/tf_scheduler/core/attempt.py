"""All held offers x all gangs that are wanted -> the gangs that fit now, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tf_scheduler.model.evaluation import Evaluation
from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.reasons import Reason, Reserved
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState

from . import avoid, reserve
from .home import Homecoming, bring_home
from .matching import Match, NoMatch, Placement, match_agents
from .placement.agents import Agent, merge
from .placement.demand import GPUS, Circumstances, Standing, demands_of
from .placement.rooms import Room
from .placement.rules import Rules
from .placement.search import Chosen
from .plans import Gang


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one look at the offers."""

    #: The placements of whole gangs, to be launched.
    placements: tuple[Placement, ...]
    #: Why the tasks of the other gangs wait.
    reasons: Mapping[TaskName, tuple[Reason, ...]]
    #: Places that were found for gangs that are not complete: what a round may reserve.
    part: tuple[Chosen, ...]
    agents: int

    def evaluation(self, now: float, offers: int) -> Evaluation:
        """For the record."""
        placed = {item.task.name: f"{item.agent.hostname}: {item.why}" for item in self.placements}
        return Evaluation(now, offers, self.agents, placed, self.reasons)


def attempt(state: SchedulerState, gangs: Sequence[Gang], offers: Iterable[Offer], now: float) -> Attempt:
    """Try the gangs in their order, each on what those before it left."""
    agents = {agent.id: agent for agent in avoid.without_shunned(state, merge(offers, state.spec.name))}
    count = len(agents)
    passed = merge((offer for key, offer in state.passed.items() if key not in agents), state.spec.name)
    placements: list[Placement] = []
    part: list[Chosen] = []
    reasons: dict[TaskName, tuple[Reason, ...]] = {}
    reservations = reserve.live(state, now)
    standing = _standing(state, gangs, reservations)
    for gang in gangs:
        free, pinned = _pinned(state, gang, agents, reservations)
        kept = {task.name: reservations[task.name] for task in gang.tasks if task.name in reservations}
        came, match = _placed(state, gang, free, agents, circumstances(state, standing, now), passed)
        if came.waiting:
            reasons |= {**_waiting_for(gang, came), **came.waiting, **_reserved(kept)}
        elif isinstance(match, NoMatch):
            reasons |= {**match.waiting, **match.reasons, **_reserved(kept)}
            part += match.part
        elif kept.keys() != pinned.keys():
            reasons |= {**_waiting(match), **_reserved(kept)}
            part += _again(match)
        else:
            agents.update({**came.agents, **match.left})
            placements += [*came.placements, *match.placements, *pinned.values()]
            standing += tuple(_place_of(item) for item in (*came.placements, *match.placements))
    return Attempt(tuple(placements), reasons, tuple(part), count)


def _placed(
    state: SchedulerState,
    gang: Gang,
    tasks: Sequence[TaskSpec],
    agents: Mapping[AgentId, Agent],
    about: Circumstances,
    passed: Sequence[Agent],
) -> tuple[Homecoming, Match | NoMatch]:
    """Without the agents that are to be avoided; after a round without success with the least bad of them."""
    first: tuple[Homecoming, Match | NoMatch] | None = None
    for avoided in avoid.attempts(state, gang.tasks, about.now):
        came = bring_home(state, tasks, agents, about.now, avoided)
        match = _match(came.others, came.agents, replace(about, avoided=avoided), passed)
        if came.waiting or isinstance(match, Match):
            return came, match
        first = first or (came, match)
    assert first is not None
    return first


def circumstances(state: SchedulerState, standing: tuple[Standing, ...], now: float) -> Circumstances:
    """What placing depends on, from the state."""
    return Circumstances(state.spec.executor.needs, state.spec.placement, state.region, now, standing)


def useful(state: SchedulerState, gangs: Sequence[Gang], offers: Sequence[Offer], now: float) -> set[AgentId]:
    """Agents that could take one of the tasks if it were alone there: only their offers are worth holding."""
    about = circumstances(state, (), now)
    demands = demands_of((task for gang in gangs for task in gang.tasks), about.executor)
    rules = [(demand, Rules(demand, about)) for demand in demands]
    rooms = (Room(agent, 0) for agent in merge(offers, state.spec.name))
    return {
        room.agent.id
        for room in rooms
        if room.agent.reserved
        or any(room.holds(demand.wants) and rule.admits(room.agent, room.whole[GPUS]) for demand, rule in rules)
    }


def _match(
    tasks: Sequence[TaskSpec], agents: Mapping[AgentId, Agent], about: Circumstances, passed: Iterable[Agent]
) -> Match | NoMatch:
    return match_agents(tasks, tuple(agents.values()), about, passed) if tasks else Match(())


def _pinned(
    state: SchedulerState, gang: Gang, agents: Mapping[AgentId, Agent], reservations: Mapping[TaskName, Reservation]
) -> tuple[list[TaskSpec], dict[TaskName, Placement]]:
    """The tasks without a reservation, and the places of those whose reserved resources are offered now."""
    pinned: dict[TaskName, Placement] = {}
    for task in gang.tasks:
        kept = reservations.get(task.name)
        agent = agents.get(kept.agent_id) if kept else None
        if kept and agent and kept.id in agent.reserved:
            placement = reserve.use(task, agent, kept, state.spec.executor.needs)
            pinned.update({task.name: placement} if placement else {})
    return [task for task in gang.tasks if task.name not in reservations], pinned


def _standing(
    state: SchedulerState, gangs: Sequence[Gang], reservations: Mapping[TaskName, Reservation]
) -> tuple[Standing, ...]:
    """Tasks that run, other than those that are to be placed anew, and reserved places."""
    anew = {task.name for gang in gangs for task in gang.tasks}
    running = [
        Standing(record.group, record.agent_id, record.place) for record in state.live() if record.name not in anew
    ]
    kept = [Standing(item.group, item.agent_id, item.place) for item in reservations.values()]
    return (*running, *kept)


def _place_of(item: Placement) -> Standing:
    return Standing(item.task.job.group, item.agent.id, item.agent.place)


def _waiting_for(gang: Gang, came: Homecoming) -> dict[TaskName, tuple[Reason, ...]]:
    """The others of a gang of which some wait for their old address."""
    reasons = next(iter(came.waiting.values()))
    return {task.name: reasons for task in gang.tasks if task.name not in came.waiting}


def _again(match: Match) -> list[Chosen]:
    return [Chosen(item.task, item.agent, item.why) for item in match.placements]


def _reserved(kept: Mapping[TaskName, Reservation]) -> dict[TaskName, tuple[Reason, ...]]:
    return {name: (Reserved(item.place.hostname),) for name, item in kept.items()}


def _waiting(match: Match) -> dict[TaskName, tuple[Reason, ...]]:
    """Tasks with a place, in a gang whose other tasks have theirs reserved, but not on offer at the moment."""
    return {item.task.name: (Reserved(item.agent.hostname),) for item in match.placements}
