"""User plans with parameters, and operator commands for any plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_spec
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy, Reply, Verb

COMPLETE, PENDING, STARTING, PREPARED = Status.COMPLETE, Status.PENDING, Status.STARTING, Status.PREPARED
IN_PROGRESS, WAITING, ERROR = Status.IN_PROGRESS, Status.WAITING, Status.ERROR
WORKERS = PhaseSpec("again", "worker", PlanStrategy.SERIAL)
RETUNE = PlanSpec("retune", PlanStrategy.SERIAL, (WORKERS,))


def a_world(*plans: Any, kills_at_once: Any = True, **options: Any) -> Any:
    options = {"chief": 0, "strategy": Strategy.PARAMETER_SERVER, **options}
    spec = replace(a_spec(**options), plans={plan.name: plan for plan in plans})
    return World(spec, an_agent(cpus=8, mem=32_000), kills_at_once=kills_at_once)


def complete_deployment(*plans: Any, **options: Any) -> Any:
    return play(
        a_world(*plans, **options), send.register(), send.offers(), send.running(), expect.plan("deploy", COMPLETE)
    )


def test_user_plan_passes_parameters_to_its_tasks() -> None:
    """Tasks restart one by one with the parameters; the next start may have others."""
    play(
        complete_deployment(RETUNE),
        expect.plan("retune", WAITING),
        expect.says("retune", "worker-0", "waits for an operator to start"),
        send.command(Verb.START, "retune", RATE="0.1"),
        expect.answered(Reply.OK, "Received cmd: start retune with parameters: {RATE=0.1}"),
        expect.killed("worker-0"),
        expect.steps("retune", worker_0=PREPARED, worker_1=PENDING),
        send.offers(),
        expect.environment("worker-0", RATE="0.1"),
        send.running(),
        expect.killed("worker-1"),
        send.restart(),
        send.offers(),
        expect.environment("worker-1", RATE="0.1"),
        send.running(),
        expect.plan("retune", COMPLETE),
        send.command(Verb.START, "retune", RATE="0.2"),
        expect.killed("worker-0"),
        send.offers(),
        expect.environment("worker-0", RATE="0.2"),
    )


def test_start_of_running_plan_changes_only_parameters() -> None:
    """Only later launches use the new parameters, as in the SDK."""
    play(
        complete_deployment(RETUNE),
        send.command(Verb.START, "retune", RATE="0.1"),
        send.offers(),
        send.command(Verb.START, "retune", RATE="0.2"),
        expect.answered(Reply.OK),
        expect.killed(),
        send.running(),
        send.offers(),
        expect.environment("worker-0", RATE="0.1"),
        expect.environment("worker-1", RATE="0.2"),
    )


def test_stopped_plan_starts_from_first_step() -> None:
    """Stopping kills no task; the next start restarts every task."""
    play(
        complete_deployment(RETUNE),
        send.command(Verb.START, "retune"),
        send.offers(),
        send.running("worker-0"),
        expect.killed("worker-1"),
        send.command(Verb.STOP, "retune"),
        expect.answered(Reply.OK, "Received cmd: stop"),
        send.offers(),
        expect.launched(),
        expect.plan("retune", WAITING),
        send.command(Verb.START, "retune"),
        expect.killed("worker-0"),
    )


def test_two_plans_with_one_task_take_turns() -> None:
    """The first plan continues; the other reports which plan works on the task."""
    other = PlanSpec("other", PlanStrategy.SERIAL, (PhaseSpec("first", "worker", indexes=(0,)),))
    world = play(
        complete_deployment(RETUNE, other),
        send.command(Verb.START, "other"),
        expect.killed("worker-0"),
        send.command(Verb.START, "retune"),
        expect.killed(),
        expect.steps("retune", worker_0=PREPARED, worker_1=PENDING),
        expect.says("retune", "worker-0", "plan other works on this task"),
        expect.says("retune", "worker-1", "the plan will launch it again in the order of its steps"),
        send.offers(),
        expect.launched("worker-0"),
        expect.plan("other", STARTING),
        send.running(),
        expect.plan("other", COMPLETE),
        expect.killed("worker-0"),
        send.offers(),
        send.running(),
        expect.killed("worker-1"),
    )

    assert "other" != world.state.stored.tasks["worker-0"].plan


def test_deploy_has_priority_over_user_plan() -> None:
    """A task that deploy has yet to launch stays with deploy."""
    play(
        a_world(RETUNE),
        send.register(),
        send.offers(),
        send.command(Verb.START, "retune"),
        expect.killed(),
        expect.plan("deploy", STARTING),
        send.running("worker-0"),
        expect.killed("worker-0"),
    )


def test_tasks_outside_deploy_are_launched_by_user_plan_only() -> None:
    """A failed task fails its user plan, not the job; restarting the plan retries it."""
    deploy = PlanSpec("deploy", phases=(PhaseSpec("ps", "ps"), PhaseSpec("worker", "worker")))
    train = PlanSpec("train", phases=(PhaseSpec("chief", "chief"),))
    play(
        a_world(deploy, train, chief=1),
        send.register(),
        send.offers(),
        expect.launched("ps-0", "worker-0", "worker-1"),
        send.running(),
        expect.plan("deploy", COMPLETE),
        expect.suppressed(),
        send.command(Verb.START, "train", EPOCHS="10"),
        send.offers(),
        expect.launched("chief-0"),
        expect.environment("chief-0", EPOCHS="10"),
        expect.cluster("chief-0", ps=1, worker=2, chief=1),
        send.status("chief-0", TaskState.FAILED, message="exit code 3"),
        expect.result(None),
        expect.plan("train", ERROR),
        send.command(Verb.RESTART, "train", "chief", "chief-0"),
        send.offers(),
        expect.launched("chief-0"),
        send.running(),
        send.status("chief-0", TaskState.FINISHED),
        expect.result(Verdict.SUCCEEDED),
    )


def test_restarted_deploy_step_is_relaunched() -> None:
    """The deployment is in progress until the task runs."""
    play(
        complete_deployment(),
        send.command(Verb.RESTART, "deploy", "worker", "worker-1"),
        expect.answered(Reply.OK, "Phase: worker, Step: worker-1"),
        expect.killed("worker-1"),
        expect.steps("deploy", ps_0=COMPLETE, worker_0=COMPLETE, worker_1=PREPARED),
        expect.no_plan("update"),
        send.offers(),
        expect.launched("worker-1"),
        expect.plan("deploy", IN_PROGRESS),
        send.running(),
        expect.plan("deploy", COMPLETE),
        expect.plan("update", COMPLETE),
    )


def test_restarted_mirrored_worker_restarts_all_workers() -> None:
    """The tasks must know each other's addresses."""
    names = ("worker-0", "worker-1", "worker-2")
    play(
        complete_deployment(workers=3, ps=0, strategy=Strategy.MULTI_WORKER_MIRRORED),
        send.command(Verb.RESTART, "deploy", "worker", "worker-1"),
        expect.killed(*names),
        send.offers(),
        expect.launched(*names),
        send.running(),
        expect.plan("deploy", COMPLETE),
    )


def test_plan_for_mirrored_worker_restarts_all_workers() -> None:
    """Two plans, one gang: neither blocks the other."""
    first = PlanSpec("first", phases=(PhaseSpec("first", "worker", indexes=(0,)),))
    names = ("worker-0", "worker-1", "worker-2")
    play(
        complete_deployment(first, workers=3, ps=0, strategy=Strategy.MULTI_WORKER_MIRRORED),
        send.command(Verb.START, "first", SEED="7"),
        expect.killed(*names),
        send.offers(),
        expect.launched(*names),
        expect.environment("worker-0", SEED="7"),
        send.running(),
        expect.plan("first", COMPLETE),
        expect.plan("update", COMPLETE),
        expect.killed(),
    )


def test_restarted_plan_follows_its_strategy() -> None:
    """The steps do not all start together."""
    deploy = PlanSpec("deploy", PlanStrategy.SERIAL)
    world = a_world(deploy, ps=1, workers=1)
    play(
        world,
        send.register(),
        send.offers(),
        expect.launched("ps-0"),
        send.running(),
        send.offers(),
        expect.launched("worker-0"),
        send.running(),
        expect.plan("deploy", COMPLETE),
        send.command(Verb.RESTART, "deploy"),
        expect.killed("ps-0"),
        send.offers(),
        send.running(),
        expect.killed("worker-0"),
    )


def test_pending_step_can_be_interrupted() -> None:
    """The other steps continue, and the gang starts without it."""
    play(
        a_world(),
        send.register(),
        send.command(Verb.INTERRUPT, "deploy", "worker", "worker-1"),
        send.offers(),
        expect.launched("ps-0", "worker-0"),
        expect.steps("deploy", ps_0=STARTING, worker_0=STARTING, worker_1=WAITING),
        expect.suppressed(),
        send.command(Verb.CONTINUE, "deploy", "worker", "worker-1"),
        expect.revives(1),
        send.offers(),
        expect.launched("worker-1"),
    )


def test_chief_waits_for_interrupted_workers() -> None:
    """The chief must know every address; the rest of the gang starts."""
    play(
        a_world(chief=1),
        send.register(),
        send.command(Verb.INTERRUPT, "deploy", "worker"),
        send.offers(),
        expect.launched("ps-0"),
        send.command(Verb.CONTINUE, "deploy", "worker"),
        send.offers(),
        expect.launched("worker-0", "worker-1", "chief-0"),
        send.command(Verb.RESTART, "deploy"),
        send.command(Verb.INTERRUPT, "deploy", "ps"),
        expect.says("deploy", "chief-0", "killed on agent-1; waits for the address of ps-0"),
    )


def test_forced_deployment_launches_nothing_later() -> None:
    """A complete step stays complete until the options change."""
    play(
        a_world(),
        send.register(),
        send.command(Verb.FORCE_COMPLETE, "deploy"),
        expect.plan("deploy", COMPLETE),
        expect.plan("update", COMPLETE),
        expect.suppressed(),
        send.restart(),
        expect.plan("update", COMPLETE),
        expect.suppressed(),
        send.command(Verb.RESTART, "deploy", "worker"),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
        expect.steps("deploy", ps_0=COMPLETE, worker_0=STARTING, worker_1=STARTING),
    )


def test_plan_without_gang_launches_tasks_that_fit() -> None:
    """Each task separately."""
    spec = replace(a_spec(workers=4, ps=0, chief=0), plans={"deploy": PlanSpec("deploy", gang=False)})
    play(
        World(spec, an_agent(cpus=1.3)),
        send.register(),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
        send.wait(1),
        send.agent(an_agent("agent-2", cpus=1.3)),
        expect.launched("worker-2", "worker-3"),
    )


@pytest.mark.parametrize(
    ("command", "reply", "words"),
    [
        (send.command(Verb.INTERRUPT, "backup"), Reply.NOT_FOUND, "Plan backup not found"),
        (send.command(Verb.INTERRUPT, "deploy", "evaluator"), Reply.NOT_FOUND, "Phase evaluator not found"),
        (send.command(Verb.RESTART, "deploy", "worker", "ps-0"), Reply.NOT_FOUND, "Step ps-0 not found"),
        (send.command(Verb.RESTART, "deploy", "", "ps-0"), Reply.BAD_REQUEST, "Missing phase"),
        (
            send.command(Verb.START, "retune", **{"1X": "y"}),
            Reply.BAD_REQUEST,
            "Couldn't parse parameters: 1X is not a valid environment variable name",
        ),
        (send.command(Verb.STOP, "retune", X="y"), Reply.BAD_REQUEST, "Parameters are allowed for `start` only"),
        (send.command(Verb.FORCE_COMPLETE, "deploy"), Reply.ALREADY, "already been reported or completed"),
        (send.command(Verb.CONTINUE, "deploy"), Reply.ALREADY, "already been reported or completed"),
        (send.command(Verb.INTERRUPT, "deploy", "ps"), Reply.ALREADY, "already been reported or completed"),
    ],
)
def test_invalid_plan_command_gets_sdk_message(command: Any, reply: Any, words: Any) -> None:
    """A refused command changes no state and makes no call."""
    world = play(complete_deployment(RETUNE))
    before = world.state

    play(world, command, expect.answered(reply, words), expect.quiet())

    assert before == world.state
