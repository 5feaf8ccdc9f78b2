"""The part of `lifecycle` that goes from stage to stage while nobody wants the task to end. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from tf_executor import messages
from tf_executor.events import (
    Action,
    Exited,
    Kill,
    Launch,
    Prepared,
    Ready,
    Refused,
    Report,
    Spawn,
    Spawned,
    SpawnFailed,
    Stage,
)
from tf_executor.task_state import Phase, State

#: Seconds that killed processes have to disappear. One that hangs in the kernel (dead NFS server, GPU driver) cannot
#: be killed by anybody; the scheduler must hear of the end all the same.
SWEEP_LIMIT = 5.0
#: Seconds that a connected agent has to store the last update; Aurora's executor waits as long.
ACKNOWLEDGE_LIMIT = 10.0
#: mesos.proto, TaskStatus.Reason.
HEALTH_CHANGED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"

Step = Tuple[State, Tuple[Action, ...]]


def launch(state: State, event: Launch, now: float) -> Step:
    limit = None if event.time_limit is None else now + event.time_limit
    state, actions = _next_stage(replace(state, launch=event, ahead=event.stages, time_limit=limit))
    return state, (Report("TASK_STARTING"), *actions)


def _next_stage(state: State) -> Step:
    state = state.at_next_stage()
    assert state.stage is not None
    return state, (Spawn(state.stage),)


def spawned(state: State, event: Spawned, now: float) -> Step:  # noqa: ARG001
    limits = [state.time_limit, None if is_program(state) else _after(now, state.launch.hook_timeout)]
    deadline = min((limit for limit in limits if limit is not None), default=None)
    return state.entered(Phase.RUNNING, deadline), _announcement(state)


def _announcement(state: State) -> tuple[Action, ...]:
    """The program's start is its TASK_RUNNING; what takes long beside it is told without a change of state."""
    if is_program(state):
        return (Report("TASK_RUNNING"),)
    if state.stage in (Stage.FETCH, Stage.PRE):
        return (Report("TASK_STARTING", messages.stage_runs(state.stage)),)
    if state.stage is Stage.POST:
        text = f"{messages.describe(state.ending)}; {messages.stage_runs(state.stage)}"
        return (Report("TASK_RUNNING", text, healthy=state.healthy),)
    return ()


def is_program(state: State) -> bool:
    return state.stage is Stage.PROGRAM


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def refused(state: State, event: Refused, now: float) -> Step:
    return ended(state, now), (Report("TASK_FAILED", event.reason),)


def spawn_failed(state: State, event: SpawnFailed, now: float) -> Step:
    """Earlier stages may have left processes; a program that could not be started has not run."""
    state = state.with_trouble(event.reason)
    return sweep(replace(state, stage=None) if is_program(state) else state, now)


def exited(state: State, event: Exited, now: float) -> Step:
    state = replace(state, memory=event.memory)
    if is_program(state):
        # The stage after it runs however the program ended: logs of a failure are worth an upload too.
        state = replace(state, ending=event.ending)
    elif event.ending.exit_code != 0:
        assert state.stage is not None
        state = state.with_trouble(messages.stage_failed(state.stage, event.ending))
    return _next_stage(state) if state.ahead else sweep(state, now)


def prepared(state: State, event: Prepared, now: float) -> Step:
    return sweep(state.with_trouble(event.reason), now) if event.reason else _next_stage(state)


def sweep(state: State, now: float) -> Step:
    """What the stages left behind has no say any more, it is killed."""
    return state.entered(Phase.SWEEPING, now + SWEEP_LIMIT), (Kill(),)


def ready(state: State, event: Ready, now: float) -> Step:  # noqa: ARG001
    if not is_program(state):
        return state, ()
    report = Report("TASK_RUNNING", event.message, reason=HEALTH_CHANGED, healthy=True)
    return replace(state, healthy=True), (report,)


def ended(state: State, now: float) -> State:
    """While the agent is away the driver keeps the update; Connected starts the clock then."""
    return state.entered(Phase.ENDED, now + ACKNOWLEDGE_LIMIT if state.connected else None)
