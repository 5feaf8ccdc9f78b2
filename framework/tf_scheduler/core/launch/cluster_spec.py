"""ClusterSpec, TF_CONFIG and rank variables of tasks, from their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tf_executor.contract.payload import DATA_SERVICE, MAX_WORKERS, TASK_ADDRESS
from tf_scheduler.core.placement.agents import ports_of
from tf_scheduler.core.placement.matching import Placement
from tf_scheduler.core.state.spec_index import OUTSIDE_CLUSTER_SPEC, index_of
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

#: Job -> addresses by index.
Cluster = dict[str, list[str]]


#: Placeholder address of tasks that were not launched, because ClusterSpec lists have no gaps. Tasks that need every
#: address are launched only without placeholders. The top-level domain is reserved (RFC 2606).
NOT_LAUNCHED_ADDRESS = "not-launched.invalid:1"


def cluster_of(records: Iterable[TaskRecord]) -> Cluster:
    """Return addresses by job, including the evaluator; absent tasks get placeholders."""
    cluster: Cluster = {}
    for record in sorted(records, key=lambda record: (record.job.value, record.index)):
        addresses = cluster.setdefault(record.job.value, [])
        addresses += [NOT_LAUNCHED_ADDRESS] * (record.index - len(addresses))
        addresses.append(record.address)
    return cluster


def cluster_records(state: SchedulerState, new: Iterable[TaskRecord] = ()) -> Iterable[TaskRecord]:
    """Return the records of tasks in the options; `new` records replace stored ones."""
    tasks = index_of(state.spec).tasks
    current = {name: record for name, record in state.stored.tasks.items() if name in tasks}
    return {**current, **{record.name: record for record in new}}.values()


def with_generation(previous: Mapping[TaskName, TaskRecord], records: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Return the records with their generation; a new address starts a new generation."""
    newest = max((record.generation for record in previous.values()), default=0)
    moved = any(
        record.name not in previous or previous[record.name].address != record.address
        for record in records
        if record.job not in OUTSIDE_CLUSTER_SPEC
    )
    return [replace(record, generation=newest + moved) for record in records]


def tf_config(cluster: Cluster, job: JobKind, index: int) -> dict[str, Any]:
    """Return TF_CONFIG for a task.

    The evaluator is not in the cluster of its peers: a chief would wait for it forever (tensorflow/tensorflow#46169,
    and measured). TensorFlow rejects other side jobs as unknown.
    """
    return {"cluster": peers(cluster), "task": {"type": job.value, "index": index}}


def peers(cluster: Cluster) -> Cluster:
    """Return the cluster without side jobs."""
    return {name: addresses for name, addresses in cluster.items() if JobKind(name).in_cluster}


# --- Rank variables


def rank_environment(spec: ServiceSpec, cluster: Cluster, record: TaskRecord) -> dict[str, str]:
    """Return the variables of a task's rank; `cluster` has every address."""
    variables = {TASK_ADDRESS: record.address}
    if dispatchers := cluster.get(JobKind.DISPATCHER.value):
        variables[DATA_SERVICE] = f"grpc://{dispatchers[0]}"
    if spec.live:
        variables[MAX_WORKERS] = str(spec.max_workers)
    rank = rank_of(spec, record.job, record.index)
    if rank is None:
        return variables
    size = _size(spec, cluster)
    # Rank 0, or the first task if rank 0 starts later.
    present = (addresses[0] for kind in training_jobs(spec) if (addresses := cluster.get(kind.value)))
    host, _, port = next(present, record.address).rpartition(":")
    job = spec.job_of(record.job, record.index)
    processes = 1 if job is None else max(1, job.needs.gpus // UNIT)
    values = {"rank": rank, "size": size, "host": host, "port": port, "task": record.name, "processes": processes}
    return variables | {name: text.format(**values) for name, text in spec.strategy.traits.rank_variables.items()}


def _size(spec: ServiceSpec, cluster: Cluster) -> int:
    """Return the number of training tasks, which may be fewer than in the options."""
    if spec.strategy.traits.can_start_smaller:
        return sum(len(cluster.get(kind.value, ())) for kind in training_jobs(spec))
    return sum(job.count for job in spec.jobs if job.kind in training_jobs(spec))


def training_jobs(spec: ServiceSpec) -> tuple[JobKind, ...]:
    """Return training jobs in rank order, without a chief that only coordinates."""
    if spec.strategy.traits.chief_coordinates:
        return (JobKind.WORKER,)
    chief = any(job.kind is JobKind.CHIEF and job.count for job in spec.jobs)
    return (JobKind.CHIEF, JobKind.WORKER) if chief else (JobKind.WORKER,)


def rank_of(spec: ServiceSpec, job: JobKind, index: int) -> int | None:
    """Return the rank of a training task, from 0; `None` for other tasks."""
    jobs = training_jobs(spec)
    return None if job not in jobs else index + (1 if job is not jobs[0] else 0)


def hosts_rendezvous(spec: ServiceSpec, job: JobKind, index: int) -> bool:
    """Return whether the task runs `tf_executor.launch.rendezvous`."""
    return spec.strategy.traits.has_rendezvous and rank_of(spec, job, index) == 0


def training_hosts(spec: ServiceSpec, cluster: Cluster) -> tuple[str, ...]:
    """Return the hosts of the training tasks, sorted."""
    addresses = (address for kind in training_jobs(spec) for address in cluster.get(kind.value, ()))
    return tuple(sorted({address.rpartition(":")[0] for address in addresses}))


# --- Addresses


#: Port of tasks on a virtual network, where ports are not shared: TensorFlow's default.
PORT = 2222
#: DNS zone of containers with their own addresses (DC/OS documentation, service discovery).
ZONE = "containerip.dcos.thisdcos.directory"


def host_and_port(spec: ServiceSpec, placement: Placement) -> tuple[str, int]:
    """Return agent host and offered port; on a CNI network, DNS name and fixed port."""
    if spec.network is not None:
        return dns_name(spec.name, placement.task.name), PORT
    return placement.agent.address, ports_of(placement.task_resources)[0]


def dns_name(service: str, task: TaskName) -> str:
    """Return the DNS name of a task, without the slashes of the service name.

    The DC/OS SDK uses the same names. Example: `worker-0.devmnist.containerip...` for service dev/mnist.
    """
    return f"{task}.{service.replace('/', '')}.{ZONE}"
