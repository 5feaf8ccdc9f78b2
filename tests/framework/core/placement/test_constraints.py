"""Each operator of the constraint language, on one agent at a time."""

import pytest

from builders import EXECUTOR, a_job, a_spec, an_offer, needs
from tf_scheduler.core.placement.agents import PlacedTask, PlacementContext, demands_of, merge_offers
from tf_scheduler.core.placement.constraints import MOVE_AHEAD, DemandRules, allows, move_ahead
from tf_scheduler.core.placement.matching import Match, match_gang
from tf_scheduler.model.ids import task_name
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.placement import AgentLocation, Constraint, Operator, PlacementSpec
from tf_scheduler.model.reasons import MaintenanceScheduled, OtherRegion
from tf_scheduler.model.spec import JobKind, TaskSpec


def rule(text):
    field, operator, *value = text.split(":")
    return Constraint(field, Operator(operator), *value)


def rules_for(*constraints, circumstances=None, counted=(), **options):
    job = a_job(constraints=tuple(map(rule, constraints)), **options)
    (demand,) = demands_of([TaskSpec(task_name("worker", 0), 0, job)], EXECUTOR)
    return DemandRules(demand, circumstances or PlacementContext(EXECUTOR), counted)


def rack(name):
    return AgentLocation("host", attributes={"rack": name})


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("rack:IS:a", "a", True),
        ("rack:IS:a", "ab", False),
        ("rack:CLUSTER:a", "a", True),
        ("rack:CLUSTER:a", "b", False),
        ("rack:IS_NOT:a", "b", True),
        ("rack:IS_NOT:a", "a", False),
        ("rack:LIKE:rack-[1-3]", "rack-2", True),
        ("rack:LIKE:rack-[1-3]", "rack-22", False),
        ("rack:UNLIKE:rack-[1-3]", "rack-2", False),
        ("rack:UNLIKE:rack-[1-3]", "rack-22", True),
        ("rack:UNIQUE", "a", True),
        ("rack:MAX_PER:1", "a", True),
        ("rack:GROUP_BY", "a", True),
    ],
)
def test_operator_accepts_or_rejects_value(text: str, value: str, expected: bool) -> None:
    """Regular expressions match the whole value, as in the SDK."""
    assert expected is allows(rule(text), value)


@pytest.mark.parametrize("operator", list(Operator))
def test_only_negations_accept_missing_attribute(operator) -> None:
    """Marathon refuses agents without it, but for UNLIKE; IS_NOT is its sibling."""
    assert (operator in (Operator.UNLIKE, Operator.IS_NOT)) is allows(Constraint("rack", operator, "1"), None)


def test_constraint_fields_of_agent() -> None:
    """hostname, the names of the fault domain, and attributes."""
    place = AgentLocation("host", "eu", "", {"rack": "a"})

    assert ("host", "eu", None, "a", None) == tuple(
        place.value(name) for name in ("hostname", "@region", "@zone", "rack", "row")
    )


@pytest.mark.parametrize(("text", "most"), [("rack:UNIQUE", 1), ("rack:MAX_PER:3", 3)])
def test_max_per_limits_tasks_per_value(text: str, most: int) -> None:
    """Tasks that run already count."""
    rules = rules_for(text, counted=[rack("a")])
    assert most - 1 == rules.remaining(rack("a"))
    assert most == rules.remaining(rack("b"))

    for _ in range(most - 1):
        rules.count(rack("a"))

    (full,) = rules.limits(rack("a"))
    assert f"rack a already has {most} of {most} allowed tasks" == str(full)


@pytest.mark.parametrize(
    ("text", "counted", "turns"),
    [
        ("rack:GROUP_BY", "", "abc"),
        ("rack:GROUP_BY", "a", "abc"),
        ("rack:GROUP_BY", "aab", "bc"),
        ("rack:GROUP_BY", "ab", "abc"),
        ("rack:GROUP_BY:3", "a", "bc"),
        ("rack:GROUP_BY:3", "ab", "c"),
        ("rack:GROUP_BY:3", "abc", "abc"),
        ("rack:GROUP_BY:3", "aabc", "bc"),
    ],
)
def test_round_robin(text: str, counted: str, turns: str) -> None:
    """SDK rule: only values with tasks are known; the number is how many to expect."""
    rules = rules_for(text, counted=map(rack, counted))

    assert turns == "".join(name for name in "abc" if rules.is_turn_of(rack(name)))


def test_round_robin_reason_has_its_numbers() -> None:
    """With the numbers that decided."""
    (uneven,) = rules_for("rack:GROUP_BY", counted=map(rack, "aab")).limits(rack("a"))
    (unknown,) = rules_for("rack:GROUP_BY:3", counted=[rack("a")]).limits(rack("a"))

    assert "rack a has 2 tasks, another rack only 1 (rack:GROUP_BY)" == str(uneven)
    assert "rack a has tasks (1); 3 values must each get a task first" == str(unknown)


def objections(offer, **options):
    (agent,) = merge_offers([offer])
    rules = rules_for(**options)
    reasons = rules.objections(agent, 0)
    assert rules.admits(agent, 0) is (not reasons)
    return reasons


def test_service_stays_in_one_region() -> None:
    """The master's by default, or the one that the options name."""
    there = an_offer(region="us")

    assert (OtherRegion("us", "eu"),) == objections(there, circumstances=PlacementContext(EXECUTOR, region="eu"))
    assert objections(there, circumstances=PlacementContext(EXECUTOR, PlacementSpec(region="us"), "eu")) == ()


def test_agent_without_region_is_in_that_of_master() -> None:
    """Mesos assumes that it is not remote (src/master/allocator, isRemoteSlave)."""
    here = an_offer()

    assert () == objections(here, circumstances=PlacementContext(EXECUTOR, region="eu"))
    elsewhere = PlacementContext(EXECUTOR, PlacementSpec(region="us"), "eu")
    assert (OtherRegion("", "us"),) == objections(here, circumstances=elsewhere)


def test_region_constraint_replaces_default_region() -> None:
    """It replaces the default."""
    (agent,) = merge_offers([an_offer(region="us")])
    rules = rules_for("@region:LIKE:us|eu", circumstances=PlacementContext(EXECUTOR, region="eu"))

    assert rules.admits(agent, 0)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (Unavailability(1100.0, 1200.0), (MaintenanceScheduled(100.0),)),
        (Unavailability(900.0), (MaintenanceScheduled(-100.0),)),
        (Unavailability(900.0, 950.0), ()),
        (Unavailability(900.0, 1000.0), ()),
        (Unavailability(1500.0), (MaintenanceScheduled(500.0),)),
        (Unavailability(2000.0), ()),
    ],
)
def test_draining_agent_is_not_used(window, reason) -> None:
    """From draining_seconds before its window until the window ends."""
    circumstances = PlacementContext(EXECUTOR, PlacementSpec(draining_seconds=500.0), now=1000.0)

    assert reason == objections(an_offer(unavailability=window), circumstances=circumstances)


def test_tasks_are_counted_per_section() -> None:
    """A worker on the host does not exclude a parameter server, but another ps does."""
    unique = (rule("hostname:UNIQUE"),)
    job = a_job(JobKind.PS, section="parameter_server", constraints=unique, needs=needs())
    task, place = TaskSpec(task_name("ps", 0), 0, job), AgentLocation("agent-1")

    def match(group):
        standing = (PlacedTask(group, "agent-1-id", place),)
        return match_gang([task], [an_offer()], PlacementContext(EXECUTOR, placed_tasks=standing))

    assert isinstance(match("worker"), Match)
    assert [str(reason) for reason in match("parameter_server").reasons["ps-0"][:1]] == [
        "agent agent-1: hostname agent-1 already has 1 of 1 allowed tasks"
    ]


def test_maximum_is_zero_where_no_task_is_allowed() -> None:
    """Elsewhere it is what MAX_PER leaves."""
    rules = rules_for("rack:UNLIKE:b", "rack:MAX_PER:2", counted=[rack("a")])

    assert [1, 0, 2] == [rules.maximum(rack(name)) for name in "abc"]


def test_rules_are_not_empty_after_first_task() -> None:
    """Even if its agent lacks the attribute of one of them."""
    rules = ("rack:GROUP_BY", "row:UNIQUE")

    assert [True, False] == [rules_for(*rules, counted=tasks).is_empty() for tasks in ((), (rack("a"),))]


def test_tasks_leave_before_maintenance_by_the_longest_grace_period() -> None:
    """And a minute before that, for the relaunch."""
    jobs = (a_job(JobKind.WORKER, kill_grace=30.0), a_job(JobKind.PS, kill_grace=50.0))

    assert MOVE_AHEAD + 50.0 == move_ahead(a_spec(jobs=jobs))


def test_value_limit_names_its_value() -> None:
    """An agent without the attribute has no value that could be full."""
    rules = rules_for("rack:MAX_PER:1", counted=[rack("a")])

    (full,) = rules.limits(rack("a"))

    assert ("a", 1) == (full.value, full.count)
    assert () == rules.limits(AgentLocation("host"))


def test_number_zero_does_not_limit_agents_without_attribute() -> None:
    assert () == rules_for("rack:MAX_PER:0").limits(AgentLocation("host"))
