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

from .reduce import decide


def removed(state: SchedulerState) -> Decision:
    """Nothing is left to do with this framework; its tasks are gone."""
    gone = replace(state, connected=False, over=True)
    if state.framework_id is None or state.removed:
        return decide(gone)
    ended = (_gone(record) for record in state.live())
    told = () if state.result is not None else (Outcome(lament(state), warning=True),)
    return decide(gone, FrameworkRegistered(state.framework_id, removed=True), *ended, outcomes=told)


def _gone(record: TaskRecord) -> StatusStored:
    return StatusStored(TaskStatus(record.id, TaskState.GONE, record.agent_id, message="its framework was removed"))


def reset(state: SchedulerState) -> Decision:
    """Begin anew, with what operators decided; nothing, unless Mesos has removed the framework."""
    if not state.removed:
        return decide(state)
    changes: list[Change] = [FrameworkForgotten()]
    # Complete is what ran in that framework.
    changes += [PlanControlled(name, replace(item, completed="")) for name, item in state.controls.items()]
    told = Outcome(f"framework {state.framework_id} is forgotten: the job begins anew, from its last checkpoint")
    return decide(replace(state, over=False, refused=""), *changes, outcomes=(told,))


def lament(state: SchedulerState) -> str:
    """What happened, what is lost, what to do."""
    spec = state.spec
    return (
        f"Mesos has removed the framework {state.framework_id} of {spec.name}: no scheduler was connected for longer "
        f"than service.failover_timeout ({spec.failover_timeout:g} s), or somebody tore it down. Its tasks have been "
        f"ended; what was trained since the last checkpoint is lost, checkpoints are kept. To begin anew from there, "
        f"as a new framework: dcos-tensorflow scheduler run --reset {state.framework_id}, or, under Marathon, "
        f"RESET_FRAMEWORK={state.framework_id} in the environment of the app"
    )
