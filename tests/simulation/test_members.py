"""Workers that join and leave a running chief (worker.elastic with mode live)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from builders import a_job, a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import Step, World, play
from tf_executor.contract.payload import MEMBERS, Payload
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.effects import MessageExecutor
from tf_scheduler.model.events import FrameworksWait, ProgressReported
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.plan import UPDATE, PlanSpec, PlanStrategy
from tf_scheduler.model.spec import JobKind, RecoveryPolicy, ServiceSpec
from tf_scheduler.model.task import PodVerb

COMPLETE = Status.COMPLETE
CHIEF = TaskName("chief-0")
ALL_OF_TWO = ("chief-0", "ps-0", "worker-0", "worker-1")


def live(workers: int) -> ServiceSpec:
    """A chief, a parameter server, and workers that join and leave."""
    spec = a_spec(workers=workers, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER)
    return replace(spec, live=True)


def training(workers: int) -> World:
    """Every server answers, and the chief uses its first list."""
    names = ("chief-0", "ps-0", *(f"worker-{index}" for index in range(workers)))
    return play(
        deployed(live(workers), kills_at_once=False),
        *send.joined(*names),
        send.wait(1),
        tells(1, *range(workers)),
        answers(1),
    )


def scaled(workers: int, wanted: int) -> World:
    """The options have another number of workers; the scheduler knows them."""
    return play(training(workers), send.restart(live(wanted)))


def tells(version: int, *workers: int) -> Step:
    """The last list that was sent to the chief."""

    def check(world: World) -> None:
        messages = [call.data for call in world.calls_of(MessageExecutor) if call.data.startswith(MEMBERS)]
        lists: list[Mapping[str, Any]] = [json.loads(data.split(b" ", 2)[2]) for data in messages]
        expected = version, {str(index) for index in workers}
        assert expected == (lists[-1]["version"], set(lists[-1]["workers"])), lists

    return Step(f"expect list {version} of workers {workers}", check)


def tells_nothing() -> Step:
    def check(world: World) -> None:
        assert not world.calls_of(MessageExecutor)

    return Step("expect no list", check)


def answers(version: int, error: str = "") -> Step:
    """The chief says which list it uses, and perhaps why it cannot use others."""

    def report(world: World) -> None:
        record = world.state.stored.tasks[CHIEF]
        last = world.state.process.progress.get(record.id)
        sequence = 1 + (last.sequence if last else 0)
        progress = Progress(sequence, world.now, members=version, members_error=error or None)
        world.step(ProgressReported(record.id, progress, record.agent_id))
        world.wait(1)

    return Step(f"the chief answers {version}", report, fresh=True)


def test_worker_joins_when_its_server_answers() -> None:
    """Neither the chief nor another task restarts, and the update completes."""
    world = play(
        scaled(2, 3),
        send.offers(),
        expect.launched("worker-2"),
        send.running("worker-2"),
        send.wait(2),
        tells_nothing(),
        *send.joined("worker-2"),
        send.wait(1),
        tells(2, 0, 1, 2),
        answers(2),
        expect.plan("update", COMPLETE),
        expect.killed(),
        send.wait(120),
        tells_nothing(),
        expect.killed(),
    )

    assert world.state.stored.members is not None
    assert world.state.stored.members.confirmed


def test_worker_leaves_before_it_is_stopped() -> None:
    """The highest first; its task ends only after the chief has confirmed the list."""
    play(
        scaled(3, 1),
        expect.killed(),
        send.wait(1),
        tells(2, 0),
        expect.says("decommission", "kill-worker-2", "waits until the chief continues without it"),
        expect.killed(),
        answers(2),
        expect.killed("worker-2"),
        send.killed("worker-2"),
        expect.killed("worker-1"),
        send.killed("worker-1"),
        expect.plan("decommission", COMPLETE),
        expect.alive("chief-0", "ps-0", "worker-0"),
    )


def test_list_is_sent_until_it_is_confirmed() -> None:
    """Messages may get lost; also after a restart of the scheduler."""
    play(
        scaled(2, 1),
        send.wait(1),
        tells(2, 0),
        send.wait(6),
        tells(2, 0),
        send.restart(),
        send.wait(1),
        tells(2, 0),
    )


def test_chief_has_its_time_after_an_absence_of_the_scheduler() -> None:
    """It may have answered meanwhile, or never got the list."""
    play(
        scaled(2, 1),
        send.wait(1),
        tells(2, 0),
        send.disconnect(),
        send.wait(100),
        send.register(),
        send.wait(10),
        tells(2, 0),
        expect.killed(),
        answers(2),
        expect.killed("worker-1"),
    )


def test_lists_follow_one_after_the_other() -> None:
    """Each has its time; workers that join meanwhile are on the next one."""
    play(
        scaled(2, 3),
        send.offers(),
        send.running("worker-2"),
        *send.joined("worker-2"),
        send.wait(1),
        tells(2, 0, 1, 2),
        send.restart(live(1)),
        send.wait(6),
        tells(2, 0, 1, 2),
        send.wait(40),
        answers(2),
        tells(3, 0),
        send.wait(50),
        expect.killed(),
        answers(3),
        expect.killed("worker-2"),
    )


def test_worker_of_a_starting_chief_leaves_when_the_chief_has_answered() -> None:
    """It would connect to a worker that is gone."""
    play(
        deployed(live(3), kills_at_once=False),
        *send.joined("ps-0", "worker-0", "worker-1", "worker-2"),
        send.restart(live(2)),
        send.wait(30),
        expect.killed(),
        *send.joined("chief-0"),
        send.wait(1),
        tells(1, 0, 1),
        expect.killed(),
        answers(1),
        expect.killed("worker-2"),
    )


def test_chief_without_a_coordinator_restarts_for_a_change() -> None:
    """Its program never answers, perhaps because it trains in another way."""
    play(
        deployed(live(2), kills_at_once=False),
        *send.joined("chief-0", "ps-0", "worker-0", "worker-1"),
        send.wait(570),
        send.restart(live(1)),
        send.wait(20),
        expect.killed(),
        send.wait(50),
        expect.outcome("chief-0 restarts to change its workers: it did not confirm its workers within 600 s"),
    )


@pytest.mark.parametrize(
    "silence", [{"state": TaskState.UNREACHABLE}, {"state": TaskState.RUNNING, "healthy": False}], ids=str
)
def test_worker_of_a_silent_chief_is_not_stopped(silence: dict[str, Any]) -> None:
    """The chief's program still uses those in its last list, even a later one."""
    world = play(scaled(2, 3), send.offers(), send.running("worker-2"), *send.joined("worker-2"), send.wait(2))
    play(world, tells(2, 0, 1, 2), answers(2), send.status("chief-0", **silence))

    play(world, send.restart(live(2)), send.wait(3))

    assert set() == world.mesos.doomed


def test_mute_chief_restarts_when_a_change_waits_for_it() -> None:
    """Its workers are stopped before it, and could wait for its answer forever."""
    spec = replace(
        live(2), recovery=RecoveryPolicy(start_timeout=None), plans={UPDATE: PlanSpec(UPDATE, PlanStrategy.SERIAL)}
    )
    jobs = tuple(job if job.kind is JobKind.PS else replace(job, command="python fixed.py") for job in spec.jobs)
    world = play(deployed(spec), *send.joined("ps-0", "worker-0", "worker-1"), send.wait(5))

    play(world, send.restart(replace(spec, jobs=jobs)), send.wait(500), expect.killed())
    for _ in range(6):
        play(world, send.wait(60), send.offers(), send.running())

    launched = [Payload.decode(world.mesos.live()[name].launch.payload) for name in ("chief-0", "worker-0", "worker-1")]
    assert ["python fixed.py"] * 3 == [payload.command for payload in launched]


def test_chief_may_answer_late_at_its_start() -> None:
    """It has a server before it has read its data, and needs no change yet."""
    play(
        deployed(live(2), kills_at_once=False),
        *send.joined("chief-0", "ps-0", "worker-0", "worker-1"),
        send.wait(1),
        tells(1, 0, 1),
        send.wait(600),
        expect.killed(),
        answers(1),
        send.restart(live(1)),
        send.wait(1),
        tells(2, 0),
        expect.killed(),
    )


def test_chief_that_cannot_change_restarts_when_it_must() -> None:
    """Its answer to the first list says so; nothing restarts before a change."""
    play(
        training(2),
        answers(1, "TensorFlow 3.0 was not tried with it"),
        send.wait(120),
        expect.killed(),
        send.restart(live(1)),
        send.wait(2),
        expect.outcome("chief-0 restarts to change its workers: TensorFlow 3.0 was not tried with it"),
        expect.killed("chief-0", "worker-1"),
    )


def test_chief_whose_change_failed_restarts_at_once() -> None:
    """Otherwise it would train without the new workers, or with those that left."""
    play(
        scaled(2, 3),
        send.offers(),
        send.running("worker-2"),
        *send.joined("worker-2"),
        send.wait(1),
        tells(2, 0, 1, 2),
        answers(2, "UnavailableError: failed to connect"),
        expect.outcome("chief-0 restarts to change its workers: UnavailableError: failed to connect"),
        expect.killed("chief-0"),
    )


def test_replaced_worker_leaves_and_joins_again() -> None:
    """An operator's replacement of a worker restarts no other task."""
    play(
        training(2),
        send.pod(PodVerb.REPLACE, "worker-1"),
        expect.killed(),
        send.wait(1),
        tells(2, 0),
        answers(2),
        expect.killed("worker-1"),
        send.killed("worker-1"),
        send.offers(),
        expect.launched("worker-1"),
        send.running("worker-1"),
        *send.joined("worker-1"),
        send.wait(1),
        tells(3, 0, 1),
        answers(3),
        expect.killed(),
    )


def test_lost_worker_at_another_address_restarts_the_chief() -> None:
    """TensorFlow waits for it at its old address, and changes no members meanwhile."""
    world = training(2)
    record = world.state.stored.tasks[TaskName("worker-1")]
    port = int(record.address.rpartition(":")[2])
    play(
        world,
        send.status("worker-1", TaskState.FAILED, message="killed", exit_code=137),
        send.ports_taken(record.hostname, (port, port)),
        send.wait(20),
        send.offers(),
        expect.launched("worker-1"),
        tells_nothing(),
        send.wait(2),
        expect.outcome("chief-0 restarts to change its workers: worker-1 was lost, and runs at another address"),
        expect.killed("chief-0"),
    )


def test_lost_worker_at_its_address_restarts_no_task() -> None:
    """TensorFlow takes it back itself; no list is sent."""
    play(
        training(2),
        send.status("worker-1", TaskState.FAILED, message="killed", exit_code=137),
        send.wait(6),
        tells_nothing(),
        send.offers(),
        expect.launched("worker-1"),
        send.running("worker-1"),
        *send.joined("worker-1"),
        send.wait(2),
        tells_nothing(),
        expect.killed(),
    )


def test_new_chief_is_informed_again() -> None:
    """Its first list repeats what it was launched with."""
    play(
        training(2),
        send.status("chief-0", TaskState.FAILED, message="killed", exit_code=137),
        send.wait(6),
        send.offers(),
        expect.launched("chief-0"),
        send.running("chief-0"),
        *send.joined("chief-0"),
        send.wait(1),
        tells(1, 0, 1),
    )


def test_all_workers_restart_before_the_first_list() -> None:
    """The chief must say that it uses none of them."""
    world = play(deployed(live(2), kills_at_once=False), *send.joined(*ALL_OF_TWO))
    play(world, send.pod(PodVerb.RESTART, "worker-0"), send.pod(PodVerb.RESTART, "worker-1"), expect.killed())

    play(world, send.wait(1), tells(1), answers(1), expect.killed("worker-0", "worker-1"))


def test_maintenance_of_an_evaluator_does_not_restart_the_chief() -> None:
    """Not even together with a worker that has not joined yet."""
    spec = replace(live(2), jobs=(*live(2).jobs, a_job(JobKind.EVALUATOR)))
    world = play(deployed(spec, an_agent("agent-1", cpus=2.5)), *send.joined(*ALL_OF_TWO), send.wait(1), answers(1))
    more = replace(spec, jobs=tuple(replace(job, count=3 if job.kind is JobKind.WORKER else 1) for job in spec.jobs))
    play(world, send.restart(more), send.agent(an_agent("agent-2")), send.wait(1), send.running())
    assert {"evaluator-0", "worker-2"} == {n for n, r in world.state.stored.tasks.items() if r.hostname == "agent-2"}

    world.decisions.clear()
    world.mesos.maintain("agent-2", Unavailability(world.now + 5.0, world.now + 500.0))
    world.settle()

    play(world, expect.killed("evaluator-0", "worker-2"))


def test_lost_chief_does_not_wait_for_workers_without_a_place() -> None:
    """They join when they have one."""
    world = deployed(live(2), an_agent("agent-1", cpus=2.5))
    play(world, *send.joined("chief-0", "ps-0", "worker-0", "worker-1"), send.wait(1), answers(1))
    play(world, send.restart(live(4)), send.offers(), expect.launched(), expect.alive(*ALL_OF_TWO))
    play(world, send.status("chief-0", TaskState.FAILED, signal=9, message="killed"), send.wait(6), send.offers())

    play(world, expect.launched("chief-0"), expect.cluster("chief-0", chief=1, ps=1, worker=2))
    play(world, send.running("chief-0"), *send.joined("chief-0"), send.wait(1), tells(1, 0, 1), answers(1))
    play(world, send.agent(an_agent("agent-2")), send.offers(), send.wait(1))
    play(
        world,
        expect.alive(*ALL_OF_TWO, "worker-2", "worker-3"),
        *send.joined("worker-2", "worker-3"),
        send.wait(1),
        tells(2, 0, 1, 2, 3),
        expect.killed(),
    )


def test_idle_agents_join_and_leave_without_a_restart() -> None:
    """They are given back when another framework asks for offers."""
    world = play(training(2), send.restart(replace(live(2), grows=True, max_workers=3)), send.event(FrameworksWait(())))
    play(
        world,
        send.wait(70),
        send.offers(),
        expect.launched("worker-2"),
        *send.joined("worker-2"),
        send.wait(1),
        tells(2, 0, 1, 2),
        answers(2),
    )

    play(world, send.event(FrameworksWait(("marathon",))), send.wait(1), tells(3, 0, 1), answers(3))
    play(world, send.killed("worker-2"), expect.alive("chief-0", "ps-0", "worker-0", "worker-1"))
