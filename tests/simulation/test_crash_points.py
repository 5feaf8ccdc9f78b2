"""The result is the same after a crash at any store, call or log entry.

A story runs once undisturbed to count the points, and then once for each point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, a_spec
from simulation.crashes import Chapter, Story, launches, points, run_story
from simulation.mesos import Agent, an_agent
from simulation.world import World
from tf_executor.contract.payload import Payload
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.plan_messages import find_plan
from tf_scheduler.model import effects
from tf_scheduler.model.events import (
    PlanCommand,
    ProgressReported,
    ReloadSecrets,
    ScaleRequested,
    SecretsRequested,
    StopRequested,
)
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.plan import Reply, Verb
from tf_scheduler.model.secrets import SecretDelivery, SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskRecord

KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def agents(count: int, cpus: float = 2) -> Callable[[], list[Agent]]:
    numbers = range(1, count + 1)
    return lambda: [replace(an_agent(f"agent-{number}", cpus=cpus), address=f"10.0.0.{number}") for number in numbers]


# --- goals


def all_run(world: World) -> bool:
    """Every task runs, and no plan has pending work."""
    live = world.mesos.live().values()
    return (
        len(live) == world.state.spec.task_count
        and all(task.state is TaskState.RUNNING for task in live)
        and all(find_plan(world.state, name).status is Status.COMPLETE for name in ("deploy", "recovery"))
    )


def removed(world: World) -> bool:
    return world.mesos.removed and world.state.process.finished and not world.mesos.live()


# --- chapters


def reports(name: str, state: TaskState, goal: Callable[[World], bool] = all_run, **details: object) -> Chapter:
    def report(world: World) -> None:
        world.mesos.report(world.mesos.live()[name].launch.record.id, state, **details)

    return Chapter(f"{name} {state.label}", report, goal)


def wish(verb: Verb, plan: str, phase: str = "", step: str = "", goal: Callable[[World], bool] = all_run) -> Chapter:
    """An operator without an answer repeats the command; it may be done already."""

    def ask(world: World) -> None:
        answer = world.step(PlanCommand(verb, plan, phase, step)).answer
        assert answer is not None
        assert answer.reply in (Reply.OK, Reply.ALREADY), answer

    return Chapter(f"{verb.value} {plan}", ask, goal)


def nothing(_world: World) -> None:
    """Time passes."""


def start_again(world: World) -> None:
    world.restart()
    world.register()


def window(world: World) -> None:
    world.mesos.maintain("agent-2", Unavailability(world.now + 100, None))


def moved(world: World) -> bool:
    return all_run(world) and all(record.hostname != "agent-2" for record in world.state.live())


def starts_with_secrets(world: World) -> None:
    """Executors request secrets before their tasks run."""
    world.mesos.allocate(world.now)
    world.settle()
    for launch in (task.launch for task in world.mesos.live().values()):
        token, host = Payload.decode(launch.payload).secrets_token, launch.record.address.rpartition(":")[0]
        world.step(SecretsRequested(launch.record.id, token, launch.record.id, host))


def renew(world: World) -> None:
    """Accept status 208: an executor without secrets after a crash does not ask again."""
    answer = world.step(ReloadSecrets()).answer
    assert answer is not None
    assert answer.reply in (Reply.OK, Reply.ALREADY), answer


def saves(world: World) -> None:
    """The executor repeats how many checkpoints the program has written."""
    if world.state.stored.resized.until is not None:
        _tell(world, world.state.stored.tasks[TaskName("worker-0")], saves=1)


def answers(world: World) -> None:
    """Servers answer, and the chief confirms the list of its workers."""
    for task in world.mesos.live().values():
        status = world.state.stored.statuses.get(task.launch.record.id)
        if task.state is TaskState.RUNNING and status is not None and not status.healthy:
            world.mesos.report(task.launch.record.id, TaskState.RUNNING, healthy=True)
    members = world.state.stored.members
    if members is not None and not members.confirmed:
        _tell(world, world.state.stored.tasks[TaskName("chief-0")], members=members.version)


def _tell(world: World, record: TaskRecord, **values: int) -> None:
    last = world.state.process.progress.get(record.id)
    progress = Progress(1 + (last.sequence if last else 0), world.now, **values)
    world.step(ProgressReported(record.id, progress, record.agent_id))


def scaled(count: int, report: Callable[[World], object]) -> Chapter:
    """An operator's request; the job trains with this number of workers in the end."""

    def trains(world: World) -> bool:
        members = world.state.stored.members
        workers = {name for name in world.mesos.live() if name.startswith("worker-")}
        listed = not world.state.spec.live or (members is not None and members.workers.keys() == workers)
        return len(workers) == count and all_run(world) and listed

    return Chapter(f"scale to {count}", lambda world: world.step(ScaleRequested(count)), trains, report)


DEPLOY = Chapter("deploy", nothing, all_run)
FINISH = reports("chief-0", TaskState.FINISHED, removed)
STOP = Chapter("stop", lambda world: world.step(StopRequested("enough")), removed)
RELOADED = SecretSpec("file:key", file="key", reloads=True)
LIVE = replace(a_spec(workers=2, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER), live=True, max_workers=4)
MIRRORED = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 3),))

#: On two agents a gang is launched with two ACCEPTs. If only one was sent, the other's tasks get new addresses,
#: which this chief does not know.
CHIEF = frozenset({"chief-0"})

STORIES = {
    "a job from start to end": Story(a_spec(), agents(2), (DEPLOY, FINISH), again=CHIEF),
    "a worker is lost": Story(a_spec(), agents(2, 3), (DEPLOY, reports("worker-0", TaskState.FAILED, **KILLED_HARD))),
    "a ps is lost": Story(a_spec(), agents(2, 3), (DEPLOY, reports("ps-0", TaskState.FAILED, **KILLED_HARD))),
    "a mirrored worker is lost": Story(
        MIRRORED, agents(1, 8), (DEPLOY, reports("worker-1", TaskState.FAILED, **KILLED_HARD))
    ),
    "an agent is lost": Story(
        a_spec(),
        agents(3),
        (DEPLOY, Chapter("lost", lambda world: world.mesos.lose("agent-2"), all_run)),
        again=CHIEF,
    ),
    "an agent is lost, in one burst": Story(
        a_spec(),
        agents(3),
        (DEPLOY, Chapter("lost", lambda world: world.mesos.lose("agent-2"), all_run)),
        bursts=True,
        again=CHIEF,
    ),
    "an agent goes into maintenance": Story(
        a_spec(), agents(3), (DEPLOY, Chapter("window", window, moved)), again=CHIEF
    ),
    "started again and uninstalled": Story(
        a_spec(), agents(2, 3), (DEPLOY, Chapter("start again", start_again, all_run), STOP), kills_at_once=False
    ),
    "restarted by an operator": Story(
        a_spec(workers=1), agents(2, 3), (DEPLOY, wish(Verb.RESTART, "deploy", "worker"))
    ),
    "resized at a checkpoint": Story(
        replace(MIRRORED, resize_wait=600.0, checkpoint_dir="/data", max_workers=4),
        agents(1, 8),
        (DEPLOY, scaled(4, saves), scaled(2, saves)),
    ),
    "workers join and leave": Story(
        LIVE, agents(2, 4), (replace(DEPLOY, report=answers), scaled(4, answers), scaled(1, answers))
    ),
    "secrets are renewed": Story(
        a_spec(workers=1, chief=0, ps=0, secrets=(RELOADED,), secret_delivery=SecretDelivery("http://10.0.0.9:8080")),
        agents(1),
        (
            Chapter("launch", starts_with_secrets, all_run),
            Chapter("renew", renew, all_run),
        ),
    ),
}

every_story = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)


@every_story
def test_crash_at_any_point_has_same_result(story: Any) -> None:
    """Tasks run once, and updates and offers are answered."""
    undisturbed, injector = run_story(story)
    expected = launches(undisturbed)
    for point, place in enumerate(injector.passed, 1):
        world, injector = run_story(story, point)
        assert [place] == injector.crashes
        count = launches(world)
        assert expected == count or set(count - expected) <= story.again, f"died at point {point}: {place}"
        assert set(undisturbed.mesos.live()) == set(world.mesos.live())


@given(st.sampled_from(sorted(STORIES)), st.integers(1, 50), st.lists(st.integers(1, 20), min_size=1, max_size=3))
@settings(max_examples=40)
def test_repeated_crashes_have_same_result(name: Any, first: Any, others: Any) -> None:
    """Each life passes some more points, including those of the start, and then ends."""
    story = STORIES[name]
    world, _ = run_story(story, first, *others)

    assert set(launches(world)) == set(launches(run_story(story)[0]))


def test_stories_cover_every_kind_of_crash_point() -> None:
    """A new kind of call needs a story."""
    passed = {place for story in STORIES.values() for place in run_story(story)[1].passed}
    calls = {kind.__name__ for kind in effects.Call.__args__}

    assert {("after", "outcomes")} | {(m, w) for m in ("before", "after") for w in ({"store"} | calls)} == passed


def test_story_has_many_crash_points() -> None:
    """Otherwise nothing was tested."""
    assert 50 < points(STORIES["a job from start to end"])
