"""The scheduler's clock, and stored times in its future."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from builders import a_spec, a_status
from kit.stored_samples import sample_changes
from tf_executor.contract.states import TaskState
from tf_scheduler.clock import REPORTED_STEP, SteadyClock, not_in_future
from tf_scheduler.model.effects import EntryForgotten, RecoveryDecided, StatusStored
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.task import Cause, Recovery

SPEC = a_spec()


class Times:
    """A wall clock that can be set, and a steady one."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000.0, 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_step_of_wall_clock_changes_no_time(step: float) -> None:
    times = Times()
    clock = SteadyClock(lambda: times.wall, lambda: times.steady)
    times.pass_time(10.0)
    times.wall += step

    assert 1_010.0 == clock()
    assert [step, 0.0] == [clock.step(), clock.step()]


def test_small_corrections_are_not_reported() -> None:
    """Also not if they add up slowly; their sum is reported once."""
    times = Times()
    clock = SteadyClock(lambda: times.wall, lambda: times.steady)

    times.wall += REPORTED_STEP - 1
    assert 0.0 == clock.step()
    times.wall += 2
    assert REPORTED_STEP + 1 == clock.step()


def test_system_clock_is_unix_time() -> None:
    clock = SteadyClock()

    assert 1.7e9 < clock()
    assert clock() <= clock()


def test_stored_times_are_not_in_future() -> None:
    recovery = Recovery(
        TaskName("worker-0"),
        TaskId("worker-0__1"),
        Cause.USER_ERROR,
        "x",
        5_000.0,
        5_100.0,
        5_105.0,
        failures=(5_000.0,),
    )

    change = not_in_future(RecoveryDecided(recovery), SPEC, 1_000.0)

    assert isinstance(change, RecoveryDecided)
    latest = 1_000.0 + SPEC.restart.max_backoff
    assert (1_000.0, latest, (1_000.0,)) == (change.recovery.since, change.recovery.ready_at, change.recovery.failures)
    assert latest + 5.0 == change.recovery.previous_address_until


def test_past_times_are_unchanged() -> None:
    """Without a time, and for changes without times, too."""
    status = StatusStored(a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0))

    assert [status] * 2 == [not_in_future(status, SPEC, 1_000.0), not_in_future(status, SPEC)]
    assert EntryForgotten("paused", "worker-0") == not_in_future(EntryForgotten("paused", "worker-0"), SPEC, 1.0)


def shifted(value: Any, seconds: float) -> Any:
    """Return a stored value with all its times moved."""
    moved = {}
    for item in fields(value):
        part = getattr(value, item.name)
        if "UnixTime" in str(item.type):
            moved[item.name] = tuple(at + seconds for at in part) if isinstance(part, tuple) else part + seconds
        elif is_dataclass(part):
            moved[item.name] = shifted(part, seconds)
    return replace(value, **moved)


def times(value: Any) -> Iterator[float]:
    for item in fields(value):
        part = getattr(value, item.name)
        if "UnixTime" in str(item.type):
            yield from part if isinstance(part, tuple) else (part,)
        elif is_dataclass(part):
            yield from times(part)


@pytest.mark.parametrize("change", tuple(sample_changes()), ids=lambda change: type(change).__name__)
def test_every_stored_time_is_corrected(change: Any) -> None:
    """A deadline is at most its longest duration ahead: an hour here."""
    corrected = not_in_future(shifted(change, 86_400.0), replace(SPEC, resize_wait=600.0), 1_000.0)

    assert all(at <= 1_000.0 + 3_600.0 for at in times(corrected)), corrected
