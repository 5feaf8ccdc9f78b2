"""Test world: the scheduler's core, a store, a simulated Mesos, a manual clock.

    world = World(a_spec(), an_agent())
    play(world, send.register(), send.offers(), expect.launched("ps-0", ...), ...)

A script is a list of steps: `send` creates events, `expect` checks the effects of the last `send`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from kit.memory_store import MemoryDisk, MemoryStore
from simulation.mesos import Agent, FakeMesos
from step_transitions import TRANSITIONS
from tf_executor.contract.states import Status
from tf_scheduler.api.views.plan_messages import plans
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.model.effects import Accept, Call, Decision, Outcome
from tf_scheduler.model.events import CallFailed, Disconnected, Event, StatusUpdated, Tick
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Checkpoint, Decide, Runner, restore

Kind = TypeVar("Kind")
AnyWorld = TypeVar("AnyWorld", bound="World")


class World:
    """A simulated service: scheduler, store, Mesos and clock."""

    def __init__(
        self,
        spec: ServiceSpec,
        *agents: Agent,
        kills_at_once: bool = True,
        checkpoint: Checkpoint = lambda _moment, _what: None,
        decide: Decide = handle,
    ) -> None:
        self.checkpoint = checkpoint
        self.decide = decide
        self.mesos = FakeMesos(*agents, kills_at_once=kills_at_once)
        self.disk = MemoryDisk()
        self.now = 1000.0
        self._ids = (f"id-{number}" for number in count(1))
        #: Decisions on the events of the last `send`.
        self.decisions: list[Decision] = []
        #: Check the transitions of plan steps, which takes most of the time of a step.
        self.watches_moves = True
        #: Deliver consecutive status updates as one batch.
        self.bursts = False
        #: Transitions of plan steps.
        self.moves: set[tuple[Status, Status]] = set()
        #: Returns the failure of a call; None: Mesos takes it.
        self.failing: Callable[[Call], CallFailed | None] = lambda _: None
        #: Whether Mesos acts on calls whose answer is lost.
        self.answers_are_lost = False
        self._start(spec)

    @property
    def calls(self) -> list[Call]:
        return [call for decision in self.decisions for call in decision.calls]

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for decision in self.decisions for outcome in decision.outcomes]

    def calls_of(self, kind: type[Kind]) -> list[Kind]:
        """Return the calls of one kind."""
        return [call for call in self.calls if isinstance(call, kind)]

    def id_of(self, name: str) -> TaskId:
        return self.state.stored.tasks[TaskName(name)].id

    def step(self, event: Event) -> Decision:
        """Handle one event as the runner does: store, swap, call."""
        before = self.state
        decision = self.runner.step(self, event)
        if self.watches_moves:
            self.moves |= moves(before, decision.state)
        self.decisions.append(decision)
        self.mesos.live()
        # A sign of life of an unwanted launch holds its task back.
        follows_up = event.kind not in ("ProgressReported", "UsageReported") and not getattr(event, "more", False)
        if follows_up and self.state.session.connected and self.state.session.round.offers:
            assert view_of(self.state).gangs, "a gang waits for each held offer"
        return decision

    def perform(self, call: Call) -> None:
        """Perform a call as the driver does, but without an outbox."""
        failure = self.failing(call)
        if failure is None or self.answers_are_lost:
            self.mesos.perform(call, self.now)
        if failure is not None:
            if isinstance(call, Accept) and self.answers_are_lost:
                # Mesos ignores a DECLINE of used offers.
                self.mesos.rescinded.update(call.offer_ids)
            self.mesos.events.append(failure)

    def settle(self) -> None:
        """Deliver all pending events of Mesos, and what follows from them."""
        for _ in range(100_000):
            if not self.mesos.events:
                return
            if self.bursts:
                self._burst()
            else:
                self.step(self.mesos.events.popleft())
        raise AssertionError("the scheduler does not become idle")

    def _burst(self) -> None:
        """Handle consecutive status updates as one batch, like the runner."""
        events = [self.mesos.events.popleft()]
        while isinstance(events[-1], StatusUpdated) and self.mesos.events:
            if not isinstance(self.mesos.events[0], StatusUpdated):
                break
            events.append(self.mesos.events.popleft())
        self.decisions += self.runner.process_batch(self, events)
        self.mesos.live()

    def register(self) -> None:
        self.mesos.subscribe(self.state.stored.framework_id)
        self.settle()

    def disconnect(self) -> None:
        self.mesos.disconnect()
        self.step(Disconnected("the master went away"))

    def restart(self, spec: ServiceSpec | None = None) -> None:
        """Restart the scheduler on the stored state, perhaps with other options."""
        self.mesos.disconnect()
        self._start(spec or self.state.stored.full_spec or self.state.spec)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next deadline, or for `seconds` with all deadlines in between."""
        end = None if seconds is None else self.now + seconds
        while True:
            deadline = next_deadline(self.state)
            if deadline is None or (end is not None and deadline > end):
                break
            self.now = max(self.now, deadline)
            self.step(Tick())
            self.settle()
            if end is None:
                return
        self.now = end or self.now

    def _start(self, spec: ServiceSpec) -> None:
        self.store = MemoryStore(spec.name, self.disk)
        self.runner = self.make_runner(restore(spec, self.store, self.now))
        self.step(Tick())

    def make_runner(self, state: SchedulerState, **options: Any) -> Runner:
        """Return a runner on the store; `options` replace its arguments."""
        defaults = {"clock": lambda: self.now, "new_id": lambda: next(self._ids), "checkpoint": self._reach}
        return Runner(state, **{"store": self.store, "decide": self.decide, **defaults, **options})

    def _reach(self, moment: str, what: str) -> None:
        self.checkpoint(moment, what)

    @property
    def state(self) -> SchedulerState:
        return self.runner.state

    @state.setter
    def state(self, state: SchedulerState) -> None:
        self.runner.state = state

    def stored(self) -> Mapping[str, bytes]:
        """Return stored keys and bytes."""
        return MemoryStore(self.state.spec.name, self.disk).load()


def moves(before: SchedulerState, after: SchedulerState) -> set[tuple[Status, Status]]:
    """Return all transitions of steps, which the table must contain."""
    previous = _statuses(before)
    changes = {(previous[node], status) for node, status in _statuses(after).items() if node in previous}
    transitions = {(old, new) for old, new in changes if old is not new}
    illegal = {(old, new) for old, new in transitions if new not in TRANSITIONS.get(old, {})}
    assert set() == illegal
    return transitions


def _statuses(state: SchedulerState) -> dict[tuple[str, str, str], Status]:
    return {
        (plan.name, phase.name, step.name): step.status
        for plan in plans(state)
        for phase in plan.phases
        for step in phase.steps
    }


@dataclass(frozen=True)
class Step:
    """One step of a script."""

    words: str
    do: Callable[[World], None]
    #: Whether earlier effects are discarded.
    fresh: bool = False


def play(world: AnyWorld, *steps: Step) -> AnyWorld:
    """Run the steps in order; a failure names the step."""
    for number, step in enumerate(steps, 1):
        if step.fresh:
            world.decisions.clear()
        try:
            step.do(world)
        except AssertionError as error:
            raise AssertionError(f"step {number}, {step.words}: {error}") from error
    return world
