"""State machine of the task's life; pure: (state, event, now) -> (state, actions).

    IDLE --LaunchRequested--> STARTING --Spawned--> RUNNING --Exited--> SWEEPING --TreeGone--> ENDED
    ENDED --Acknowledged--> CLOSED

STARTING and RUNNING are entered once for each stage. An exit in RUNNING starts the next stage, if any. STOPPING: all
processes have received SIGTERM and may write a checkpoint; KILLING follows. SWEEPING and KILLING: all processes have
received SIGKILL. ENDED: the last update has been sent. `runner` makes the events, performs the actions, and sends
`Overdue` when `LifecycleState.deadline` has passed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Tuple

from tf_executor.contract.reports import NO_END
from tf_executor.contract.text import format_duration
from tf_executor.lifecycle import events
from tf_executor.lifecycle.events import LifecycleState, SendReport, Stage, TaskPhase
from tf_executor.user.fetch import NO_PACKAGE, WRONG_DIGEST

# Stages, while no stop is requested.

#: Seconds to wait for killed processes, which may hang in the kernel (dead NFS server, GPU driver).
SWEEP_LIMIT = 5.0
#: Seconds to wait for the agent's acknowledgement of the last update, as in Aurora's executor.
ACKNOWLEDGE_LIMIT = 10.0
#: TaskStatus.Reason of mesos.proto.
HEALTH_CHANGED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"

#: A relaunch would fetch the same file, so the scheduler ends the job.
INVALID = "REASON_TASK_INVALID"

Step = Tuple[LifecycleState, Tuple[events.Action, ...]]


def _launch(state: LifecycleState, event: events.LaunchRequested, now: float) -> Step:
    limit = None if event.time_limit is None else now + event.time_limit
    state, actions = _next_stage(replace(state, launch=event, ahead=event.stages, time_limit=limit))
    return state, (SendReport("TASK_STARTING"), *actions)


def _next_stage(state: LifecycleState) -> Step:
    stage, *ahead = state.ahead
    state = replace(state.entered(TaskPhase.STARTING), stage=stage, ahead=tuple(ahead))
    return state, (events.Spawn(stage),)


def _spawned(state: LifecycleState, event: events.Spawned, now: float) -> Step:  # noqa: ARG001
    timeout = state.launch.hook_timeout
    # The check of CHECKPOINT_DIR and the upload have their own limits, after which the task goes on. The restore waits
    # while its storage does not answer.
    is_unlimited = state.stage in (Stage.PROGRAM, Stage.FENCE, Stage.STORAGE, Stage.KEEP, Stage.SAVE)
    limits = [state.time_limit, None if is_unlimited or timeout is None else now + timeout]
    deadline = min((limit for limit in limits if limit is not None), default=None)
    return state.entered(TaskPhase.RUNNING, deadline), _announcement(state)


def _announcement(state: LifecycleState) -> tuple[events.Action, ...]:
    """Report that a stage runs: TASK_RUNNING for the program, else the same state."""
    if _is_program(state):
        return (SendReport("TASK_RUNNING"),)
    if state.stage in (Stage.STORAGE, Stage.FETCH, Stage.PRE):
        return (SendReport("TASK_STARTING", f"{events.NOUNS[state.stage]} runs"),)
    if state.stage in (Stage.SAVE, Stage.POST):
        text = f"{events.describe_end(state.ending)}; {events.NOUNS[state.stage]} runs"
        return (SendReport("TASK_RUNNING", text, ending=state.ending, healthy=state.healthy),)
    return ()


def _is_program(state: LifecycleState) -> bool:
    return state.stage is Stage.PROGRAM


def _refused(state: LifecycleState, event: events.LaunchRefused, now: float) -> Step:
    return _ended(state, now), (SendReport("TASK_FAILED", event.reason),)


def _spawn_failed(state: LifecycleState, event: events.SpawnFailed, now: float) -> Step:
    """Fail the task, whose stage could not start, and kill what earlier stages left."""
    if event.ending != NO_END:
        state = replace(state, ending=event.ending)
    state = state.with_failure(event.reason)
    # Without a stage: a program that did not start has not run.
    return _sweep(replace(state, stage=None) if _is_program(state) else state, now)


def _exited(state: LifecycleState, event: events.Exited, now: float) -> Step:
    state = replace(state, evidence=event.evidence)
    if _is_program(state):
        # The post stage also runs after a failure, because its logs are worth an upload, too.
        state = replace(state, ending=event.ending)
    elif event.ending.exit_code != 0:
        assert state.stage is not None
        is_final = state.stage is Stage.FETCH and event.ending.exit_code == WRONG_DIGEST
        failure = f"{events.NOUNS[state.stage]} failed: {events.describe_end(event.ending)}"
        state = replace(state.with_failure(failure), failure_reason=INVALID if is_final else "")
        if state.stage in (Stage.FETCH, Stage.STORAGE) and event.ending.exit_code == NO_PACKAGE:
            state = replace(state, ending=replace(state.ending, error=failure, cannot_start=True))
    return _next_stage(state) if state.ahead else _sweep(state, now)


def _prepared(state: LifecycleState, event: events.Prepared, now: float) -> Step:
    if event.reason:
        return _sweep(state.with_failure(event.reason), now)
    return _next_stage(state) if state.ahead else _sweep(state, now)


def _sweep(state: LifecycleState, now: float) -> Step:
    """Kill the processes that the stages left behind."""
    return state.entered(TaskPhase.SWEEPING, now + SWEEP_LIMIT), (events.KillTree(),)


def _ready(state: LifecycleState, event: events.Ready, now: float) -> Step:  # noqa: ARG001
    if not _is_program(state):
        return state, ()
    report = SendReport("TASK_RUNNING", event.message, reason=HEALTH_CHANGED, healthy=True)
    return replace(state, healthy=True), (report,)


def _freeze_changed(state: LifecycleState, event: events.FreezeChanged, now: float) -> Step:  # noqa: ARG001
    if not _is_program(state):
        return state, ()
    healthy = False if event.is_frozen else state.healthy
    return state, (SendReport("TASK_RUNNING", event.message, reason=HEALTH_CHANGED, healthy=healthy),)


def _ended(state: LifecycleState, now: float) -> LifecycleState:
    """Enter ENDED; while disconnected, without a deadline until AgentConnected."""
    return state.entered(TaskPhase.ENDED, now + ACKNOWLEDGE_LIMIT if state.connected else None)


TOO_LONG = "REASON_MAX_COMPLETION_TIME_REACHED"


class IllegalTaskTransitionError(RuntimeError):
    """The event is impossible in this phase; this is a bug of the executor."""


def step(state: LifecycleState, event: events.Event, now: float) -> Step:
    """Return the next state and the actions. Raises IllegalTaskTransitionError."""
    try:
        handler = _TABLE[state.phase, type(event)]
    except KeyError:
        raise IllegalTaskTransitionError(f"{event} while {state.phase.value}") from None
    return handler(state, event, now)


def _ignore(state: LifecycleState, event: events.Event, now: float) -> Step:  # noqa: ARG001
    return state, ()


# Stopping.


def _unhealthy(state: LifecycleState, event: events.Unhealthy, now: float) -> Step:
    if not _is_program(state):
        return state, ()
    # A frozen task does not fail as unhealthy, because programs are frozen from outside.
    healthy = None if event.is_frozen else False
    stopped = events.StopReason(event.reason, failed=True, healthy=healthy, was_frozen=event.is_frozen)
    return _terminate(state, stopped, now + state.launch.grace)


def _memory_exceeded(state: LifecycleState, event: events.MemoryExceeded, now: float) -> Step:
    """Kill the task without a grace period, as the kernel does."""
    if not _is_program(state):
        return state, ()
    stopped = events.StopReason(event.reason, failed=True, out_of_memory=True)
    return _overdue(replace(state, stopped=stopped), events.Overdue(), now)


#: A relaunch could not use the checkpoint folder of another framework either, so the scheduler ends the job.
FENCED = "REASON_TASK_UNAUTHORIZED"


def _superseded(state: LifecycleState, event: events.Superseded, now: float) -> Step:
    stopped = events.StopReason(event.reason, failed=True, reason=FENCED if event.is_final else "")
    return _terminate(state, stopped, now + state.launch.grace)


def _stop(state: LifecycleState, event: events.TaskStopRequested, now: float) -> Step:
    return _terminate(state, events.StopReason(event.reason, at=now), now + event.grace)


def _stage_overdue(state: LifecycleState, event: events.Overdue, now: float) -> Step:  # noqa: ARG001
    assert state.stage is not None
    if state.time_limit is not None and now >= state.time_limit:
        text = f"the task exceeded its max_completion_time of {state.launch.time_limit:g} s"
        return _terminate(state, events.StopReason(text, failed=True, reason=TOO_LONG), now + state.launch.grace)
    message = f"{events.NOUNS[state.stage]} took longer than {state.launch.hook_timeout:g} s"
    return _sweep(state.with_failure(message), now)


def _terminate(state: LifecycleState, stopped: events.StopReason, deadline: float) -> Step:
    state = replace(state, stopped=stopped).entered(TaskPhase.STOPPING, deadline)
    # The scheduler still needs to know whether the server has answered: a report of frozen processes has hidden it.
    healthy = state.healthy if stopped.healthy is None else stopped.healthy
    report = (SendReport("TASK_KILLING", stopped.message, healthy=healthy),) if state.killing_known else ()
    return state, (*report, events.Terminate())


def _stop_sooner(state: LifecycleState, event: events.TaskStopRequested, now: float) -> Step:
    """Shorten the grace period, but never extend it, like Mesos' command executor."""
    assert state.deadline is not None
    return replace(state, deadline=min(state.deadline, now + event.grace)), ()


def _exited_on_request(state: LifecycleState, event: events.Exited, now: float) -> Step:  # noqa: ARG001
    """Wait for other processes: a shell's children may use the whole grace period."""
    return (replace(state, ending=event.ending), ()) if _is_program(state) else (state, ())


def _overdue(state: LifecycleState, event: events.Overdue, now: float) -> Step:
    assert state.stopped is not None
    cause = f" while it wrote {event.writes}; kill_grace is too short" if event.writes else " (kill_grace)"
    kill = f"it was killed after {format_duration(round(now - state.stopped.at, 1))}{cause}"
    stopped = replace(state.stopped, kill=kill)
    return replace(state, stopped=stopped).entered(TaskPhase.KILLING, now + SWEEP_LIMIT), (events.KillTree(),)


# End of the task.


def _tree_gone(state: LifecycleState, event: events.TreeGone | events.Overdue, now: float) -> Step:
    """Send the final report. Overdue means that some process could not be killed."""
    if state.aborted:
        return _leave(state, 1)
    report = events.final_report(state.ending, state.stopped, state.failure, state.evidence, state.program_started)
    if state.stopped is None:
        report = replace(report, reason=state.failure_reason)
    if isinstance(event, events.Overdue):
        report = replace(report, message=report.message + events.UNKILLED)
    return _ended(state, now), (report,)


def _close(state: LifecycleState, event: events.Event, now: float) -> Step:  # noqa: ARG001
    return _leave(state, 0)


def _leave(state: LifecycleState, exit_code: int) -> Step:
    return state.entered(TaskPhase.CLOSED), (events.Leave(exit_code),)


# Connection to the agent.


def _connected(state: LifecycleState, event: events.AgentConnected, now: float) -> Step:
    state = replace(state, connected=True, killing_known=event.killing_known)
    return (_ended(state, now), ()) if state.phase is TaskPhase.ENDED else (state, ())


def _disconnected(state: LifecycleState, event: events.AgentDisconnected, now: float) -> Step:  # noqa: ARG001
    state = replace(state, connected=False)
    return (replace(state, deadline=None), ()) if state.phase is TaskPhase.ENDED else (state, ())


def _aborted(state: LifecycleState, event: events.AgentLost, now: float) -> Step:
    if state.phase in (TaskPhase.IDLE, TaskPhase.ENDED):
        return _leave(state, 1)
    state = replace(state, aborted=True, connected=False)
    if state.phase is not TaskPhase.RUNNING:
        return state, ()
    stopping = replace(state, stopped=events.StopReason(event.reason)).entered(TaskPhase.STOPPING, now + event.grace)
    return stopping, (events.Terminate(),)


#: Each handler takes the event type of its own rows, which the mapping's type cannot express.
_Handler = Callable[[LifecycleState, Any, float], Step]

_TABLE: dict[tuple[TaskPhase, type], _Handler] = {
    (TaskPhase.IDLE, events.LaunchRequested): _launch,
    (TaskPhase.IDLE, events.LaunchRefused): _refused,
    (TaskPhase.IDLE, events.TaskStopRequested): _close,
    (TaskPhase.STARTING, events.Spawned): _spawned,
    (TaskPhase.STARTING, events.SpawnFailed): _spawn_failed,
    (TaskPhase.RUNNING, events.Exited): _exited,
    (TaskPhase.RUNNING, events.Prepared): _prepared,
    (TaskPhase.RUNNING, events.Ready): _ready,
    (TaskPhase.RUNNING, events.Unhealthy): _unhealthy,
    (TaskPhase.RUNNING, events.FreezeChanged): _freeze_changed,
    (TaskPhase.RUNNING, events.MemoryExceeded): _memory_exceeded,
    (TaskPhase.RUNNING, events.Superseded): _superseded,
    (TaskPhase.RUNNING, events.TaskStopRequested): _stop,
    (TaskPhase.RUNNING, events.Overdue): _stage_overdue,
    (TaskPhase.STOPPING, events.Exited): _exited_on_request,
    (TaskPhase.STOPPING, events.TaskStopRequested): _stop_sooner,
    (TaskPhase.STOPPING, events.Overdue): _overdue,
    (TaskPhase.STOPPING, events.TreeGone): _tree_gone,
    # SIGKILL is sent: nothing is left to hasten. A stage that exceeded its timeout exits because of it.
    (TaskPhase.SWEEPING, events.Exited): _ignore,
    (TaskPhase.SWEEPING, events.TaskStopRequested): _ignore,
    (TaskPhase.SWEEPING, events.Overdue): _tree_gone,
    (TaskPhase.SWEEPING, events.TreeGone): _tree_gone,
    (TaskPhase.KILLING, events.Exited): _exited_on_request,
    (TaskPhase.KILLING, events.TaskStopRequested): _ignore,
    (TaskPhase.KILLING, events.Overdue): _tree_gone,
    (TaskPhase.KILLING, events.TreeGone): _tree_gone,
    (TaskPhase.ENDED, events.Acknowledged): _close,
    (TaskPhase.ENDED, events.Overdue): _close,
    (TaskPhase.ENDED, events.TaskStopRequested): _ignore,
    # Processes that could not be killed in time may still exit.
    (TaskPhase.ENDED, events.Exited): _ignore,
    (TaskPhase.ENDED, events.TreeGone): _ignore,
}
# Connection events occur in any phase but STARTING: spawning is synchronous, no event is read meanwhile.
for _phase in set(TaskPhase) - {TaskPhase.STARTING, TaskPhase.CLOSED}:
    _TABLE[_phase, events.AgentConnected] = _connected
    _TABLE[_phase, events.AgentDisconnected] = _disconnected
    _TABLE[_phase, events.AgentLost] = _aborted
# Events of the watching threads may still be queued.
_WATCHED = (events.Prepared, events.Ready, events.Unhealthy, events.FreezeChanged)
for _phase in (TaskPhase.STOPPING, TaskPhase.SWEEPING, TaskPhase.KILLING, TaskPhase.ENDED):
    for _late in (*_WATCHED, events.MemoryExceeded, events.Superseded):
        _TABLE[_phase, _late] = _ignore
