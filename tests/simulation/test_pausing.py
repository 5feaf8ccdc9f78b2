"""Pause: `pod pause` stops the program and keeps its resources until `pod resume`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_job, a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.payload import Payload
from tf_executor.contract.settings import Liveness, RunSettings
from tf_executor.contract.states import Override, Status, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.plan_messages import find_plan
from tf_scheduler.core.state import spec_index
from tf_scheduler.model.plan import Reply, Verb
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.spec import JobKind, RestartPolicy, RestartWhen
from tf_scheduler.model.task import Cause, PodVerb

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
RESTART, REPLACE, PAUSE, RESUME = PodVerb


def launch_of(world: World, name: str) -> Any:
    return world.mesos.tasks[world.id_of(name)].launch


def statuses(world: World, plan: str) -> dict[str, Any]:
    computed = find_plan(world.state, plan)
    return (
        {}
        if computed is None
        else {step.name: step.display_status for phase in computed.phases for step in phase.steps}
    )


def test_paused_task_keeps_its_resources() -> None:
    """The placeholder holds all resources of the task; no other task restarts."""
    world = deployed()
    before = launch_of(world, "worker-1")

    play(
        world,
        send.pod(PAUSE, "worker-1"),
        expect.answered(Reply.OK, "Received cmd: pause worker-1"),
        expect.killed("worker-1"),
        expect.outcome("stopping worker-1 to pause it; its resources are kept"),
        send.offers(),
        expect.launched("worker-1"),
        send.running(),
        expect.outcome("worker-1 on agent-1 is paused"),
        expect.alive(*ALL),
    )

    after = launch_of(world, "worker-1")
    unchanged = ("address", "agent_id", "generation", "config", "plan")
    assert [getattr(before.record, name) for name in unchanged] == [getattr(after.record, name) for name in unchanged]
    assert set(before.record.resources) == set(after.record.resources)
    assert (before.port, before.executor, before.uris) == (after.port, after.executor, after.uris)
    assert (False, True) == (before.record.is_placeholder, after.record.is_placeholder)


def test_placeholder_of_paused_task_only_sleeps() -> None:
    """No secrets, hooks, checks or time limit; its output says how to resume."""
    job = a_job(
        JobKind.WORKER,
        pre_command="exit 1",
        post_command="exit 1",
        liveness=Liveness("command", "exit 1"),
        stalled_after=5.0,
        max_completion_time=60.0,
        cluster_flags=True,
        python="no-such-python",
    )
    secrets = (SecretSpec("key", env="KEY"),)
    world = deployed(a_spec(strategy=Strategy.INDEPENDENT, jobs=(job,), secrets=secrets, fetch=("s3://no/such",)))
    before = launch_of(world, "worker-0")
    assert (60.0, True) == (before.max_completion_time, bool(before.record.token))

    play(world, send.pod(PAUSE, "worker-0"), send.offers())

    after = launch_of(world, "worker-0")
    payload, was = Payload.decode(after.payload), Payload.decode(before.payload)
    assert (None, "", {}) == (after.max_completion_time, after.record.token, after.references)
    assert "worker-0 of digits is paused: paused by an operator." in payload.command
    assert "To resume: dcos tensorflow --name=digits pod resume worker-0" in payload.command
    assert payload.command.endswith("while :; do sleep 3600; done")
    idle = replace(was, command=payload.command, settings=RunSettings(), fetch=(), secrets_url="", secrets_token="")
    idle = replace(idle, readiness="", event_folders=())
    assert replace(idle, serial=payload.serial, exec_key=payload.exec_key) == payload


def test_plans_are_incomplete_while_task_is_paused() -> None:
    """Steps stay PAUSED for a day and after a restart; deploy was complete before."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"))
    assert Override.PAUSING is statuses(world, "recovery")["worker-1"] is statuses(world, "update")["worker-1"]

    play(world, send.offers(), send.running(), send.wait(86_400.0), send.restart(), send.offers(), expect.launched())

    for plan in ("recovery", "update"):
        play(world, expect.says(plan, "worker-1", "its resources on agent-1 are kept; paused by an operator"))
        assert Override.PAUSED is statuses(world, plan)["worker-1"]
        assert Status.COMPLETE is not find_plan(world.state, plan).status
    assert Status.COMPLETE is statuses(world, "update")["worker-0"]
    assert Override.PAUSED is statuses(world, "deploy")["worker-1"]
    play(world, expect.plan("deploy", Status.COMPLETE))


def test_resumed_task_runs_at_its_old_address() -> None:
    """The old address restarts no peer and counts no failure; all plans are complete."""
    world = deployed()
    before = launch_of(world, "worker-1")
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running(), send.restart(), expect.alive(*ALL))

    play(
        world,
        send.pod(RESUME, "worker-1"),
        expect.answered(Reply.OK, "Received cmd: resume worker-1"),
        expect.killed("worker-1"),
        send.offers(),
        expect.launched("worker-1"),
        send.running(),
        expect.alive(*ALL),
        expect.plan("recovery", Status.COMPLETE),
        expect.plan("update", Status.COMPLETE),
    )

    after = launch_of(world, "worker-1")
    assert (before.record.address, 1, False) == (
        after.record.address,
        after.record.generation,
        after.record.is_placeholder,
    )
    was, payload = Payload.decode(before.payload), Payload.decode(after.payload)
    assert (1, 3) == (was.serial, payload.serial)
    assert replace(was, serial=payload.serial, exec_key=payload.exec_key) == payload
    recovery = world.state.stored.recoveries["worker-1"]
    assert ({}, Cause.ORDERED, ()) == (world.state.stored.paused, recovery.cause, recovery.failures)


def test_task_can_be_resumed_before_placeholder_launches() -> None:
    """The program is the next launch at the same address."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.pod(RESUME, "worker-1"), send.offers(), expect.launched("worker-1"))
    assert not world.state.stored.tasks["worker-1"].is_placeholder


def test_paused_task_has_no_deadlines() -> None:
    """A paused task never joins its peers, so none of its deadlines applies."""
    world = deployed(a_spec())
    for name in ("ps-0", "worker-0", "chief-0"):
        play(world, send.status(name, TaskState.RUNNING, healthy=True))
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running("worker-1"))

    calm = len(play(deployed(), send.wait(86_400.0)).decisions)
    play(world, send.wait(86_400.0), expect.killed(), expect.alive(*ALL))

    assert len(world.decisions) <= calm + 1


def test_crash_looping_task_can_be_paused_and_resumed() -> None:
    """The back-off of the task is cleared, and its failures are remembered."""
    world = deployed()
    error = send.status("worker-1", TaskState.FAILED, exit_code=3, message="exit code 3")
    play(world, error, send.offers(), send.running(), error, send.pod(PAUSE, "worker-1"))
    play(world, *[send.offers(), send.running()] * 2, send.wait(900.0), expect.alive(*ALL))
    play(world, send.pod(RESUME, "worker-1"), send.offers(), expect.launched("worker-1"))

    assert 2 == len(world.state.stored.recoveries["worker-1"].failures)


@pytest.mark.parametrize("when", RestartWhen)
@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.FINISHED, TaskState.KILLED])
def test_exited_placeholder_is_relaunched(when: Any, state: Any) -> None:
    """A lost placeholder is relaunched without a failure and without ending the job."""
    restart = RestartPolicy(when=when, max_failures=1)
    jobs = (a_job(JobKind.WORKER, 1),)
    world = deployed(a_spec(strategy=Strategy.INDEPENDENT, jobs=jobs, restart=restart))
    play(world, send.pod(PAUSE, "worker-0"), send.offers(), send.running())

    for _ in range(4):
        play(world, send.status("worker-0", state, exit_code=1), send.wait(600.0), send.offers(), send.running())
        play(world, expect.alive("worker-0"), expect.result(None))

    assert (True, ()) == (
        world.state.stored.tasks["worker-0"].is_placeholder,
        world.state.stored.recoveries["worker-0"].failures,
    )
    play(world, send.pod(RESUME, "worker-0"), send.offers(), send.running(), expect.alive("worker-0"))
    play(world, send.status("worker-0", TaskState.FINISHED), expect.result(Verdict.SUCCEEDED))


def test_paused_task_of_lost_agent_stays_paused_elsewhere() -> None:
    """At a new address, which the chief must know."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    hostname = world.state.stored.tasks["worker-1"].hostname

    play(world, send.agent_lost(hostname), *[send.wait(30.0), send.offers(), send.running()] * 4)

    after = world.state.stored.tasks["worker-1"]
    assert (True, True) == (after.hostname != hostname, after.is_placeholder)
    assert set(ALL) == set(world.mesos.live())
    assert not any(world.state.stored.tasks[name].is_placeholder for name in ALL if name != "worker-1")


def test_collective_training_is_paused_as_a_whole() -> None:
    """All keep their resources, and restart together; two pauses need two resumes."""
    jobs = (a_job(JobKind.WORKER, 3),)
    world = deployed(a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs))
    names = ("worker-0", "worker-1", "worker-2")
    before = {name: world.state.stored.tasks[name].address for name in names}

    play(world, send.pod(PAUSE, "worker-1"), expect.answered(Reply.OK, "together with worker-0, worker-2"))
    play(world, expect.killed(*names), send.offers(), expect.launched(*names), send.running())
    play(world, expect.says("recovery", "worker-0", "it restarts together with worker-1, which an operator paused"))
    assert dict.fromkeys(names, Override.PAUSED) == statuses(world, "recovery")
    play(world, send.pod(RESUME, "worker-0"), expect.answered(Reply.CONFLICT, "it restarts together with worker-1"))
    play(world, send.pod(PAUSE, "worker-0"), expect.answered(Reply.OK), expect.quiet())
    play(world, send.pod(RESUME, "worker-1"), expect.answered(Reply.OK), expect.quiet())

    play(world, send.pod(RESUME, "worker-0"), expect.killed(*names), send.offers(), expect.launched(*names))
    play(world, send.running(), expect.alive(*names), expect.plan("recovery", Status.COMPLETE))
    assert before == {name: world.state.stored.tasks[name].address for name in names}
    assert not any(world.state.stored.tasks[name].is_placeholder for name in names)


def test_chief_is_paused_with_its_parameter_server() -> None:
    """The chief would exit with an error; both are resumed together."""
    world = deployed()
    both = ("ps-0", "chief-0")
    play(world, send.pod(PAUSE, "ps-0"), expect.killed(*both), send.offers(), expect.launched(*both), send.running())
    play(world, send.wait(3600.0), expect.killed(), expect.alive(*ALL))
    assert dict.fromkeys(both, Override.PAUSED) == statuses(world, "recovery")

    play(world, send.pod(RESUME, "ps-0"), expect.answered(Reply.OK, "together with chief-0"), expect.killed(*both))
    play(world, send.offers(), expect.launched(*both), send.running(), expect.plan("recovery", Status.COMPLETE))


def test_updated_paused_task_stays_paused() -> None:
    """The update waits for the task, because it is the plan that launches it."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    spec = a_spec(user="somebody")

    play(world, send.restart(spec), *[send.offers(), send.running()] * 3)

    assert world.state.stored.tasks["worker-1"].is_placeholder
    assert Override.PAUSED is statuses(world, "update")["worker-1"]
    assert Status.COMPLETE is statuses(world, "update")["worker-0"]
    play(world, send.pod(RESUME, "worker-1"), send.offers(), send.running(), expect.plan("update", Status.COMPLETE))
    assert Status.COMPLETE is statuses(world, "update")["worker-1"]


def test_deployment_waits_for_paused_task() -> None:
    """Deploy is complete when that task is resumed and runs."""
    world = World(a_spec(), an_agent("agent-1"), an_agent("agent-2"))
    play(world, send.register(), send.offers(), send.running("ps-0", "worker-0", "worker-1"))
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    play(world, expect.alive(*ALL), expect.no_plan("update"))
    assert Override.PAUSED is statuses(world, "deploy")["worker-1"]
    assert Status.COMPLETE is not find_plan(world.state, "deploy").status

    play(world, send.pod(RESUME, "worker-1"), send.offers(), send.running(), expect.plan("deploy", Status.COMPLETE))


def test_plan_with_paused_task_can_be_forced() -> None:
    """A forced step is complete whatever its tasks do."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    play(world, send.command(Verb.FORCE_COMPLETE, "update"), expect.plan("update", Status.COMPLETE))
    play(world, send.pod(RESUME, "worker-1"), send.offers(), expect.launched("worker-1"))


def test_job_with_paused_task_ends() -> None:
    """The resources of a paused task are released with all others."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    play(world, send.status("chief-0", TaskState.FINISHED), send.wait(60.0), expect.result(Verdict.SUCCEEDED))
    assert {} == world.mesos.live()
    assert world.mesos.removed
    assert None is spec_index.override_of(world.state, "worker-1"), "it has ended as the others have"


def test_paused_job_has_deadline_and_can_be_uninstalled() -> None:
    """Whichever task is paused."""
    spec = a_spec()
    late = deployed(replace(spec, finish=replace(spec.finish, deadline=600.0)))
    stopped = deployed(spec)
    for world in (late, stopped):
        play(world, send.pod(PAUSE, "ps-0"), send.offers(), send.running())

    play(late, send.wait(700.0), expect.result(Verdict.FAILED))
    play(stopped, send.stop(), send.wait(60.0), expect.result(Verdict.STOPPED))
    assert {} == late.mesos.live() == stopped.mesos.live()


def test_decommission_clears_pause() -> None:
    """When it comes back with other options, it is launched."""
    world = deployed()
    play(world, send.pod(PAUSE, "worker-1"), send.offers(), send.running())
    play(world, send.restart(a_spec(workers=1)), *[send.offers(), send.running()] * 3)
    assert {} == world.state.stored.paused
    assert "worker-1" not in world.mesos.live()
    assert [] == [key for key in world.stored() if key.startswith("paused/")]


@pytest.mark.parametrize("strategy", [Strategy.PARAMETER_SERVER, Strategy.BETWEEN_GRAPH, Strategy.INDEPENDENT])
def test_readers_resume_when_dispatcher_is_decommissioned(strategy: Any) -> None:
    """No operator could resume it; also readers that the update does not restart."""
    jobs = (a_job(JobKind.WORKER, 2), *(() if strategy is Strategy.INDEPENDENT else (a_job(JobKind.CHIEF),)))
    fed = (*jobs, a_job(JobKind.DISPATCHER, section="data_dispatcher"), a_job(JobKind.DATA_WORKER, 2))
    world = World(a_spec(strategy=strategy, jobs=fed), an_agent("agent-1", cpus=8))
    play(world, send.register(), send.offers(), send.running(), send.pod(PAUSE, "data-dispatcher-0"))
    play(world, *[send.offers(), send.running()] * 2)
    assert all(record.is_placeholder for record in world.state.stored.tasks.values())

    play(world, send.restart(a_spec(strategy=strategy, jobs=jobs)))
    play(world, *[send.offers(), send.running()] * 3)

    trainers = ["worker-0", "worker-1"] if strategy is Strategy.INDEPENDENT else ["chief-0", "worker-0", "worker-1"]
    assert trainers == sorted(world.mesos.live())
    assert not any(record.is_placeholder for record in world.state.stored.tasks.values())
    for plan in ("update", "recovery", "decommission"):
        play(world, expect.plan(plan, Status.COMPLETE))


def test_dependent_of_removed_paused_task_resumes_once() -> None:
    """Also while the stop takes time, and over a restart of the scheduler."""
    jobs = (a_job(JobKind.WORKER, 1), a_job(JobKind.CHIEF), a_job(JobKind.DISPATCHER, section="data_dispatcher"))
    world = World(a_spec(jobs=jobs), an_agent("agent-1", cpus=8))
    play(world, send.register(), send.offers(), send.running(), send.pod(PAUSE, "data-dispatcher-0"))
    play(world, *[send.offers(), send.running()] * 2)
    world.mesos.kills_at_once = False

    play(
        world,
        send.restart(a_spec(jobs=jobs[:2])),
        expect.outcome("worker-0 resumes: it was paused together with a task that the options no longer contain"),
    )
    woken = world.state.stored.recoveries["worker-0"]
    play(world, send.wait(5.0), send.restart(), send.wait(5.0))

    assert woken == world.state.stored.recoveries["worker-0"]
    play(world, send.killed("worker-0", "chief-0"), send.offers(), expect.launched("worker-0", "chief-0"))
    assert not world.state.stored.tasks["worker-0"].is_placeholder


def test_pause_of_older_scheduler_gets_placeholder() -> None:
    """A task paused without a placeholder gets one, on its old agent if possible."""
    world = deployed()
    before = world.state.stored.tasks["worker-1"].address
    play(world, send.pod(PAUSE, "worker-1"), send.restart(), send.offers(), expect.launched("worker-1"))
    assert (before, True) == (
        world.state.stored.tasks["worker-1"].address,
        world.state.stored.tasks["worker-1"].is_placeholder,
    )
