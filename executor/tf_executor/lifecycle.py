"""The life of the one task, as a pure state machine: (state, event, now) -> (state, actions).

    IDLE --Launch--> STARTING --Spawned--> RUNNING --Exited--> SWEEPING --TreeGone--> ENDED --Acknowledged--> CLOSED
                        ^                   |   |                                       ^
                        `--Exited, stages   |  Stop--> STOPPING --Overdue--> KILLING --TreeGone
                               ahead -------'              `---------TreeGone-----------'

STARTING and RUNNING are gone through once for each stage: those that prepare, the program, the one after it.
STOPPING: the tree has its SIGTERM and time to write a checkpoint. SWEEPING and KILLING: the tree has its SIGKILL.
ENDED: the last update is out. The shell around it (`runner`) turns the world into events, performs the actions, keeps
the clock (`State.deadline`) and sends `Overdue` when the deadline is over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from tf_executor import messages, stages
from tf_executor.events import (
    Aborted,
    Acknowledged,
    Connected,
    Disconnected,
    Event,
    Exited,
    Kill,
    Launch,
    Leave,
    Overdue,
    Prepared,
    Ready,
    Refused,
    Report,
    Spawned,
    SpawnFailed,
    Stop,
    Terminate,
    TreeGone,
    Unhealthy,
)
from tf_executor.messages import Stopped
from tf_executor.stages import SWEEP_LIMIT, Step, ended, is_program, sweep
from tf_executor.task_state import Phase, State

#: mesos.proto, TaskStatus.Reason.
TOO_LONG = "REASON_MAX_COMPLETION_TIME_REACHED"


class IllegalTransitionError(RuntimeError):
    """The event cannot happen in this phase: a defect of the executor, never of the user's program."""


def step(state: State, event: Event, now: float) -> Step:
    """Next state and what to do, in order. Raise IllegalTransitionError for a pair that the table does not have."""
    try:
        handler = _TABLE[state.phase, type(event)]
    except KeyError:
        raise IllegalTransitionError(f"{event} while {state.phase.value}") from None
    return handler(state, event, now)


def _ignore(state: State, event: Event, now: float) -> Step:  # noqa: ARG001
    return state, ()


# Stopping.


def _unhealthy(state: State, event: Unhealthy, now: float) -> Step:
    if not is_program(state):
        return state, ()
    return _terminate(state, Stopped(event.reason, failed=True, healthy=False), now + state.launch.grace)


def _stop(state: State, event: Stop, now: float) -> Step:
    return _terminate(state, Stopped(event.reason), now + event.grace)


def _stage_overdue(state: State, event: Overdue, now: float) -> Step:  # noqa: ARG001
    assert state.stage is not None
    if state.time_limit is not None and now >= state.time_limit:
        text = f"the task took longer than its max_completion_time of {state.launch.time_limit:g} s"
        return _terminate(state, Stopped(text, failed=True, reason=TOO_LONG), now + state.launch.grace)
    return sweep(state.with_trouble(messages.stage_too_long(state.stage, state.launch.hook_timeout)), now)


def _terminate(state: State, stopped: Stopped, deadline: float) -> Step:
    state = replace(state, stopped=stopped).entered(Phase.STOPPING, deadline)
    report = (Report("TASK_KILLING", stopped.message, healthy=stopped.healthy),) if state.killing_known else ()
    return state, (*report, Terminate())


def _stop_sooner(state: State, event: Stop, now: float) -> Step:
    """A further request may shorten the grace, never extend it (the rule of Mesos' own command executor)."""
    assert state.deadline is not None
    return replace(state, deadline=min(state.deadline, now + event.grace)), ()


def _exited_on_request(state: State, event: Exited, now: float) -> Step:  # noqa: ARG001
    """The first process may be a shell that dies of SIGTERM at once: the others keep their grace."""
    return (replace(state, ending=event.ending), ()) if is_program(state) else (state, ())


def _overdue(state: State, event: Overdue, now: float) -> Step:  # noqa: ARG001
    return state.entered(Phase.KILLING, now + SWEEP_LIMIT), (Kill(),)


# The end.


def _tree_gone(state: State, event: TreeGone | Overdue, now: float) -> Step:
    """The last word on a task whose stages ran. Overdue: some process cannot be killed; say so and go."""
    if state.aborted:
        return _leave(state, 1)
    report = messages.conclusion(state.ending, state.stopped, state.trouble, state.memory, state.program_started)
    if isinstance(event, Overdue):
        report = replace(report, message=report.message + messages.NOT_GONE)
    return ended(state, now), (report,)


def _close(state: State, event: Event, now: float) -> Step:  # noqa: ARG001
    return _leave(state, 0)


def _leave(state: State, exit_code: int) -> Step:
    return state.entered(Phase.CLOSED), (Leave(exit_code),)


# The agent.


def _connected(state: State, event: Connected, now: float) -> Step:
    state = replace(state, connected=True, killing_known=event.killing_known)
    return (ended(state, now), ()) if state.phase is Phase.ENDED else (state, ())


def _disconnected(state: State, event: Disconnected, now: float) -> Step:  # noqa: ARG001
    state = replace(state, connected=False)
    return (replace(state, deadline=None), ()) if state.phase is Phase.ENDED else (state, ())


def _aborted(state: State, event: Aborted, now: float) -> Step:
    if state.phase in (Phase.IDLE, Phase.ENDED):
        return _leave(state, 1)
    state = replace(state, aborted=True, connected=False)
    if state.phase is not Phase.RUNNING:
        return state, ()
    stopping = replace(state, stopped=Stopped(event.reason)).entered(Phase.STOPPING, now + event.grace)
    return stopping, (Terminate(),)


#: Each handler takes the event of its own rows, which a mapping's type cannot say.
_Handler = Callable[[State, Any, float], Step]

_TABLE: dict[tuple[Phase, type], _Handler] = {
    (Phase.IDLE, Launch): stages.launch,
    (Phase.IDLE, Refused): stages.refused,
    (Phase.IDLE, Stop): _close,
    (Phase.STARTING, Spawned): stages.spawned,
    (Phase.STARTING, SpawnFailed): stages.spawn_failed,
    (Phase.RUNNING, Exited): stages.exited,
    (Phase.RUNNING, Prepared): stages.prepared,
    (Phase.RUNNING, Ready): stages.ready,
    (Phase.RUNNING, Unhealthy): _unhealthy,
    (Phase.RUNNING, Stop): _stop,
    (Phase.RUNNING, Overdue): _stage_overdue,
    (Phase.STOPPING, Exited): _exited_on_request,
    (Phase.STOPPING, Stop): _stop_sooner,
    (Phase.STOPPING, Overdue): _overdue,
    (Phase.STOPPING, TreeGone): _tree_gone,
    # The SIGKILL is out: there is nothing left to hasten. A stage that took too long exits of it.
    (Phase.SWEEPING, Exited): _ignore,
    (Phase.SWEEPING, Stop): _ignore,
    (Phase.SWEEPING, Overdue): _tree_gone,
    (Phase.SWEEPING, TreeGone): _tree_gone,
    (Phase.KILLING, Exited): _exited_on_request,
    (Phase.KILLING, Stop): _ignore,
    (Phase.KILLING, Overdue): _tree_gone,
    (Phase.KILLING, TreeGone): _tree_gone,
    (Phase.ENDED, Acknowledged): _close,
    (Phase.ENDED, Overdue): _close,
    (Phase.ENDED, Stop): _ignore,
    # Processes that could not be killed in time may still go.
    (Phase.ENDED, Exited): _ignore,
    (Phase.ENDED, TreeGone): _ignore,
}
# The wire may say its part at any time but one: the spawn is done in one go, nothing is read meanwhile.
for _phase in set(Phase) - {Phase.STARTING, Phase.CLOSED}:
    _TABLE[_phase, Connected] = _connected
    _TABLE[_phase, Disconnected] = _disconnected
    _TABLE[_phase, Aborted] = _aborted
# Threads that watch the task may have their say in the queue when it is over.
for _phase in (Phase.STOPPING, Phase.SWEEPING, Phase.KILLING, Phase.ENDED):
    for _late in (Prepared, Ready, Unhealthy):
        _TABLE[_phase, _late] = _ignore
