"""Cost of placing 1,000 constrained tasks on thousands of offers.

Run with `-s` to see the numbers. Each benchmark first checks that the placement is valid.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from builders import EXECUTOR, a_job, a_spec, an_offer, needs
from placement_oracle import first_fit, violations
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import Match, NoMatch, match_gang
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.placement import Constraint, Operator
from tf_scheduler.model.spec import JobKind, TaskSpec

TASKS = 1000
ROUNDS = int(os.environ.get("BENCHMARK_ROUNDS", "1"))
ABOUT = PlacementContext(EXECUTOR)


def cluster(size: int) -> list[Offer]:
    """Agents of four sizes, 40 in a rack, in three zones; every 20th has 8 GPUs."""
    chance = random.Random(1)
    return [
        an_offer(
            f"offer-{number}",
            f"agent-{number:06}",
            cpus=chance.choice([2, 4, 8, 16]),
            mem=chance.choice([8192, 16_384, 65_536]),
            gpus=0 if number % 20 else 8,
            port_ranges=((31000, 32000),),
            zone=f"zone-{number % 3}",
            attributes={"rack": f"rack-{number // 40}", "disk": chance.choice(["ssd", "nvme", "hdd"])},
        )
        for number in range(size)
    ]


def gang(count: int = TASKS, cpus: float = 2) -> tuple[TaskSpec, ...]:
    """Tasks with constraints: hosts of ps, fast disks, limits per rack, GPU zones."""
    workers, others = count * 8 // 10, count // 10
    fast = (Constraint("rack", Operator.MAX_PER, "40"), Constraint("disk", Operator.LIKE, "ssd|nvme"))
    zones, unique = (Constraint("@zone", Operator.GROUP_BY, "3"),), (Constraint("hostname", Operator.UNIQUE),)
    gpu_needs = needs(cpus=1, mem=4096, gpus=1)
    jobs = (
        a_job(JobKind.PS, others, constraints=unique),
        a_job(JobKind.WORKER, workers, needs=needs(cpus, 4096), section="worker", constraints=fast),
        a_job(JobKind.WORKER, others, needs=gpu_needs, section="gpu_worker", first_index=workers, constraints=zones),
    )
    return tuple(a_spec(jobs=jobs).tasks())


def seconds(work: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, Any]:
    """Return the minimal CPU time of several rounds, and the result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        begun = time.process_time()
        result = work()
        best = min(best, time.process_time() - begun)
    return best, result


def naive(tasks: Sequence[TaskSpec], offers: Sequence[Offer]) -> dict[str, str] | None:
    """Place by first fit; tasks without GPUs avoid agents with GPUs."""
    with_gpus = [offer for offer in offers if any(entry.name == "gpus" for entry in offer.resources)]
    without = [offer for offer in offers if all(entry.name != "gpus" for entry in offer.resources)]
    ours = first_fit([task for task in tasks if task.job.needs.gpus], with_gpus, EXECUTOR)
    others = first_fit([task for task in tasks if not task.job.needs.gpus], without, EXECUTOR)
    return None if ours is None or others is None else {**ours, **others}


@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_thousand_tasks(size: int) -> None:
    """The goal: under a second over 10,000 offers, on one core."""
    tasks, offers = gang(), cluster(size)

    took, result = seconds(lambda: match_gang(tasks, offers, ABOUT))
    naively, fitted = seconds(lambda: naive(tasks, offers))

    assert isinstance(result, Match)
    used = {item.agent.id for item in result.placements}
    assert [] == list(violations(result.placements, [offer for offer in offers if offer.agent_id in used], ABOUT))
    assert fitted is not None
    print_numbers(f"{TASKS} tasks, {size} offers", took, naively, len(used), len(set(fitted.values())))


def test_a_gang_that_does_not_fit() -> None:
    """A failed search with a reason per agent costs about as much as a placement."""
    tasks, offers = gang(cpus=15.95), cluster(10_000)

    took, result = seconds(lambda: match_gang(tasks, offers, ABOUT))
    naively, fitted = seconds(lambda: naive(tasks, offers))

    assert isinstance(result, NoMatch)
    assert {task.name for task in tasks} == {*result.reasons, *result.blocked_by_gang}
    assert fitted is None
    print_numbers("no place for all, 10,000 offers", took, naively, 0, 0)


def test_the_number_of_tasks() -> None:
    """Ten times as many tasks."""
    offers = cluster(10_000)
    small, large = gang(100), gang(1000)

    little, first = seconds(lambda: match_gang(small, offers, ABOUT))
    much, second = seconds(lambda: match_gang(large, offers, ABOUT))

    assert isinstance(first, Match)
    assert isinstance(second, Match)
    print(f"\n100 tasks {1000 * little:.0f} ms, 1,000 tasks {1000 * much:.0f} ms: ratio {much / little:.1f}")


def test_a_held_offer_more() -> None:
    """Cost of one more offer while 10,000 are held: all are checked again."""
    tasks, offers = gang(cpus=15.95), cluster(10_001)

    took, result = seconds(lambda: match_gang(tasks, [replace(offer) for offer in offers], ABOUT))

    assert isinstance(result, NoMatch)
    print(f"\none more offer among 10,000: {1000 * took:.0f} ms")


def print_numbers(what: str, took: float, naively: float, agents: int, naive_agents: int) -> None:
    print(
        f"\n{what}: {1000 * took:.0f} ms on {agents} agents; "
        f"first fit {1000 * naively:.0f} ms on {naive_agents} agents; ratio {naively / took:.1f}"
    )
