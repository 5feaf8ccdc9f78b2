"""Simulated Mesos master and agents; calls that break a Mesos rule raise an error.

The product runs on a real Mesos. This one is immediate and deterministic, so that thousands of scenarios can be
tried. Rules: Mesos documentation, scheduler HTTP API and task reconciliation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from builders import LOGIN, a_status, ports, scalar
from simulation.pool import Pool
from tf_executor.contract.states import TaskState
from tf_scheduler.model.effects import (
    Accept,
    AcceptInverseOffers,
    Acknowledge,
    Call,
    Decline,
    Kill,
    Launch,
    MessageExecutor,
    Reconcile,
    Revive,
    ShutdownExecutor,
    Suppress,
    Teardown,
)
from tf_scheduler.model.events import (
    Event,
    InverseOffersReceived,
    OfferRescinded,
    OffersReceived,
    StatusUpdated,
    Subscribed,
    SubscriptionRefused,
    TornDown,
)
from tf_scheduler.model.ids import AgentId, FrameworkId, OfferId, TaskId
from tf_scheduler.model.offer import InverseOffer, Offer, Unavailability
from tf_scheduler.model.task import TaskStatus

LIVE = frozenset(state for state in TaskState if not state.has_ended)


class RuleBroken(AssertionError):  # noqa: N818 - it names what happened
    """The scheduler broke a rule for frameworks."""


@dataclass
class Agent:
    """An agent. `more` is copied to its offers: attributes, region and the like."""

    hostname: str
    free: Pool
    address: str
    more: dict[str, Any] = field(default_factory=dict)
    up: bool = True
    #: Declined resources, and until when parts of them are not offered.
    filters: list[tuple[Pool, float]] = field(default_factory=list)

    @property
    def id(self) -> AgentId:
        return AgentId(f"{self.hostname}-id")


def an_agent(
    hostname: str = "agent-1",
    cpus: float = 4,
    mem: float = 8192,
    disk: float = 10_000,
    gpus: float = 0,
    port_ranges: tuple[tuple[int, int], ...] = ((31000, 31099),),
    **more: Any,
) -> Agent:
    values = {"cpus": cpus, "mem": mem, "disk": disk, "gpus": gpus}
    resources = [scalar(name, value) for name, value in values.items() if value]
    return Agent(hostname, Pool.of((*resources, ports(*port_ranges))), f"{hostname}.example", more)


@dataclass
class Task:
    """One task as the cluster knows it."""

    launch: Launch
    pool: Pool
    state: TaskState = TaskState.STAGING
    #: Updates without acknowledgement, the oldest first; only that one is sent.
    updates: deque[TaskStatus] = field(default_factory=deque)

    #: Its agent was unreachable once: the scheduler may have replaced it.
    was_unreachable: bool = False

    @property
    def live(self) -> bool:
        return self.state in LIVE


class FakeMesos:
    """`events` holds the scheduler's next events; `perform` takes its calls."""

    def __init__(self, *agents: Agent, kills_at_once: bool = True) -> None:
        self.agents = {agent.id: agent for agent in agents}
        self.kills_at_once = kills_at_once
        self.events: deque[Event] = deque()
        self.tasks: dict[TaskId, Task] = {}
        self.offers: dict[OfferId, tuple[Offer, Pool]] = {}
        self.inverse: dict[OfferId, AgentId] = {}
        #: Agents that have not come back after a failover of the master: it does not report their tasks.
        self.missing: set[AgentId] = set()
        #: Agents that the master does not know, because it has lost its registry, and they have not registered again.
        self.unregistered: set[AgentId] = set()
        #: Launches with a KILL.
        self.doomed: set[TaskId] = set()
        #: Rescinded while the scheduler may still use them, which is a race and not a fault.
        self.rescinded: set[OfferId] = set()
        self.framework: FrameworkId | None = None
        self.registrations = 0
        self.subscribed = self.suppressed = self.removed = False
        #: Whether TEARDOWN is lost on its way.
        self.deaf = False
        self._numbers = count(1)

    # --- connection and agents

    def subscribe(self, framework: FrameworkId | None) -> None:
        """Subscribe: earlier offers are void, and offers are no longer suppressed."""
        if self.removed:
            self.events.append(SubscriptionRefused("Framework has been removed"))
            return
        if framework is None and not self.tasks:
            # A scheduler that crashed before it stored its id is a new framework; the old one has no tasks to lose.
            self.registrations += 1
            self.framework = framework = FrameworkId(f"framework-{self.registrations}")
        if framework != self.framework:
            raise RuleBroken(f"subscribes as {framework}, but is {self.framework}")
        self.disconnect()
        self.subscribed, self.suppressed = True, False
        self.events.append(Subscribed(self.framework))
        self.resend()
        for agent in self.agents.values():
            if "unavailability" in agent.more:
                self._ask_for(agent, agent.more["unavailability"])

    def disconnect(self) -> None:
        """Close the stream; pending events are lost with it."""
        for offer, pool in self.offers.values():
            self.agents[offer.agent_id].free += pool
        self.offers, self.rescinded, self.subscribed = {}, set(), False
        self.inverse = {}
        self.events.clear()

    def allocate(self, now: float) -> None:
        """Offer each agent's free resources, unless offers are suppressed or filtered."""
        fresh = [offer for agent in self.agents.values() if (offer := self.offer_of(agent, now))]
        if fresh:
            self.events.append(OffersReceived(tuple(fresh)))

    def offer_of(self, agent: Agent, now: float) -> Offer | None:
        """Return an offer of all free resources of an agent; None if none may be offered."""
        wants_offers = self.subscribed and not self.suppressed
        return self._offer(agent) if wants_offers and self._may_offer(agent, now) else None

    def rescind(self, offer_id: OfferId) -> None:
        offer, pool = self.offers.pop(offer_id)
        self.agents[offer.agent_id].free += pool
        self.rescinded.add(offer_id)
        self.events.append(OfferRescinded(offer_id))

    def maintain(self, hostname: str, window: Unavailability) -> OfferId:
        """Plan maintenance: the agent's offers show it, and an inverse offer is sent."""
        agent = next(agent for agent in self.agents.values() if agent.hostname == hostname)
        agent.more["unavailability"] = window
        for offer_id in [key for key, (offer, _) in self.offers.items() if offer.agent_id == agent.id]:
            self.rescind(offer_id)
        return self._ask_for(agent, window)

    def report(self, task_id: TaskId, state: TaskState, **details: Any) -> None:
        """Report a new state of a task, as its executor or agent does."""
        task = self.tasks[task_id]
        if not task.live:
            raise ValueError(f"{task_id} has ended as {task.state.label}")
        task.state = state
        task.was_unreachable |= state is TaskState.UNREACHABLE
        if state not in LIVE:
            self.agents[task.launch.record.agent_id].free += task.pool
        uuid = f"uuid-{next(self._numbers)}"
        task.updates.append(a_status(task_id, state, uuid, agent_id=task.launch.record.agent_id, **details))
        if len(task.updates) == 1:
            self._send(task)

    def resend(self) -> None:
        """Send updates without acknowledgement again."""
        for task in self.tasks.values():
            self._send(task)

    def lose(self, hostname: str) -> None:
        """Remove an agent for good, with its tasks."""
        agent = next(agent for agent in self.agents.values() if agent.hostname == hostname)
        agent.up = False
        for offer_id in [key for key, (offer, _) in self.offers.items() if offer.agent_id == agent.id]:
            self.rescind(offer_id)
        for task_id, task in self.tasks.items():
            if task.live and task.launch.record.agent_id == agent.id:
                self.report(task_id, TaskState.GONE, reason="REASON_AGENT_REMOVED")

    # --- calls of the scheduler

    def perform(self, call: Call, now: float) -> None:
        if not self.subscribed:
            raise RuleBroken(f"not subscribed, and calls {call}")
        match call:
            case Accept():
                self._accept(call, now)
            case Decline():
                for offer_id in call.offer_ids:
                    self._decline(offer_id, call.refuse_seconds, now)
            case Acknowledge():
                self._acknowledge(call)
            case Kill():
                self._kill(call)
            case Reconcile():
                self._reconcile(call)
            case AcceptInverseOffers():
                for offer_id in call.offer_ids:
                    self._answer_inverse(offer_id)
            case Suppress():
                self.suppressed = True
            case Revive():
                self._revive()
            case ShutdownExecutor():
                self._shut_down(call)
            case MessageExecutor():
                pass
            case Teardown() if self.deaf:
                pass
            case Teardown():
                self._tear_down()
            case _:
                raise TypeError(call)

    def live(self) -> dict[str, Task]:
        """Return running tasks by name; a name that runs twice breaks a rule."""
        by_name: dict[str, Task] = {}
        for task in self.tasks.values():
            name = task.launch.record.name
            before = by_name.get(name)
            if task.live and before and not before.was_unreachable and before.launch.record.id not in self.doomed:
                raise RuleBroken(f"{name} runs twice: {before.launch.record.id}, {task.launch.record.id}")
            if task.live:
                by_name[name] = task
        return by_name

    def _may_offer(self, agent: Agent, now: float) -> bool:
        agent.filters = [(pool, until) for pool, until in agent.filters if until > now]
        return agent.up and bool(agent.free) and not any(pool.holds(agent.free) for pool, _ in agent.filters)

    def _offer(self, agent: Agent) -> Offer:
        pool, agent.free = agent.free, Pool()
        number = next(self._numbers)
        more = {"login": LOGIN, **agent.more}
        offer = Offer(OfferId(f"offer-{number}"), agent.id, agent.hostname, agent.address, pool.entries(), **more)
        self.offers[offer.id] = (offer, pool)
        return offer

    def _take(self, offer_id: OfferId) -> tuple[Agent, Pool] | None:
        """Return the offer's agent and resources; None if it was rescinded at this moment."""
        if offer_id in self.rescinded:
            self.rescinded.discard(offer_id)
            return None
        if offer_id not in self.offers:
            raise RuleBroken(f"{offer_id} was answered before, or never made")
        offer, pool = self.offers.pop(offer_id)
        return self.agents[offer.agent_id], pool

    def _decline(self, offer_id: OfferId, refuse_seconds: float, now: float) -> None:
        if offered := self._take(offer_id):
            agent, pool = offered
            agent.filters.append((pool, now + refuse_seconds))
            agent.free += pool

    def _accept(self, call: Accept, now: float) -> None:
        offered = [self._take(offer_id) for offer_id in call.offer_ids]
        valid = [entry for entry in offered if entry]
        if len({agent.id for agent, _ in valid}) > 1:
            raise RuleBroken(f"one ACCEPT, several agents: {call}")
        rest = sum((pool for _, pool in valid), Pool())
        for launch in call.launches:
            if len(valid) < len(offered):
                self._drop(launch)
            else:
                rest = self._launch(valid[0][0], launch, rest)
        for agent, _ in valid[:1]:
            agent.filters.append((rest, now + call.refuse_seconds))
            agent.free += rest

    def _answer_inverse(self, offer_id: OfferId) -> None:
        if offer_id not in self.inverse:
            raise RuleBroken(f"inverse {offer_id} was answered before, or never made")
        del self.inverse[offer_id]

    def _launch(self, agent: Agent, launch: Launch, rest: Pool) -> Pool:
        record = launch.record
        if record.id in self.tasks:
            raise RuleBroken(f"{record.id} is launched twice")
        if record.agent_id != agent.id:
            raise RuleBroken(f"{record.id} belongs on {record.agent_id}, not on {agent.id}")
        pool = Pool.of((*launch.task_resources, *launch.executor_resources))
        if not rest.holds(pool):
            raise RuleBroken(f"{record.id} takes {pool}, offered is {rest}")
        shared = launch.network is None  # else the container has an address of its own, with all ports
        has_port = not shared or launch.port in Pool.of(launch.task_resources).ports()
        if pool != Pool.of(record.resources) or not has_port:
            raise RuleBroken(f"the record of {record.id} and its launch differ")
        self.tasks[record.id] = Task(launch, pool)
        self.live()
        return rest - pool

    def _drop(self, launch: Launch) -> None:
        record = launch.record
        reason = "REASON_INVALID_OFFERS"
        self.events.append(StatusUpdated(TaskStatus(record.id, TaskState.DROPPED, record.agent_id, reason)))

    def _acknowledge(self, call: Acknowledge) -> None:
        task = self.tasks.get(call.task_id)
        if task is None or not task.updates or task.updates[0].uuid != call.uuid:
            raise RuleBroken(f"acknowledges what was not sent: {call}")
        task.updates.popleft()
        self._send(task)

    def _kill(self, call: Kill) -> None:
        task = self.tasks.get(call.task_id)
        if task is None or not task.live:
            self.events.append(StatusUpdated(TaskStatus(call.task_id, TaskState.GONE, call.agent_id)))
            return
        self.doomed.add(call.task_id)
        if self.kills_at_once and self.agents[task.launch.record.agent_id].up:
            self.report(call.task_id, TaskState.KILLED)

    def _reconcile(self, call: Reconcile) -> None:
        agents = call.tasks or {key: task.launch.record.agent_id for key, task in self.tasks.items() if task.live}
        for task_id, agent_id in sorted(agents.items()):
            if agent_id in self.missing:
                continue
            task = self.tasks.get(task_id)
            state = task.state if task and task.live else TaskState.GONE
            if agent_id in self.unregistered:
                state = TaskState.UNKNOWN
                if task is not None:
                    task.was_unreachable = True
            self.events.append(StatusUpdated(TaskStatus(task_id, state, agent_id, reason="REASON_RECONCILIATION")))

    def _revive(self) -> None:
        self.suppressed = False
        for agent in self.agents.values():
            agent.filters = []

    def _ask_for(self, agent: Agent, window: Unavailability) -> OfferId:
        offer_id = OfferId(f"inverse-{next(self._numbers)}")
        self.inverse[offer_id] = agent.id
        self.events.append(InverseOffersReceived((InverseOffer(offer_id, agent.id, window),)))
        return offer_id

    def _shut_down(self, call: ShutdownExecutor) -> None:
        task = self.tasks.get(TaskId(call.executor_id))
        if task is not None and task.live:
            self.report(task.launch.record.id, TaskState.KILLED)

    def _tear_down(self) -> None:
        for task in self.tasks.values():
            task.state = task.state if not task.live else TaskState.KILLED
        self.events.clear()
        self.subscribed, self.removed = False, True
        self.events.append(TornDown())

    def _send(self, task: Task) -> None:
        if task.updates and self.subscribed:
            self.events.append(StatusUpdated(task.updates[0]))
