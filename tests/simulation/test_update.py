"""Update: only tasks with changed options restart, in the order of the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_spec
from kit.worlds import deployed, pass_time
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.payload import Payload
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy, Reply, Verb
from tf_scheduler.model.spec import JobKind

PENDING, PREPARED, STARTING, COMPLETE = Status.PENDING, Status.PREPARED, Status.STARTING, Status.COMPLETE
WAITING, IN_PROGRESS = Status.WAITING, Status.IN_PROGRESS


def changed(spec: Any, kind: Any = JobKind.WORKER, **options: Any) -> Any:
    """The spec with other options for one job."""
    options = options or {"command": "python better.py"}
    return replace(spec, jobs=tuple(replace(job, **options) if job.kind is kind else job for job in spec.jobs))


def with_plan(spec: Any, strategy: Any, **options: Any) -> Any:
    return replace(spec, plans={"update": PlanSpec("update", strategy, **options)})


@pytest.mark.parametrize(
    ("strategy", "kind", "restarted"),
    [
        (Strategy.PARAMETER_SERVER, JobKind.WORKER, {"worker-0", "worker-1"}),
        (Strategy.PARAMETER_SERVER, JobKind.PS, {"ps-0", "chief-0"}),
        (Strategy.PARAMETER_SERVER, JobKind.CHIEF, {"chief-0"}),
        (Strategy.BETWEEN_GRAPH, JobKind.WORKER, {"worker-0", "worker-1"}),
        (Strategy.BETWEEN_GRAPH, JobKind.PS, {"ps-0"}),
    ],
)
def test_update_restarts_dependent_tasks(strategy: Any, kind: Any, restarted: Any) -> None:
    """Changed tasks and the tasks that depend on them restart at their old addresses."""
    spec = a_spec(strategy=strategy)
    play(
        deployed(spec),
        send.restart(changed(spec, kind)),
        expect.killed(*restarted),
        expect.plan("update", IN_PROGRESS),
        send.offers(),
        expect.launched(*restarted),
        expect.result(None),
        send.running(),
        expect.plan("update", COMPLETE),
        expect.plan("deploy", COMPLETE),
        expect.cluster("chief-0", ps=1, worker=2, chief=1),
        expect.alive("ps-0", "worker-0", "worker-1", "chief-0"),
    )


@pytest.mark.parametrize(
    ("strategy", "kind", "first", "then"),
    [
        (Strategy.PARAMETER_SERVER, JobKind.WORKER, {"worker-0", "worker-1"}, {"chief-0"}),
        (Strategy.PARAMETER_SERVER, JobKind.PS, {"ps-0", "chief-0"}, set()),
        (Strategy.BETWEEN_GRAPH, JobKind.PS, {"ps-0"}, {"ps-0", "worker-0", "worker-1", "chief-0"}),
    ],
)
def test_update_to_new_addresses_restarts_dependents(strategy: Any, kind: Any, first: Any, then: Any) -> None:
    """Dependents restart once, together; then every task has the same ClusterSpec."""
    spec = a_spec(strategy=strategy)
    play(
        deployed(spec),
        send.restart(changed(spec, kind)),
        expect.killed(*first),
        send.ports_taken("agent-1", (31000, 31020)),
        send.offers(),
        expect.launched(*first),
        expect.killed(*then),
        send.offers(),
        expect.launched(*then),
        send.running(),
        expect.killed(),
        expect.plan("update", COMPLETE),
        expect.cluster("chief-0", ps=1, worker=2, chief=1),
    )


def test_update_restarts_mirrored_cluster_as_a_whole() -> None:
    """A change of one worker section concerns all workers."""
    spec = a_spec(workers=3, ps=0, chief=0, strategy=Strategy.MULTI_WORKER_MIRRORED)
    names = ("worker-0", "worker-1", "worker-2")
    play(
        deployed(spec),
        send.restart(changed(spec)),
        expect.killed(*names),
        send.offers(),
        expect.launched(*names),
        send.running(),
        expect.plan("update", COMPLETE),
        expect.cluster("worker-2", worker=3),
    )


def test_updated_gang_launches_after_last_exit() -> None:
    """The gang is not launched in parts: earlier offers are not used."""
    spec = a_spec(chief=0, ps=0)
    play(
        deployed(spec, kills_at_once=False),
        send.restart(changed(spec)),
        expect.killed("worker-0", "worker-1"),
        expect.steps("update", worker_0=PREPARED, worker_1=PREPARED),
        send.killed("worker-1"),
        expect.suppressed(),
        send.killed("worker-0"),
        expect.revives(1),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
        expect.result(None),
    )


def test_lost_kill_is_sent_again() -> None:
    """The KILL is repeated until the task has ended, but not at every event."""
    spec = a_spec(workers=1, chief=0, ps=0)
    play(
        deployed(spec, kills_at_once=False),
        send.restart(changed(spec)),
        expect.killed("worker-0"),
        send.wait(5),
        expect.killed(),
        send.wait(6),
        expect.killed("worker-0"),
        send.killed("worker-0"),
        send.wait(60),
        expect.killed(),
    )


def test_update_at_old_addresses_restarts_no_other_task() -> None:
    """The ClusterSpec is the same: the chief keeps running."""
    spec = a_spec(workers=1)
    world = deployed(spec)
    play(
        world,
        send.restart(with_plan(changed(spec), PlanStrategy.SERIAL)),
        expect.killed("worker-0"),
        expect.steps("update", ps_0=COMPLETE, worker_0=PREPARED, chief_0=COMPLETE),
        send.offers(),
        expect.launched("worker-0"),
        send.running(),
        expect.killed(),
        expect.plan("update", COMPLETE),
    )

    assert {1} == {record.generation for record in world.state.stored.tasks.values()}


def test_serial_update_restarts_one_task_at_a_time() -> None:
    """One task after the other; the chief is last because it needs the new addresses."""
    spec = a_spec()
    play(
        deployed(spec),
        send.restart(with_plan(changed(spec), PlanStrategy.SERIAL)),
        expect.killed("worker-0"),
        expect.steps("update", ps_0=COMPLETE, worker_0=PREPARED, worker_1=PENDING, chief_0=COMPLETE),
        send.ports_taken("agent-1", (31000, 31010)),
        send.offers(),
        expect.launched("worker-0"),
        expect.killed(),
        send.running(),
        expect.killed("worker-1"),
        send.offers(),
        send.running(),
        expect.killed("chief-0"),
        send.offers(),
        send.running(),
        expect.plan("update", COMPLETE),
        expect.cluster("chief-0", ps=1, worker=2, chief=1),
    )


def test_canary_update_waits_for_operator_twice() -> None:
    """As in the SDK, the first `continue` releases one task, the second all others."""
    spec = a_spec(workers=4, chief=0, ps=0, strategy=Strategy.PARAMETER_SERVER)
    new = with_plan(changed(spec), PlanStrategy.CANARY)
    play(
        deployed(spec),
        send.restart(new),
        expect.killed(),
        expect.plan("update", WAITING),
        expect.steps("update", worker_0=WAITING, worker_1=WAITING, worker_2=PENDING, worker_3=PENDING),
        expect.says("update", "worker-0", "waits for an operator to continue its phase: plan resume update worker"),
        send.command(Verb.CONTINUE, "update"),
        expect.answered(Reply.ALREADY, "plan update is not waiting; continue instead: worker"),
        expect.killed(),
        send.command(Verb.CONTINUE, "update", "worker"),
        expect.answered(Reply.OK),
        expect.killed("worker-0"),
        send.offers(),
        send.running(),
        expect.killed(),
        expect.steps("update", worker_0=COMPLETE, worker_1=WAITING, worker_2=PENDING, worker_3=PENDING),
        send.restart(),
        expect.killed(),
        expect.plan("update", WAITING),
        send.command(Verb.CONTINUE, "update", "worker"),
        expect.killed("worker-1"),
        send.offers(),
        send.running(),
        expect.killed("worker-2"),
        send.offers(),
        send.running(),
        send.offers(),
        send.running(),
        expect.plan("update", COMPLETE),
        send.command(Verb.CONTINUE, "update", "worker"),
        expect.answered(Reply.ALREADY),
    )


@pytest.mark.parametrize("strategy", [Strategy.INDEPENDENT, Strategy.BETWEEN_GRAPH])
def test_failed_task_keeps_its_options_until_its_turn(strategy: Any) -> None:
    """No failure launches options that no canary has tried."""
    spec = a_spec(workers=3, ps=int(strategy.traits.has_peers), chief=0, strategy=strategy)
    failed = send.status("worker-2", TaskState.FAILED, exit_code=1, message="boom")
    new = replace(with_plan(changed(spec, count=4, command="python better.py"), PlanStrategy.CANARY), earlier=(spec,))
    world = play(deployed(spec), send.restart(new), send.command(Verb.INTERRUPT, "update"), failed)
    pass_time(world, 10)
    launch = world.mesos.live()["worker-2"].launch
    assert launch.record.config == index_of(spec).configs["worker-2"]
    assert Payload.decode(launch.payload).command == spec.jobs[-1].command


def test_next_update_has_its_own_canaries() -> None:
    """Canaries released for other options do not count."""
    spec = a_spec(workers=2, chief=0, ps=0)
    first = with_plan(changed(spec), PlanStrategy.PARALLEL_CANARY)
    play(
        deployed(spec),
        send.restart(first),
        send.command(Verb.CONTINUE, "update", "worker"),
        send.command(Verb.CONTINUE, "update", "worker"),
        send.offers(),
        send.running(),
        expect.plan("update", COMPLETE),
        send.restart(with_plan(changed(spec, command="python best.py"), PlanStrategy.PARALLEL_CANARY)),
        expect.killed(),
        expect.plan("update", WAITING),
    )


def test_reverted_options_restart_only_updated_tasks() -> None:
    """Half way through, the options are reverted: only updated tasks are relaunched."""
    spec = with_plan(a_spec(chief=0), PlanStrategy.SERIAL)
    play(
        deployed(spec),
        send.restart(changed(spec)),
        expect.killed("worker-0"),
        send.offers(),
        send.running("worker-0"),
        expect.killed("worker-1"),
        send.restart(spec),
        expect.killed("worker-0"),
        send.offers(),
        send.running(),
        send.offers(),
        send.running(),
        expect.plan("update", COMPLETE),
        expect.alive("ps-0", "worker-0", "worker-1"),
    )


def test_interrupted_update_stays_interrupted_over_restart() -> None:
    """Running steps continue and no new step starts; operator commands are stored."""
    spec = with_plan(a_spec(chief=0, ps=0), PlanStrategy.SERIAL)
    play(
        deployed(spec),
        send.restart(changed(spec)),
        send.offers(),
        expect.launched("worker-0"),
        send.command(Verb.INTERRUPT, "update"),
        expect.answered(Reply.OK),
        send.running(),
        expect.killed(),
        expect.plan("update", WAITING),
        send.restart(),
        expect.killed(),
        send.status("worker-1", TaskState.FAILED, exit_code=1, message="boom"),
        expect.says("update", "worker-1", "boom; waits for an operator to continue the plan"),
        send.command(Verb.INTERRUPT, "update"),
        expect.answered(Reply.ALREADY),
        send.command(Verb.CONTINUE, "update"),
        send.offers(),
        expect.launched("worker-1"),
    )


def test_forced_update_step_keeps_its_task() -> None:
    """The task keeps the old options; the plan is complete without it."""
    spec = with_plan(a_spec(chief=0, ps=0), PlanStrategy.SERIAL)
    play(
        deployed(spec, kills_at_once=False),
        send.restart(changed(spec)),
        expect.killed("worker-0"),
        send.command(Verb.FORCE_COMPLETE, "update", "worker", "worker-1"),
        expect.answered(Reply.OK, "Phase: worker, Step: worker-1"),
        send.killed("worker-0"),
        send.offers(),
        expect.launched("worker-0"),
        send.running(),
        expect.killed(),
        expect.plan("update", COMPLETE),
        send.restart(),
        expect.killed(),
        expect.plan("update", COMPLETE),
    )


def test_added_workers_launch_next_to_running_ones() -> None:
    """The chief, which must know their addresses, restarts when they have some."""
    play(
        deployed(a_spec(workers=2)),
        send.restart(a_spec(workers=3)),
        expect.killed(),
        send.offers(),
        expect.launched("worker-2"),
        expect.killed("chief-0"),
        send.offers(),
        expect.launched("chief-0"),
        expect.cluster("chief-0", ps=1, worker=3, chief=1),
        send.running(),
        expect.plan("update", COMPLETE),
    )


def test_finished_task_is_not_updated() -> None:
    """The work of a finished task is done, with any options."""
    spec = a_spec(chief=0, ps=0, strategy=Strategy.PARAMETER_SERVER)
    play(
        deployed(spec),
        send.status("worker-1", TaskState.FINISHED),
        send.restart(changed(spec)),
        expect.killed("worker-0"),
        send.offers(),
        expect.launched("worker-0"),
        send.running(),
        expect.plan("update", COMPLETE),
        send.status("worker-0", TaskState.FINISHED),
        expect.result(Verdict.SUCCEEDED),
    )


def test_failure_of_peer_awaiting_update_is_not_counted() -> None:
    """A chief exits with an error when its ps is gone: it was to be relaunched anyway."""
    spec = with_plan(a_spec(), PlanStrategy.SERIAL)
    play(
        deployed(spec),
        send.restart(changed(spec, JobKind.PS)),
        expect.killed("ps-0"),
        send.status("chief-0", TaskState.FAILED, message="exit code 1"),
        expect.result(None),
        send.offers(),
        expect.launched("ps-0", "chief-0"),
        send.running(),
        expect.plan("update", COMPLETE),
    )


def test_options_changed_during_deploy_are_applied_by_deploy() -> None:
    """An update plan does not exist yet; tasks with the old options are relaunched."""
    spec = a_spec(chief=0)
    play(
        World(spec, an_agent(cpus=8)),
        send.register(),
        send.offers(),
        send.running("ps-0"),
        send.restart(changed(spec)),
        expect.no_plan("update"),
        expect.killed("worker-0", "worker-1"),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
        send.running(),
        expect.plan("deploy", COMPLETE),
        expect.plan("update", COMPLETE),
    )


def test_phases_follow_their_dependencies() -> None:
    """A plan of the options: the workers after the ps, the chief after both."""
    spec = a_spec()
    phases = tuple(PhaseSpec(kind, kind) for kind in ("chief", "worker", "ps"))
    after = {"worker": ("ps",), "chief": ("ps", "worker")}
    plan = PlanSpec("update", PlanStrategy.DEPENDENCY, phases, after)
    new = replace(spec, user="somebody", plans={"update": plan})
    play(
        deployed(spec),
        send.restart(new),
        expect.killed("ps-0"),
        expect.phases("update", ("chief", PENDING), ("worker", PENDING), ("ps", IN_PROGRESS)),
        send.offers(),
        send.running(),
        expect.killed("worker-0", "worker-1"),
        send.offers(),
        send.running(),
        expect.killed("chief-0"),
        send.offers(),
        send.running(),
        expect.plan("update", COMPLETE),
    )
