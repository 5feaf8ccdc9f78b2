"""Environment variables of tasks besides TF_CONFIG."""

from __future__ import annotations

import pytest

from builders import a_job, a_spec, needs
from tf_executor.contract.payload import DATA_SERVICE, setter_of
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.launch.cluster_spec import (
    cluster_of,
    hosts_rendezvous,
    rank_environment,
    rank_of,
)
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskRecord

PS, WORKER, CHIEF = JobKind.PS, JobKind.WORKER, JobKind.CHIEF


def records(spec):
    """Return one record per task, each with a port of its own."""
    return [
        TaskRecord(task.name, TaskId("t"), task.job.kind, task.index, AgentId("a"), "h", f"10.0.0.1:{port}", 1, (), 0.0)
        for port, task in enumerate(spec.tasks(), 31000)
    ]


def environments(spec):
    """Return the variables of each task."""
    all_records = records(spec)
    return {record.name: rank_environment(spec, cluster_of(all_records), record) for record in all_records}


def service(strategy, **counts):
    return a_spec(strategy=strategy, jobs=tuple(a_job(JobKind(kind), count) for kind, count in counts.items()))


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [
        (Strategy.PARAMETER_SERVER, {"worker-0": "0", "worker-1": "1"}),
        (Strategy.MULTI_WORKER_MIRRORED, {"chief-0": "0", "worker-0": "1", "worker-1": "2"}),
        (Strategy.BETWEEN_GRAPH, {"chief-0": "0", "worker-0": "1", "worker-1": "2"}),
    ],
)
def test_training_tasks_have_data_shards(strategy, shards) -> None:
    """A chief with ps only distributes steps; otherwise it is the first that trains."""
    variables = environments(service(strategy, ps=1, worker=2, chief=1, evaluator=1))

    assert shards == {name: around["SHARD_INDEX"] for name, around in variables.items() if "SHARD_INDEX" in around}
    assert {str(len(shards))} == {variables[name]["NUM_SHARDS"] for name in shards}


def test_gpu_workers_have_shards_after_cpu_workers() -> None:
    """Indexes are those of the job, shared by both sections."""
    jobs = (a_job(WORKER, 2, section="worker"), a_job(WORKER, 1, section="gpu_worker", first_index=2))
    variables = environments(a_spec(strategy=Strategy.INDEPENDENT, jobs=jobs))

    assert ["0", "1", "2"] == [variables[f"worker-{index}"]["SHARD_INDEX"] for index in range(3)]


def test_pytorch_gets_rendezvous_and_rank() -> None:
    """As torchrun and TonY set it, one process per node; rank 0 listens at its port."""
    variables = environments(service(Strategy.PYTORCH_DDP, worker=2))

    for rank, around in enumerate((variables["worker-0"], variables["worker-1"])):
        assert {
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "31000",
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "INIT_METHOD": "tcp://10.0.0.1:31000",
            "WORLD": "2",
        }.items() <= around.items()


def test_torchrun_finds_nodes_and_processes() -> None:
    """Without these it trains a model of its own in each task; a process per GPU."""
    plain = a_job(WORKER, 1, section="worker")
    gpus = a_job(WORKER, 1, needs=needs(gpus=2), section="gpu_worker", first_index=1)
    variables = environments(a_spec(strategy=Strategy.PYTORCH_DDP, jobs=(plain, gpus)))

    expected = {"PET_NNODES": "2", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "31000"}
    for rank, processes in enumerate(("1", "2")):
        own = {"PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": processes, "PET_RDZV_ENDPOINT": "10.0.0.1:31000"}
        assert {**expected, **own}.items() <= variables[f"worker-{rank}"].items()


def test_horovod_gets_rendezvous_and_rank() -> None:
    """As horovodrun for hosts with one slot; the chief is rank 0, its executor serves."""
    spec = service(Strategy.HOROVOD, worker=2, chief=1)
    variables = environments(spec)

    assert {
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "2",
        "HOROVOD_CROSS_SIZE": "3",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": variables["chief-0"]["TASK_ADDRESS"].rpartition(":")[2],
        "HOROVOD_CONTROLLER": "gloo",
    }.items() <= variables["worker-1"].items()
    assert (True, False) == (hosts_rendezvous(spec, CHIEF, 0), hosts_rendezvous(spec, WORKER, 0))


TWO_LIBRARIES = (Strategy.PYTORCH_DDP, Strategy.HOROVOD)


@pytest.mark.parametrize("strategy", [item for item in Strategy if item not in TWO_LIBRARIES])
def test_other_strategies_get_no_world_size(strategy) -> None:
    """A library that sees WORLD_SIZE waits for the others."""
    variables = environments(service(strategy, worker=2, chief=1))

    assert not {"RANK", "WORLD", "WORLD_SIZE", "PET_NNODES", "HOROVOD_RANK"} & {
        name for around in variables.values() for name in around
    }


def test_side_jobs_have_no_rank() -> None:
    """They do not train."""
    spec = service(Strategy.PYTORCH_DDP, worker=2)

    assert [None] * 4 == [rank_of(spec, kind, 0) for kind in (PS, *filter(lambda kind: kind.is_builtin, JobKind))]


@pytest.mark.parametrize("strategy", [Strategy.PYTORCH_DDP, Strategy.HOROVOD])
def test_rendezvous_without_chief_is_first_worker(strategy) -> None:
    """Until then the first worker is the rendezvous."""
    spec = service(strategy, worker=2, chief=1)
    workers = [record for record in records(spec) if record.job is WORKER]

    variables = [rank_environment(spec, cluster_of(workers), record) for record in workers]

    (port,) = {around.get("MASTER_PORT") or around["HOROVOD_GLOO_RENDEZVOUS_PORT"] for around in variables}
    assert workers[0].address.endswith(f":{port}")


@pytest.mark.parametrize(("dispatcher", "expected"), [(0, None), (1, "grpc://10.0.0.1:31002")])
def test_tasks_get_address_of_data_service_if_there_is_one(dispatcher: int, expected: str | None) -> None:
    variables = environments(service(Strategy.PARAMETER_SERVER, worker=1, ps=1, **{"data-dispatcher": dispatcher}))

    assert expected == variables["worker-0"].get(DATA_SERVICE)


@pytest.mark.parametrize("strategy", Strategy)
def test_options_cannot_set_rank_variables(strategy) -> None:
    """A variable that validation does not know could be overridden in every task."""
    names = set(environments(service(strategy, worker=2, **{JobKind.DISPATCHER.value: 1}))["worker-1"])
    setters = {name: setter_of(name, strategy) for name in names}
    assert {"PET_NPROC_PER_NODE"} >= {name for name, setter in setters.items() if not setter}
