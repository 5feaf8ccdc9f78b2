"""What must start again when a task is lost: an ordered table per strategy. docs/recovery.md shows it.

Measured with TensorFlow 2.21. Inside one chief process addresses are for ever: a worker or ps at a new address is
invisible to it, one that comes back at its old address joins again by itself. A lost ps ends the chief within a second.
Collective training ends as a whole. Between-graph workers heal themselves, but a ps dials the addresses that it was
started with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec, Strategy

#: Who reads from tf.data service, or looks for its dispatcher.
READERS = frozenset({JobKind.CHIEF, JobKind.WORKER, JobKind.DATA_WORKER})


class Unit(Enum):
    """Besides the lost task itself."""

    ALONE = "that task"
    WITH_CHIEF = "that task and the chief"
    ALL = "every task of the cluster"
    READERS = "that task, and all that read from it"


@dataclass(frozen=True, slots=True)
class Row:
    """What a loss costs, at the same address and at a new one."""

    #: None: any.
    strategy: Strategy | None
    job: JobKind
    same: Unit
    moved: Unit
    why: str


_PS, _WORKER, _CHIEF = JobKind.PS, JobKind.WORKER, JobKind.CHIEF
_PSS, _MWMS, _BETWEEN = Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.BETWEEN_GRAPH
_DDP, _HOROVOD = Strategy.PYTORCH_DDP, Strategy.HOROVOD

ROWS: tuple[Row, ...] = (
    Row(_PSS, _WORKER, Unit.ALONE, Unit.WITH_CHIEF, "it joins again by itself; a new address only a new chief learns"),
    Row(_PSS, _PS, Unit.WITH_CHIEF, Unit.WITH_CHIEF, "the chief ends with its ps, and restores the checkpoint"),
    Row(_PSS, _CHIEF, Unit.ALONE, Unit.ALONE, "workers and ps wait for the next one"),
    Row(_MWMS, _WORKER, Unit.ALL, Unit.ALL, "the others notice and end within seconds"),
    Row(_MWMS, _CHIEF, Unit.ALL, Unit.ALL, "it leads the others"),
    Row(_BETWEEN, _WORKER, Unit.ALONE, Unit.ALL, "each dials the addresses that it was started with"),
    Row(_BETWEEN, _PS, Unit.ALONE, Unit.ALL, "workers restore the checkpoint themselves, at the address they know"),
    Row(_BETWEEN, _CHIEF, Unit.ALONE, Unit.ALL, "as a worker"),
    Row(Strategy.INDEPENDENT, _WORKER, Unit.ALONE, Unit.ALONE, "each works for itself"),
    Row(Strategy.INDEPENDENT, _CHIEF, Unit.ALONE, Unit.ALONE, "each works for itself"),
    Row(_DDP, _WORKER, Unit.ALL, Unit.ALL, "the others wait for it in the next all-reduce, and end with an error"),
    Row(_DDP, _CHIEF, Unit.ALL, Unit.ALL, "it leads the others"),
    Row(_HOROVOD, _WORKER, Unit.ALL, Unit.ALL, "as with PyTorch"),
    Row(_HOROVOD, _CHIEF, Unit.ALL, Unit.ALL, "as with PyTorch"),
    Row(None, JobKind.DISPATCHER, Unit.READERS, Unit.READERS, "it forgets the data sets that they have registered"),
    Row(None, JobKind.DATA_WORKER, Unit.ALONE, Unit.ALONE, "the dispatcher hears of the next one"),
)
_TABLE: Mapping[tuple[Strategy | None, JobKind], Row] = {(row.strategy, row.job): row for row in ROWS}


def restarts(spec: ServiceSpec, lost: Iterable[TaskName], *, moved: bool) -> frozenset[TaskName]:
    """Every task that must start again, the lost ones among them. An evaluator concerns nobody but itself."""
    names, jobs = frozenset(lost), _jobs(spec)
    units = {_unit(spec.strategy, kind, moved) for kind, tasks in jobs.items() if not names.isdisjoint(tasks)}
    found = (tasks for kind, tasks in jobs.items() if any(_belongs(kind, unit) for unit in units))
    return names.union(*found)


def inseparable(spec: ServiceSpec, name: TaskName) -> frozenset[TaskName]:
    """All that train with this task, if none of them can without the others; else nobody."""
    jobs = _jobs(spec)
    if not any(name in tasks and _unit(spec.strategy, kind, False) is Unit.ALL for kind, tasks in jobs.items()):
        return frozenset()
    return frozenset().union(*(tasks for kind, tasks in jobs.items() if kind.in_cluster)) - {name}


@remembered
def _jobs(spec: ServiceSpec) -> Mapping[JobKind, frozenset[TaskName]]:
    names: dict[JobKind, set[TaskName]] = {}
    for task in spec.tasks():
        names.setdefault(task.job.kind, set()).add(task.name)
    return {kind: frozenset(tasks) for kind, tasks in names.items()}


def _unit(strategy: Strategy, kind: JobKind, moved: bool) -> Unit:
    row = _TABLE.get((strategy, kind)) or _TABLE.get((None, kind))
    if row is None:
        return Unit.ALONE
    return row.moved if moved else row.same


def _belongs(kind: JobKind, unit: Unit) -> bool:
    if unit is Unit.WITH_CHIEF:
        return kind is JobKind.CHIEF
    if unit is Unit.READERS:
        return kind in READERS
    return unit is Unit.ALL and kind.in_cluster
