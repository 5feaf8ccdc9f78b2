"""Merged offers of one agent, and which resources are usable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import EXECUTOR, a_job, a_spec, an_offer, needs, ports, scalar
from tf_scheduler.core.placement.agents import PlacementContext, amounts_in, claim_ports, merge_offers, ports_of
from tf_scheduler.core.placement.matching import Match, match_gang
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.resources import Resource, thousandths
from tf_scheduler.model.spec import JobKind


def shape(**fields):
    return json.dumps(fields, sort_keys=True)


def dynamic(**labels):
    entry = {"type": "DYNAMIC", "role": "digits-role"}
    entries = [{"key": key, "value": value} for key, value in labels.items()]
    return shape(reservations=[{**entry, **({"labels": {"labels": entries}} if labels else {})}])


def merged(*resources):
    offer = an_offer()
    (agent,) = merge_offers([type(offer)(offer.id, offer.agent_id, offer.hostname, offer.address, resources)])
    return agent


def test_entries_of_one_name_are_merged() -> None:
    """Entries add up; reserved ones are used first, as no other role can use them."""
    static = shape(reservations=[{"type": "STATIC", "role": "digits-role"}])

    agent = merged(
        scalar("cpus", 1), scalar("cpus", 2, static), ports((31000, 31001)), ports((31005, 31005), shape=static)
    )

    assert (3000, 0, 0, 0, 3) == amounts_in(agent.resources)
    assert [static, static, "{}", "{}"] == [entry.shape for entry in agent.resources]


def test_operator_reservation_for_role_is_used() -> None:
    """Dynamic, but without the labels of any framework."""
    assert (1000, 0, 0, 0, 0) == amounts_in(merged(scalar("cpus", 1, dynamic())).resources)


def test_revocable_resources_and_volumes_are_not_used() -> None:
    """The first may be revoked and do not mix with others; the second are data."""
    agent = merged(
        scalar("cpus", 4, shape(revocable={})),
        scalar("disk", 100, shape(disk={"source": {"type": "MOUNT"}})),
        scalar("disk", 100, shape(disk={"persistence": {"id": "volume"}})),
    )

    assert agent.resources == ()
    assert thousandths(100) == agent.unused_disk


@pytest.mark.parametrize(
    "labels", [{"resource_id": "1", "namespace": "other"}, {"resource_id": "1"}, {"framework_id": "other"}]
)
def test_reservations_of_other_frameworks_are_not_used(labels) -> None:
    """Frameworks of one role recognize their reservations by labels."""
    assert () == merged(scalar("cpus", 4, dynamic(**labels))).resources


def test_offers_to_different_roles_are_not_merged() -> None:
    """Mesos accepts no ACCEPT over several roles."""
    offers = [an_offer("offer-1", role="a", cpus=0.4), an_offer("offer-2", role="b", cpus=0.4)]

    assert [("offer-1",), ("offer-2",)] == [agent.offer_ids for agent in merge_offers(offers)]


def test_earliest_maintenance_window_of_agent_counts() -> None:
    """Each offer contains its window."""
    offers = [an_offer("offer-1"), an_offer("offer-2", unavailability=Unavailability(9.0))]

    (agent,) = merge_offers([*offers, an_offer("offer-3", unavailability=Unavailability(5.0))])

    assert Unavailability(5.0) == agent.unavailability


@pytest.mark.parametrize(
    ("wanted", "taken", "rest"),
    [
        ({31001}, (31001,), (31000, 31002, 31005)),
        ({31000, 31002}, (31000, 31002), (31001, 31005)),
        ({31005, 31009}, (31005,), (31000, 31001, 31002)),
        ({31004}, (), (31000, 31001, 31002, 31005)),
    ],
)
def test_claimed_ports_are_taken_from_their_ranges(wanted, taken, rest) -> None:
    """At the edge of a range, and in its middle; other entries are unchanged."""
    cpus = scalar("cpus", 1)

    mine, others = claim_ports((cpus, ports((31000, 31002), (31005, 31005))), frozenset(wanted))

    assert (taken, rest) == (ports_of(mine), ports_of(others))
    assert cpus == others[0]


amounts = st.integers(1, 4_000).map(lambda thousand: thousand / 1000)


@given(st.lists(amounts, min_size=1, max_size=6), st.integers(1, 9), amounts)
def test_sums_are_exact_to_three_digits(parts, tasks, cpus) -> None:
    """Mesos keeps three digits: split offers hold as many tasks as their sum."""
    offers = [
        an_offer(
            f"offer-{n}", cpus=part, mem=100_000 if not n else 0, disk=0, port_ranges=((31000, 31099),) if not n else ()
        )
        for n, part in enumerate(parts)
    ]
    tasks_of = tuple(a_spec(jobs=(a_job(JobKind.WORKER, tasks, needs=needs(cpus, 10)),)).tasks())

    match = match_gang(tasks_of, offers, PlacementContext(EXECUTOR))

    fits = sum(map(thousandths, parts)) // (thousandths(cpus) + EXECUTOR.cpus)
    assert isinstance(match, Match) is (fits >= tasks)


def test_no_empty_range_is_left_of_claimed_ports() -> None:
    """Mesos would refuse one whose end is before its begin."""
    _, (rest,) = claim_ports((ports((31000, 31001), (31005, 31005)),), frozenset({31000, 31005}))

    assert ((31001, 31001),) == rest.value


@pytest.mark.parametrize(
    "entry",
    [Resource("ephemeral_ports", ((32768, 33791),)), Resource("ports", thousandths(2)), scalar("network", 5)],
    ids=["ranges of another resource", "ports that are no ranges", "unknown resource"],
)
def test_other_kinds_of_resources_are_not_ports(entry) -> None:
    """Agents with the isolator `network/port_mapping` offer ephemeral ports, too."""
    assert ((), (0, 0, 0, 0, 0)) == (ports_of([entry]), amounts_in([entry]))


def test_only_sizes_count_as_unused_disk() -> None:
    source = shape(disk={"source": {"type": "MOUNT"}})

    agent = merged(Resource("disk", ((1, 5),), source), scalar("disk", 100, source))

    assert thousandths(100) == agent.unused_disk
