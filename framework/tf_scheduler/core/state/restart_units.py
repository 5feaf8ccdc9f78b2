"""What must start again when a task is lost: an ordered table per strategy. docs/recovery.md shows it.

Measured with TensorFlow 2.21. Inside one chief process addresses are for ever: a worker or ps at a new address is
invisible to it, one that comes back at its old address joins again by itself. A lost ps ends the chief within a second.
Collective training ends as a whole. Between-graph workers heal themselves, but a ps dials the addresses that it was
started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, Strategy

#: Who reads from tf.data service, or looks for its dispatcher.
DATA_READERS = frozenset({JobKind.CHIEF, JobKind.WORKER, JobKind.DATA_WORKER})


class RestartScope(Enum):
    """Besides the lost task itself."""

    ALONE = "that task"
    WITH_CHIEF = "that task and the chief"
    ALL = "every task of the cluster"
    READERS = "that task, and all that read from it"


@dataclass(frozen=True, slots=True)
class RestartRule:
    """What a loss costs, at the same address and at a new one."""

    #: None: any.
    strategy: Strategy | None
    job: JobKind
    same: RestartScope
    moved: RestartScope
    why: str


_PS, _WORKER, _CHIEF = JobKind.PS, JobKind.WORKER, JobKind.CHIEF
_PSS, _MWMS, _BETWEEN = Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.BETWEEN_GRAPH
_DDP, _HOROVOD = Strategy.PYTORCH_DDP, Strategy.HOROVOD

RESTART_RULES: tuple[RestartRule, ...] = (
    RestartRule(
        _PSS,
        _WORKER,
        RestartScope.ALONE,
        RestartScope.WITH_CHIEF,
        "it joins again by itself; a new address only a new chief learns",
    ),
    RestartRule(
        _PSS,
        _PS,
        RestartScope.WITH_CHIEF,
        RestartScope.WITH_CHIEF,
        "the chief ends with its ps, and restores the checkpoint",
    ),
    RestartRule(_PSS, _CHIEF, RestartScope.ALONE, RestartScope.ALONE, "workers and ps wait for the next one"),
    RestartRule(_MWMS, _WORKER, RestartScope.ALL, RestartScope.ALL, "the others notice and end within seconds"),
    RestartRule(_MWMS, _CHIEF, RestartScope.ALL, RestartScope.ALL, "it leads the others"),
    RestartRule(
        _BETWEEN, _WORKER, RestartScope.ALONE, RestartScope.ALL, "each dials the addresses that it was started with"
    ),
    RestartRule(
        _BETWEEN,
        _PS,
        RestartScope.ALONE,
        RestartScope.ALL,
        "workers restore the checkpoint themselves, at the address they know",
    ),
    RestartRule(_BETWEEN, _CHIEF, RestartScope.ALONE, RestartScope.ALL, "as a worker"),
    RestartRule(Strategy.INDEPENDENT, _WORKER, RestartScope.ALONE, RestartScope.ALONE, "each works for itself"),
    RestartRule(Strategy.INDEPENDENT, _CHIEF, RestartScope.ALONE, RestartScope.ALONE, "each works for itself"),
    RestartRule(
        _DDP,
        _WORKER,
        RestartScope.ALL,
        RestartScope.ALL,
        "the others wait for it in the next all-reduce, and end with an error",
    ),
    RestartRule(_DDP, _CHIEF, RestartScope.ALL, RestartScope.ALL, "it leads the others"),
    RestartRule(_HOROVOD, _WORKER, RestartScope.ALL, RestartScope.ALL, "as with PyTorch"),
    RestartRule(_HOROVOD, _CHIEF, RestartScope.ALL, RestartScope.ALL, "as with PyTorch"),
    RestartRule(
        None,
        JobKind.DISPATCHER,
        RestartScope.READERS,
        RestartScope.READERS,
        "it forgets the data sets that they have registered",
    ),
    RestartRule(
        None, JobKind.DATA_WORKER, RestartScope.ALONE, RestartScope.ALONE, "the dispatcher hears of the next one"
    ),
)
_TABLE: Mapping[tuple[Strategy | None, JobKind], RestartRule] = {(row.strategy, row.job): row for row in RESTART_RULES}


Jobs = Mapping[JobKind, AbstractSet[TaskName]]


def restart_peers(strategy: Strategy, jobs: Jobs, lost: JobKind, *, moved: bool) -> frozenset[TaskName]:
    """Return the tasks that must restart when a task of job `lost` is lost."""
    unit = _unit(strategy, lost, moved)
    return frozenset().union(*(tasks for kind, tasks in jobs.items() if _belongs(kind, unit)))


def trains_together(strategy: Strategy, kind: JobKind) -> bool:
    """Whether no task of the cluster can train without the tasks of this job."""
    return _unit(strategy, kind, False) is RestartScope.ALL


def _unit(strategy: Strategy, kind: JobKind, moved: bool) -> RestartScope:
    row = _TABLE.get((strategy, kind)) or _TABLE.get((None, kind))
    if row is None:
        return RestartScope.ALONE
    return row.moved if moved else row.same


def _belongs(kind: JobKind, unit: RestartScope) -> bool:
    if unit is RestartScope.WITH_CHIEF:
        return kind is JobKind.CHIEF
    if unit is RestartScope.READERS:
        return kind in DATA_READERS
    return unit is RestartScope.ALL and kind.in_cluster
