"""However much is asked of it, the API leaves the processor to the loop."""

import asyncio

import pytest

from tf_scheduler.api.courtesy import BURST, LEAST, SHARE, Courtesy


def _request(path):
    return {"type": "http", "path": path}


def _who(scope):
    return (scope["path"].partition("/")[0],)


class Busy:
    """An app each of whose answers costs `cost` seconds of the processor, in a world where time is told.

    The first part of a path is who asks. `others`: of the processor, what other threads take while it waits.
    """

    def __init__(self, cost, others=0.0):
        self.cost, self.others, self.now, self.used, self.spent, self.paths = cost, others, 0.0, 0.0, 0.0, []
        times = {"used": lambda: self.used, "spent": lambda: self.spent, "clock": lambda: self.now}
        self.polite = Courtesy(self.answer, _who, **times, sleep=self.sleep)

    async def answer(self, scope, _receive, _send):
        self.used += self.cost
        self.spent += self.cost
        self.now += self.cost
        self.paths.append(scope["path"])

    async def sleep(self, seconds):
        await asyncio.sleep(0)
        self.now += seconds
        self.spent += seconds * self.others

    def ask(self, *paths):
        async def all_at_once():
            await asyncio.gather(*(self.polite(_request(path), None, None) for path in paths))

        asyncio.run(all_at_once())


@pytest.mark.parametrize("cost", [0.001, 0.01, 0.1])
def test_it_takes_its_share_at_most(cost):
    """Beyond a burst."""
    world = Busy(cost)

    world.ask(*map(str, range(2000)))

    assert world.used <= BURST + SHARE * world.now + cost


@pytest.mark.parametrize("cost", [0.001, 0.01, 0.1])
def test_it_takes_less_while_the_loop_has_work(cost):
    """A loop that never waits is slowed down by a twentieth, and no client is turned away."""
    world = Busy(cost, others=1.0)

    world.ask(*map(str, range(1000)))

    assert world.used <= BURST + LEAST * world.now + SHARE * world.used + cost
    assert 1000 == len(world.paths)


def test_a_few_questions_do_not_wait():
    """As long as the burst lasts."""
    world = Busy(0.001)

    world.ask(*map(str, range(100)))

    assert world.used == pytest.approx(world.now)


def test_answers_come_in_the_order_of_asking():
    """Of one client, and of such as ask one question each."""
    for who in ("", "client/"):
        world = Busy(0.1)
        asked = [f"{who}{number}" for number in range(50)]

        world.ask(*asked)

        assert asked == world.paths


def test_one_that_asks_without_end_makes_others_wait_for_one_answer():
    """It asked a thousand times before the others came."""
    world = Busy(0.1)

    world.ask(*(f"greedy/{number}" for number in range(1000)), "alice/0", "bob/0", "alice/1")

    later = [path for path in world.paths if not path.startswith("greedy/")]
    places = [world.paths.index(path) for path in later]
    assert ["alice/0", "bob/0", "alice/1"] == later
    assert max(places) < min(places) + 6 < 20


def test_who_gives_up_is_passed_over():
    """The others have their turns."""
    world = Busy(0.1)

    async def some_leave():
        asked = [asyncio.create_task(world.polite(_request(str(number)), None, None)) for number in range(20)]
        await asyncio.sleep(0)
        for task in asked[9::2]:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(some_leave())

    assert {str(number) for number in range(20)} - {str(number) for number in range(9, 20, 2)} == set(world.paths)


def test_what_nobody_asked_for_is_forgiven():
    """A flood of connections costs processor time; when it is over, answers come again soon."""
    world = Busy(0.001)
    world.ask("a/0")
    world.used += 1000
    before = world.now

    world.ask("a/1")

    assert world.now - before < 5


def test_health_is_answered_at_once():
    """Marathon would restart a scheduler that lets it wait."""
    world = Busy(0.1)
    world.ask(*map(str, range(20)))
    before = world.now

    world.ask("/v1/health")

    assert world.now == pytest.approx(before + world.cost)
