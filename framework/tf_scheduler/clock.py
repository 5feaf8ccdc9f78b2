"""A clock that does not jump; correct stored times that are in the future."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from .model import effects
from .model.secrets import SecretExposure
from .model.spec import ServiceSpec
from .model.state import Configuration
from .model.task import AbandonedLaunch, AgentFailures, Members, Resized

#: Seconds of a step of the wall clock that is reported; smaller ones are corrections of NTP.
REPORTED_STEP = 5.0


def boot_time() -> float:
    """Return the seconds since the machine was booted; on Linux with suspensions."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Unix time: the wall clock at the start, plus the time since then.

    A later step of the wall clock, by NTP or an operator, changes no deadline.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = boot_time) -> None:
        self._wall, self._steady = wall, steady
        self._offset, self._reported = wall() - steady(), 0.0

    def __call__(self) -> float:
        return self._steady() + self._offset

    def step(self) -> float:
        """Return the seconds by which the wall clock was set since the last call.

        Steps are added up, and reported as 0 until their sum reaches REPORTED_STEP.
        """
        ahead = self._wall() - self()
        step = ahead - self._reported
        if abs(step) < REPORTED_STEP:
            return 0.0
        self._reported = ahead
        return step


def not_in_future(change: effects.Change, spec: ServiceSpec, now: float = math.inf) -> effects.Change:
    """Return a stored change without times in the future of `now`, a Unix time.

    Deadlines are at most `now` plus their longest duration. The wall clock may have been ahead at the time of storage.
    """
    match change:
        case effects.TaskLaunched(record):
            began = min(record.job_started_at, now)
            return effects.TaskLaunched(replace(record, launched_at=min(record.launched_at, now), job_started_at=began))
        case effects.StatusStored(status):
            return effects.StatusStored(replace(status, timestamp=min(status.timestamp, now)))
        case effects.ResultDecided(result):
            return effects.ResultDecided(replace(result, decided_at=min(result.decided_at, now)))
        case effects.TaskPaused(name, since):
            return effects.TaskPaused(name, min(since, now))
        case AbandonedLaunch() | Members():
            return replace(change, since=min(change.since, now))
        case Resized(at=at, until=until):
            until = None if until is None else min(until, now + spec.resize_wait)
            return replace(change, at=min(at, now), until=until)
        case Configuration() | SecretExposure():
            return replace(change, at=min(change.at, now))
        case AgentFailures():
            failures = tuple(min(at, now) for at in change.failures)
            until = min(change.avoided_until, now + spec.recovery.avoid_for)
            return replace(change, failures=failures, avoided_until=until, killed_at=min(change.killed_at, now))
        case effects.RecoveryDecided(item):
            policies = (spec.restart, *(job.restart for job in spec.jobs if job.restart is not None))
            ready_at = min(item.ready_at, now + max(policy.max_backoff for policy in policies))
            waits = item.previous_address_until - item.ready_at
            return effects.RecoveryDecided(
                replace(
                    item,
                    since=min(item.since, now),
                    unstarted_since=min(item.unstarted_since, now),
                    ready_at=ready_at,
                    previous_address_until=min(item.previous_address_until, ready_at + waits),
                    failures=tuple(min(at, now) for at in item.failures),
                    uncounted=tuple(min(at, now) for at in item.uncounted),
                )
            )
    return change
