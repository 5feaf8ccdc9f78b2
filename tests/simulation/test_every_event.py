"""Any event may come at any moment, also a wrong one: nobody is trusted.

The scheduler must handle every type of event, with known and unknown ids and with any state, after any history. The
calls that follow are dropped: they answer lies, so that the rules of the simulated Mesos do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import an_offer
from kit.memory_store import MemoryDisk
from simulation.random_events import RandomEvent, apply_event, random_events, specs
from simulation.test_plan_properties import a_world, restored, stored_part
from simulation.world import World
from tf_executor.contract.reports import Progress, TaskEnd, Usage
from tf_executor.contract.states import TaskState
from tf_scheduler.core.scheduler import next_deadline
from tf_scheduler.model import events
from tf_scheduler.model.effects import Accept, Call, Kill, Suppress
from tf_scheduler.model.events import FoundTask
from tf_scheduler.model.ids import AgentId, ExecutorId, FrameworkId, Kinded, OfferId, TaskId, TaskName
from tf_scheduler.model.offer import InverseOffer, Unavailability
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import PodVerb, TaskStatus

Events = st.SearchStrategy[Any]

WORDS = st.sampled_from(["", "why", "worker-0", "Ü", "x" * 300])
NUMBERS = st.sampled_from([-3600.0, 0.0, 0.5, 1000.0, 2000.0, 1e12])
AGENTS = st.sampled_from([AgentId(f"agent-{number}-id") for number in range(3)] + [AgentId("unknown")])
OPTIONAL_COUNT = st.sampled_from([None, 0, 7, 2**40])
OPTIONAL_NUMBER = st.sampled_from([None, 0.0, 1.5, float("inf"), float("nan")])


def _launches(state: SchedulerState) -> st.SearchStrategy[TaskId]:
    """Current launches, earlier launches and tasks of nobody."""
    current = [record.id for record in state.stored.tasks.values()]
    earlier = [TaskId(f"{name}__earlier") for name in state.stored.tasks]
    return st.sampled_from([*current, *current, *earlier, TaskId("worker-9__id-9"), TaskId("strange")])


ENDS = st.builds(
    TaskEnd,
    exit_code=st.sampled_from([None, 0, 1, 42, 127, 143]),
    signal=st.sampled_from([None, 9, 15]),
    out_of_memory=st.booleans(),
    failed_stage=st.sampled_from(["", "fetch", "unknown"]),
    port_taken=st.booleans(),
    error=WORDS,
)


def _statuses(state: SchedulerState) -> st.SearchStrategy[TaskStatus]:
    return st.builds(
        TaskStatus,
        id=_launches(state),
        state=st.sampled_from(TaskState),
        agent_id=st.none() | AGENTS,
        reason=st.sampled_from(["", "REASON_RECONCILIATION", "REASON_AGENT_REMOVED", "REASON_OF_A_LATER_MESOS"]),
        message=WORDS,
        end=ENDS,
        uuid=st.sampled_from(["", "one", "two"]),
        healthy=st.sampled_from([None, True, False]),
        timestamp=NUMBERS,
        addresses=st.sampled_from([(), ("10.9.9.9",)]),
        source=st.sampled_from(["", "SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_EXECUTOR"]),
    )


def _offer_ids(state: SchedulerState) -> st.SearchStrategy[OfferId]:
    return st.sampled_from([*state.session.round.offers, OfferId("unknown")])


def _offers(state: SchedulerState) -> Events:
    an_agent = st.sampled_from(["agent-0", "agent-1", "stranger"])
    names = st.sampled_from(["offer-a", "offer-b", "offer-c", *state.session.round.offers])
    one = st.builds(an_offer, names, an_agent, cpus=st.sampled_from([0, 0.5, 8.0]), mem=st.sampled_from([0, 9000.0]))
    return st.builds(
        events.OffersReceived,
        st.lists(one, max_size=3, unique_by=lambda offer: offer.id).map(tuple),
        st.lists(_offer_ids(state), max_size=1).map(tuple),
    )


def _calls(state: SchedulerState) -> st.SearchStrategy[Call]:
    kills = st.builds(Kill, _launches(state), AGENTS)
    accepts = st.builds(Accept, st.tuples(_offer_ids(state)), st.just(()), st.just(5.0))
    return kills | accepts | st.just(Suppress())


def _progress(state: SchedulerState) -> Events:
    numbers = dict.fromkeys(("loss", "steps_per_second", "examples_per_second", "begun"), OPTIONAL_NUMBER)
    counts = dict.fromkeys(("step", "total", "examples"), OPTIONAL_COUNT)
    progress = st.builds(Progress, st.integers(-1, 3), NUMBERS, **counts, **numbers)
    return st.builds(events.ProgressReported, _launches(state), progress, st.none() | AGENTS)


def _usage(state: SchedulerState) -> Events:
    usage = st.builds(Usage, NUMBERS, OPTIONAL_NUMBER, OPTIONAL_NUMBER)
    return st.builds(events.UsageReported, _launches(state), usage, st.none() | AGENTS)


def _adopted(state: SchedulerState) -> Events:
    """Each task of the service once, with any state."""
    status = st.sampled_from(TaskState)

    def found(states: list[TaskState]) -> tuple[FoundTask, ...]:
        pairs = zip(state.stored.tasks.values(), states, strict=False)
        return tuple(FoundTask(TaskStatus(record.id, state), record) for record, state in pairs)

    tasks = st.lists(status, max_size=len(state.stored.tasks)).map(found)
    return st.builds(events.FrameworkAdopted, st.just(FrameworkId("other")), tasks, st.booleans())


def _tasks(state: SchedulerState) -> st.SearchStrategy[TaskName]:
    return st.sampled_from([*(task.name for task in state.spec.tasks()), TaskName("worker-9"), TaskName("nobody")])


def _plan_commands(state: SchedulerState) -> Events:
    return st.builds(
        events.PlanCommand,
        st.sampled_from(Verb),
        plan=st.sampled_from(["deploy", "recovery", "update", "retune", "nothing", ""]),
        phase=st.sampled_from(["", "worker", "again", "nothing"]),
        step=st.sampled_from(["", "worker-0", "nothing"]),
        parameters=st.sampled_from([{}, {"RATE": "0.1"}]),
    )


STRATEGIES: Mapping[type[Kinded], Callable[[SchedulerState], Events]] = {
    events.Subscribed: lambda at: st.builds(
        events.Subscribed, st.just(at.stored.framework_id or FrameworkId("f")), WORDS
    ),
    events.Disconnected: lambda _: st.builds(events.Disconnected, WORDS),
    events.SubscriptionRefused: lambda _: st.builds(events.SubscriptionRefused, WORDS, st.booleans()),
    events.FrameworksHidden: lambda _: st.builds(events.FrameworksHidden, WORDS),
    events.FrameworkAdopted: _adopted,
    events.ResetRequested: lambda _: st.just(events.ResetRequested()),
    events.OffersReceived: _offers,
    events.EventSkipped: lambda _: st.builds(events.EventSkipped, WORDS, WORDS),
    events.CallFailed: lambda state: st.builds(
        events.CallFailed, _calls(state), WORDS, st.sampled_from([0, 400, 401, 403, 503]), st.booleans()
    ),
    events.CallsAccepted: lambda _: st.just(events.CallsAccepted()),
    events.ClockDrifted: lambda _: st.builds(events.ClockDrifted, NUMBERS),
    events.OfferRescinded: lambda state: st.builds(events.OfferRescinded, _offer_ids(state)),
    events.InverseOffersReceived: lambda state: st.builds(
        events.InverseOffersReceived,
        st.tuples(st.builds(InverseOffer, _offer_ids(state), AGENTS, st.builds(Unavailability, NUMBERS))),
    ),
    events.InverseOfferRescinded: lambda state: st.builds(events.InverseOfferRescinded, _offer_ids(state)),
    events.StatusUpdated: lambda state: st.builds(events.StatusUpdated, _statuses(state), st.booleans()),
    events.AgentFailed: lambda _: st.builds(events.AgentFailed, AGENTS),
    events.ExecutorFailed: lambda state: st.builds(
        events.ExecutorFailed, AGENTS, _launches(state).map(ExecutorId), st.integers(-1, 2**16)
    ),
    events.ProgressReported: _progress,
    events.UsageReported: _usage,
    events.StopRequested: lambda _: st.builds(events.StopRequested, WORDS),
    events.PlanCommand: _plan_commands,
    events.FrameworksWait: lambda _: st.builds(events.FrameworksWait, st.lists(WORDS, max_size=2).map(tuple)),
    events.ScaleRequested: lambda _: st.builds(events.ScaleRequested, st.integers(1, 5)),
    events.PodCommand: lambda state: st.builds(events.PodCommand, st.sampled_from(PodVerb), _tasks(state)),
    events.ExecRequested: lambda state: st.builds(
        events.ExecRequested, WORDS, _tasks(state), st.lists(WORDS, min_size=1).map(tuple), NUMBERS
    ),
    events.SecretsRequested: lambda state: st.builds(
        events.SecretsRequested, task_id=_launches(state), token=WORDS, nonce=WORDS, address=WORDS
    ),
    events.ReloadSecrets: lambda _: st.builds(events.ReloadSecrets),
    events.AcknowledgeExposures: lambda _: st.builds(events.AcknowledgeExposures),
    events.TornDown: lambda _: st.just(events.TornDown()),
    events.ClockStepped: lambda _: st.builds(events.ClockStepped, NUMBERS),
    events.SharedUserFound: lambda _: st.builds(events.SharedUserFound, WORDS, st.lists(WORDS).map(tuple)),
    events.Tick: lambda _: st.just(events.Tick()),
}


#: Pending, launched, running.
BEGINNINGS: tuple[list[str], ...] = ([], ["offers"], ["offers", "run_all"], ["offers", "run_all"])


class LyingWorld(World):
    """A world whose Mesos ignores all calls."""

    def perform(self, call: Call) -> None:
        """Drop the call."""


def test_every_type_of_event_has_a_strategy() -> None:
    assert set(get_args(events.Event)) == set(STRATEGIES)


@given(specs(), st.sampled_from(BEGINNINGS), st.lists(random_events(), max_size=8), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_event_is_handled_at_any_moment(
    drawn: Any, beginning: Any, history: Any, state_is_lost: bool, data: Any
) -> None:
    world = a_world(drawn)
    for event in [*map(RandomEvent, beginning), *history]:
        apply_event(world, event, drawn)
    world.__class__ = LyingWorld
    world.watches_moves = False  # a lie may move a step in any way
    if state_is_lost:
        found = _adopted(world.state)
        world.disk = MemoryDisk()
        world.restart()
        _check(world, data.draw(found))

    often = [events.StatusUpdated, events.OffersReceived, events.Tick] * 3
    # It is our own event at the start, before all others.
    kinds = [*(kind for kind in STRATEGIES if kind is not events.FrameworkAdopted), *often]
    for kind in data.draw(st.lists(st.sampled_from(kinds), min_size=8, max_size=16)):
        _check(world, data.draw(STRATEGIES[kind](world.state)))


def _check(world: World, event: events.Event) -> None:
    """The state remains storable and waited for, and no task is doubled."""
    before = world.state
    decision = world.step(event)

    launched = [each.record for call in decision.calls if isinstance(call, Accept) for each in call.launches]
    for record in launched:
        previous = before.stored.tasks.get(record.name)
        if previous is not None:
            status = before.stored.statuses.get(previous.id)
            assert previous.name in before.stored.recoveries or (status is not None and status.state.has_ended)
    assert stored_part(restored(world)) == stored_part(world.state)
    next_deadline(world.state)
