"""Random histories of every kind of job, and the calm after them.

After each event the store has the state in memory, and no worker was stopped that its chief uses. In the end every task
runs, or the job has a result.

HISTORIES in the environment is the number of histories of each kind. A failure names the kind and the seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest

from builders import a_job, a_spec
from kit.memory_store import MemoryStore
from simulation.mesos import an_agent
from simulation.test_plan_properties import check_deadline, let_go, stored_part
from simulation.world import World
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import SILENT_STATES, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.spec_index import worker_job
from tf_scheduler.model.effects import Kill
from tf_scheduler.model.events import FrameworksWait, PodCommand, ProgressReported, ScaleRequested
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec
from tf_scheduler.model.task import PodVerb
from tf_scheduler.runner import restore

PER_KIND = int(os.environ.get("HISTORIES", "12"))
EVENTS = 40
SIDE_JOBS = (a_job(JobKind.TENSORBOARD), a_job(JobKind.EVALUATOR))
DATA_SERVICE = (a_job(JobKind.DISPATCHER, section="data_dispatcher"), a_job(JobKind.DATA_WORKER, 2))


def a_service(strategy: Strategy, *more: JobSpec, **options: object) -> ServiceSpec:
    """Two workers, of at most four, and what the strategy needs besides."""
    needs_ps = strategy in (Strategy.PARAMETER_SERVER, Strategy.BETWEEN_GRAPH)
    spec = a_spec(workers=2, ps=int(needs_ps), chief=int(strategy is Strategy.PARAMETER_SERVER), strategy=strategy)
    changes = {"min_workers": 1, "max_workers": 4, "resize_wait": 60.0, "checkpoint_dir": "/data", **options}
    return replace(spec, jobs=(*spec.jobs, *more), **changes)


KINDS: Mapping[str, ServiceSpec] = {
    "parameter_server": a_service(Strategy.PARAMETER_SERVER, *SIDE_JOBS),
    "live": a_service(Strategy.PARAMETER_SERVER, *SIDE_JOBS, live=True),
    "live grow": a_service(Strategy.PARAMETER_SERVER, live=True, grows=True),
    "data service": a_service(Strategy.PARAMETER_SERVER, *DATA_SERVICE),
    "mirrored": a_service(Strategy.MULTI_WORKER_MIRRORED, *SIDE_JOBS),
    "mirrored grow": a_service(Strategy.MULTI_WORKER_MIRRORED, grows=True),
    "between_graph": a_service(Strategy.BETWEEN_GRAPH, *SIDE_JOBS),
    "independent": a_service(Strategy.INDEPENDENT, *SIDE_JOBS, *DATA_SERVICE),
}


def report_progress(world: World, random: Random) -> None:
    """A task trains and saves; a chief uses the last list of workers."""
    live = sorted(world.mesos.live())
    record = world.state.stored.tasks.get(TaskName(random.choice(live))) if live else None
    if record is None:
        return
    last, members = world.state.process.progress.get(record.id), world.state.stored.members
    step = 1 + (last.step or 0 if last else 0)
    version = members.version if members is not None and members.chief == record.id else None
    sequence = 1 + (last.sequence if last else 0)
    progress = Progress(sequence, world.now, step, saved_step=step, saves=step, members=version)
    world.step(ProgressReported(record.id, progress, record.agent_id))


def end_task(world: World, random: Random) -> None:
    """A program fails, is killed or, rarely, finishes."""
    running = [task for task in world.mesos.live().values() if task.state is TaskState.RUNNING]
    if running:
        task = running[random.randrange(len(running))]
        states: tuple[tuple[TaskState, dict[str, object]], ...] = (
            (TaskState.FAILED, {"exit_code": 1, "message": "boom"}),
            *[(TaskState.FAILED, {"signal": 9, "message": "killed by signal 9 (SIGKILL)"})] * 4,
            (TaskState.FINISHED, {}),
        )
        state, details = random.choice(states)
        world.mesos.report(task.launch.record.id, state, **details)


def join(world: World, random: Random) -> None:
    """Every task runs, and every server answers; the clocks of agents differ."""
    for task in world.mesos.live().values():
        if task.launch.record.id not in world.mesos.doomed:
            at = world.now + random.choice([-600.0, 0.0, 600.0])
            world.mesos.report(task.launch.record.id, TaskState.RUNNING, healthy=True, timestamp=at)


def end_killed(world: World, _: Random) -> None:
    """Each launch that was killed ends."""
    for launch in [launch for launch in world.mesos.doomed if world.mesos.tasks[launch].live]:
        world.mesos.report(launch, TaskState.KILLED)


def change_silence(world: World, random: Random) -> None:
    """A task cannot be reached, or can be again."""
    tasks = list(world.mesos.live().values())
    if tasks:
        task = tasks[random.randrange(len(tasks))]
        back = task.state in SILENT_STATES
        world.mesos.report(task.launch.record.id, TaskState.RUNNING if back else TaskState.UNREACHABLE)


def change_options(world: World, random: Random) -> None:
    """The scheduler restarts, perhaps with another number of workers or user."""
    spec = world.state.stored.full_spec or world.state.spec
    count, user = random.randint(1, 4), random.choice(["me", "you", spec.user, spec.user])
    jobs = (replace(job, count=count) if job is worker_job(spec) else job for job in spec.jobs)
    world.restart(replace(spec, jobs=tuple(jobs), user=user))
    world.register()


def move_scheduler(world: World, random: Random) -> None:
    """The scheduler restarts on a machine whose clock differs."""
    world.now = max(1000.0, world.now + random.choice([-900.0, 900.0]))
    world.restart()
    world.register()


def command_pod(world: World, random: Random) -> None:
    name = random.choice([task.name for task in world.state.spec.tasks()])
    world.step(PodCommand(random.choice([*PodVerb]), name))


def plan_maintenance(world: World, random: Random) -> None:
    start = world.now + random.choice([5.0, 400.0])
    world.mesos.maintain("agent-1", Unavailability(start, start + random.choice([30.0, 600.0])))


HAPPENINGS: tuple[tuple[int, Callable[[World, Random], object]], ...] = (
    (6, lambda world, _: world.mesos.allocate(world.now)),
    (4, join),
    (3, end_task),
    (3, report_progress),
    (2, lambda world, random: world.step(ScaleRequested(random.randint(0, 5)))),
    (2, end_killed),
    (2, change_silence),
    (1, lambda world, random: world.step(FrameworksWait(random.choice([(), ("marathon",)])))),
    (1, change_options),
    (1, command_pod),
    (1, plan_maintenance),
    (1, lambda world, _: world.disconnect() or world.register()),
    (1, lambda world, _: world.restart() or world.register()),
    (1, move_scheduler),
    (5, lambda world, random: world.wait(random.choice([1.0, 7.0, 40.0, 400.0]))),
)


def check(world: World, used: frozenset[str], *, is_exact: bool) -> None:
    """Check what holds after each event.

    `used`: launches that the chief used before. `is_exact`: no clock went back, so no stored time is in the future.
    """
    options = world.state.stored.full_spec or world.state.spec
    again = restore(options, MemoryStore(options.name, world.disk), world.now)
    assert stored_part(again) == stored_part(world.state) or not is_exact
    for state in (world.state, replace(world.state, derived=again.derived)):
        check_deadline(state, world.now)
    assert len(world.state.live()) == world.state.live_count()
    assert not (world.mesos.suppressed and world.state.session.revive_at is None and view_of(world.state).pending_tasks)
    if world.state.stored.result is None and used <= used_workers(world):
        stopped = {name_of(call.task_id) for call in world.calls_of(Kill) if call.task_id in used}
        assert not stopped, f"{sorted(stopped)} stopped, although the chief used them"


def used_workers(world: World) -> frozenset[str]:
    """Launches that have started, in the list that the living chief has confirmed."""
    members, tasks = world.state.members_of_chief(), world.state.stored.tasks
    if members is None or not members.confirmed:
        return frozenset()
    records = {name: tasks[name] for name in members.workers.keys() & tasks.keys()}
    states = {launch: status.state for launch, status in world.state.stored.statuses.items()}
    known = {record.id for name, record in records.items() if record.address == members.workers[name]}
    return frozenset(launch for launch in known if states.get(launch) in (TaskState.RUNNING, *SILENT_STATES))


def is_calm(world: World) -> bool:
    """Return whether the job has a result, or its unfinished tasks alone run."""
    state = world.state
    if state.stored.result is not None or state.process.finished:
        return True
    ended = {name for name, record in state.stored.tasks.items() if state.is_finished(record)}
    names = {task.name for task in state.spec.tasks()} - ended
    running = {name for name, task in world.mesos.live().items() if task.state is TaskState.RUNNING}
    living = {launch for launch, task in world.mesos.tasks.items() if task.live and task.state not in SILENT_STATES}
    return running == names and living <= {record.id for record in state.stored.tasks.values()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(PER_KIND))
def test_history_keeps_its_promises(kind: str, seed: int) -> None:
    random = Random(f"{kind} {seed}")
    world = World(KINDS[kind], *(an_agent(f"agent-{number}", cpus=2.5) for number in range(3)), kills_at_once=False)
    world.watches_moves = seed % 8 == 0  # which triples the time
    world.register()
    weights, happenings = zip(*HAPPENINGS, strict=True)
    has_stepped = False
    for happening in random.choices(happenings, weights, k=EVENTS):
        if world.state.process.finished:
            break
        used, now = used_workers(world), world.now
        world.decisions.clear()
        happening(world, random)
        world.settle()
        has_stepped = has_stepped or world.now < now
        check(world, used, is_exact=not has_stepped)

    more = [an_agent(f"more-{number}") for number in range(3)]
    world.mesos.agents |= {agent.id: agent for agent in more}
    for _ in range(100):
        if is_calm(world):
            break
        let_go(world)
        end_killed(world, random)
        world.mesos.allocate(world.now)
        world.settle()
        join(world, random)
        world.settle()
        report_progress(world, random)
        world.wait(12.0)
        world.settle()

    assert is_calm(world), (sorted(world.mesos.live()), [task.name for task in world.state.spec.tasks()])
