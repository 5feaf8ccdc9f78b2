"""Uninstall: stop every task, release every resource, remove the framework."""

from __future__ import annotations

from builders import a_spec, with_fields
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_scheduler.api.views.plan_messages import find_plan, leftovers_message, sdk_uninstall_plan
from tf_scheduler.model.plan import PlanControl, Reply, Verb
from tf_scheduler.model.spec import AfterFinish, FinishPolicy

COMPLETE, PENDING, STARTING = Status.COMPLETE, Status.PENDING, Status.STARTING
IN_PROGRESS, WAITING = Status.IN_PROGRESS, Status.WAITING


SMALL = a_spec(workers=1, chief=0)


def test_uninstall_kills_tasks_then_framework() -> None:
    """The plan shows the progress; it does not exist before the end is decided."""
    play(
        deployed(SMALL, kills_at_once=False),
        expect.no_plan("uninstall"),
        send.stop(),
        expect.killed("ps-0", "worker-0"),
        expect.phases("uninstall", ("kill-tasks", STARTING), ("deregister-service", PENDING)),
        send.killed("ps-0"),
        expect.phases("uninstall", ("kill-tasks", IN_PROGRESS), ("deregister-service", PENDING)),
        expect.plan("uninstall", IN_PROGRESS),
        send.killed("worker-0"),
        expect.torn_down(),
        expect.plan("uninstall", COMPLETE),
        expect.result(Verdict.STOPPED),
    )


def test_uninstall_continues_after_restart() -> None:
    """The decision is stored; kills are sent again."""
    play(
        deployed(SMALL, kills_at_once=False),
        send.stop(),
        send.killed("ps-0"),
        send.restart(),
        expect.reconciled("worker-0"),
        expect.killed("worker-0"),
        expect.steps("uninstall", kill_ps_0=COMPLETE, kill_worker_0=STARTING, deregister_service=PENDING),
        send.killed("worker-0"),
        expect.torn_down(),
    )


def test_uninstall_step_of_unresponsive_task_can_be_forced() -> None:
    """If an agent is gone for good, its step is forced and the rest completes."""
    play(
        deployed(SMALL, kills_at_once=False),
        send.stop(),
        send.killed("ps-0"),
        send.wait(60),
        expect.killed(*["worker-0"] * 6),
        send.command(Verb.FORCE_COMPLETE, "uninstall", "kill-tasks", "kill-worker-0"),
        expect.answered(Reply.OK),
        expect.torn_down(),
        expect.plan("uninstall", COMPLETE),
    )


def test_uninstall_abandons_unresponsive_task_after_timeout() -> None:
    """The wait is limited, because the agent may be lost without notice to Mesos."""
    world = play(
        deployed(SMALL, kills_at_once=False),
        send.stop(),
        send.killed("ps-0"),
        send.wait(60),
        expect.plan("uninstall", IN_PROGRESS),
        send.wait(120),
        expect.outcome("left behind: worker-0 on"),
        expect.torn_down(),
        expect.plan("uninstall", COMPLETE),
    )

    (task_left,) = world.state.process.left_behind
    assert task_left.startswith("worker-0 on")
    assert task_left in leftovers_message(world.state)


def test_uninstall_plan_is_complete_when_state_is_deleted() -> None:
    """DC/OS then deletes the app immediately; state left behind would stay forever."""
    world = play(deployed(SMALL), send.stop(), expect.torn_down(), expect.plan("uninstall", COMPLETE))

    before, after = sdk_uninstall_plan(world.state), sdk_uninstall_plan(with_fields(world.state, is_erased=True))

    assert ("deploy", IN_PROGRESS, COMPLETE) == (before.name, before.status, after.status)
    assert ["kill-tasks", "deregister-service", "forget-state"] == [phase.name for phase in after.phases]
    assert "nothing is left behind" == after.phases[-1].steps[0].message


def test_interrupted_uninstall_kills_nothing() -> None:
    """An interrupted uninstall sends neither KILL nor TEARDOWN until it is continued."""
    play(
        deployed(SMALL, kills_at_once=False),
        send.stop(),
        send.command(Verb.INTERRUPT, "uninstall"),
        send.killed("ps-0"),
        send.wait(60),
        expect.killed(),
        send.killed("worker-0"),
        expect.plan("uninstall", WAITING),
        send.command(Verb.CONTINUE, "uninstall"),
        expect.torn_down(),
    )


def test_update_ends_with_uninstall() -> None:
    """Killed tasks are not relaunched, and no other plan starts anything."""
    world = deployed(SMALL, kills_at_once=False)
    better = a_spec(workers=1, chief=0, user="somebody")
    play(
        world,
        send.restart(better),
        expect.killed("ps-0", "worker-0"),
        send.stop(),
        send.killed("ps-0", "worker-0"),
        expect.launched(),
        expect.torn_down(),
    )


def idle() -> World:
    """A job that has ended, and whose service stays."""
    world = World(a_spec(workers=1, chief=1, finish=FinishPolicy(after_finish=AfterFinish.IDLE)), an_agent())
    return play(
        world,
        send.register(),
        send.offers(),
        send.running(),
        send.status("chief-0", TaskState.FINISHED),
        expect.phases("uninstall", ("kill-tasks", COMPLETE), ("deregister-service", PENDING)),
    )


def last_message(world: World, phase: str) -> str:
    """Of the last step of a phase of the uninstall plan."""
    last = next(part for part in find_plan(world.state, "uninstall").phases if part.name == phase)
    return last.steps[-1].message


def test_forced_uninstall_ends_idle_service() -> None:
    """An operator who marks the plan as complete wants the framework removed too."""
    for part in ((), ("deregister-service",), ("deregister-service", "deregister-service")):
        world = play(
            idle(),
            send.command(Verb.FORCE_COMPLETE, "uninstall", *part),
            expect.answered(Reply.OK),
            expect.torn_down(),
            expect.plan("uninstall", COMPLETE),
        )

        assert (True, "nothing is left behind") == (world.state.stored.removed, leftovers_message(world.state))


def test_idle_service_reports_that_it_waits_for_operator() -> None:
    """When all tasks have ended, the service does not wait for tasks."""
    assert "finish.then is idle: waits for an operator" in last_message(idle(), "deregister-service")
    running = play(deployed(SMALL, kills_at_once=False), send.stop())
    assert "waits for the end of all tasks" == last_message(running, "deregister-service")


def test_forced_uninstall_reports_abandoned_tasks() -> None:
    """TEARDOWN is sent even for an interrupted plan: it stops what can be stopped."""
    world = play(
        deployed(SMALL, kills_at_once=False),
        send.stop(),
        send.command(Verb.INTERRUPT, "uninstall"),
        send.command(Verb.FORCE_COMPLETE, "uninstall"),
        expect.answered(Reply.OK),
        expect.outcome("left behind: worker-0 on"),
        expect.torn_down(),
        expect.plan("uninstall", COMPLETE),
    )

    assert ["ps-0", "worker-0"] == [text.split()[0] for text in world.state.process.left_behind]
    assert all("an operator forced its step to complete" in text for text in world.state.process.left_behind)


def test_ended_uninstall_cannot_be_restarted() -> None:
    """The operator gets a refusal; the plan does not change."""
    for verb in (Verb.RESTART, Verb.STOP):
        for part in ((), ("kill-tasks", "kill-worker-0")):
            world = play(
                deployed(SMALL, kills_at_once=False),
                send.stop(),
                send.killed("worker-0"),
                send.command(verb, "uninstall", *part),
                expect.answered(Reply.CONFLICT),
            )
            assert {} == world.state.stored.controls.get("uninstall", PlanControl()).restarted
    play(idle(), send.command(Verb.START, "uninstall"), expect.answered(Reply.ALREADY))


def test_lost_connection_after_teardown_repeats_it() -> None:
    """A lost TEARDOWN is sent again, or Mesos reports the framework as unknown."""
    for gone in (False, True):
        world = deployed(SMALL)
        world.mesos.deaf = True
        play(world, send.stop(), send.disconnect())
        assert not world.state.process.finished

        world.mesos.deaf, world.mesos.removed = False, gone
        play(world, send.register(), expect.plan("uninstall", COMPLETE))

        assert (True, "nothing is left behind") == (world.state.stored.removed, leftovers_message(world.state))
