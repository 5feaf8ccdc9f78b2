"""Distinct types of names and ids, for type checks; functions for task ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NewType

#: Job and index, such as `worker-0`; unchanged when the task is relaunched.
TaskName = NewType("TaskName", str)
#: Mesos id of one launch of a task; never reused.
TaskId = NewType("TaskId", str)
AgentId = NewType("AgentId", str)
OfferId = NewType("OfferId", str)
FrameworkId = NewType("FrameworkId", str)
ExecutorId = NewType("ExecutorId", str)
#: Seconds since 1970, UTC.
UnixTime = float

#: Returns a new unique string at each call.
NewId = Callable[[], str]

#: Regular expression of the name of an operator's file.
OPERATOR_FILE = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"

_SEPARATOR = "__"


def task_name(job: str, index: int) -> TaskName:
    """Return `worker-0` for job `worker` and index 0."""
    return TaskName(f"{job}-{index}")


def task_id(name: TaskName, unique: str) -> TaskId:
    """Return the Mesos id of a new launch of `name`; `unique` makes it unique."""
    return TaskId(f"{name}{_SEPARATOR}{unique}")


def name_of(launch: TaskId) -> TaskName:
    """Return the name of the task that was launched under this Mesos id."""
    return TaskName(launch.rpartition(_SEPARATOR)[0] or launch)


def executor_of(launch: TaskId) -> ExecutorId:
    """Return the executor id of a launch; each launch has its own executor."""
    return ExecutorId(launch)


class Kinded:
    """Base class of values with a `kind`, a name for clients; default: the class name."""

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__dict__.get("kind", cls.__name__)
