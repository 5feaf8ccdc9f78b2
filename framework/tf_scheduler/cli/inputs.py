"""Several inputs, checked all before any error is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mesos_local import MesosLocalError
from tf_scheduler.errors import JobError, SchedulerError

First = TypeVar("First")
Second = TypeVar("Second")


def all_problems(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Both values, or JobError with the problems of both."""
    problems: list[str] = []
    one = _attempt(first, problems)
    other = _attempt(second, problems)
    if one is None or other is None:
        raise JobError("\n".join(problems))
    return one, other


def _attempt(read: Callable[[], First], problems: list[str]) -> First | None:
    try:
        return read()
    except (SchedulerError, MesosLocalError) as error:
        problems.append(str(error))
        return None
