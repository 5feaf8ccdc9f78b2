"""Every row of the table of step transitions happens.

Every simulated world rejects other transitions at each event; here is a history for each row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import a_spec
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from step_transitions import TRANSITIONS
from tf_executor.contract.states import TaskState
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy, Verb
from tf_scheduler.model.spec import JobKind

RUNNING, FAILED, FINISHED = TaskState.RUNNING, TaskState.FAILED, TaskState.FINISHED
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}
RETUNE = PlanSpec("retune", PlanStrategy.SERIAL, (PhaseSpec("again", "worker", PlanStrategy.SERIAL),))


def a_world(*plans: Any, **options: Any) -> Any:
    spec = replace(a_spec(**{"workers": 2, "ps": 1, "chief": 0, **options}), plans={plan.name: plan for plan in plans})
    world = World(spec, an_agent(cpus=8, mem=32_000), kills_at_once=False)
    return play(world, send.register(), send.offers())


def running(*plans: Any, **options: Any) -> Any:
    return play(a_world(*plans, **options), send.running())


def lost(name: Any) -> Any:
    return send.status(name, FAILED, **KILLED_HARD)


def on_worker(verb: Any, plan: Any = "deploy", phase: Any = "worker") -> Any:
    return send.command(verb, plan, phase, "worker-0")


def other_ps_options(spec: Any) -> Any:
    """Other options for the ps: the chief restarts with it."""
    jobs = tuple(replace(job, command="better") if job.kind is JobKind.PS else job for job in spec.jobs)
    return replace(spec, jobs=jobs)


def unhealthy_then_healthy_then_lost() -> Any:
    """Of an incomplete deployment."""
    return play(
        a_world(),
        send.status("worker-0", RUNNING, healthy=False),
        send.status("worker-0", RUNNING, healthy=True),
        send.status("worker-0", RUNNING, healthy=False),
        lost("worker-0"),
        send.offers(),
        expect.launched("worker-0"),
        lost("worker-0"),
        send.wait(400),
        send.offers(),
        send.status("worker-0", RUNNING),
        lost("worker-0"),
        on_worker(Verb.FORCE_COMPLETE),
    )


def lost_and_stopped(while_running: Any) -> Any:
    world = play(a_world(), lost("worker-0"), send.offers(), send.status("worker-0", RUNNING, healthy=while_running))
    return play(world, lost("worker-0"), on_worker(Verb.STOP), send.stop())


def lost_and_ended(*between: Any) -> Any:
    """The job ends while a task waits for its relaunch."""
    world = play(a_world(), lost("worker-0"), send.offers(), lost("worker-0"))
    return play(world, *between, send.stop())


def lost_once_and_ended(*between: Any) -> Any:
    return play(a_world(), lost("worker-0"), *between, send.stop())


def stopped(*first: Any) -> Any:
    return play(a_world(), *first, on_worker(Verb.STOP))


def restarted(*first: Any) -> Any:
    return play(a_world(), *first, on_worker(Verb.RESTART))


def relaunched_by_another_plan() -> Any:
    return play(running(RETUNE), send.command(Verb.START, "retune"), on_worker(Verb.FORCE_COMPLETE, "retune", "again"))


def two_plans_want_a_task() -> Any:
    other = PlanSpec("other", PlanStrategy.SERIAL, (PhaseSpec("first", "worker", indexes=(0,)),))
    return play(
        running(RETUNE, other),
        send.command(Verb.START, "other"),
        send.command(Verb.START, "retune"),
        send.killed("worker-0"),
        send.offers(),
    )


def stopped_while_being_killed() -> Any:
    return play(
        running(RETUNE),
        send.command(Verb.START, "retune"),
        on_worker(Verb.INTERRUPT, "retune", "again"),
        on_worker(Verb.CONTINUE, "retune", "again"),
        send.killed("worker-0"),
        send.offers(),
    )


def interrupted_and_forced() -> Any:
    return play(
        World(a_spec(chief=0), an_agent()),
        send.register(),
        on_worker(Verb.INTERRUPT),
        on_worker(Verb.FORCE_COMPLETE),
    )


def interrupted_teardown() -> Any:
    world = running(workers=3)
    return play(
        world,
        send.restart(replace(world.state.spec, jobs=a_spec(workers=1, chief=0).jobs)),
        send.killed("worker-2"),
        send.wait(1),
        send.stop(),
        send.command(Verb.INTERRUPT, "uninstall", "kill-tasks", "kill-ps-0"),
    )


def interrupted_kill_completes() -> Any:
    world = running(workers=3)
    return play(
        world,
        send.restart(replace(world.state.spec, jobs=a_spec(workers=1, chief=0).jobs)),
        send.command(Verb.INTERRUPT, "decommission", "worker-1", "kill-worker-1"),
        send.killed("worker-2"),
        send.command(Verb.CONTINUE, "decommission", "worker-1", "kill-worker-1"),
        send.killed("worker-1"),
    )


def user_plan_fails() -> Any:
    deploy = PlanSpec("deploy", phases=(PhaseSpec("ps", "ps"), PhaseSpec("worker", "worker")))
    train = PlanSpec("train", phases=(PhaseSpec("chief", "chief"),))
    world = play(running(deploy, train, chief=1), send.command(Verb.START, "train"), send.offers())
    chief = ("train", "chief", "chief-0")
    return play(
        world,
        send.status("chief-0", FAILED),
        send.command(Verb.RESTART, *chief),
        send.offers(),
        send.status("chief-0", RUNNING, healthy=False),
        send.status("chief-0", FAILED),
        send.command(Verb.STOP, *chief),
        send.command(Verb.START, *chief),
        send.offers(),
        send.status("chief-0", FAILED),
        send.command(Verb.FORCE_COMPLETE, *chief),
    )


def outdated_chief_with_returning_peer(*before: Any, earlier: Any = ()) -> Any:
    """The ps comes back before the chief's step: the chief need not restart."""
    serial = PlanSpec("update", PlanStrategy.SERIAL)
    world = running(serial, workers=1, chief=1)
    return play(
        world,
        *earlier,
        send.restart(other_ps_options(world.state.spec)),
        *before,
        send.killed("ps-0"),
        send.offers(),
        send.running(),
    )


def finished_task_in_user_plan() -> Any:
    """By a user plan, before the deployment is complete."""
    first = PlanSpec("first", phases=(PhaseSpec("ps", "ps"),))
    done = send.status("ps-0", FINISHED)
    return play(a_world(first), done, send.command(Verb.START, "first"), send.offers(), expect.launched("ps-0"))


def histories() -> Any:
    unwell = send.status("worker-0", RUNNING, healthy=False)
    well = send.status("worker-0", RUNNING)
    yield unhealthy_then_healthy_then_lost()
    yield lost_and_stopped(False)
    yield lost_and_stopped(None)
    yield lost_and_ended()
    yield lost_once_and_ended()
    yield lost_once_and_ended(send.offers(), well, lost("worker-0"))
    yield play(a_world(), well, lost("worker-0"))
    yield play(a_world(), well, send.status("worker-0", TaskState.ERROR, reason="REASON_TASK_UNAUTHORIZED"))
    yield play(a_world(), send.status("worker-0", TaskState.ERROR, reason="REASON_TASK_UNAUTHORIZED"))
    yield two_plans_want_a_task()
    yield finished_task_in_user_plan()
    yield outdated_chief_with_returning_peer(earlier=(lost("chief-0"), send.offers(), send.running(), lost("chief-0")))
    yield lost_once_and_ended(on_worker(Verb.INTERRUPT))
    yield play(a_world(), send.status("worker-0", TaskState.UNREACHABLE), send.status("worker-0", TaskState.STARTING))
    for first in ((), (unwell,), (well,)):
        yield stopped(*first)
        yield restarted(*first)
    yield relaunched_by_another_plan()
    yield stopped_while_being_killed()
    yield interrupted_and_forced()
    yield interrupted_teardown()
    yield interrupted_kill_completes()
    yield user_plan_fails()
    yield outdated_chief_with_returning_peer()
    yield outdated_chief_with_returning_peer(send.status("chief-0", RUNNING, healthy=False))
    yield outdated_chief_with_returning_peer(lost("chief-0"))
    yield outdated_chief_with_returning_peer(
        send.status("chief-0", RUNNING, healthy=False), send.command(Verb.INTERRUPT, "update", "chief", "chief-0")
    )


def test_every_step_transition_happens() -> None:
    """The table has no further row: a row that cannot happen would mislead readers."""
    moves = set().union(*(world.moves for world in histories()))

    assert {(old, new) for old, row in TRANSITIONS.items() for new in row} == moves
