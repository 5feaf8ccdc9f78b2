"""However much is asked of it, the API leaves the processor to the loop."""

import asyncio

import pytest

from tf_scheduler.api.courtesy import BURST, SHARE, Courtesy


class Busy:
    """An app each of whose answers costs `cost` seconds of the processor, in a world where time is told."""

    def __init__(self, cost):
        self.cost, self.now, self.used, self.paths = cost, 0.0, 0.0, []
        self.polite = Courtesy(self.answer, used=lambda: self.used, clock=lambda: self.now, sleep=self.sleep)

    async def answer(self, scope, _receive, _send):
        self.used += self.cost
        self.now += self.cost
        self.paths.append(scope["path"])

    async def sleep(self, seconds):
        await asyncio.sleep(0)
        self.now += seconds

    def ask(self, *paths):
        async def all_at_once():
            await asyncio.gather(*(self.polite({"type": "http", "path": path}, None, None) for path in paths))

        asyncio.run(all_at_once())


@pytest.mark.parametrize("cost", [0.001, 0.01, 0.1])
def test_it_takes_its_share_at_most(cost):
    """Beyond a burst."""
    world = Busy(cost)

    world.ask(*map(str, range(2000)))

    assert world.used <= BURST + SHARE * world.now + cost


def test_a_few_questions_do_not_wait():
    """As long as the burst lasts."""
    world = Busy(0.001)

    world.ask(*map(str, range(100)))

    assert world.used == pytest.approx(world.now)


def test_answers_come_in_the_order_of_asking():
    """Nobody starves."""
    world = Busy(0.1)

    world.ask(*map(str, range(50)))

    assert list(map(str, range(50))) == world.paths


def test_health_is_answered_at_once():
    """Marathon would restart a scheduler that lets it wait."""
    world = Busy(0.1)
    world.ask(*map(str, range(20)))
    before = world.now

    world.ask("/v1/health")

    assert world.now == pytest.approx(before + world.cost)
