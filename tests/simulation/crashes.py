"""Scenarios in which the scheduler crashes at a chosen point and must recover.

    story = Story(a_spec(), agents, (deploy, lose_a_worker))
    for point in range(1, points(story) + 1): run_story(story, point)

A story is a list of chapters. A chapter is an event in Mesos or an operator's command; the world then continues
(offers, starting tasks, time) until the chapter's goal is reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from simulation.mesos import Agent
from simulation.world import World
from tf_executor.contract.states import TaskState
from tf_scheduler.model.spec import ServiceSpec

#: Maximum number of rounds of one second each; no story needs as many.
PATIENCE = 400


class Crash(BaseException):
    """Simulated SIGKILL of the scheduler."""


@dataclass
class CrashInjector:
    """Crash at `crash_points`, each counted in passed points since the previous crash."""

    crash_points: Sequence[int] = ()
    passed: list[tuple[str, str]] = field(default_factory=list)
    crashes: list[tuple[str, str]] = field(default_factory=list)
    _crashes: int = 0
    _count: int = 0

    def __call__(self, moment: str, what: str) -> None:
        self.passed.append((moment, what))
        self._count += 1
        if self._crashes < len(self.crash_points) and self._count == self.crash_points[self._crashes]:
            self._crashes, self._count = self._crashes + 1, 0
            self.crashes.append((moment, what))
            raise Crash(f"{moment} {what}")


@dataclass(frozen=True)
class Chapter:
    """An event and its goal; the event is repeated if the scheduler crashes during it."""

    name: str
    act: Callable[[World], object]
    goal: Callable[[World], bool]
    #: What executors report meanwhile, every second.
    report: Callable[[World], object] = lambda _: None


@dataclass(frozen=True)
class Story:
    """A scenario; its agents are created for each run."""

    spec: ServiceSpec
    agents: Callable[[], Sequence[Agent]]
    chapters: Sequence[Chapter]
    kills_at_once: bool = True
    #: Whether updates come in bursts.
    bursts: bool = False
    #: Tasks that may be launched again after a crash during a gang launch.
    again: frozenset[str] = frozenset()


def run_story(story: Story, *crash_points: int) -> tuple[World, CrashInjector]:
    """Run the whole story, with a crash at the given points."""
    injector = CrashInjector(crash_points)
    world = None
    while world is None:
        world = _construct(
            lambda: World(story.spec, *story.agents(), kills_at_once=story.kills_at_once, checkpoint=injector)
        )
    world.watches_moves, world.bursts = False, story.bursts
    _retry_after_crash(world, world.register)
    for chapter in story.chapters:
        _retry_after_crash(world, partial(chapter.act, world))
        _until(world, chapter)
        check(world)
    return world, injector


def points(story: Story) -> int:
    """Return the number of points that an undisturbed run passes."""
    return len(run_story(story)[1].passed)


def _until(world: World, chapter: Chapter) -> None:
    for _ in range(PATIENCE):
        _retry_after_crash(world, world.settle)
        if chapter.goal(world) and not world.mesos.events:
            return
        _retry_after_crash(world, lambda: world.wait(1.0))
        if world.mesos.subscribed:
            world.mesos.allocate(world.now)
        _retry_after_crash(world, world.settle)
        _retry_after_crash(world, partial(chapter.report, world))
        for task in world.mesos.live().values():
            if task.state is TaskState.STAGING:
                world.mesos.report(task.launch.record.id, TaskState.RUNNING)
            elif task.launch.record.id in world.mesos.doomed:
                world.mesos.report(task.launch.record.id, TaskState.KILLED)
    raise AssertionError(f"{chapter.name}: {PATIENCE} s were not enough; {world.state}")


def _retry_after_crash(world: World, do: Callable[[], object]) -> None:
    """Call `do`; after a crash, restart on the stored state, and call it again."""
    while True:
        try:
            do()
            return
        except Crash:
            _restart(world)


def _restart(world: World) -> None:
    while True:
        try:
            world.decisions.clear()
            world.restart()
            if not world.state.process.finished:
                world.register()
            return
        except Crash:
            continue


def _construct(make: Callable[[], World]) -> World | None:
    try:
        return make()
    except Crash:
        return None


def check(world: World) -> None:
    """Check the invariants of a world without pending events."""
    mesos = world.mesos
    held = world.state.session.round.offers.keys()
    assert not mesos.subscribed or mesos.offers.keys() == held, "an offer waits for its answer"
    for task in mesos.tasks.values():
        assert not task.updates or mesos.removed, f"{task.launch.record.id} waits for an acknowledgement"


def launches(world: World) -> Counter[str]:
    """Return the number of launches of each task that Mesos has received."""
    return Counter(str(task.launch.record.name) for task in world.mesos.tasks.values())
