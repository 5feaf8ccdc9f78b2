"""Matching of pending gangs with offers: addresses to reuse, agents to avoid."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, a_status, an_offer, needs, ports, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.core.offers import matcher
from tf_scheduler.core.placement.agents import merge_offers, ports_of
from tf_scheduler.core.plans.scheduling import Gang
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, StatusStored
from tf_scheduler.model.offer import ExecutorLogin, Unavailability
from tf_scheduler.model.placement import Constraint, Operator
from tf_scheduler.model.reasons import AgentRejected, AwaitsPreviousAddress, OperatorMovesTask, Unreliable
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AgentFailures

SPEC = a_spec(workers=1, ps=0, chief=0)
(TASK,) = SPEC.tasks()
NOW = 21.0
HOME = an_offer("offer-1", "agent-1")
OTHER = an_offer("offer-2", "agent-2")
FAILURES = {"agent-1-id": AgentFailures("agent-1-id", "agent-1", (1.0,), 50.0)}


def lost(spec=SPEC, **recovery):
    """worker-0 ran on agent-1 at port 31000, and waits for this address until 25."""
    state = a_running_state(spec)
    record = replace(state.stored.tasks["worker-0"], agent_id="agent-1-id", address="10.0.0.1:31000")
    state = with_fields(state, tasks={"worker-0": record})
    item = replace(replace_launch(state, record, "x", 20.0), **recovery)
    return apply(state, StatusStored(a_status(record.id, TaskState.LOST)), RecoveryDecided(item))


def match(state, *offers, now=NOW):
    return matcher.match_gangs(state, [Gang("recovery", (TASK,))], offers, now)


def hosts(result):
    return [item.agent.hostname for item in result.placements]


def with_failed_round(state):
    return with_fields(state, failures=1)


def test_lost_task_returns_to_previous_address() -> None:
    (placement,) = match(lost(), OTHER, HOME).placements

    assert ("agent-1", (31000,)) == (placement.agent.hostname, tuple(ports_of(placement.task_resources)))


@pytest.mark.parametrize(
    ("count", "offered", "expected"),
    [
        (3, ((30999, 31009),), (31000, 31004, 31005)),
        (2, ((30999, 31009),), (31000, 31004)),
        (4, ((30999, 31009),), (31000, 30999, 31004, 31005)),
        (3, ((30999, 31004),), (31000, 30999, 31004)),
    ],
)
def test_lost_task_gets_its_further_ports_again(count: int, offered, expected) -> None:
    """Another one if one of them is taken; only its address must be free."""
    task = replace(TASK, job=replace(TASK.job, needs=needs(ports=count)))
    state = lost()
    record = replace(state.stored.tasks["worker-0"], resources=(ports((31000, 31000), (31004, 31005)),))
    state = with_fields(state, tasks={"worker-0": record})
    offer = an_offer("offer-1", "agent-1", port_ranges=offered)

    (placement,) = matcher.match_gangs(state, [Gang("recovery", (task,))], [offer], NOW).placements

    given = ports_of(placement.task_resources)
    assert (expected[0], sorted(expected)) == (given[0], sorted(given))


@pytest.mark.parametrize(("now", "expected"), [(24.0, []), (25.0, ["agent-2"])])
def test_lost_task_waits_for_previous_address_until_deadline(now: float, expected) -> None:
    result = match(lost(), OTHER, now=now)

    assert expected == hosts(result)
    reasons = () if expected else (AwaitsPreviousAddress("a", "10.0.0.1:31000"),)
    assert reasons == result.reasons.get("worker-0", ())


@pytest.mark.parametrize(
    "home",
    [
        an_offer("offer-1", "agent-1", port_ranges=((31001, 31009),)),
        an_offer("offer-1", "agent-1", cpus=0.5),
        replace(HOME, unavailability=Unavailability(NOW)),
    ],
    ids=["port taken", "too small", "maintenance"],
)
def test_unusable_previous_address_is_awaited(home) -> None:
    assert ["worker-0"] == list(match(lost(), home, OTHER).reasons)


def lost_of_two():
    """worker-0 waits for port 31000 of agent-1 until 25; worker-1 was never launched."""
    spec = a_spec(workers=2, ps=0, chief=0, live=True)
    return lost(spec), *(Gang("update", (task,)) for task in spec.tasks())


@pytest.mark.parametrize(("now", "expected"), [(21.0, 31001), (25.0, 31000)])
def test_port_of_waiting_task_is_not_given_to_another(now: float, expected: int) -> None:
    """The wait may still last, because of the back-off of the lost task."""
    state, _, other = lost_of_two()
    offer = an_offer("offer-1", "agent-1", port_ranges=((31000, 31001),))

    (placement,) = matcher.match_gangs(state, [other], [offer], now).placements

    assert [expected] == list(ports_of(placement.task_resources))


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_waiting_task_returns_beside_another(is_lost_first: bool) -> None:
    state, returning, other = lost_of_two()
    gangs = [returning, other] if is_lost_first else [other, returning]
    offer = an_offer("offer-1", "agent-1", port_ranges=((31000, 31001),))

    placements = matcher.match_gangs(state, gangs, [offer], NOW).placements

    given = {item.task.name: list(ports_of(item.task_resources)) for item in placements}
    assert {"worker-0": [31000], "worker-1": [31001]} == given


def test_last_room_of_an_agent_is_kept_for_the_waiting_task() -> None:
    state, returning, other = lost_of_two()
    small = an_offer("offer-1", "agent-1", cpus=1.1)

    result = matcher.match_gangs(state, [other, returning], [small], NOW)

    assert (["worker-0"], ["worker-1"]) == ([item.task.name for item in result.placements], list(result.reasons))
    assert ["worker-1"] == [item.task.name for item in matcher.match_gangs(state, [other], [small], 25.0).placements]


def test_previous_address_without_executor_login_is_awaited() -> None:
    """A task with secrets returns only when its agent authenticates executors."""
    state = lost(replace(SPEC, secrets=(SecretSpec("env:KEY", env="KEY"),)))
    unsafe = replace(HOME, login=ExecutorLogin(False))

    assert ["worker-0"] == list(match(state, unsafe, OTHER).reasons)
    assert ["agent-2"] == hosts(match(state, unsafe, OTHER, now=25.0))
    assert ["agent-1"] == hosts(match(lost(), unsafe, OTHER))


@pytest.mark.parametrize(
    "state",
    [lost(must_move=True), lost(bad_addresses=("10.0.0.1:31000",)), with_fields(lost(), agent_failures=FAILURES)],
    ids=["moved by operator", "taken port", "unreliable agent"],
)
def test_avoided_address_is_not_awaited(state) -> None:
    assert ["worker-0"] == [item.task.name for item in match(state, OTHER).placements]


def test_recovery_of_earlier_launch_is_ignored() -> None:
    """A task that is launched since then does not wait for its previous address."""
    assert ["agent-2"] == hosts(match(lost(launch="worker-0__earlier"), OTHER))


def test_virtual_network_has_no_previous_address() -> None:
    """The name goes with the task."""
    assert ["agent-2"] == hosts(match(lost(replace(SPEC, network=VirtualNetwork("dcos"))), OTHER))


def test_moved_task_returns_to_its_agent_only_after_failed_round() -> None:
    state = lost(must_move=True)

    assert ([], ["agent-1"]) == (hosts(match(state, HOME)), hosts(match(with_failed_round(state), HOME)))


def test_least_bad_agents_are_used_first() -> None:
    failures = {**FAILURES, "agent-2-id": AgentFailures("agent-2-id", "agent-2", (1.0, 2.0), 50.0)}
    state = with_fields(lost(must_move=True), agent_failures=failures)
    avoided = [set(agents) for agents in map(dict, matcher.relaxations(with_failed_round(state), [TASK], NOW))]
    first = next(iter(matcher.relaxations(lost(must_move=True), [TASK], NOW)))

    assert [{"agent-1-id", "agent-2-id"}, {"agent-2-id"}, set()] == avoided
    assert {"agent-1-id": OperatorMovesTask("worker-0")} == first


@pytest.mark.parametrize("failures", [(), (1.0,)], ids=["no failure", "one failure"])
def test_agent_that_a_task_leaves_is_used_before_unreliable_ones(failures) -> None:
    """However few their failures are, and however short they are still avoided."""
    other = {"agent-2-id": AgentFailures("agent-2-id", "agent-2", failures, NOW + 0.5)}
    state = with_failed_round(with_fields(lost(must_move=True), agent_failures=other))

    avoided = [set(agents) for agents in matcher.relaxations(state, [TASK], NOW)]

    assert [{"agent-1-id", "agent-2-id"}, {"agent-2-id"}, set()] == avoided


def test_equally_bad_agents_are_used_together() -> None:
    """A match for each of a thousand agents would take minutes."""
    failures = {f"agent-{n}-id": AgentFailures(f"agent-{n}-id", f"agent-{n}", (1.0,), NOW + n) for n in range(1, 1000)}
    state = with_failed_round(with_fields(a_running_state(SPEC), agent_failures=failures))

    assert [999, 0] == [len(agents) for agents in matcher.relaxations(state, [TASK], NOW)]


def test_agent_is_avoided_for_limited_time() -> None:
    state = with_fields(a_running_state(SPEC), agent_failures=FAILURES)

    assert [{"agent-1-id": Unreliable(1, 1.0)}] == list(matcher.relaxations(state, (), 49.0))
    assert [{}] == list(matcher.relaxations(state, (), 50.0))


def test_ports_of_crash_loops_are_not_used() -> None:
    state = lost(bad_addresses=("10.0.0.1:31000", "10.0.0.9:31001"))
    agents = merge_offers([HOME])

    (first,), (later,) = (
        [ports_of(agent.resources)[0] for agent in matcher.exclude_bad_ports(each, agents)]
        for each in (state, with_failed_round(state))
    )

    assert (31001, 31000) == (first, later)


def test_gangs_are_matched_in_order_and_independently() -> None:
    """A gang that does not fit does not block the next one."""
    spec = a_spec(workers=2, ps=0, chief=0)
    one, two = spec.tasks()
    large = replace(one, job=replace(one.job, needs=needs(cpus=64)))
    state = with_fields(a_running_state(spec), tasks={}, statuses={})

    result = matcher.match_gangs(state, [Gang("deploy", (large,)), Gang("deploy", (two,))], [HOME], NOW)

    assert (["worker-1"], ["worker-0"]) == ([item.task.name for item in result.placements], list(result.reasons))


def test_usable_agents_could_run_one_task_alone() -> None:
    small = an_offer("offer-2", "agent-2", cpus=0.5)

    assert {"agent-1-id"} == matcher.usable_agents(lost(), [TASK.job], [HOME, small], NOW)


def test_task_to_be_placed_does_not_count_for_its_own_constraint() -> None:
    """It runs until it is replaced: UNIQUE allows its own agent."""
    job = replace(TASK.job, constraints=(Constraint("hostname", Operator.UNIQUE),))
    state = a_running_state(replace(SPEC, jobs=(job,)))
    record = replace(state.stored.tasks["worker-0"], hostname="agent-1", location=HOME.location, agent_id=HOME.agent_id)
    state = with_fields(state, tasks={"worker-0": record})

    result = matcher.match_gangs(state, [Gang("deploy", tuple(state.spec.tasks()))], [HOME], NOW)

    assert ["agent-1"] == hosts(result)


def test_agent_that_offers_again_is_one_reason() -> None:
    """Its declined offer is old; other declined offers stay part of the reasons."""
    declined = {f"{name}-id": an_offer("old", name, cpus=0.1) for name in ("agent-1", "agent-2")}
    state = with_fields(SchedulerState(SPEC), unusable=declined)

    reasons = match(state, an_offer("offer-1", "agent-1", cpus=0.2)).reasons["worker-0"]

    assert ["agent-1", "agent-2"] == sorted(item.hostname for item in reasons if isinstance(item, AgentRejected))


@pytest.mark.parametrize("tasks", [{}, None], ids=["not launched", "launched again"])
def test_task_leaves_only_the_agent_of_the_replaced_launch(tasks) -> None:
    """A later launch may use it."""
    state = lost(must_move=True, **({} if tasks == {} else {"launch": "worker-0__0"}))
    state = with_fields(state, tasks=tasks) if tasks is not None else state

    assert [{}] == list(matcher.relaxations(state, [TASK], NOW))


def test_failed_match_is_explained_without_relaxed_rules() -> None:
    """The agent that the task leaves is named, although it is tried, too."""
    state = with_failed_round(lost(must_move=True))

    reasons = match(state, an_offer("offer-1", "agent-1", cpus=0.5)).reasons["worker-0"]

    assert isinstance(reasons[0], AgentRejected)
    assert OperatorMovesTask("worker-0") in reasons[0].reasons


def test_agent_for_one_of_several_jobs_is_usable() -> None:
    """The small job fits, the large one does not."""
    jobs = (TASK.job, replace(TASK.job, needs=needs(cpus=64)))

    assert {"agent-1-id"} == matcher.usable_agents(lost(), jobs, [HOME], NOW)


def test_task_that_a_plan_relaunches_does_not_wait_for_its_address() -> None:
    """It takes it if it is offered."""
    state = with_fields(lost(launch="worker-0__0"), tasks=lost().stored.tasks)

    assert ["agent-2"] == hosts(match(state, OTHER, now=0.5))
