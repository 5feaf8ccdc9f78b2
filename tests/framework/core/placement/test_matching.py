"""Matching: all tasks of a gang are placed, or none, with reasons."""

from dataclasses import replace
from operator import le

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import EXECUTOR, a_job, a_spec, an_offer, needs, scalar
from tf_scheduler.core.placement.agents import PlacementContext, amounts_in, merge_offers, ports_of
from tf_scheduler.core.placement.matching import Match, NoMatch, _category, match_agents, match_gang
from tf_scheduler.model.placement import Constraint, GpuScheduling, Operator, PlacementSpec
from tf_scheduler.model.reasons import (
    AgentRejected,
    Excluded,
    MaintenanceScheduled,
    OperatorMovesTask,
    UnbalancedGroup,
    Unreliable,
    ValueLimitReached,
)
from tf_scheduler.model.spec import JobKind

RACK = Constraint("rack", Operator.UNIQUE)


def match(spec, *offers):
    return match_gang(tuple(spec.tasks()), offers, PlacementContext(EXECUTOR, spec.placement))


def where(match_result):
    return {placement.task.name: placement.agent.hostname for placement in match_result.placements}


def test_gang_that_fits_one_agent_stays_together() -> None:
    """Few agents are better than many."""
    match_result = match(a_spec(), an_offer(agent="agent-1"), an_offer("offer-2", "agent-2"))

    assert {"agent-1"} == set(where(match_result).values())


def test_gang_spills_over_to_next_agent() -> None:
    """2 cpus hold three tasks of 0.6 with executors; the fourth goes to another agent."""
    match_result = match(a_spec(), an_offer(cpus=2), an_offer("offer-2", "agent-2", cpus=2))

    assert sorted(where(match_result).values()) == ["agent-1", "agent-1", "agent-1", "agent-2"]


def test_tasks_on_one_agent_get_different_ports() -> None:
    """Two services, or two tasks, on one host never share a port."""
    match_result = match(a_spec(), an_offer())

    given_ports = [port for placement in match_result.placements for port in ports_of(placement.task_resources)]
    assert 4 == len(set(given_ports)) == len(given_ports)


def test_agent_with_too_few_ports_takes_fewer_tasks() -> None:
    """Each of the four tasks needs three ports, and each agent has ten."""
    spec = a_spec()
    spec = replace(spec, jobs=tuple(replace(job, needs=replace(job.needs, ports=3)) for job in spec.jobs))
    match_result = match(spec, an_offer(), an_offer("offer-2", "agent-2"))

    assert sorted(where(match_result).values()) == ["agent-1", "agent-1", "agent-1", "agent-2"]
    assert [3] * 4 == [len(ports_of(placement.task_resources)) for placement in match_result.placements]


def test_gang_is_not_placed_if_one_task_does_not_fit() -> None:
    """All or none; the reason has the task, the need and the best value of any agent."""
    spec = a_spec(jobs=(a_job(JobKind.PS), a_job(JobKind.WORKER, 1, needs=needs(cpus=64))))

    match_result = match(spec, an_offer(agent="small", cpus=1), an_offer("offer-2", "large", cpus=8))

    assert isinstance(match_result, NoMatch)
    assert list(match_result.reasons) == ["worker-0"]
    assert tuple(map(str, match_result.reasons["worker-0"])) == (
        "agent large: needs cpus 64.1, has 8",
        "agent small: needs cpus 64.1, has 1",
        "needs cpus 64.1, mem 1088, ports 1 (with its executor) on one agent; "
        "most on any agent: cpus 8 (large), mem 8192 (large), ports 10 (large)",
    )


def test_reason_lists_usage_of_same_gang() -> None:
    """The agent is large enough for one of them: the reason lists the others' usage."""
    match_result = match(a_spec(workers=3, ps=0, chief=0), an_offer(cpus=1.3))

    assert list(match_result.reasons) == ["worker-2"]
    assert (
        str(match_result.reasons["worker-2"][0])
        == "agent agent-1: needs cpus 0.6, has 0.1 left next to the other tasks of its gang"
    )


def test_missing_offers_are_a_reason() -> None:
    """Missing offers are reported too."""
    match_result = match(a_spec(workers=1, ps=0, chief=0))

    assert ["needs cpus 0.6, mem 1088, ports 1; no offers from any agent"] == [
        str(reason) for reason in match_result.reasons["worker-0"]
    ]


def test_cpu_tasks_avoid_gpu_agents() -> None:
    """GPUs are scarce: tasks without GPUs use other agents, or wait."""
    gpu = an_offer("offer-1", "a-gpu", gpus=2)

    assert {"b-cpu"} == set(where(match(a_spec(), gpu, an_offer("offer-2", "b-cpu"))).values())
    assert str(match(a_spec(), gpu).reasons["ps-0"][0]) == (
        "agent a-gpu: has 2 GPUs, reserved for tasks with GPUs (placement.gpu_scheduling_behavior is restricted)"
    )


def test_unrestricted_cpu_tasks_use_gpu_agents_last() -> None:
    """Marathon's `unrestricted`."""
    gpu = an_offer("offer-1", "a-gpu", gpus=2)
    spec = a_spec(placement=PlacementSpec(gpu_scheduling_behavior=GpuScheduling.UNRESTRICTED))

    assert {"b-cpu"} == set(where(match(spec, gpu, an_offer("offer-2", "b-cpu"))).values())
    assert {"a-gpu"} == set(where(match(spec, gpu)).values())


def test_offers_of_one_agent_are_merged() -> None:
    """Mesos may offer an agent in parts; a task may need both."""
    spec = a_spec(workers=1, ps=0, chief=0)

    match_result = match(spec, an_offer("offer-1", cpus=0.4), an_offer("offer-2", cpus=0.4, port_ranges=()))

    assert isinstance(match_result, Match)
    assert match_result.placements[0].agent.offer_ids == ("offer-1", "offer-2")


offers = st.lists(
    st.builds(
        lambda agent, cpus, mem, gpus, count: (agent, cpus, mem, gpus, count),
        st.integers(0, 3),
        st.floats(0.1, 5),
        st.integers(100, 6000),
        st.integers(0, 2),
        st.integers(0, 5),
    ),
    max_size=6,
)


@given(offers, st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))
def test_no_agent_is_overdrawn(raw, workers, ps, gpus) -> None:
    """For any offers: all tasks are placed or none, and no agent is overdrawn."""
    agents_offers = [
        an_offer(f"offer-{n}", f"agent-{agent}", cpus, mem, 0, g, ((31000 + 10 * n, 31000 + 10 * n + count),))
        for n, (agent, cpus, mem, g, count) in enumerate(raw)
    ]
    jobs = (a_job(JobKind.PS, ps), a_job(JobKind.WORKER, workers, needs=needs(gpus=gpus)))
    spec = a_spec(jobs=tuple(job for job in jobs if job.count))

    match_result = match(spec, *agents_offers)

    if isinstance(match_result, NoMatch):
        assert workers + ps == 0 or match_result.reasons
        return
    assert [task.name for task in spec.tasks()] == [placement.task.name for placement in match_result.placements]
    for agent in {placement.agent.id for placement in match_result.placements}:
        offered = [entry for offer in agents_offers if offer.agent_id == agent for entry in offer.resources]
        used = [
            entry
            for placement in match_result.placements
            if placement.agent.id == agent
            for entry in placement.task_resources + placement.executor_resources
        ]
        assert all(map(le, amounts_in(used), amounts_in(offered)))
        assert amounts_in(used)[-1] == len(set(ports_of(used)) & set(ports_of(offered)))


def test_missing_disk_names_disks_with_source() -> None:
    """An operator sees 500 GB on the agent, and wonders why 20 GB do not fit."""
    offer = an_offer(disk=900)
    mount = '{"disk": {"source": {"type": "MOUNT", "mount": {"root": "/d"}}}}'
    volume = '{"disk": {"persistence": {"id": "data"}}}'
    entries = (scalar("disk", 300_000, mount), scalar("disk", 200_000, mount), scalar("disk", 7, volume))
    spec = a_spec(workers=0, ps=0, jobs=(a_job(needs=needs(cpus=64, disk=20_000)),))

    (reason, *_) = match(spec, replace(offer, resources=(*offer.resources, *entries))).reasons["worker-0"]

    assert str(reason) == (
        "agent agent-1: needs cpus 64.1, has 4, needs disk 20000, has 900 (500000 on PATH or MOUNT disks is not used)"
    )


def test_reasons_of_many_agents_are_counted() -> None:
    """Twenty agents are listed, the best first; each other one counts once per reason."""
    spec = a_spec(workers=1, ps=0, chief=0, placement=PlacementSpec(region="eu"))
    small = [an_offer(f"offer-{n}", f"agent-{n:02}", cpus=0.2, region="eu") for n in range(18)]
    far = [an_offer(f"offer-{n}", f"agent-{n:02}", region="us") for n in range(18, 22)]
    both = [an_offer(f"offer-{n}", f"agent-{n:02}", cpus=0.2, mem=9, gpus=1) for n in range(22, 25)]

    *listed, more, best = match(spec, *small, *far, *both).reasons["worker-0"]

    assert [f"agent-{n:02}" for n in range(20)] == [reason.hostname for reason in listed]
    assert str(more) == ("5 more agents: 5 are in another region, 3 are kept for GPUs, 3 have too little cpus, mem")
    assert str(best).endswith("cpus 4 (agent-18), mem 8192 (agent-00), ports 10 (agent-00)")


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        (Excluded(RACK, "b"), "are not allowed by rack:UNIQUE"),
        (ValueLimitReached(RACK, "a", 1), "are not allowed by rack:UNIQUE"),
        (UnbalancedGroup(RACK, "a", 2, 1), "are not allowed by rack:UNIQUE"),
        (Unreliable(3, 60.0), "are avoided"),
        (OperatorMovesTask("ps-0"), "are avoided"),
        (MaintenanceScheduled(60.0), "go into maintenance"),
    ],
)
def test_each_reason_has_a_category(reason, category: str) -> None:
    """For the line that counts agents instead of listing them."""
    assert category == _category(reason)


def test_placed_tasks_wait_for_first_missing_one() -> None:
    """The tasks that fit name what they wait for, with the number of missing tasks."""
    spec = a_spec(jobs=(a_job(JobKind.PS), a_job(JobKind.WORKER, 3, needs=needs(cpus=64))))

    match_result = match(spec, an_offer())

    assert {"ps-0": ["fits on agent-1, waits for worker-0 and 2 more tasks of its gang"]} == {
        name: list(map(str, why)) for name, why in match_result.blocked_by_gang.items()
    }
    assert ["ps-0"] == [item.task.name for item in match_result.partial]


def test_declined_agents_are_explained_too() -> None:
    """Their offers are gone, but the user asks why they do not count."""
    tasks = tuple(a_spec(workers=1, ps=0, chief=0).tasks())
    (agent,) = merge_offers([an_offer(agent="declined", cpus=0.3)])

    result = match_agents(tasks, (), PlacementContext(EXECUTOR, PlacementSpec()), rejected=(agent,))

    assert "agent declined: needs cpus 0.6, has 0.3" == str(result.reasons["worker-0"][0])


def test_preferred_port_is_used_if_available() -> None:
    """TensorBoard keeps its address; without the port it gets another one."""
    job = a_job(needs=needs(ports=2), port=31_005)
    spec = a_spec(jobs=(job,))

    (placed,) = match(spec, an_offer()).placements
    (other,) = match(spec, an_offer(port_ranges=((31_010, 31_019),))).placements

    assert (31_005, 31_000) == ports_of(placed.task_resources)
    assert (31_010, 31_011) == ports_of(other.task_resources)


def test_nothing_to_place_matches_nothing() -> None:
    assert NoMatch({}) == match_gang((), [an_offer()], PlacementContext(EXECUTOR, PlacementSpec()))


def test_declined_agent_that_would_do_is_not_listed() -> None:
    """Only reasons against an agent are listed."""
    tasks = tuple(a_spec(workers=1, ps=0, chief=0).tasks())
    passed = merge_offers([an_offer("o-1", "large"), an_offer("o-2", "small", cpus=0.3)])

    result = match_agents(tasks, (), PlacementContext(EXECUTOR, PlacementSpec()), passed)

    rejected = [why.hostname for why in result.reasons["worker-0"] if isinstance(why, AgentRejected)]
    assert ["small"] == rejected


def test_twenty_agents_are_all_listed() -> None:
    spec = a_spec(workers=1, ps=0, chief=0)

    reasons = match(spec, *(an_offer(f"offer-{n}", f"agent-{n:02}", cpus=0.2) for n in range(20))).reasons["worker-0"]

    assert 20 + 1 == len(reasons)
