"""Look up which tasks restart with a lost one, in a table of rules by strategy.

Measured with TensorFlow 2.21. Addresses are fixed within one chief process: a worker or ps at a new address is
invisible to it, one at its previous address joins again. A lost ps ends the chief within a second. Collective training
ends as a whole. Between-graph workers recover alone, but a ps dials the addresses that it was started with. Readers of
tf.data service wait for a dispatcher that restarts with its journal, and fail without it: the data sets are unknown.
They wait forever for a data-worker that restarts at another address: the dispatcher does not forget the lost one.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, Strategy

#: Jobs that read from tf.data service, or contact its dispatcher.
DATA_READERS = frozenset({JobKind.CHIEF, JobKind.WORKER, JobKind.DATA_WORKER})


class RestartScope(Enum):
    """Tasks that restart, the lost task included; the documentation shows the value."""

    ALONE = "that task"
    WITH_CHIEF = "that task and the chief"
    ALL = "every task of the cluster"
    READERS = "the data service, and all tasks that read from it"


@dataclass(frozen=True, slots=True)
class RestartRule:
    """Scope of the restart after a loss, at the previous address and at a new one."""

    #: `None` for any.
    strategy: Strategy | None
    job: JobKind
    #: Also at a new address with the same DNS name.
    same: RestartScope
    moved: RestartScope
    why: str


_PS, _WORKER, _CHIEF = JobKind.PS, JobKind.WORKER, JobKind.CHIEF
_PSS, _MWMS, _BETWEEN = Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.BETWEEN_GRAPH
_DDP, _HOROVOD, _SINGLE = Strategy.PYTORCH_DDP, Strategy.HOROVOD, Strategy.INDEPENDENT
_ALONE, _WITH_CHIEF, _ALL, _READERS = RestartScope

RESTART_RULES: tuple[RestartRule, ...] = (
    RestartRule(_PSS, _WORKER, _ALONE, _WITH_CHIEF, "a running chief cannot learn a new address"),
    RestartRule(
        _PSS, _PS, _WITH_CHIEF, _WITH_CHIEF, "the chief exits when a ps is lost; a new chief restores the checkpoint"
    ),
    RestartRule(_PSS, _CHIEF, _ALONE, _ALONE, "workers and ps wait for the new chief"),
    RestartRule(_MWMS, _WORKER, _ALL, _ALL, "the other workers exit within seconds"),
    RestartRule(_MWMS, _CHIEF, _ALL, _ALL, "the chief coordinates the workers"),
    RestartRule(_BETWEEN, _WORKER, _ALONE, _ALL, "tasks connect only to the addresses known at their launch"),
    RestartRule(_BETWEEN, _PS, _ALONE, _ALL, "workers reconnect only to the previous address"),
    RestartRule(_BETWEEN, _CHIEF, _ALONE, _ALL, "same as for a worker"),
    RestartRule(_SINGLE, _WORKER, _ALONE, _ALONE, "tasks are independent"),
    RestartRule(_SINGLE, _CHIEF, _ALONE, _ALONE, "tasks are independent"),
    RestartRule(_DDP, _WORKER, _ALL, _ALL, "the other workers fail in the next all-reduce"),
    RestartRule(_DDP, _CHIEF, _ALL, _ALL, "the chief coordinates the workers"),
    RestartRule(_HOROVOD, _WORKER, _ALL, _ALL, "same as for pytorch_ddp"),
    RestartRule(_HOROVOD, _CHIEF, _ALL, _ALL, "same as for pytorch_ddp"),
    RestartRule(
        None,
        JobKind.DISPATCHER,
        _ALONE,
        _READERS,
        "its journal in `checkpoint_dir` has the data sets; without a path there, its readers restart, too",
    ),
    RestartRule(
        None,
        JobKind.DATA_WORKER,
        _ALONE,
        _READERS,
        "a pass over the data does not end without a worker at each address",
    ),
)
_TABLE: Mapping[tuple[Strategy | None, JobKind], RestartRule] = {(row.strategy, row.job): row for row in RESTART_RULES}


Jobs = Mapping[JobKind, AbstractSet[TaskName]]


def restart_peers(
    strategy: Strategy, jobs: Jobs, lost: JobKind, *, moved: bool, has_journal: bool
) -> frozenset[TaskName]:
    """Return the tasks that must restart when a task of job `lost` is lost.

    `has_journal`: the dispatcher of the tf.data service has one at each address.
    """
    scope = _scope(strategy, lost, moved or (lost is JobKind.DISPATCHER and not has_journal))
    return frozenset().union(*(tasks for kind, tasks in jobs.items() if _is_in(kind, scope)))


def trains_together(strategy: Strategy, kind: JobKind) -> bool:
    """Return whether no task of the cluster can train without every task of this job."""
    return _scope(strategy, kind, False) is RestartScope.ALL


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
