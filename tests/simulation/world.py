"""The scheduler's core, a store and a Mesos, joined as the runner joins them, with a clock that is turned by hand.

    world = World(a_spec(), an_agent())
    play(world, send.register(), send.offers(), expect.launched("ps-0", ...), ...)

A script is a row of steps; `send` makes them from what happens, `expect` from what must have followed. What is
expected is looked for in what the last `send` caused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from kit.memory_store import MemoryDisk, MemoryStore
from simulation.mesos import Agent, FakeMesos
from tf_scheduler.core.plans.tables import check_transition
from tf_scheduler.core.plans.view import plans
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.model.effects import Call, Decision, Outcome
from tf_scheduler.model.events import Disconnected, Event, StatusUpdated, Tick
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import Status
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Checkpoint, Decide, Runner, restore

Kind = TypeVar("Kind")
AnyWorld = TypeVar("AnyWorld", bound="World")


class World:
    """Everything of one service."""

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
        #: What the last `send` caused, event by event.
        self.decisions: list[Decision] = []
        #: It costs most of the time that a step takes.
        self.watches_moves = True
        #: Updates that Mesos sends one after the other are found in the inbox together, as in a burst.
        self.bursts = False
        #: From which status to which the steps of plans have gone.
        self.moves: set[tuple[Status, Status]] = set()
        self._start(spec)

    @property
    def calls(self) -> list[Call]:
        return [call for decision in self.decisions for call in decision.calls]

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for decision in self.decisions for outcome in decision.outcomes]

    def made(self, kind: type[Kind]) -> list[Kind]:
        """Calls of one kind."""
        return [call for call in self.calls if isinstance(call, kind)]

    def id_of(self, name: str) -> TaskId:
        return self.state.stored.tasks[TaskName(name)].id

    def step(self, event: Event) -> Decision:
        """One event, as the runner handles it: store, swap, call."""
        before = self.state
        decision = self.runner.step(self, event)
        if self.watches_moves:
            self.moves |= moves(before, decision.state)
        self.decisions.append(decision)
        self.mesos.live()
        return decision

    def perform(self, call: Call) -> None:
        """As the runner's driver: Mesos takes each call at once."""
        self.mesos.perform(call, self.now)

    def settle(self) -> None:
        """Let the scheduler hear all that Mesos has to say, and what follows from it."""
        for _ in range(100_000):
            if not self.mesos.events:
                return
            if self.bursts:
                self._burst()
            else:
                self.step(self.mesos.events.popleft())
        raise AssertionError("this does not come to rest")

    def _burst(self) -> None:
        """What the runner takes from its inbox at once."""
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
        """The scheduler dies and comes back on what is stored, perhaps with other options."""
        self.mesos.disconnect()
        self._start(spec or self.state.spec)

    def wait(self, seconds: float | None = None) -> None:
        """Until the next deadline of the state, or so many seconds with all deadlines on the way."""
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
        self.runner = self.make_runner(restore(spec, self.store))
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
        """Keys and bytes as they are on the disk."""
        return MemoryStore(self.state.spec.name, self.disk).load()


def moves(before: SchedulerState, after: SchedulerState) -> set[tuple[Status, Status]]:
    """Return the moves of all steps; raise IllegalStepTransitionError for one that the table lacks."""
    known = _statuses(before)
    found = {(known[node], status) for node, status in _statuses(after).items() if node in known}
    for move in found:
        check_transition(*move)
    return {(old, new) for old, new in found if old is not new}


def _statuses(state: SchedulerState) -> dict[tuple[str, str, str], Status]:
    return {
        (plan.name, phase.name, step.name): step.status
        for plan in plans(state)
        for phase in plan.phases
        for step in phase.steps
    }


@dataclass(frozen=True)
class Step:
    """One line of a script."""

    words: str
    do: Callable[[World], None]
    #: Whether what happened before it is no longer looked at.
    fresh: bool = False


def play(world: AnyWorld, *steps: Step) -> AnyWorld:
    """Take the steps in order; a failure names the step."""
    for number, step in enumerate(steps, 1):
        if step.fresh:
            world.decisions.clear()
        try:
            step.do(world)
        except AssertionError as error:
            raise AssertionError(f"step {number}, {step.words}: {error}") from error
    return world
