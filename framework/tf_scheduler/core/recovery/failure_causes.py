"""Find the cause of a launch's end in a documented table; count agents' failures."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from tf_executor.contract.advice import CRASH_HINTS
from tf_executor.contract.states import TaskState
from tf_executor.contract.text import format_duration
from tf_scheduler.core.state.backoff import recent_failures
from tf_scheduler.model.effects import Outcome
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AgentFailures, Cause, LaunchEnd, TaskRecord, TaskStatus

#: Exit codes of TensorFlow's PreemptionCheckpointHandler after saving a checkpoint (143 on Google's machines).
RESTART_EXIT_CODES = frozenset({42, 143})
#: Exit codes of a shell whose child was ended by a signal: 128 + n.
_SHELL_SIGNALS = range(129, 160)

_INVALID = frozenset({"REASON_TASK_INVALID", "REASON_TASK_UNAUTHORIZED", "REASON_TASK_GROUP_INVALID"})
_LIMITS = frozenset(
    {
        "REASON_CONTAINER_LIMITATION",
        "REASON_CONTAINER_LIMITATION_DISK",
        "REASON_CONTAINER_LIMITATION_MEMORY",
        "REASON_MAX_COMPLETION_TIME_REACHED",
    }
)
_NO_CONTAINER = frozenset({"REASON_CONTAINER_LAUNCH_FAILED", "REASON_EXECUTOR_REGISTRATION_TIMEOUT"})
#: Stages of the executor that run what the user has configured (`tf_executor.lifecycle.events.Stage`).
_STORAGE, _FETCH, _PRE = "storage", "fetch", "pre"
#: Reason of a launch whose ACCEPT the scheduler could not send; Mesos gives no such reason.
NOT_SENT = "NOT_SENT"
DRAIN_REASONS = frozenset({"REASON_AGENT_DRAINING", "REASON_SLAVE_DRAINING", "REASON_CONTAINER_PREEMPTED"})


@dataclass(frozen=True, slots=True)
class CauseRule:
    """One row of the table: description, cause, condition."""

    when: str
    cause: Cause
    fits: Callable[[LaunchEnd, frozenset[int]], bool]


#: Order matters: a drained task is KILLED, a task over its memory limit ends with a signal.
CAUSE_RULES: tuple[CauseRule, ...] = (
    CauseRule("TASK_FINISHED", Cause.FINISHED, lambda end, _: end.state == "TASK_FINISHED"),
    CauseRule("the service stopped the task", Cause.STOPPED, lambda end, _: end.was_requested),
    CauseRule(
        "the status is TASK_ERROR, or its reason says that the task is invalid or not authorized, "
        "for example because a later framework of the service uses CHECKPOINT_DIR, or a file has a wrong digest",
        Cause.INVALID_TASK,
        lambda end, _: end.state == "TASK_ERROR" or end.reason in _INVALID,
    ),
    CauseRule(
        "TASK_DROPPED: the launch did not reach an agent, or its agent could not start it",
        Cause.NOT_STARTED,
        lambda end, _: end.state == "TASK_DROPPED",
    ),
    CauseRule(
        "the agent is drained, or the task was preempted", Cause.INFRASTRUCTURE, lambda e, _: e.reason in DRAIN_REASONS
    ),
    CauseRule(
        "it exceeded its memory, disk or time limit",
        Cause.USER_ERROR,
        lambda end, _: end.reason in _LIMITS or end.program.out_of_memory,
    ),
    CauseRule("another process uses its port", Cause.INFRASTRUCTURE, lambda end, _: end.program.lacks_port),
    CauseRule(
        "its files or checkpoints could not be fetched, its pre command failed, or its executor could not be started",
        Cause.USER_ERROR,
        lambda end, _: (
            end.reason in _NO_CONTAINER
            or end.program.failed_stage in (_STORAGE, _FETCH, _PRE)
            or (end.reason == "REASON_EXECUTOR_TERMINATED" and not end.has_run)
        ),
    ),
    CauseRule(
        "it was frozen: its processes were stopped by a signal (SIGSTOP) or blocked",
        Cause.INFRASTRUCTURE,
        lambda end, _: end.program.was_frozen,
    ),
    CauseRule(
        "it hung: its health check failed, or it had no progress and no output",
        Cause.USER_ERROR,
        lambda end, _: end.was_unhealthy,
    ),
    CauseRule(
        "its exit code requests a restart (uncounted_exit_codes; default: 42, 143)",
        Cause.RESTART_ASKED,
        lambda end, requested: end.program.exit_code in requested,
    ),
    CauseRule(
        "it ended by a signal, or with exit code 128 + signal",
        Cause.INFRASTRUCTURE,
        lambda end, _: end.program.signal is not None or end.program.exit_code in _SHELL_SIGNALS,
    ),
    CauseRule(
        "a connection failed, and a task of its cluster restarts, or its server does not answer yet",
        Cause.INFRASTRUCTURE,
        lambda end, _: end.awaited_peer,
    ),
    CauseRule("any other exit code", Cause.USER_ERROR, lambda end, _: end.program.exit_code is not None),
    CauseRule(
        "any other end: it is lost, gone or unknown, or its executor or container failed",
        Cause.INFRASTRUCTURE,
        lambda *_: True,
    ),
)


def cause_of(end: LaunchEnd, restart_exit_codes: frozenset[int] = RESTART_EXIT_CODES) -> Cause:
    """Return the cause of an end; the last rule fits every end."""
    return next(row.cause for row in CAUSE_RULES if row.fits(end, restart_exit_codes))


# --- Failures per agent


#: Seconds within which failures on one agent count once, because they probably have one cause.
SAME_INCIDENT_SECONDS = 5.0
#: Maximum number of agents whose failures are forgotten with one more failure.
_FORGOTTEN_TOGETHER = 10
#: Signals that are not the agent's fault: the program has a bug, or was interrupted.
_OWN_SIGNALS = frozenset({*CRASH_HINTS, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def record_failure(
    state: SchedulerState, record: TaskRecord, now: float, *, killed: bool = False
) -> AgentFailures | None:
    """Return the agent's failures including this failure; `None` if nothing changes.

    If only the program was `killed`, the failure counts only if a program of another task was killed on this agent
    before.
    """
    policy = state.spec.recovery
    before = state.stored.agent_failures.get(record.agent_id) or AgentFailures(record.agent_id, record.hostname)
    failures = recent_failures(before.failures, policy.avoid_for, now)
    if not policy.avoid_after:
        return None
    if killed:
        is_known = before.killed_task not in ("", record.name) and now < before.killed_at + policy.avoid_for
        before = replace(before, killed_task=record.name, killed_at=now)
        if not is_known:
            return before
    if failures and now < failures[-1] + SAME_INCIDENT_SECONDS:
        return None
    failures = (*failures, now)
    avoided = now + policy.avoid_for if len(failures) >= policy.avoid_after else 0.0
    return replace(before, failures=failures, avoided_until=max(avoided, before.avoided_until))


def outdated_agents(state: SchedulerState, now: float) -> list[AgentId]:
    """Return a limited number of agents whose failures no longer count.

    These agents are forgotten. An agent that registers again has another id, so failures of the old id would stay
    forever.
    """
    policy, agents = state.spec.recovery, islice(state.stored.agent_failures.values(), _FORGOTTEN_TOGETHER)
    return [
        item.agent_id
        for item in agents
        if not recent_failures((*item.failures, item.killed_at), policy.avoid_for, now) and item.avoided_until <= now
    ]


def blames_agent(status: TaskStatus, cause: Cause, ran: bool) -> bool:
    """Return whether the agent may be at fault: the program did not start or was lost.

    It is not if Mesos was asked to kill the task, for example by another scheduler of the same framework.
    """
    if status.state is TaskState.KILLED:
        return False
    end = status.end
    if end.out_of_memory or end.lacks_port or status.is_dropped_by_agent or end.failed_stage == _PRE:
        return status.is_dropped_by_agent
    if not ran:
        return cause in (Cause.USER_ERROR, Cause.INFRASTRUCTURE) and status.reason not in DRAIN_REASONS
    if cause is not Cause.INFRASTRUCTURE or status.reason in DRAIN_REASONS or end.exit_code is not None:
        return False
    return end.signal not in _OWN_SIGNALS


def failure_message(suspect: AgentFailures | None, now: float) -> tuple[Outcome, ...]:
    """Return an outcome if the agent is avoided from now on."""
    if suspect is None or suspect.avoided_until <= now:
        return ()
    count, wait = len(suspect.failures), format_duration(round(suspect.avoided_until - now))
    sentence = f"agent {suspect.hostname} is avoided for {wait}: {count} launches have failed there"
    return (Outcome("AgentAvoided", sentence, warning=True),)
