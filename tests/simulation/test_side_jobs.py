"""Jobs next to training: none waits for TensorBoard, all know the data service."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from builders import a_job, a_spec, needs, with_fields
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.test_resize import collective, saves, scale
from simulation.world import World, play
from tf_executor.contract.payload import Payload
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.model.task import Cause, PodVerb

FAILED = TaskState.FAILED
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}
TRAINERS = ("ps-0", "worker-0", "worker-1", "chief-0")


DISPATCHER = "data-dispatcher-0"
READERS = ("worker-0", "worker-1", "chief-0", "data-worker-0", "data-worker-1")


def spec(*more: Any, **options: Any) -> ServiceSpec:
    jobs = (a_job(JobKind.PS), a_job(JobKind.WORKER, 2), a_job(JobKind.CHIEF))
    return a_spec(**{"strategy": Strategy.PARAMETER_SERVER, "jobs": (*jobs, *more), **options})


def fed(checkpoint_dir: str = "") -> ServiceSpec:
    """With a data service of two workers."""
    jobs = (a_job(JobKind.DISPATCHER, section="data_dispatcher"), a_job(JobKind.DATA_WORKER, 2))
    return spec(*jobs, checkpoint_dir=checkpoint_dir)


def journal_of(world: World) -> str:
    launch = world.mesos.tasks[world.id_of(DISPATCHER)].launch
    return Payload.decode(launch.payload).environment["DATA_SERVICE_JOURNAL"]


def test_training_does_not_wait_for_tensorboard() -> None:
    """A TensorBoard that is too big for this cluster is pending, with its reasons."""
    world = World(spec(a_job(JobKind.TENSORBOARD, needs=needs(cpus=50))), an_agent())

    play(world, send.register(), send.offers(), expect.launched(*TRAINERS))

    assert {"tensorboard-0"} == set(world.state.session.round.reasons)


def test_moved_side_job_restarts_no_other_task() -> None:
    """No ClusterSpec contains a side job's address, so the generation never changes."""
    world = deployed(spec(a_job(JobKind.TENSORBOARD, port=31007)))

    play(world, send.status("tensorboard-0", FAILED, **KILLED_HARD), send.ports_taken("agent-1", (31007, 31007)))
    play(world, send.offers(), send.wait(30.0), send.offers(), send.running(), expect.alive(*TRAINERS, "tensorboard-0"))
    assert not world.state.stored.tasks["tensorboard-0"].address.endswith(":31007")
    play(world, send.status("worker-1", FAILED, **KILLED_HARD), send.offers(), expect.launched("worker-1"))
    play(world, send.running(), expect.killed(), expect.alive(*TRAINERS, "tensorboard-0"))

    assert {1} == {record.generation for record in world.state.stored.tasks.values()}


def test_independent_workers_launch_as_they_fit() -> None:
    """No gang: the first two start while the third waits."""
    independent = a_spec(strategy=Strategy.INDEPENDENT, jobs=(a_job(JobKind.WORKER, 3),))
    world = World(independent, an_agent(cpus=1.3))

    play(world, send.register(), send.offers(), expect.launched("worker-0", "worker-1"), send.running())
    play(world, send.status("worker-0", TaskState.FINISHED), send.wait(1), send.offers(), expect.launched("worker-2"))
    play(world, expect.environment("worker-2", SHARD_INDEX="2", NUM_SHARDS="3"), expect.cluster("worker-2"))


def test_every_task_knows_the_dispatcher() -> None:
    """At its address of this launch."""
    world = deployed(fed())
    address = f"grpc://{world.state.stored.tasks['data-dispatcher-0'].address}"

    for name in (*TRAINERS, "data-worker-0", "data-worker-1"):
        play(world, expect.environment(name, DATA_SERVICE_ADDRESS=address))
    play(world, expect.cluster("chief-0", ps=1, worker=2, chief=1))


def test_readers_use_the_offers_that_the_dispatcher_leaves() -> None:
    """Independent tasks are launched without waiting for more offers."""
    jobs = (a_job(JobKind.DISPATCHER), a_job(JobKind.WORKER, 2), a_job(JobKind.DATA_WORKER))
    agents = an_agent("agent-0", cpus=0.6, mem=1088), an_agent("agent-1", cpus=4)
    world = World(a_spec(strategy=Strategy.INDEPENDENT, jobs=jobs), *agents)

    play(world, send.register(), send.offers())

    play(world, expect.alive("data-dispatcher-0", "worker-0", "worker-1", "data-worker-0"))


@pytest.mark.parametrize("folder", ["", "checkpoints", "gs://bucket/run"])
def test_lost_dispatcher_restarts_its_readers(folder: str) -> None:
    """Without a path for its journal; the parameter server keeps its variables."""
    world = deployed(fed(folder))

    play(world, send.status(DISPATCHER, FAILED, **KILLED_HARD), expect.killed(*READERS), send.offers())
    play(world, *[send.running(), send.offers(), send.wait(1)] * 2, send.running())
    play(world, expect.alive(*TRAINERS, DISPATCHER, "data-worker-0", "data-worker-1"))


def test_dispatcher_with_journal_restarts_alone() -> None:
    """At its address, each time; the folder is hidden, and of this service only."""
    world = deployed(fed("/mnt/run/"))
    journal = journal_of(world)

    for _ in range(2):
        play(world, send.status(DISPATCHER, FAILED, **KILLED_HARD), expect.killed(), send.offers(), send.wait(30.0))
        play(world, send.offers(), send.running(), expect.killed(), expect.alive(*TRAINERS, *READERS, DISPATCHER))
        assert journal == journal_of(world)

    name = world.state.spec.name
    assert journal.startswith(f"/mnt/run/.dcos-tensorflow/{name}.journals/data-dispatcher-0")


def test_moved_dispatcher_restarts_its_readers() -> None:
    """They know the old address, and another dispatcher may use the journal."""
    world = deployed(fed("/mnt/run"))
    journal = journal_of(world)
    port = int(world.state.stored.tasks[DISPATCHER].address.rpartition(":")[2])
    host = world.state.stored.tasks[DISPATCHER].hostname

    play(world, send.status(DISPATCHER, FAILED, **KILLED_HARD), send.ports_taken(host, (port, port)), expect.killed())
    play(world, send.offers(), expect.killed(), send.wait(30.0), expect.killed(*READERS), send.offers())
    play(world, *[send.offers(), send.running()] * 3, expect.alive(*TRAINERS, *READERS, DISPATCHER))

    assert journal != journal_of(world)
    address = f"grpc://{world.state.stored.tasks[DISPATCHER].address}"
    play(world, expect.environment("worker-0", DATA_SERVICE_ADDRESS=address))


def test_restarted_job_gets_new_journal() -> None:
    """With the old one, the data sets of a named job would count as read."""
    world = deployed(fed("/mnt/run"))
    journal = journal_of(world)

    play(world, send.command(Verb.RESTART, "deploy"), *[send.offers(), send.wait(30.0), send.running()] * 4)

    play(world, expect.alive(*TRAINERS, *READERS, DISPATCHER))
    assert journal != journal_of(world)


def test_dispatcher_of_older_scheduler_has_no_journal() -> None:
    """It was launched without one, so its readers have to register again."""
    world = deployed(fed("/mnt/run"))
    record = replace(world.state.stored.tasks[DISPATCHER], journal="")
    world.state = with_fields(world.state, tasks={**world.state.stored.tasks, DISPATCHER: record})

    play(world, send.status(DISPATCHER, FAILED, **KILLED_HARD), send.offers(), expect.killed(*READERS))


@pytest.mark.parametrize("folder", ["", "/mnt/run"])
def test_moved_data_workers_restart_data_service_once(folder: str) -> None:
    """A reader would wait for the lost ones at the end of its pass, forever."""
    world = World(fed(folder), *(an_agent(f"agent-{number}", cpus=1.2) for number in range(1, 7)))
    play(world, send.register(), send.offers(), send.running())
    before = world.state.stored.tasks

    play(
        world, send.agent_lost(before["data-worker-0"].hostname), *[send.offers(), send.wait(30.0), send.running()] * 8
    )

    play(world, expect.alive(*TRAINERS, *READERS, DISPATCHER))
    assert world.state.stored.tasks["data-worker-0"].address != before["data-worker-0"].address
    launches = Counter(task.launch.record.name for task in world.mesos.tasks.values())
    assert {2} == {launches[name] for name in ("worker-0", "worker-1", "chief-0", DISPATCHER)}


# --- What a side job or the data service must not do: stop, excuse or delay the training

CRASHED = {"exit_code": 139, "message": "segmentation fault"}


def smaller_cluster() -> World:
    """Three of four workers, next to a TensorBoard."""
    spec = collective(4, resize_wait=0.0)
    jobs = (*(replace(job, min_count=2) for job in spec.jobs), a_job(JobKind.TENSORBOARD))
    world = deployed(replace(spec, jobs=jobs), *(an_agent(f"agent-{number}", cpus=0.7) for number in range(5)))
    play(world, send.agent_lost(world.state.stored.tasks[TaskName("worker-3")].hostname))
    return world


def shrink(world: World) -> World:
    for _ in range(8):
        play(world, send.wait(20), send.offers(), send.running())
    return world


@pytest.mark.parametrize("restarts", [True, False])
def test_side_job_restarts_no_smaller_cluster(restarts: bool) -> None:
    """Its full size comes back when the cluster itself restarts."""
    world = shrink(smaller_cluster())
    play(world, expect.alive("worker-0", "worker-1", "worker-2", "tensorboard-0"))
    before = [world.id_of(f"worker-{index}") for index in range(3)]

    crash = send.status("tensorboard-0", FAILED, **CRASHED)
    play(world, send.pod(PodVerb.RESTART, "tensorboard-0") if restarts else crash)

    assert before == [world.id_of(f"worker-{index}") for index in range(3)]
    play(shrink(world), expect.alive("worker-0", "worker-1", "worker-2", "tensorboard-0"))
    assert before == [world.id_of(f"worker-{index}") for index in range(3)]


@pytest.mark.parametrize("pauses", [True, False])
def test_size_waits_for_a_checkpoint_beside_a_side_job(pauses: bool) -> None:
    """Neither its loss, nor its pause, restarts the workers before the checkpoint."""
    spec = collective(2)
    agents = [an_agent(f"agent-{number}", cpus=0.7) for number in range(6)]
    world = play(deployed(replace(spec, jobs=(*spec.jobs, a_job(JobKind.TENSORBOARD))), *agents), saves(10))
    crash = send.pod(PodVerb.PAUSE, "tensorboard-0") if pauses else send.status("tensorboard-0", FAILED, **CRASHED)
    before = world.id_of("worker-0"), world.id_of("worker-1")

    play(world, crash, scale(3), send.offers(), send.wait(20), crash if not pauses else scale(3))

    assert world.state.stored.resized.until is not None
    assert before == (world.id_of("worker-0"), world.id_of("worker-1"))


def test_side_job_excuses_no_error_of_the_training() -> None:
    """A worker's own errors count, however often TensorBoard fails just before."""
    world = deployed(spec(a_job(JobKind.TENSORBOARD)))
    error = {"exit_code": 1, "message": "exit code 1"}

    play(world, send.status("tensorboard-0", FAILED, **CRASHED), send.wait(5), send.status("worker-0", FAILED, **error))

    recovery = world.state.stored.recoveries[TaskName("worker-0")]
    assert (Cause.USER_ERROR, 1) == (recovery.cause, len(recovery.failures))


@pytest.mark.parametrize("strategy", [Strategy.INDEPENDENT, Strategy.PYTORCH_DDP, Strategy.HOROVOD])
def test_data_service_makes_no_task_late(strategy: Strategy) -> None:
    """Its servers answer; tasks of these strategies have none that could."""
    jobs = (a_job(JobKind.DISPATCHER), a_job(JobKind.WORKER, 2), a_job(JobKind.DATA_WORKER))
    world = deployed(a_spec(strategy=strategy, jobs=jobs), an_agent(cpus=8))
    play(world, send.offers(), send.running(), *send.joined("data-dispatcher-0", "data-worker-0"))

    play(world, send.wait(700), expect.alive("data-dispatcher-0", "worker-0", "worker-1", "data-worker-0"))

    assert {} == world.state.stored.recoveries
