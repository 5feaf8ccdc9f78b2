"""A scheduler that dies at one point and starts again, in a world that works towards a goal all the same.

    story = Story(a_spec(), agents, (deploy, lose_a_worker))
    for point in range(1, points(story) + 1): tell(story, point)

A story is a row of chapters. A chapter happens to Mesos, or is what an operator wants; the world then goes on (offers,
tasks that start, time) until the chapter's goal is reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from simulation.mesos import Agent, FakeMesos
from simulation.world import World
from tf_scheduler.core.placement.agents import entry_use
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import TaskState

#: Rounds of a second each; far more than any story needs.
PATIENCE = 400


class Crash(BaseException):
    """SIGKILL."""


@dataclass
class Fuse:
    """Counts the points that are passed, and dies at some of them: the n-th of this life, then the m-th of the next."""

    lives: Sequence[int] = ()
    passed: list[tuple[str, str]] = field(default_factory=list)
    burnt: list[tuple[str, str]] = field(default_factory=list)
    _life: int = 0
    _count: int = 0

    def __call__(self, moment: str, what: str) -> None:
        self.passed.append((moment, what))
        self._count += 1
        if self._life < len(self.lives) and self._count == self.lives[self._life]:
            self._life, self._count = self._life + 1, 0
            self.burnt.append((moment, what))
            raise Crash(f"{moment} {what}")


@dataclass(frozen=True)
class Chapter:
    """What happens; a crash in the middle of it is followed by the same again, as an operator would."""

    words: str
    happens: Callable[[World], object]
    goal: Callable[[World], bool]


@dataclass(frozen=True)
class Story:
    """Agents are created for each run of the story."""

    spec: ServiceSpec
    agents: Callable[[], Sequence[Agent]]
    chapters: Sequence[Chapter]
    kills_at_once: bool = True
    #: Whether updates come in bursts.
    bursts: bool = False
    #: Tasks that a death in the middle of a gang's launch may start once more.
    again: frozenset[str] = frozenset()


def tell(story: Story, *lives: int) -> tuple[World, Fuse]:
    """The whole story, with a death at the given points."""
    fuse = Fuse(lives)
    world = None
    while world is None:
        world = _alive(lambda: World(story.spec, *story.agents(), kills_at_once=story.kills_at_once, checkpoint=fuse))
    world.watches_moves, world.bursts = False, story.bursts
    _again(world, world.register)
    for chapter in story.chapters:
        _again(world, partial(chapter.happens, world))
        _until(world, chapter)
        check(world)
    return world, fuse


def points(story: Story) -> int:
    """How many points an undisturbed telling has."""
    return len(tell(story)[1].passed)


def _until(world: World, chapter: Chapter) -> None:
    for _ in range(PATIENCE):
        _again(world, world.settle)
        if chapter.goal(world) and not world.mesos.events:
            return
        _again(world, lambda: world.wait(1.0))
        if world.mesos.subscribed:
            world.mesos.allocate(world.now)
        _again(world, world.settle)
        for task in world.mesos.live().values():
            if task.state is TaskState.STAGING:
                world.mesos.report(task.launch.record.id, TaskState.RUNNING)
            elif task.launch.record.id in world.mesos.doomed:
                world.mesos.report(task.launch.record.id, TaskState.KILLED)
    raise AssertionError(f"{chapter.words}: {PATIENCE} s were not enough; {world.state}")


def _again(world: World, do: Callable[[], object]) -> None:
    """Do it; after a death, start again on what is stored, and do it once more."""
    while True:
        try:
            do()
            return
        except Crash:
            _revive(world)


def _revive(world: World) -> None:
    while True:
        try:
            world.decisions.clear()
            world.restart()
            if not world.state.process.finished:
                world.register()
            return
        except Crash:
            continue


def _alive(make: Callable[[], World]) -> World | None:
    try:
        return make()
    except Crash:
        return None


def check(world: World) -> None:
    """What holds whenever nothing is under way."""
    mesos = world.mesos
    assert not mesos.subscribed or set(mesos.offers) == set(world.state.session.offers), "an offer waits for its answer"
    for task in mesos.tasks.values():
        assert not task.updates or mesos.removed, f"{task.launch.record.id} waits for an acknowledgement"
    assert not mesos.operations or mesos.removed, f"{list(mesos.operations)} wait for an acknowledgement"
    forgotten = reserved(mesos) - set(world.state.stored.reservations)
    assert not forgotten, f"{forgotten} stay reserved forever"


def reserved(mesos: FakeMesos) -> set[str]:
    """Ids of what is reserved for us."""
    entries = [entry for agent in mesos.agents.values() for entry in agent.free.entries()]
    entries += [entry for _, pool in mesos.offers.values() for entry in pool.entries()]
    entries += [entry for task in mesos.tasks.values() if task.live for entry in task.pool.entries()]
    return {entry_use(entry.shape).resource_id for entry in entries} - {""}


def launches(world: World) -> Counter[str]:
    """Task -> how many launches of it Mesos has seen."""
    return Counter(str(task.launch.record.name) for task in world.mesos.tasks.values())
