"""Lost state: the framework continues with records from labels of its tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import a_job, a_spec
from kit.master_answers import MasterAnswers, answers_of
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.mesos.registration import LostFrameworks, check_registration
from tf_scheduler.model.effects import Kill
from tf_scheduler.model.events import ResetRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import PodVerb

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
FRAMEWORK = "framework-1"
LAUNCHED = (send.offers(), send.running())


def adopt(world: World, answers: MasterAnswers | None = None, *, reset: bool = False) -> World:
    """Restart the scheduler with an empty store, and adopt or reset the framework."""
    orders = LostFrameworks(reset=FRAMEWORK) if reset else LostFrameworks(adopt=FRAMEWORK)
    spec = world.state.stored.full_spec or world.state.spec
    event = check_registration(spec, orders, answers or answers_of(world.mesos))
    assert event is not None
    world.disk.services.clear()
    world.restart(spec)
    world.decisions.clear()
    world.step(event)
    world.register()
    return world


def records(world: World) -> dict[TaskName, Any]:
    return {name: replace(record, token="", exec_key="") for name, record in world.state.stored.tasks.items()}


def test_adoption_restores_records_and_keeps_tasks() -> None:
    """Each record is equal; nothing is killed or launched, now or later."""
    secret = SecretSpec("env:TOKEN", env="TOKEN")
    world = deployed(a_spec(secrets=(secret,)))
    before, launches = records(world), set(world.mesos.tasks)
    assert all(record.token for record in world.state.stored.tasks.values())

    play(
        adopt(world),
        expect.alive(*ALL),
        expect.plan("deploy", Status.COMPLETE),
        expect.reconciled(*ALL),
    )
    assert [] == world.calls_of(Kill)
    play(world, send.wait(2000), send.offers(), expect.alive(*ALL))

    assert before == records(world)
    assert launches == set(world.mesos.tasks)
    assert FRAMEWORK == world.state.stored.framework_id


def test_adoption_reports_what_is_lost() -> None:
    world = adopt(deployed())

    (message,) = [item.message for item in world.outcomes if item.kind == "FrameworkAdopted"]
    assert message.startswith(f"adopted framework {FRAMEWORK} with 4 tasks; not restored: interrupted plans")


def test_adopted_job_recovers_and_succeeds() -> None:
    """A lost worker returns to its address, with a higher number of the launch."""
    world = adopt(deployed())
    before = world.state.stored.tasks[TaskName("worker-1")]

    play(
        world,
        send.status("worker-1", TaskState.FAILED, exit_code=1, message="exit code 1"),
        send.wait(60),
        send.offers(),
        send.running(),
        expect.alive(*ALL),
    )
    after = world.state.stored.tasks[TaskName("worker-1")]
    assert (before.address, before.generation) == (after.address, after.generation)
    assert before.serial < after.serial

    play(world, send.status("chief-0", TaskState.FINISHED))
    assert Verdict.SUCCEEDED is world.state.stored.result.verdict


def test_changed_options_restart_adopted_tasks() -> None:
    """The digest of the launch options is in the label."""
    world = deployed(a_spec(ps=0, chief=0, strategy=Strategy.INDEPENDENT))
    answers, old = answers_of(world.mesos), set(world.mesos.tasks)
    jobs = tuple(replace(job, command="better") for job in world.state.spec.jobs)
    world.state = replace(world.state, spec=replace(world.state.spec, jobs=jobs))

    adopt(world, answers)
    for _ in range(4):
        play(world, send.offers(), send.running())

    play(world, expect.alive("worker-0", "worker-1"))
    assert old.isdisjoint(world.id_of(name) for name in ("worker-0", "worker-1"))


def test_finished_task_is_not_launched_again() -> None:
    spec = a_spec(ps=0, chief=0, strategy=Strategy.INDEPENDENT)
    world = play(deployed(spec), send.status("worker-0", TaskState.FINISHED))

    play(adopt(world), send.offers(), expect.alive("worker-1"))

    play(world, send.status("worker-1", TaskState.FINISHED))
    assert Verdict.SUCCEEDED is world.state.stored.result.verdict


def test_failed_task_is_launched_again() -> None:
    """Its failure is forgotten."""
    spec = a_spec(ps=0, chief=0, strategy=Strategy.INDEPENDENT)
    world = play(deployed(spec), send.status("worker-0", TaskState.FAILED, exit_code=1))

    play(adopt(world), send.offers(), expect.launched("worker-0"))
    assert {} == world.state.stored.recoveries


def test_earlier_launch_of_a_task_is_not_adopted() -> None:
    """Only its last launch; a killed one that still runs is killed again."""
    world = deployed(kills_at_once=False)
    play(world, send.pod(PodVerb.RESTART, "worker-1"), send.killed("worker-1"), send.offers(), send.running())
    current = world.id_of("worker-1")

    play(adopt(world), expect.alive(*ALL))
    assert current == world.id_of("worker-1")


def test_task_without_label_is_stopped_then_launched() -> None:
    """Never both at a time, which the simulated Mesos checks."""
    world = deployed(a_spec(ps=0, chief=0, strategy=Strategy.INDEPENDENT), kills_at_once=False)
    answers, old = answers_of(world.mesos), world.id_of("worker-0")
    for task in answers.tasks["tasks"]:
        if task["name"] == "worker-0":
            del task["labels"]

    play(adopt(world, answers), send.wait(10), expect.alive("worker-0", "worker-1"), send.offers())
    assert old == world.mesos.live()["worker-0"].launch.record.id
    play(world, send.killed("worker-0"), send.offers(), send.running(), expect.alive("worker-0", "worker-1"))

    assert old != world.id_of("worker-0")
    play(world, expect.plan("deploy", Status.COMPLETE))


def test_unknown_task_of_adopted_framework_is_killed() -> None:
    """It runs although the master did not list it before."""
    world = deployed(a_spec(ps=0, chief=0, strategy=Strategy.INDEPENDENT))
    answers = answers_of(world.mesos)
    answers.tasks["tasks"] = [task for task in answers.tasks["tasks"] if task["name"] != "worker-0"]

    play(adopt(world, answers), expect.killed("worker-0"), expect.outcome("killing worker-0__"))


def test_paused_task_resumes_after_adoption() -> None:
    """Pauses are not in Mesos; the placeholder is replaced by the program."""
    world = play(deployed(), send.pod(PodVerb.PAUSE, "worker-1"), send.offers(), send.running())
    assert world.state.stored.tasks[TaskName("worker-1")].is_placeholder

    adopt(world)
    play(world, send.wait(60), send.offers(), send.running(), expect.alive(*ALL))

    assert not world.state.stored.tasks[TaskName("worker-1")].is_placeholder


def test_adopted_elastic_cluster_keeps_its_size() -> None:
    """Two of three workers run: adoption does not restart them to add the third."""
    jobs = (a_job(JobKind.WORKER, 3, min_count=2),)
    spec = a_spec(jobs=jobs, strategy=Strategy.MULTI_WORKER_MIRRORED)
    world = World(spec, an_agent("agent-1", cpus=1.3), an_agent("agent-2", cpus=0.7))
    play(world, send.register(), send.offers(), send.running(), send.agent_lost("agent-2"))
    for _ in range(40):
        play(world, send.wait(30), send.offers(), send.running())
    play(world, expect.alive("worker-0", "worker-1"))
    before = records(world)

    play(adopt(world), send.wait(60), send.offers(), expect.alive("worker-0", "worker-1"))

    assert before == records(world)
    assert world.state.stored.full_spec == spec


def test_failed_worker_does_not_reduce_adopted_elastic_cluster() -> None:
    """It was launched with the others, so the cluster restarts with all."""
    jobs = (a_job(JobKind.WORKER, 3, min_count=2),)
    world = deployed(a_spec(jobs=jobs, strategy=Strategy.MULTI_WORKER_MIRRORED))
    answers = answers_of(world.mesos)
    failed = answers.tasks["tasks"].pop()
    answers.tasks["completed_tasks"].append({**failed, "state": "TASK_FAILED"})
    play(world, send.status(failed["name"], TaskState.FAILED, exit_code=1))

    adopt(world, answers)
    for _ in range(4):
        play(world, send.wait(10), send.offers(), send.running())

    play(world, expect.alive("worker-0", "worker-1", "worker-2"))
    assert world.state.stored.full_spec is None


def test_reset_stops_tasks_before_the_job_restarts() -> None:
    """Old programs end first; then the framework is torn down and replaced."""
    world = deployed(kills_at_once=False)
    old = set(world.mesos.tasks)

    play(adopt(world, reset=True), expect.alive(*ALL), expect.killed(*ALL))
    assert not world.state.process.finished
    play(world, send.killed(*ALL), expect.torn_down())
    assert (True, FRAMEWORK) == (world.state.stored.removed, world.state.stored.framework_id)

    world.mesos.removed = False
    world.mesos.tasks.clear()
    play(world, send.event(ResetRequested()), send.register(), send.offers(), send.running(), expect.alive(*ALL))
    assert old.isdisjoint(world.mesos.tasks)
    assert world.state.stored.result is None
    assert not world.state.process.stop_requested


def test_interrupted_plan_of_lost_state_continues() -> None:
    """The interruption is lost, which is reported."""
    world = play(deployed(), send.command(Verb.INTERRUPT, "deploy"))

    play(adopt(world), expect.plan("deploy", Status.COMPLETE))


def test_gang_waits_for_the_end_of_launches_that_the_store_lacks() -> None:
    """The store is an older copy; two programs of a task could write a checkpoint."""
    spec = a_spec(workers=2, ps=0, chief=0, strategy=Strategy.MULTI_WORKER_MIRRORED)
    world = deployed(spec, *(an_agent(f"agent-{number}") for number in range(4)), kills_at_once=False)
    older = dict(world.disk.services)
    play(world, send.status("worker-0", TaskState.FAILED, signal=9), send.killed(), send.wait(9), *LAUNCHED)
    play(world, expect.alive("worker-0", "worker-1"))
    world.disk.services.update(older)

    play(world, send.restart(spec), *LAUNCHED, send.wait(5), *LAUNCHED)

    assert ["worker-0", "worker-1"] == sorted(
        task.launch.record.name for task in world.mesos.tasks.values() if task.live
    )
    play(world, send.killed(), *LAUNCHED, expect.alive("worker-0", "worker-1"))
    assert world.id_of("worker-0") == world.mesos.live()["worker-0"].launch.record.id
