"""Placement of random gangs: no overdraft, no broken constraint, all or none."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import EXECUTOR, a_job, an_offer, needs
from placement_oracle import exists, violations
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import Match, NoMatch, match_gang
from tf_scheduler.model.ids import task_name
from tf_scheduler.model.placement import Constraint, GpuScheduling, Operator, PlacementSpec, PlacementStrategy
from tf_scheduler.model.spec import JobKind, TaskSpec

FIELDS = ["hostname", "rack", "@zone", "@region"]
PARAMETERS = {
    Operator.UNIQUE: st.just(""),
    Operator.MAX_PER: st.integers(1, 3).map(str),
    Operator.GROUP_BY: st.sampled_from(["", "2", "3"]),
    Operator.LIKE: st.sampled_from(["a|b", "agent-[0-3]", ".*"]),
    Operator.UNLIKE: st.sampled_from(["a", "agent-0"]),
}
rules = st.sampled_from(list(Operator)).flatmap(
    lambda operator: st.builds(
        Constraint,
        st.sampled_from(FIELDS),
        st.just(operator),
        PARAMETERS.get(operator, st.sampled_from(["a", "b", "agent-1", "eu"])),
    )
)


@st.composite
def offer_lists(draw, most=8):
    offers = []
    for number in range(draw(st.integers(0, most))):
        offer = an_offer(
            f"offer-{number}",
            f"agent-{number}",
            cpus=draw(st.sampled_from([0.5, 1, 1.3, 2, 4])),
            mem=draw(st.sampled_from([1000, 2200, 8192])),
            gpus=draw(st.sampled_from([0, 0, 1, 2, 4])),
            port_ranges=((31000, 31000 + draw(st.integers(0, 9))),),
            zone=draw(st.sampled_from(["", "a", "b"])),
            region=draw(st.sampled_from(["", "", "", "eu"])),
            attributes=draw(st.sampled_from([{}, {"rack": "a"}, {"rack": "b"}, {"rack": "c"}])),
        )
        offers.append(offer)
    return offers


@st.composite
def gangs(draw, most=5):
    """Tasks of up to three sections."""
    tasks = []
    for kind, section in ((JobKind.PS, "parameter_server"), (JobKind.WORKER, "worker"), (JobKind.CHIEF, "chief")):
        count = draw(st.integers(0, most if kind is not JobKind.CHIEF else 1))
        wants = needs(
            cpus=draw(st.sampled_from([0.3, 0.5, 1])),
            gpus=draw(st.sampled_from([0, 0, 1])) if section == "worker" else 0,
        )
        job = a_job(kind, count, needs=wants, section=section, constraints=tuple(draw(st.lists(rules, max_size=2))))
        tasks += [TaskSpec(task_name(kind.value, index), index, job) for index in range(count)]
    return tuple(tasks)


placements = st.builds(
    PlacementSpec,
    st.sampled_from(list(PlacementStrategy)),
    st.sampled_from(list(GpuScheduling)),
    st.sampled_from(["", "eu"]),
)


@given(gangs(), offer_lists(), placements)
@settings(max_examples=150, deadline=None)
def test_match_respects_offers_and_constraints(tasks, offers, placement) -> None:
    """Every task once, in the agent's offers, with its exact needs and constraints."""
    circumstances = PlacementContext(EXECUTOR, placement)

    match = match_gang(tasks, offers, circumstances)

    if isinstance(match, Match):
        assert [task.name for task in tasks] == [item.task.name for item in match.placements]
        assert [] == list(violations(match.placements, offers, circumstances))


@given(gangs(), offer_lists(), placements)
@settings(max_examples=80, deadline=None)
def test_every_unplaced_task_has_reasons(tasks, offers, placement) -> None:
    """Unplaced tasks list what each agent lacks; the others list the tasks they await."""
    match = match_gang(tasks, offers, PlacementContext(EXECUTOR, placement))

    assume(isinstance(match, NoMatch) and tasks)
    assert {task.name for task in tasks} == {*match.reasons, *match.blocked_by_gang}
    assert all(
        str(reason) for reasons in (*match.reasons.values(), *match.blocked_by_gang.values()) for reason in reasons
    )


@given(gangs(), offer_lists(), placements, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_placement_ignores_order_of_offers(tasks, offers, placement, random) -> None:
    """Deterministic: equal offers, equal placement."""
    circumstances = PlacementContext(EXECUTOR, placement)
    shuffled = random.sample(offers, len(offers))

    first, second = (match_gang(tasks, some, circumstances) for some in (offers, shuffled))

    assert type(first) is type(second)
    if isinstance(first, Match):
        assert [item.agent.id for item in first.placements] == [item.agent.id for item in second.placements]


alike = gangs(most=3).map(
    lambda tasks: tuple(TaskSpec(task.name, task.index, replace(task.job, constraints=())) for task in tasks)
)


@given(alike, offer_lists(most=4))
@settings(max_examples=120, deadline=None)
def test_uniform_gang_is_placed_whenever_possible(tasks, offers) -> None:
    """Without constraints and with one kind of task, greedy search misses nothing."""
    circumstances = PlacementContext(EXECUTOR)
    tasks = tuple(task for task in tasks if task.job.group == "worker")
    assume(tasks)

    match = match_gang(tasks, offers, circumstances)

    assert exists(tasks, offers, circumstances) == isinstance(match, Match)
