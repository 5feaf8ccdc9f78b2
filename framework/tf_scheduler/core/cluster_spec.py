"""Addresses of the tasks -> the ClusterSpec and each task's TF_CONFIG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskRecord

from .plans.outline import OUTSIDERS

#: job -> addresses by index
Cluster = dict[str, list[str]]


#: Stands for a task that has no address yet: ClusterSpec wants a list without gaps. Tasks that must know every
#: address are launched only when there is none of these. The top-level domain is nobody's (RFC 2606).
NOWHERE = "not-launched.invalid:1"


def cluster_of(records: Iterable[TaskRecord]) -> Cluster:
    """The whole cluster, evaluator included, each job from index 0 to the highest that there is."""
    cluster: Cluster = {}
    for record in sorted(records, key=lambda record: (record.job.value, record.index)):
        addresses = cluster.setdefault(record.job.value, [])
        addresses += [NOWHERE] * (record.index - len(addresses))
        addresses.append(record.address)
    return cluster


def generation_of(known: Mapping[TaskName, TaskRecord], records: Sequence[TaskRecord]) -> list[TaskRecord]:
    """The new records with their generation: a new one if the address of any of them is new."""
    newest = max((record.generation for record in known.values()), default=0)
    moved = any(
        record.name not in known or known[record.name].address != record.address
        for record in records
        if record.job not in OUTSIDERS
    )
    return [replace(record, generation=newest + moved) for record in records]


def tf_config(cluster: Cluster, job: JobKind, index: int) -> dict[str, Any]:
    """What TFConfigClusterResolver reads.

    The evaluator is in nobody's cluster: a chief that sees it there waits for it for ever
    (tensorflow/tensorflow#46169, and measured), and the evaluator itself needs no entry. Other side-cars are no jobs
    that TensorFlow knows: it refuses them.
    """
    peers = {name: list(addresses) for name, addresses in cluster.items() if JobKind(name).in_cluster}
    return {"cluster": peers, "task": {"type": job.value, "index": index}}
