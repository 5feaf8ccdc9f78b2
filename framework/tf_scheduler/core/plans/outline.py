"""What the options alone say: the tasks, what each is launched with, and who must know whose address."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from tf_scheduler.core.memo import remembered
from tf_scheduler.core.recovery.units import restarts
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.knowers import KNOWERS
from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec, Strategy, TaskSpec

#: Nobody must know their addresses.
OUTSIDERS = frozenset({JobKind.EVALUATOR, JobKind.TENSORBOARD, JobKind.DATA_WORKER})
#: What tasks are launched with, of their job and of the service. Not what says where and how many; nor what is only
#: around the program, such as hooks, limits and the executor: it holds from the next launch on, as nobody wants to lose
#: training for it.
_OWN = ("kind", "command", "environment", "python", "image", "needs", "cluster_flags")
_SHARED = ("user", "strategy", "uris", "fetch", "program", "checkpoint_dir")


@dataclass(frozen=True, slots=True)
class Outline:
    """Computed once from a spec."""

    tasks: Mapping[TaskName, TaskSpec]
    #: Task -> digest of everything that it is launched with.
    configs: Mapping[TaskName, str]
    #: Digest of all that; another one makes an update.
    target: str
    #: Tasks that the deploy plan launches; the others wait for a plan of the user.
    scope: frozenset[TaskName]
    #: Those of them that are in the ClusterSpec.
    members: frozenset[TaskName]
    #: Tasks that must know every address.
    knowers: frozenset[TaskName]
    #: Job -> tasks that start again with one of its tasks, even if that comes back at its old address.
    mates: Mapping[JobKind, frozenset[TaskName]]


@remembered
def outline(spec: ServiceSpec) -> Outline:
    """The outline of a spec."""
    tasks = {task.name: task for task in spec.tasks()}
    by_group = {job.group: _config(spec, job) for job in spec.jobs}
    configs = {name: by_group[task.job.group] for name, task in tasks.items()}
    scope = frozenset(name for name, task in tasks.items() if task.job.group in _deployed(spec))
    return Outline(
        tasks=tasks,
        configs=configs,
        target=_digest([[name, configs[name]] for name in tasks]),
        scope=scope,
        members=frozenset(name for name in scope if tasks[name].job.kind not in OUTSIDERS),
        knowers=frozenset(name for name, task in tasks.items() if task.job.kind in KNOWERS[spec.strategy]),
        mates=_mates(spec),
    )


def _mates(spec: ServiceSpec) -> Mapping[JobKind, frozenset[TaskName]]:
    """The table of recovery says the same of all tasks of a job: what it says of any two of them."""
    names: dict[JobKind, list[TaskName]] = {}
    for task in spec.tasks():
        names.setdefault(task.job.kind, []).append(task.name)
    return {kind: _said_of_all(spec, found[:2]) for kind, found in names.items()}


def _said_of_all(spec: ServiceSpec, names: list[TaskName]) -> frozenset[TaskName]:
    units = [restarts(spec, [name], moved=False) for name in names]
    return units[0] & units[1] if len(units) > 1 else units[0] - {names[0]}


def _deployed(spec: ServiceSpec) -> frozenset[str]:
    plan = spec.plans.get("deploy")
    if plan is None or not plan.phases:
        return frozenset(job.group for job in spec.jobs)
    ours = frozenset(job.group for job in spec.jobs if job.kind.ours)
    return ours | frozenset(phase.section for phase in plan.phases)


def launched_with(spec: ServiceSpec, job: JobSpec) -> Mapping[str, Any]:
    """What makes a task of this job start anew when it changes. Count and placement are no part of it, as in the SDK.

    The size of the cluster is, for those who must know every address: `cluster`.
    """
    own = {name: getattr(job, name) for name in _OWN}
    shared = {name: getattr(spec, name) for name in _SHARED}
    return {
        **own,
        **shared,
        "volumes": job.volumes,
        "cluster": _shape(spec) if job.kind in KNOWERS[spec.strategy] or _is_shard(spec, job) else {},
    }


def _is_shard(spec: ServiceSpec, job: JobSpec) -> bool:
    """Whether NUM_SHARDS is all that its tasks know of the others."""
    return spec.strategy is Strategy.INDEPENDENT and job.kind is JobKind.WORKER


def _config(spec: ServiceSpec, job: JobSpec) -> str:
    # Without volumes it is what it was before there were any: nobody restarts because the scheduler is a newer one.
    return _digest({k: _data(v) for k, v in launched_with(spec, job).items() if v or k != "volumes"})


def _data(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_data(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _shape(spec: ServiceSpec) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for job in spec.jobs:
        if job.kind not in OUTSIDERS:
            counts[job.kind.value] += job.count
    return counts


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)
