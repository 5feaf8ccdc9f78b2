"""What a task learns of its place among the others, besides TF_CONFIG: as environment variables.

Names: PyTorch's `env://` rendezvous (torch.distributed documentation), Horovod's launcher (horovod/runner/gloo_run.py),
and the shard of the data that is this task's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tf_scheduler.model.spec import JobKind, ServiceSpec, Strategy
from tf_scheduler.model.task import TaskRecord

from .cluster_spec import Cluster

Variables = dict[str, str]

#: Of tf.data service, as `tf.data.experimental.service.distribute` takes it.
DATA_SERVICE = "DATA_SERVICE_ADDRESS"


def surroundings(spec: ServiceSpec, cluster: Cluster, record: TaskRecord) -> Variables:
    """For the task of `record`; `cluster` has every address."""
    found = {"TASK_ADDRESS": record.address, **_data_service(cluster)}
    rank = rank_of(spec, record.job, record.index)
    if rank is None:
        return found
    size = _size(spec, cluster)
    found |= {"SHARD_INDEX": str(rank), "NUM_SHARDS": str(size)}
    dialect = _DIALECTS.get(spec.strategy)
    return found if dialect is None else found | dialect(rank, size, record, _first(spec, cluster, record))


def _size(spec: ServiceSpec, cluster: Cluster) -> int:
    """How many train. Collective training may start with fewer than the options say; all of it is in the cluster."""
    if spec.strategy is Strategy.MULTI_WORKER_MIRRORED:
        return sum(len(cluster.get(kind.value, ())) for kind in trainers(spec))
    return sum(job.count for job in spec.jobs if job.kind in trainers(spec))


def trainers(spec: ServiceSpec) -> tuple[JobKind, ...]:
    """The jobs that train, in the order of their ranks. A chief of parameter servers only hands out the steps."""
    if spec.strategy is Strategy.PARAMETER_SERVER:
        return (JobKind.WORKER,)
    chief = any(job.kind is JobKind.CHIEF and job.count for job in spec.jobs)
    return (JobKind.CHIEF, JobKind.WORKER) if chief else (JobKind.WORKER,)


def rank_of(spec: ServiceSpec, job: JobKind, index: int) -> int | None:
    """Number of a task among those that train, from 0; None for one that does not."""
    jobs = trainers(spec)
    return None if job not in jobs else index + (1 if job is not jobs[0] else 0)


def gives_rendezvous(spec: ServiceSpec, job: JobKind, index: int) -> bool:
    """Whether Horovod's processes meet at this task: its executor serves them (`tf_executor.rendezvous`)."""
    return spec.strategy is Strategy.HOROVOD and rank_of(spec, job, index) == 0


def _data_service(cluster: Cluster) -> Variables:
    addresses = cluster.get(JobKind.DISPATCHER.value)
    return {DATA_SERVICE: f"grpc://{addresses[0]}"} if addresses else {}


def _first(spec: ServiceSpec, cluster: Cluster, record: TaskRecord) -> tuple[str, str]:
    """Host and port of rank 0; of the first that there is, where a plan of the user's launches that one later."""
    present = (addresses[0] for kind in trainers(spec) if (addresses := cluster.get(kind.value)))
    host, _, port = next(present, record.address).rpartition(":")
    return host, port


def _pytorch(rank: int, size: int, _: TaskRecord, first: tuple[str, str]) -> Variables:
    """One process per task: what it has of GPUs is its own, so its local rank is 0."""
    alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": str(size)}
    return {"MASTER_ADDR": first[0], "MASTER_PORT": first[1], "RANK": str(rank), "WORLD_SIZE": str(size), **alone}


def _horovod(rank: int, size: int, record: TaskRecord, first: tuple[str, str]) -> Variables:
    """As if each task were a host of its own."""
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(rank),
        "HOROVOD_CROSS_SIZE": str(size),
        "HOROVOD_HOSTNAME": record.name,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": first[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": first[1],
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


_DIALECTS: Mapping[Strategy, Callable[[int, int, TaskRecord, tuple[str, str]], Variables]] = {
    Strategy.PYTORCH_DDP: _pytorch,
    Strategy.HOROVOD: _horovod,
}
