"""Handle the framework's removal by Mesos, and an operator's reset afterwards.

Mesos removes it after the job, or while no scheduler is connected. The stored id stays unusable; a reset forgets it.
"""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model import effects
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskState, TaskStatus

from .state.reducer import decide


def on_removed(state: SchedulerState) -> effects.Decision:
    """Handle the removal: all tasks are gone, and the scheduler has finished."""
    gone = state.with_session(connected=False).with_process(finished=True)
    if state.stored.framework_id is None or state.stored.removed:
        return decide(gone)
    statuses = (
        TaskStatus(record.id, TaskState.GONE, record.agent_id, message="its framework was removed")
        for record in state.live()
    )
    outcome = effects.Outcome("FrameworkRemoved", removal_message(state), warning=True)
    return decide(
        gone,
        effects.FrameworkRegistered(state.stored.framework_id, removed=True),
        *map(effects.StatusStored, statuses),
        outcomes=() if state.stored.result is not None else (outcome,),
    )


def reset_framework(state: SchedulerState) -> effects.Decision:
    """Forget the framework if it was removed; operators' decisions are kept."""
    if not state.stored.removed:
        return decide(state)
    changes: list[effects.Change] = [effects.FrameworkForgotten()]
    # Plans were complete in the removed framework only.
    changes += [
        effects.PlanControlled(name, replace(item, completed="")) for name, item in state.stored.controls.items()
    ]
    message = f"framework {state.stored.framework_id} forgotten; the job starts again from its last checkpoint"
    return decide(
        state.with_process(
            finished=False,
            refused="",
            stop_requested=False,
            left_behind=(),
            waits_for_agents=False,
            last_progress=None,
            # The driver of the new framework reports neither that Mesos accepts calls nor that the clocks agree again.
            refused_calls=None,
            reported_refusals={},
            clock_drift=0.0,
        ),
        *changes,
        outcomes=(effects.Outcome("FrameworkReset", message),),
    )


def removal_message(state: SchedulerState) -> str:
    """Return a message: what happened, what is lost, and what to do."""
    spec = state.spec
    return (
        f"Mesos has removed the framework {state.stored.framework_id} of {spec.name}: no scheduler was connected for "
        f"longer than service.failover_timeout ({spec.failover_timeout:g} s), or an operator tore it down. Its tasks "
        f"have ended; training since the last checkpoint is lost, checkpoints are kept. To resume from this checkpoint "
        f"as a new framework: dcos-tensorflow scheduler run --reset {state.stored.framework_id}; "
        f"under Marathon, set RESET_FRAMEWORK={state.stored.framework_id} in the environment of the app"
    )
