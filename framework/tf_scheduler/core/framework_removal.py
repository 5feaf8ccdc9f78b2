"""The framework is removed: at the end of the job by us, or by Mesos while no scheduler was there to prevent it.

An id that Mesos has removed is of no use for ever. It is stored as such, and never used again: only an operator knows
whether the job is to begin anew, under another id.
"""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.effects import (
    Change,
    Decision,
    FrameworkForgotten,
    FrameworkRegistered,
    Outcome,
    PlanControlled,
    StatusStored,
)
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .state.reducer import decide


def on_removed(state: SchedulerState) -> Decision:
    """Nothing is left to do with this framework; its tasks are gone."""
    gone = replace(
        state, session=replace(state.session, connected=False), process=replace(state.process, finished=True)
    )
    if state.stored.framework_id is None or state.stored.removed:
        return decide(gone)
    ended = (_gone(record) for record in state.live())
    told = () if state.stored.result is not None else (Outcome(removal_message(state), warning=True),)
    return decide(gone, FrameworkRegistered(state.stored.framework_id, removed=True), *ended, outcomes=told)


def _gone(record: TaskRecord) -> StatusStored:
    return StatusStored(TaskStatus(record.id, TaskState.GONE, record.agent_id, message="its framework was removed"))


def reset_framework(state: SchedulerState) -> Decision:
    """Begin anew, with what operators decided; nothing, unless Mesos has removed the framework."""
    if not state.stored.removed:
        return decide(state)
    changes: list[Change] = [FrameworkForgotten()]
    # Complete is what ran in that framework.
    changes += [PlanControlled(name, replace(item, completed="")) for name, item in state.stored.controls.items()]
    told = Outcome(f"framework {state.stored.framework_id} is forgotten: the job begins anew, from its last checkpoint")
    return decide(
        replace(state, process=replace(state.process, finished=False, refused="")), *changes, outcomes=(told,)
    )


def removal_message(state: SchedulerState) -> str:
    """What happened, what is lost, what to do."""
    spec = state.spec
    return (
        f"Mesos has removed the framework {state.stored.framework_id} of {spec.name}: no scheduler was connected for "
        f"longer than service.failover_timeout ({spec.failover_timeout:g} s), or somebody tore it down. Its tasks have "
        f"been ended; what was trained since the last checkpoint is lost, checkpoints are kept. To begin anew from "
        f"there, as a new framework: dcos-tensorflow scheduler run --reset {state.stored.framework_id}, or, "
        f"under Marathon, RESET_FRAMEWORK={state.stored.framework_id} in the environment of the app"
    )
