"""Offers that complete no gang: the same decisions with and without a match."""

from dataclasses import replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, a_record, a_spec, a_status, an_offer, needs, with_fields
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.offers.matcher import MATCH_INTERVAL
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import Accept, Decision, Decline, RecoveryDecided, StatusStored, TaskLaunched
from tf_scheduler.model.events import Event, OfferRescinded, OffersReceived, StatusUpdated, Subscribed, Tick
from tf_scheduler.model.offer import FailedMatch, Offer, Unavailability
from tf_scheduler.model.placement import Constraint, GpuScheduling, Operator, PlacementSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskStatus

NOW = 1000.0


def decide(state: SchedulerState, event: Event, now: float = NOW) -> Decision:
    return handle(state, event, now, map(str, count()).__next__)


def after(state: SchedulerState, *offers: Offer, now: float = NOW) -> SchedulerState:
    """Return the state after these offers, one by one."""
    for offer in offers:
        state = decide(state, OffersReceived((offer,)), now).state
    return state


def waiting(**options):
    """Return a connected service of four workers that were never launched."""
    spec = a_spec(jobs=(a_job(JobKind.WORKER, 4, needs=needs(cpus=0.9)),), **options)
    return decide(SchedulerState(spec), Subscribed("fw-1")).state


def one(number: int, **options):
    """Return an offer for one of the workers."""
    return an_offer(f"offer-{number}", f"agent-{number}", **{"cpus": 1.9, **options})


def matches(state: SchedulerState) -> int:
    return len(state.process.evaluations)


# --- Examples


def test_hopeless_offers_are_held_without_a_match() -> None:
    """A match of a large gang costs milliseconds."""
    state = after(waiting(), one(1), one(2), one(3))

    assert (3, 1) == (len(state.session.offers), matches(state))


def test_offer_that_completes_the_gang_is_used_at_once() -> None:
    state = after(waiting(), one(1), one(2), one(3), one(4))

    assert 4 == len(state.stored.tasks)
    assert None is state.session.failed_match


def test_second_offer_of_an_agent_counts_with_the_first() -> None:
    """Each offer has room for one worker, both together for three."""
    first, second = (replace(one(2, cpus=1.5), id=name) for name in ("first", "second"))

    assert {} == after(waiting(), one(1), first).stored.tasks
    assert 4 == len(after(waiting(), one(1), first, second).stored.tasks)


def test_other_gangs_are_matched() -> None:
    """A plan or a finished task may have changed the gangs."""
    state = after(waiting(), one(1))
    other = FailedMatch(NOW, (), ())

    assert 2 == matches(after(with_fields(state, failed_match=other), one(2)))


def test_reasons_are_updated_within_the_interval() -> None:
    """No further event is necessary."""
    state = after(waiting(), one(1), one(2, gpus=1), one(3, cpus=0.3))
    due = next_deadline(state) or 0.0
    state = decide(state, Tick(), due).state

    assert NOW + MATCH_INTERVAL == due
    assert (2, 3) == (matches(state), len(state.session.pending["worker-3"][:-1]))
    assert (next_deadline(state) or 0.0) > due + MATCH_INTERVAL


def test_busy_loop_updates_reasons_without_a_tick() -> None:
    """Ticks wait while events do not end."""
    state = after(after(waiting(), one(1), one(2)), one(3), now=NOW + MATCH_INTERVAL)

    assert 2 == matches(state)
    assert not state.session.failed_match.is_outdated


def test_useless_offers_are_declined_without_a_match() -> None:
    state = after(waiting(), one(1), one(2))
    decision = decide(state, OffersReceived((one(3, cpus=0.1),)))

    assert [Decline] == [type(call) for call in decision.calls]
    assert (1, ["agent-3-id"]) == (matches(decision.state), list(decision.state.session.rejected_offers))


# --- Any history

amounts = st.sampled_from([0.4, 0.7, 0.7, 1.3, 2.0])
CONSTRAINTS = [
    (),
    (Constraint("hostname", Operator.UNIQUE),),
    (Constraint("rack", Operator.MAX_PER, "2"),),
    (Constraint("rack", Operator.LIKE, "a|b"),),
    (Constraint("rack", Operator.GROUP_BY),),
    (Constraint("@region", Operator.LIKE, ".*"), Constraint("rack", Operator.IS_NOT, "c")),
]
offers = st.builds(
    lambda agent, cpus, gpus, ports, role, window: an_offer(
        agent=f"agent-{agent}",
        cpus=cpus,
        gpus=gpus,
        port_ranges=((5000, 5000 + ports),),
        role=role,
        attributes={"rack": "abc"[agent % 3]},
        region="far" if agent == 7 else "",
        unavailability=Unavailability(NOW + 200_000, NOW + 200_002) if window else None,
    ),
    st.integers(0, 7),
    amounts,
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 1, 5]),
    st.sampled_from(["r", "r", "r", "s"]),
    st.sampled_from([False, False, True]),
)
events = st.one_of(
    st.lists(offers, min_size=1, max_size=2),
    st.lists(offers, min_size=1, max_size=1),
    st.lists(offers, min_size=1, max_size=1),
    st.sampled_from([0.3, 0.9, 0.1, "rescind", "lose"]),
)


@st.composite
def services(draw) -> SchedulerState:
    """Return a connected service, some of whose tasks are lost."""
    workers = draw(st.integers(1, 8))
    jobs = (
        a_job(JobKind.PS, draw(st.integers(0, 2)), needs=needs(cpus=1)),
        a_job(JobKind.WORKER, workers, constraints=draw(st.sampled_from(CONSTRAINTS)), section="worker"),
        a_job(JobKind.WORKER, draw(st.integers(0, 3)), needs=needs(gpus=1), section="gpu_worker", first_index=workers),
    )
    strategy = draw(st.sampled_from([Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.INDEPENDENT]))
    spec = a_spec(
        jobs=tuple(job for job in jobs if job.count and (job.kind is JobKind.WORKER or "server" in strategy.value)),
        strategy=strategy,
        placement=PlacementSpec(gpu_scheduling_behavior=draw(st.sampled_from(list(GpuScheduling)))),
    )
    state = SchedulerState(spec)
    lost = draw(st.sampled_from([0, 0, 1, len(list(spec.tasks()))]))
    for number, task in enumerate(list(spec.tasks())[:lost]):
        record = a_record(spec, task.name, agent_id=f"agent-{number % 3}-id", address=f"10.0.0.1:{5000 + number}")
        status = TaskStatus(record.id, TaskState.FAILED, record.agent_id)
        state = apply(state, TaskLaunched(record), StatusStored(status))
        state = apply(state, RecoveryDecided(replace(replace_launch(state, record, "lost", NOW), ready_at=NOW)))
    return decide(state, Subscribed("fw-1")).state


def answers(decision: Decision) -> list[object]:
    """Return what Mesos gets, without the ids of launches."""
    return [
        (call.offer_ids, [(item.record.name, item.record.agent_id, item.record.address) for item in call.launches])
        if isinstance(call, Accept)
        else call
        for call in decision.calls
    ]


class History:
    """A random history of one service."""

    def __init__(self, state: SchedulerState) -> None:
        self.state, self.now, self.numbers = state, NOW, count()

    def event(self, step: object) -> Event:
        live = self.state.live()
        if isinstance(step, list):
            return OffersReceived(tuple(replace(offer, id=f"o-{next(self.numbers)}") for offer in step))
        if step == "rescind" and self.state.session.offers:
            return OfferRescinded(min(self.state.session.offers))
        if step == "lose" and live:
            return StatusUpdated(a_status(live[0].id, TaskState.FAILED, "u", agent_id=live[0].agent_id, signal=9))
        self.now += step if isinstance(step, float) else 0.0
        return Tick()

    def play(self, step: object) -> None:
        """Handle the event, and compare the decision with that of a match of all offers."""
        event, before = self.event(step), self.state.session
        decision = decide(self.state, event, self.now)
        full = decide(with_fields(self.state, failed_match=None), event, self.now)
        self.state, session = decision.state, decision.state.session
        if isinstance(event, OffersReceived):
            other = full.state.session
            assert answers(full) == answers(decision)
            assert full.state.stored.tasks.keys() == decision.state.stored.tasks.keys()
            assert (other.offers, other.round_started) == (session.offers, session.round_started)
            assert other.rejected_offers == session.rejected_offers
        if isinstance(event, Tick) and before.failed_match and before.failed_match.is_outdated:
            if before.round_started == session.round_started:
                assert decide(self.state, OffersReceived(()), self.now).state.session.pending == session.pending
            assert not session.failed_match or not session.failed_match.is_outdated


@settings(max_examples=150, deadline=None)
@given(services(), st.lists(events, min_size=4, max_size=30))
def test_decisions_are_the_same_as_with_a_match(state, steps) -> None:
    history = History(state)
    for step in steps:
        history.play(step)
