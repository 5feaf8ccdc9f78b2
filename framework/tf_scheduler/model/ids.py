"""Names and ids, one type each, so that a string cannot be passed in the wrong slot."""

from __future__ import annotations

from typing import NewType

#: `worker-0`: job and index inside the service; stays the same when the task is relaunched.
TaskName = NewType("TaskName", str)
#: Mesos id of one launch of a task; unique for ever.
TaskId = NewType("TaskId", str)
AgentId = NewType("AgentId", str)
OfferId = NewType("OfferId", str)
FrameworkId = NewType("FrameworkId", str)
ExecutorId = NewType("ExecutorId", str)
OperationId = NewType("OperationId", str)
#: Of operations that Mesos does not tell of.
NO_OPERATION = OperationId("")

_SEPARATOR = "__"


def task_name(job: str, index: int) -> TaskName:
    """`worker-0` for job `worker`, index 0."""
    return TaskName(f"{job}-{index}")


def task_id(name: TaskName, unique: str) -> TaskId:
    """The Mesos id of a new launch of `name`: readable in every Mesos page, unique through `unique`."""
    return TaskId(f"{name}{_SEPARATOR}{unique}")


def name_of(launch: TaskId) -> TaskName:
    """The task name that a Mesos id of ours was made from."""
    return TaskName(launch.rpartition(_SEPARATOR)[0] or launch)


def executor_of(launch: TaskId) -> ExecutorId:
    """One executor per task, with the task's id: its container lives and dies with the task."""
    return ExecutorId(launch)
