"""Success policies, named as in Kubeflow and TonY: which tasks decide the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tf_scheduler.core.state.spec_index import TRAINERS, index_of
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec, SuccessPolicy
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState


def success_policy(spec: ServiceSpec) -> SuccessPolicy:
    """Return the effective policy, never DEFAULT."""
    if spec.finish.success is not SuccessPolicy.DEFAULT:
        return spec.finish.success
    return SuccessPolicy.ALL_WORKERS if spec.strategy.ends_with_all else SuccessPolicy.CHIEF


def completes_job(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether the job succeeds because this task has finished."""
    if record.job not in TRAINERS or record.name not in index_of(state.spec).tasks:
        return False
    return _DECIDES[success_policy(state.spec)](state, record)


def is_survivable(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether the job continues after this task has failed permanently."""
    if record.job.is_side_job:
        return True
    if record.job not in TRAINERS or success_policy(state.spec) is not SuccessPolicy.ANY_WORKER:
        return False
    return any(_may_finish(state, name) for name in index_of(state.spec).trainers if name != record.name)


def _is_leader(state: SchedulerState, record: TaskRecord) -> bool:
    return state.spec.is_leader(record.job, record.index)


def _is_worker_0(_state: SchedulerState, record: TaskRecord) -> bool:
    return record.job is JobKind.WORKER and record.index == 0


_DECIDES: Mapping[SuccessPolicy, Callable[[SchedulerState, TaskRecord], bool]] = {
    SuccessPolicy.CHIEF: _is_leader,
    SuccessPolicy.WORKER_0: _is_worker_0,
    SuccessPolicy.ALL_WORKERS: lambda state, _: _have_finished(state, index_of(state.spec).trainers),
    SuccessPolicy.ANY_WORKER: lambda *_: True,
}


def _have_finished(state: SchedulerState, names: Collection[TaskName]) -> bool:
    """Return whether all these tasks have finished; their number is compared first."""
    if state.derived.state_counts.get(TaskState.FINISHED, 0) < len(names):
        return False
    records = map(state.stored.tasks.get, names)
    return all(record is not None and state.is_finished(record) for record in records)


def _may_finish(state: SchedulerState, name: TaskName) -> bool:
    record = state.stored.tasks.get(name)
    return record is None or state.is_live(record) or state.is_replaced(record)
