"""Choice between several suitable agents."""

import pytest

from builders import EXECUTOR, a_job, a_spec, an_offer, needs
from tf_scheduler.core.placement.agents import (
    CPUS,
    AgentCapacity,
    PlacedTask,
    PlacementContext,
    amounts_of,
    demands_of,
    merge_offers,
)
from tf_scheduler.core.placement.constraints import DemandRules
from tf_scheduler.core.placement.matching import Match, match_gang
from tf_scheduler.core.placement.search import (
    CandidatePool,
    GangProfile,
    PackedQueue,
    SpreadQueue,
    even_values,
    rank_neighbourhoods,
    search,
    unplaced_names,
)
from tf_scheduler.model.placement import AgentLocation, Constraint, Operator, PlacementSpec, PlacementStrategy
from tf_scheduler.model.spec import JobKind

SPREAD = PlacementSpec(PlacementStrategy.SPREAD)


def agents(*sizes, **options):
    """Offers of agents a-0, a-1 ... with these numbers of cpus."""
    return [an_offer(f"o-{n}", f"a-{n}", cpus=cpus, mem=100_000, **options) for n, cpus in enumerate(sizes)]


def racks(names, cpus=4):
    """One agent per letter, in the rack of that name."""
    return [
        an_offer(f"o-{n}", f"a-{n}", cpus=cpus, mem=100_000, attributes={"rack": name}) for n, name in enumerate(names)
    ]


def gpu_boxes(*sizes):
    return [an_offer(f"o-{n}", f"a-{n}", cpus=32, mem=100_000, gpus=gpus) for n, gpus in enumerate(sizes)]


def workers(count, cpus=0.9, gpus=0, *constraints):
    return a_job(JobKind.WORKER, count, needs=needs(cpus=cpus, gpus=gpus), constraints=constraints)


def where(jobs, offers, placement=None, standing=()):
    spec = a_spec(jobs=tuple(jobs))
    about = PlacementContext(EXECUTOR, placement or PlacementSpec(), placed_tasks=standing)
    match = match_gang(tuple(spec.tasks()), offers, about)
    assert isinstance(match, Match), match
    return {item.task.name: item.agent.hostname for item in match.placements}


def hosts(*arguments, **options):
    return sorted(where(*arguments, **options).values())


def test_smallest_agent_that_holds_gang_is_chosen() -> None:
    """Large ones stay free for tasks that need them."""
    assert ["a-1"] * 3 == hosts([workers(3)], agents(16, 3, 8))


def test_fewer_agents_are_preferred() -> None:
    """Two large ones rather than four small ones, and the small one for the rest."""
    assert ["a-0"] * 4 + ["a-3"] * 4 + ["a-4"] == hosts([workers(9)], agents(4, 2, 2, 4, 1))


def test_agent_that_holds_whole_gang_is_preferred() -> None:
    """Not the one that only holds the workers."""
    gang = [a_job(JobKind.PS, 1), workers(3), a_job(JobKind.CHIEF, 1)]

    assert {"a-1"} == set(where(gang, agents(3, 6, 3)).values())


def test_parameter_servers_spread_over_used_agents() -> None:
    """And need no agent of their own."""
    placed = where([a_job(JobKind.PS, 2), workers(6)], agents(5.7, 5.7, 5.7))

    assert len(set(placed.values())) == 2
    assert placed["ps-0"] != placed["ps-1"]


def test_workers_are_placed_in_one_rack() -> None:
    """One rack that holds them all is better than the first agents by name."""
    assert {"a-1", "a-3"} == set(hosts([workers(8)], racks("abcb")))


def test_rack_that_needs_fewer_agents_is_preferred() -> None:
    """Both racks would do."""
    offers = [*racks("aaa", cpus=2), an_offer("o-9", "z", cpus=6, mem=100_000, attributes={"rack": "b"})]

    assert ["z"] * 6 == hosts([workers(6)], offers)


def test_rack_is_chosen_within_zone() -> None:
    """The zone that holds all, and in it the rack that holds most."""
    offers = [
        an_offer(f"o-{n}", f"a-{n}", cpus=2, mem=100_000, zone=zone, attributes={"rack": rack})
        for n, (zone, rack) in enumerate([("x", "1"), ("y", "2"), ("y", "3"), ("y", "3"), ("z", "4")])
    ]

    assert ["a-1"] * 1 + ["a-2"] * 2 + ["a-3"] * 2 == hosts([workers(5)], offers)


def test_late_task_is_placed_near_its_peers() -> None:
    """A relaunched worker is near those that run."""
    standing = (
        PlacedTask("worker", "gone", AgentLocation("gone")),
        PlacedTask("worker", "a-2-id", AgentLocation("a-2")),
    )

    assert ["a-2"] == hosts([workers(1)], racks("abc"), standing=standing)


def test_used_agent_is_preferred_in_one_neighbourhood() -> None:
    """Its task is of another section."""
    standing = (PlacedTask("ps", "a-1-id", AgentLocation("a-1")),)

    assert ["a-1"] == hosts([workers(1)], agents(4, 4), PlacementSpec(near=()), standing)


def test_largest_section_decides_on_rack() -> None:
    """The agents of rack a hold the chief, but no worker."""
    offers = [
        an_offer(f"o-{n}", f"a-{n}", cpus=cpus, mem=100_000, attributes={"rack": rack})
        for n, (rack, cpus) in enumerate([("a", 1.5)] * 4 + [("b", 2), ("b", 2), ("b", 1)])
    ]
    spec = a_spec(jobs=(a_job(JobKind.CHIEF, 1, needs=needs(cpus=0.9)), workers(2, cpus=1.9)))

    result = search(demands_of(spec.tasks(), EXECUTOR), merge_offers(offers), PlacementContext(EXECUTOR))

    assert {"b"} == {room.agent.location.attributes["rack"] for room in result.capacities if room.rank == 0}


def test_neighbourhoods_are_configurable() -> None:
    """`placement.near` names them."""
    offers = racks("ab")

    assert ["a-0", "a-0", "a-0", "a-0", "a-1"] == hosts([workers(5)], offers, PlacementSpec(near=()))


@pytest.mark.parametrize(
    ("boxes", "count", "expected"),
    [
        ((8, 1), 1, ["a-1"]),
        ((8, 2), 2, ["a-1", "a-1"]),
        ((8, 4, 2), 3, ["a-1"] * 3),
        ((8, 8, 1), 9, ["a-0"] * 8 + ["a-2"]),
    ],
)
def test_smallest_gpu_box_that_holds_all_is_chosen(boxes, count: int, expected) -> None:
    """The smallest that holds them all."""
    assert expected == hosts([workers(count, gpus=1)], gpu_boxes(*boxes))


def test_unique_workers_use_boxes_with_fewest_spare_gpus() -> None:
    """UNIQUE makes all boxes equal but for their spare GPUs."""
    unique = Constraint("hostname", Operator.UNIQUE)

    assert ["a-1", "a-2"] == hosts([workers(2, 0.9, 1, unique)], gpu_boxes(8, 1, 2))


def test_gpu_and_cpu_workers_are_one_job() -> None:
    """gpu_worker: indexes follow, and each section is placed where it fits."""
    jobs = [
        a_job(JobKind.WORKER, 2, section="worker"),
        a_job(JobKind.WORKER, 2, section="gpu_worker", first_index=2, needs=needs(gpus=1)),
    ]
    offers = [*gpu_boxes(2), an_offer("o-9", "cpu", cpus=32)]

    assert {"worker-0": "cpu", "worker-1": "cpu", "worker-2": "a-0", "worker-3": "a-0"} == where(jobs, offers)


def test_gpu_model_is_chosen_by_attribute() -> None:
    """A constraint like any other."""
    boxes = [
        an_offer(f"o-{n}", f"a-{n}", gpus=1, attributes={"gpu_model": model})
        for n, model in enumerate(["K80", "V100-SXM2", "V100"])
    ]
    like = Constraint("gpu_model", Operator.LIKE, "V100.*")

    assert ["a-1", "a-2"] == hosts([workers(2, 0.9, 1, like)], boxes)


def test_spread_uses_as_many_agents_as_possible() -> None:
    """Every agent gets one task before any gets two."""
    assert ["a-0", "a-1", "a-1", "a-2"] == hosts([workers(4)], agents(2, 8, 2), SPREAD)


def test_group_by_spreads_evenly_over_values() -> None:
    """Evenly over racks, whatever the capacity of their agents."""
    by_rack = Constraint("rack", Operator.GROUP_BY)

    assert ["a-0", "a-0", "a-1", "a-1", "a-2", "a-2"] == hosts([workers(6, 0.9, 0, by_rack)], racks("abc", cpus=16))


def test_group_by_skips_value_too_small_for_even_share() -> None:
    """Rack c holds only one: three each on the others is even, too."""
    by_rack = Constraint("rack", Operator.GROUP_BY)
    offers = [*racks("ab"), an_offer("o-9", "tiny", cpus=1.1, attributes={"rack": "c"})]

    assert ["a-0"] * 3 + ["a-1"] * 3 == hosts([workers(6, 0.9, 0, by_rack)], offers)


def test_group_by_number_needs_that_many_values() -> None:
    """Two of three required racks are offered: the third task waits."""
    three = Constraint("rack", Operator.GROUP_BY, "3")
    spec = a_spec(jobs=(workers(3, 0.9, 0, three),))

    match = match_gang(tuple(spec.tasks()), racks("ab"), PlacementContext(EXECUTOR))

    assert list(match.reasons) == ["worker-2"]
    assert "agent a-0: rack a has tasks (1); 3 values must each get a task first" == str(match.reasons["worker-2"][0])


def test_task_blocked_by_its_gang_is_placed_first() -> None:
    """Workers fit anywhere and are placed first; the parameter server needs rack a."""
    in_a = Constraint("rack", Operator.IS, "a")
    gang = [a_job(JobKind.PS, 1, needs=needs(cpus=0.9), constraints=(in_a,)), workers(2)]

    placed = where(gang, racks("ab", cpus=2), PlacementSpec(near=()))

    assert placed["ps-0"] == "a-0"


def test_every_placement_is_explained() -> None:
    """In words, for the log and the API."""
    spec = a_spec(jobs=(a_job(JobKind.PS, 1), workers(2)))

    match = match_gang(tuple(spec.tasks()), agents(4), PlacementContext(EXECUTOR))

    assert [
        "the agent has the fewest tasks of ps (0)",
        "best fit: the agent can hold the largest part of the gang, with the least resources left over",
        "the agent already has tasks of the service: 1",
    ] == [item.why for item in match.placements]


def test_first_task_in_best_neighbourhood_is_explained() -> None:
    """The last one is placed in the other rack."""
    spec = a_spec(jobs=(workers(3),))

    match = match_gang(tuple(spec.tasks()), racks("ab", cpus=2), PlacementContext(EXECUTOR))

    assert [True, False, False] == [
        item.why.startswith("best fit in the best neighbourhood:") for item in match.placements
    ]
    assert match.placements[2].why.startswith("best fit:")


def test_excluded_agent_does_not_count_for_its_rack() -> None:
    """Rack a would hold the gang with a-1, which the constraint excludes."""
    offers = [
        an_offer(f"o-{n}", f"a-{n}", cpus=cpus, mem=100_000, attributes={"rack": rack})
        for n, (rack, cpus) in enumerate([("a", 3), ("a", 3), ("b", 2), ("b", 3)])
    ]

    assert {"a-2", "a-3"} == set(hosts([workers(4, 0.9, 0, Constraint("hostname", Operator.UNLIKE, "a-1"))], offers))


def test_group_by_begins_with_first_value_by_name() -> None:
    """If all have the same room, whatever the order of the offers."""
    offers = [an_offer(f"o-{n}", f"a-{n}", attributes={"rack": name}) for n, name in enumerate("ba")]

    assert ["a-1"] == hosts([workers(1, 0.9, 0, Constraint("rack", Operator.GROUP_BY))], offers)


def test_group_by_number_keeps_value_too_small_for_even_share() -> None:
    """Rack c takes one task; a and b take one more each, and one waits."""
    three = Constraint("rack", Operator.GROUP_BY, "3")
    spec = a_spec(jobs=(workers(6, 0.9, 0, three),))
    offers = [*racks("ab"), an_offer("o-9", "tiny", cpus=1.1, attributes={"rack": "c"})]

    match = match_gang(tuple(spec.tasks()), offers, PlacementContext(EXECUTOR))

    assert ["worker-5"] == list(match.reasons)


# --- Parts of the search


def capacities(offers):
    return [AgentCapacity(agent, index) for index, agent in enumerate(merge_offers(offers))]


def free_cpus(room):
    return room.free[CPUS] // 1000


def demand(count, *constraints):
    (only,) = demands_of(a_spec(jobs=(workers(count, 0.9, 0, *constraints),)).tasks(), EXECUTOR)
    return only


def packed(*sizes, rest=(0,) * 5):
    queue = PackedQueue(free_cpus, avoids_gpus=False, rest=rest)
    queue.fill([(room, free_cpus(room)) for room in capacities(agents(*sizes))])
    return queue


@pytest.mark.parametrize(("left", "expected"), [(1, "a-1"), (3, "a-2"), (9, "a-0")])
def test_packed_queue_prefers_smallest_that_takes_all(left, expected) -> None:
    """Otherwise the one that takes the most."""
    assert expected == packed(8, 2, 4).pop(left).agent.hostname


def test_packed_queue_prefers_agent_for_whole_gang_first() -> None:
    """Only for the first task: afterwards the gang has its agent."""
    queue = packed(8, 2, 4, rest=(5000, 0, 0, 0, 0))

    assert ["a-0", "a-1"] == [queue.pop(1).agent.hostname, queue.pop(1).agent.hostname]


@pytest.mark.parametrize(("left", "expected"), [(1, ["a-1", "a-0"]), (0, ["a-1", None])])
def test_packed_queue_uses_current_capacity(left: int, expected) -> None:
    """Another task was placed on a-0 since: it has room for `left`, no longer for 4."""
    now = {"a-0": 4, "a-1": 2}
    queue = PackedQueue(lambda room: now[room.agent.hostname], avoids_gpus=False, rest=(0,) * 5)
    queue.fill([(room, now[room.agent.hostname]) for room in capacities(agents(4, 2))])
    now["a-0"] = left

    assert expected == [room and room.agent.hostname for room in (queue.pop(3), queue.pop(1))]


@pytest.mark.parametrize(("shuns", "expected"), [(False, "gpu"), (True, "cpu")])
def test_packed_queue_can_avoid_gpu_agents(shuns: bool, expected: str) -> None:
    """For tasks without GPUs, even where a GPU agent fits better."""
    queue = PackedQueue(free_cpus, avoids_gpus=shuns, rest=(0,) * 5)
    rooms = capacities([an_offer("o-0", "gpu", cpus=4, gpus=1), an_offer("o-1", "cpu", cpus=8)])
    queue.fill([(room, free_cpus(room)) for room in rooms])

    assert expected == queue.pop(1).agent.hostname


@pytest.mark.parametrize(("stays", "expected"), [(False, "a-0"), (True, "a-1")])
def test_spread_queue_that_stays_prefers_near_agents(stays: bool, expected: str) -> None:
    """The second agent is in a better neighbourhood."""
    queue = SpreadQueue(free_cpus, avoids_gpus=False, group="worker", stays=stays)
    rooms = capacities(agents(4, 4))
    rooms[0].rank = 1
    queue.fill([(room, free_cpus(room)) for room in rooms])

    assert expected == queue.pop(1).agent.hostname


def test_packed_queue_returns_none_when_all_are_full() -> None:
    assert None is packed().pop(1)


def test_spread_queue_prefers_agent_with_fewest_tasks() -> None:
    """A room that is pushed back has its new count."""
    queue = SpreadQueue(free_cpus, avoids_gpus=False, group="worker", stays=False)
    queue.fill([(room, free_cpus(room)) for room in capacities(agents(4, 4))])
    names = []
    for _ in range(3):
        room = queue.pop(1)
        names.append(room.agent.hostname)
        room.count("worker")
        queue.push(room)

    assert ["a-0", "a-1", "a-0"] == names


def test_candidate_pool_alternates_between_group_by_values() -> None:
    three = demand(3, Constraint("rack", Operator.GROUP_BY))
    rules = DemandRules(three, PlacementContext(EXECUTOR))
    pool = CandidatePool(three, rules, lambda: PackedQueue(free_cpus, avoids_gpus=False, rest=(0,) * 5))
    pool.fill([(room, free_cpus(room)) for room in capacities(racks("aab"))])
    values = []
    for left in (3, 2, 1):
        room = pool.pop(left)
        values.append(room.agent.location.attributes["rack"])
        rules.count(room.agent.location)
        pool.push(room)

    assert [["a", "b"], "a"] == [values[:2], values[2]]


def test_rank_neighbourhoods_prefers_rack_for_whole_gang() -> None:
    rooms = capacities([*racks("ab", cpus=2), *(an_offer("o-9", "z", cpus=8, attributes={"rack": "c"}),)])
    profile = GangProfile(lead_tasks=4, lead_counts=[free_cpus(room) for room in rooms], total=(4000, 0, 0, 0, 0))

    assert 3 == rank_neighbourhoods(rooms, ("rack",), profile)
    assert {"z": 0, "a-0": 1, "a-1": 2} == {room.agent.hostname: room.rank for room in rooms}


@pytest.mark.parametrize(
    ("takes", "cpus", "first"),
    [
        pytest.param(((3, 3), (1, 1, 6)), 4, "b", id="fewest agents"),
        pytest.param(((8,), (4,)), 4, "b", id="exactly all tasks"),
        pytest.param(((4,), (8,)), 8, "b", id="needs of the whole gang"),
        pytest.param(((4,), (5,)), 4, "a", id="least left over"),
        pytest.param(((1,), (2,)), 9, "b", id="most tasks if none holds all"),
    ],
)
def test_rank_neighbourhoods_compares_racks(takes, cpus: int, first: str) -> None:
    """Four tasks and racks a and b, whose agents take these numbers of them."""
    sizes = [*takes[0], *takes[1]]
    rooms = capacities(
        an_offer(f"o-{n}", f"a-{n}", cpus=size, attributes={"rack": "a" if n < len(takes[0]) else "b"})
        for n, size in enumerate(sizes)
    )

    rank_neighbourhoods(rooms, ("rack",), GangProfile(4, sizes, (1000 * cpus, 0, 0, 0, 0)))

    assert {first} == {room.agent.location.attributes["rack"] for room in rooms if room.rank == 0}


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ((4, 4, 2), 6, 3),
        ((8, 2, 2), 8, 1),
        ((4, 4, 4), 6, 3),
        ((4, 4, 1), 6, 2),
        ((3, 3, 2), 7, 3),
        ((1,), 3, 1),
        ((), 3, 0),
    ],
)
def test_even_values_is_largest_even_spread(sizes, tasks, expected) -> None:
    """All values if no even spread exists."""
    assert expected == even_values(sizes, tasks)


@pytest.mark.parametrize(("sizes", "missing", "is_hopeless"), [((2, 2), 0, False), ((2,), 1, True)])
def test_search_reports_unplaced_tasks(sizes, missing, is_hopeless) -> None:
    three = demand(3)
    result = search([three], merge_offers(agents(*sizes)), PlacementContext(EXECUTOR))

    assert (missing, is_hopeless) == (len(unplaced_names([three], result.chosen)), result.hopeless)
    assert ([three] if missing else []) == list(result.missing)
    assert amounts_of(three.needs)[CPUS] == 1000


def test_search_is_hopeless_if_one_demand_is() -> None:
    """Another order of the demands cannot help."""
    spec = a_spec(jobs=(a_job(JobKind.PS, 1, needs=needs(cpus=64)), workers(1)))

    result = search(demands_of(spec.tasks(), EXECUTOR), merge_offers(agents(4)), PlacementContext(EXECUTOR))

    assert result.hopeless
    assert ["ps"] == [item.job.group for item in result.missing]


def test_spread_queue_takes_back_agent_for_one_more_task() -> None:
    """But not a full one."""
    queue = SpreadQueue(free_cpus, avoids_gpus=False, group="worker", stays=False)
    for room in capacities(agents(0.5, 1)):
        queue.push(room)

    assert ["a-1", None] == [room and room.agent.hostname for room in (queue.pop(1), queue.pop(1))]


def test_group_by_uses_every_value_if_some_have_tasks() -> None:
    """Rack c gets its share first, although it is too small for an even spread of all."""
    by_rack = Constraint("rack", Operator.GROUP_BY)
    standing = tuple(
        PlacedTask("worker", f"x-{name}", AgentLocation("x", attributes={"rack": name})) for name in "aabb"
    )
    offers = [*racks("ab"), an_offer("o-9", "tiny", cpus=1.1, attributes={"rack": "c"})]

    assert ["tiny"] == hosts([workers(1, 0.9, 0, by_rack)], offers, standing=standing)


@pytest.mark.parametrize(("shuns", "expected"), [(False, "gpu"), (True, "cpu")])
def test_spread_queue_can_avoid_gpu_agents(shuns: bool, expected: str) -> None:
    """For tasks without GPUs, even where a GPU agent is nearer."""
    queue = SpreadQueue(free_cpus, avoids_gpus=shuns, group="worker", stays=True)
    rooms = capacities([an_offer("o-0", "gpu", cpus=4, gpus=1), an_offer("o-1", "cpu", cpus=4)])
    for room in rooms:
        room.rank = int(room.agent.hostname == "cpu")
    queue.fill([(room, free_cpus(room)) for room in rooms])

    assert expected == queue.pop(1).agent.hostname
