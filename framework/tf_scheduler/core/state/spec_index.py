"""Values derived from a spec: digests, plans, restart groups, other cluster sizes."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tf_executor.contract.states import Override, TaskState
from tf_executor.contract.strategies import RestartScope, Strategy
from tf_scheduler.model import plan as plans
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.resources import Needs, Volume
from tf_scheduler.model.spec import (
    ADDRESS_DEPENDENTS,
    JobKind,
    JobSpec,
    Program,
    ServiceSpec,
    StorageMode,
    StoragePolicy,
    TaskSpec,
    Uri,
)
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Resized, TaskRecord

#: Jobs whose completion may end the job: parameter servers never exit, side jobs do not train.
TRAINERS = frozenset({JobKind.CHIEF, JobKind.WORKER})
#: Jobs whose addresses no other task gets at its launch.
OUTSIDE_CLUSTER_SPEC = frozenset({JobKind.EVALUATOR, JobKind.TENSORBOARD, JobKind.DATA_WORKER})


@dataclass(frozen=True, slots=True)
class SpecIndex:
    """Values derived from a spec."""

    tasks: Mapping[TaskName, TaskSpec]
    #: Task -> its number in the order of the options.
    positions: Mapping[TaskName, int]
    by_kind: Mapping[JobKind, frozenset[TaskName]]
    #: Task -> digest of its launch options.
    configs: Mapping[TaskName, str]
    #: Digest of all launch options; a different one starts an update.
    target: str
    #: Tasks that the deploy plan launches; others are launched by user plans.
    deployed: frozenset[TaskName]
    #: Training tasks of `deployed`.
    trainers: frozenset[TaskName]
    #: Tasks of `deployed` in the ClusterSpec, and the dispatcher of the tf.data service.
    cluster_members: frozenset[TaskName]
    #: Tasks that need every address.
    address_dependents: frozenset[TaskName]
    #: Job -> tasks that restart with a task of the job that returns at its previous address.
    restart_peers: Mapping[JobKind, frozenset[TaskName]]
    #: Job -> tasks that restart with a task of the job that returns at another address.
    moved_restart_peers: Mapping[JobKind, frozenset[TaskName]]
    #: deploy, update, and user plans.
    launch_plans: tuple[plans.PlanDef, ...]

    def restarts(self, lost: Iterable[TaskName], *, moved: bool) -> frozenset[TaskName]:
        """Return the lost tasks, and every task that must restart with them."""
        names, peers = frozenset(lost), self.moved_restart_peers if moved else self.restart_peers
        return names.union(*(peers[self.tasks[name].job.kind] for name in names if name in self.tasks))

    def restarts_with(self, name: TaskName, lost: TaskName) -> bool:
        """Return whether `name` must restart if `lost` restarts at its previous address."""
        return name == lost or (lost in self.tasks and name in self.restart_peers[self.tasks[lost].job.kind])


#: Number of cached indexes: a process has one spec, and others while it compares options.
_LAST = 8
_indexes: tuple[tuple[ServiceSpec, SpecIndex], ...] = ()


def index_of(spec: ServiceSpec) -> SpecIndex:
    """Return the index of a spec, cached by identity."""
    global _indexes
    for indexed, index in _indexes:
        if indexed is spec:
            return index
    index = _make_index(spec)
    _indexes = ((spec, index), *_indexes)[:_LAST]
    return index


def _make_index(spec: ServiceSpec) -> SpecIndex:
    tasks = {task.name: task for task in spec.tasks()}
    by_group = {
        job.group: _digest({name: _data(value) for name, value in launch_settings(spec, job).items()})
        for job in spec.jobs
    }
    configs = {name: by_group[task.job.group] for name, task in tasks.items()}
    deployed = frozenset(name for name, task in tasks.items() if task.job.group in _deployed(spec))
    jobs: dict[JobKind, set[TaskName]] = {}
    for name, task in tasks.items():
        jobs.setdefault(task.job.kind, set()).add(name)
    peers = partial(restart_peers, spec.strategy, jobs, has_journal=bool(spec.journals))
    return SpecIndex(
        tasks=tasks,
        positions={name: number for number, name in enumerate(tasks)},
        by_kind={kind: frozenset(names) for kind, names in jobs.items()},
        configs=configs,
        target=_digest([[name, configs[name]] for name in tasks]),
        deployed=deployed,
        trainers=frozenset(name for name in deployed if tasks[name].job.kind in TRAINERS),
        cluster_members=frozenset(name for name in deployed if tasks[name].job.kind not in OUTSIDE_CLUSTER_SPEC),
        address_dependents=frozenset().union(*(jobs[kind] for kind in jobs.keys() & ADDRESS_DEPENDENTS[spec.strategy])),
        restart_peers={kind: peers(kind, moved=False) for kind in jobs},
        moved_restart_peers={kind: peers(kind, moved=True) for kind in jobs},
        launch_plans=_launch_plans(spec),
    )


def config_digest(spec: ServiceSpec, name: TaskName) -> str:
    """Return the digest of the task's launch options; empty for an unknown task."""
    return index_of(spec).configs.get(name, "")


def launched_task(spec: ServiceSpec, record: TaskRecord) -> TaskSpec | None:
    """Return the task with the options of its launch; `None` if they are not known."""
    for options in (spec, *spec.earlier):
        index = index_of(options)
        if index.configs.get(record.name) == record.config:
            task = index.tasks[record.name]
            return task if options is spec else replace(task, options=options)
    return None


#: Strategy of a plan without listed phases -> strategies of the plan, and of each phase.
_UNPHASED: Mapping[plans.PlanStrategy, tuple[plans.PlanStrategy, plans.PlanStrategy]] = {
    plans.PlanStrategy.SERIAL: (plans.PlanStrategy.SERIAL, plans.PlanStrategy.SERIAL),
    plans.PlanStrategy.PARALLEL: (plans.PlanStrategy.PARALLEL, plans.PlanStrategy.PARALLEL),
    plans.PlanStrategy.CANARY: (plans.PlanStrategy.SERIAL, plans.PlanStrategy.CANARY),
    plans.PlanStrategy.PARALLEL_CANARY: (plans.PlanStrategy.SERIAL, plans.PlanStrategy.PARALLEL_CANARY),
    plans.PlanStrategy.DEPENDENCY: (plans.PlanStrategy.DEPENDENCY, plans.PlanStrategy.PARALLEL),
}


def _launch_plans(spec: ServiceSpec) -> tuple[plans.PlanDef, ...]:
    """Return deploy, update, and the user plans."""
    deploy = spec.plans.get(plans.DEPLOY, plans.PlanSpec(plans.DEPLOY))
    update = spec.plans.get(
        plans.UPDATE, plans.PlanSpec(plans.UPDATE, deploy.strategy, deploy.phases, deploy.after, deploy.gang)
    )
    custom = [plan for name, plan in spec.plans.items() if name not in plans.RESERVED_PLAN_NAMES]
    return (
        _launching(spec, deploy, plans.PlanKind.ROLL_OUT),
        _launching(spec, update, plans.PlanKind.ROLL_OUT),
        *(_launching(spec, plan, plans.PlanKind.CUSTOM) for plan in custom),
    )


def _launching(spec: ServiceSpec, plan: plans.PlanSpec, kind: plans.PlanKind) -> plans.PlanDef:
    jobs = {job.group: job for job in spec.jobs}
    strategy, phases = plan.strategy, plan.phases
    if not phases:
        strategy, inner = _UNPHASED[strategy]
        phases = tuple(plans.PhaseSpec(group, group, inner) for group in jobs)
    elif kind is plans.PlanKind.ROLL_OUT:
        # Built-in jobs, which options cannot name, are around the listed ones.
        builtin = [(job.kind, plans.PhaseSpec(job.group, job.group)) for job in spec.jobs if job.kind.is_builtin]
        first = (phase for kind, phase in builtin if kind is JobKind.DISPATCHER)
        last = (phase for kind, phase in builtin if kind is not JobKind.DISPATCHER)
        phases = (*first, *phases, *last)
    defined = tuple(_phase(spec, phase, jobs[phase.section]) for phase in phases if phase.section in jobs)
    return plans.PlanDef(plan.name, kind, strategy, defined, plan.after, plan.gang)


def _phase(spec: ServiceSpec, phase: plans.PhaseSpec, job: JobSpec) -> plans.PhaseDef:
    tasks = {task.index: task for task in spec.tasks() if task.job is job}
    indexes = [index for index in phase.indexes if index in tasks] or tasks
    steps = tuple(plans.StepDef(tasks[index].name, plans.Work.LAUNCH, tasks[index].name) for index in indexes)
    return plans.PhaseDef(phase.name, phase.strategy, steps, phase.after)


def _deployed(spec: ServiceSpec) -> frozenset[str]:
    plan = spec.plans.get(plans.DEPLOY)
    if plan is None or not plan.phases:
        return frozenset(job.group for job in spec.jobs)
    builtin = frozenset(job.group for job in spec.jobs if job.kind.is_builtin)
    return builtin | frozenset(phase.section for phase in plan.phases)


def launch_settings(spec: ServiceSpec, job: JobSpec) -> Mapping[str, Any]:
    """Return the launch options of a job; a change of them restarts its tasks.

    Count and placement are not included, as in the SDK. Options around the program, such as hooks, limits and the
    executor, are not included either: they apply from the next launch. `cluster` is the size of the cluster, for tasks
    that need it or every address. The digests include these names, so a renamed option restarts every task.
    """
    return {
        "kind": job.kind,
        "command": job.command,
        "environment": job.environment,
        "python": job.settings.python,
        "image": job.image,
        "needs": job.needs,
        "cluster_flags": job.settings.cluster_flags,
        "user": spec.user,
        "strategy": spec.strategy,
        "uris": spec.uris,
        "fetch": spec.fetch,
        "digests": spec.digests,
        "program": spec.program,
        "checkpoint_dir": spec.checkpoint_dir,
        "storage": _storage(spec.storage),
        "volumes": job.volumes,
        "cluster": _shape(spec) if _depends_on_size(spec, job) else {},
    }


def _storage(storage: StoragePolicy) -> Mapping[str, Any]:
    """Return the storage options that concern a running task; empty for the defaults."""
    if (storage.mode, storage.options) == (StorageMode.AUTO, {}):
        return {}
    return {"mode": storage.mode.value, "options": dict(storage.options)}


def _depends_on_size(spec: ServiceSpec, job: JobSpec) -> bool:
    # NUM_SHARDS is all that independent workers know about each other.
    is_shard = not spec.strategy.traits.has_peers and job.kind is JobKind.WORKER
    return is_shard or job.kind in ADDRESS_DEPENDENTS[spec.strategy]


def _data(value: Any) -> Any:
    """Return a value for hashing, under fixed names that do not depend on field names."""
    match value:
        case tuple():
            return [_data(item) for item in value]
        case Needs():
            return {"cpus": value.cpus, "mem": value.mem, "disk": value.disk, "gpus": value.gpus, "ports": value.ports}
        case Uri(value=url, extract=extract, cache=cache, output_file=file, link=link):
            return {"value": url, "extract": extract, "cache": cache, "output_file": file, "link": link}
        case Program(name=name, path=path, context=context):
            return {"name": name, "path": path, "context": context}
        case Volume(host_path=host_path, container_path=container_path, read_only=read_only):
            return {"host_path": host_path, "container_path": container_path, "read_only": read_only}
    return value


def _shape(spec: ServiceSpec) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for job in spec.jobs:
        # A live chief is sent its workers.
        if job.kind not in OUTSIDE_CLUSTER_SPEC and not (spec.live and job.kind is JobKind.WORKER):
            counts[job.kind.value] += job.count
    return counts


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# --- Cluster sizes


def scalable_job(spec: ServiceSpec) -> JobSpec | None:
    """Return the worker job of collective training if it may shrink; else `None`."""
    job = worker_job(spec)
    if job is None or not trains_together(spec.strategy, job.kind):
        return None
    return job if 0 < job.min_count < job.count else None


def with_workers(spec: ServiceSpec, count: int) -> ServiceSpec:
    """Return the spec reduced to `count` workers; unchanged if not possible."""
    job = scalable_job(spec)
    return spec if job is None or not job.min_count <= count < job.count else _changed(spec, count=count)


def worker_job(spec: ServiceSpec) -> JobSpec | None:
    """Return the job of the workers, if there is only one."""
    workers = [job for job in spec.jobs if job.kind is JobKind.WORKER]
    return workers[0] if len(workers) == 1 else None


def wanted_spec(options: ServiceSpec, size: Resized) -> ServiceSpec:
    """Return the options with the wanted number of workers."""
    job = worker_job(options)
    if job is None or size.wanted is None or size.configured != job.count:
        return options
    larger = held_spec(options, size.wanted)
    # What took idle agents may run without them.
    return _changed(larger, min_count=job.min_count or job.count) if size.grown else larger


def held_spec(options: ServiceSpec, count: int) -> ServiceSpec:
    """Return the wanted spec with the `count` workers that the job has now."""
    job = worker_job(options)
    return options if job is None or job.count == count else _changed(options, count=count)


def _changed(spec: ServiceSpec, **changes: Any) -> ServiceSpec:
    """Return the spec with other values of its only worker job."""
    jobs = (replace(job, **changes) if job.kind is JobKind.WORKER else job for job in spec.jobs)
    return replace(spec, jobs=tuple(jobs))


# --- Restart rules: which tasks restart with a lost one, by strategy
#
# Measured with TensorFlow 2.21. Addresses are fixed within one chief process: a worker or ps at a new address is
# invisible to it, one at its previous address joins again. A lost ps ends the chief within a second. Collective
# training ends as a whole. Between-graph workers recover alone, but a ps dials the addresses that it was started with.
# Readers of tf.data service wait for a dispatcher that restarts with its journal, and fail without it: the data sets
# are unknown. They wait forever for a data-worker that restarts at another address: the dispatcher does not forget the
# lost one.


#: Jobs that read from tf.data service, or contact its dispatcher.
DATA_READERS = frozenset({JobKind.CHIEF, JobKind.WORKER, JobKind.DATA_WORKER})


@dataclass(frozen=True, slots=True)
class RestartRule:
    """Which tasks restart after a loss, if the lost task keeps or changes its address."""

    #: `None` for any.
    strategy: Strategy | None
    job: JobKind
    #: Also at a new address with the same DNS name.
    same: RestartScope
    moved: RestartScope
    why: str


RESTART_RULES: tuple[RestartRule, ...] = (
    *(
        RestartRule(strategy, JobKind(loss.job), loss.same, loss.moved, loss.why)
        for strategy in Strategy
        for loss in strategy.traits.losses
    ),
    RestartRule(
        None,
        JobKind.DISPATCHER,
        RestartScope.ALONE,
        RestartScope.READERS,
        "its journal in `checkpoint_dir` has the data sets; without a path there, its readers restart, too",
    ),
    RestartRule(
        None,
        JobKind.DATA_WORKER,
        RestartScope.ALONE,
        RestartScope.READERS,
        "a pass over the data does not end without a worker at each address",
    ),
)
_TABLE: Mapping[tuple[Strategy | None, JobKind], RestartRule] = {(row.strategy, row.job): row for row in RESTART_RULES}


Jobs = Mapping[JobKind, AbstractSet[TaskName]]


def restart_peers(
    strategy: Strategy, jobs: Jobs, lost: JobKind, *, moved: bool, has_journal: bool
) -> frozenset[TaskName]:
    """Return the tasks that must restart when a task of job `lost` is lost.

    `has_journal`: the dispatcher of the tf.data service has a journal at each of its addresses.
    """
    scope = _scope(strategy, lost, moved or (lost is JobKind.DISPATCHER and not has_journal))
    return frozenset().union(*(tasks for kind, tasks in jobs.items() if _is_in(kind, scope)))


def trains_together(strategy: Strategy, kind: JobKind) -> bool:
    """Return whether no task of the cluster can train without every task of this job."""
    return _scope(strategy, kind, False) is RestartScope.ALL


def affects(lost: JobKind, other: JobKind) -> bool:
    """Return whether a task of job `other` may fail because one of job `lost` has."""
    is_read = lost in (JobKind.DISPATCHER, JobKind.DATA_WORKER) and other in DATA_READERS
    return is_read or (lost.in_cluster and other.in_cluster)


def _scope(strategy: Strategy, kind: JobKind, moved: bool) -> RestartScope:
    row = _TABLE.get((strategy, kind)) or _TABLE.get((None, kind))
    if row is None:
        return RestartScope.ALONE
    return row.moved if moved else row.same


def _is_in(kind: JobKind, scope: RestartScope) -> bool:
    if scope is RestartScope.WITH_CHIEF:
        return kind is JobKind.CHIEF
    if scope is RestartScope.READERS:
        return kind is JobKind.DISPATCHER or kind in DATA_READERS
    return scope is RestartScope.ALL and kind.in_cluster


# --- Paused tasks: a sleeping placeholder keeps the resources of a stopped program
#
# Mesos counts the resources as used, so no other framework gets them (dcos-commons, GoalStateOverride). The placeholder
# is an ordinary launch, at the previous address if possible, and is recovered like any other.


def sleeping_tasks(spec: ServiceSpec, paused: Mapping[TaskName, float]) -> frozenset[TaskName]:
    """Return the paused tasks and their restart peers, whose programs must not run."""
    return index_of(spec).restarts(paused, moved=False) if paused else frozenset()


def is_sleeping(spec: ServiceSpec, paused: Mapping[TaskName, float], name: TaskName) -> bool:
    """Return whether the task's program must not run; cheaper than `sleeping_tasks`."""
    return any(index_of(spec).restarts_with(name, other) for other in paused)


def override_of(state: SchedulerState, name: TaskName) -> Override | None:
    """Return the status to display for a paused task; `None` if its program may run."""
    record = state.stored.tasks.get(name) if is_sleeping(state.spec, state.stored.paused, name) else None
    if record is None or state.is_finished(record):
        return None
    status = state.stored.statuses.get(record.id)
    if record.is_placeholder and status is not None and status.state is TaskState.RUNNING:
        return Override.PAUSED
    # After the end of the job no placeholder is launched.
    return Override.PAUSING if state.stored.result is None else None


def pause_reason(state: SchedulerState, name: TaskName) -> str:
    """Return why the program of a sleeping task does not run."""
    if name in state.stored.paused:
        return "paused by an operator"
    return f"it restarts together with {' and '.join(_paused_causes(state, name))}, which an operator paused"


def placeholder_command(state: SchedulerState, record: TaskRecord) -> str:
    """Return the placeholder's shell command, which explains the pause and sleeps."""
    resume = f"dcos tensorflow --name={state.spec.name} pod resume"
    lines = (
        f"{record.name} of {state.spec.name} is paused: {pause_reason(state, record.name)}.",
        f"No program runs here; the address {record.address} and all resources of the task are kept.",
        *(f"To resume: {resume} {name}" for name in _paused_causes(state, record.name)),
    )
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}; while :; do sleep 3600; done"


def _paused_causes(state: SchedulerState, name: TaskName) -> list[TaskName]:
    """Return the paused tasks that must be resumed before the program runs again."""
    return sorted(other for other in state.stored.paused if index_of(state.spec).restarts_with(name, other))
