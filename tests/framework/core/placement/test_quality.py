"""Rate of placements that greedy search misses, against exhaustive search."""

import random

from builders import EXECUTOR, a_job, an_offer, needs
from placement_oracle import exists
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import Match, match_gang
from tf_scheduler.model.ids import task_name
from tf_scheduler.model.placement import Constraint, GpuScheduling, Operator, PlacementSpec
from tf_scheduler.model.spec import JobKind, TaskSpec

ANYWHERE = PlacementContext(EXECUTOR, PlacementSpec(gpu_scheduling_behavior=GpuScheduling.UNRESTRICTED))
RULES = [
    Constraint("hostname", Operator.UNIQUE),
    Constraint("rack", Operator.MAX_PER, "2"),
    Constraint("rack", Operator.LIKE, "a|b"),
    Constraint("@zone", Operator.IS, "a"),
    Constraint("hostname", Operator.UNLIKE, "agent-0"),
]
INSTANCES = 1500


def instance(chance):
    """A few agents and a gang that often just fits."""
    offers = [
        an_offer(
            f"offer-{n}",
            f"agent-{n}",
            cpus=chance.choice([0.5, 1, 1.3, 2, 4]),
            mem=chance.choice([1100, 2200, 8192]),
            gpus=chance.choice([0, 0, 1, 2]),
            zone=chance.choice("ab"),
            attributes={"rack": chance.choice("abc")},
        )
        for n in range(chance.randint(2, 5))
    ]
    tasks = []
    for kind in (JobKind.PS, JobKind.WORKER, JobKind.CHIEF):
        count = chance.randint(0, 1 if kind is JobKind.CHIEF else 3)
        gpus = chance.choice([0, 1]) if kind is JobKind.WORKER else 0
        wants = needs(chance.choice([0.3, 0.5, 1]), chance.choice([100, 1000, 2000]), gpus=gpus)
        constraints = (chance.choice(RULES),) if chance.random() < 0.5 else ()
        job = a_job(kind, count, needs=wants, constraints=constraints)
        tasks += [TaskSpec(task_name(kind.value, index), index, job) for index in range(count)]
    return tuple(tasks), offers


def test_search_misses_few_feasible_gangs() -> None:
    """Bin packing is hard: greedy search misses up to 1 in 200 feasible gangs."""
    chance = random.Random(1)
    possible = missed = 0
    for _ in range(INSTANCES):
        tasks, offers = instance(chance)
        if tasks and exists(tasks, offers, ANYWHERE):
            possible += 1
            missed += not isinstance(match_gang(tasks, offers, ANYWHERE), Match)

    assert possible > INSTANCES / 4
    assert missed <= possible / 200
