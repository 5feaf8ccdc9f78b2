"""Answers of a master's operator API, for a simulated or an imagined cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mesos_client.results import Rejected, SendResult, Sent
from simulation.mesos import FakeMesos
from tf_scheduler.mesos import encode
from tf_scheduler.model.ids import FrameworkId

Json = dict[str, Any]


class MasterAnswers:
    """Answers GET_FRAMEWORKS, GET_TASKS and GET_AGENTS; `rejected` are refused."""

    def __init__(self, frameworks: Iterable[Json] = (), tasks: Iterable[Json] = ()) -> None:
        self.frameworks: Json = {"frameworks": list(frameworks), "completed_frameworks": []}
        self.tasks: Json = {"tasks": list(tasks), "completed_tasks": [], "unreachable_tasks": []}
        self.agents: Json = {"agents": []}
        self.rejected: Mapping[str, int] = {}
        self.asked: list[str] = []

    def __call__(self, kind: str) -> SendResult:
        self.asked.append(kind)
        if kind in self.rejected:
            return Rejected(self.rejected[kind], "no")
        content = {"GET_FRAMEWORKS": self.frameworks, "GET_TASKS": self.tasks, "GET_AGENTS": self.agents}[kind]
        return Sent({"type": kind, kind.lower(): content})


def a_framework(
    key: str = "framework-1",
    name: str = "digits",
    role: str = "digits-role",
    user: str = "nobody",
    principal: str = "",
    **fields: Any,
) -> Json:
    """Return a framework as GET_FRAMEWORKS lists it: disconnected, without resources."""
    info = {"id": {"value": key}, "name": name, "roles": [role], "user": user}
    info |= {"principal": principal} if principal else {}
    return {"framework_info": info, "active": False, "connected": False, "recovered": False, **fields}


def a_task(launch: str, framework: str = "framework-1", state: str = "TASK_RUNNING", **fields: Any) -> Json:
    """Return a task without labels as GET_TASKS lists it."""
    ids = {"task_id": {"value": launch}, "framework_id": {"value": framework}, "agent_id": {"value": "agent-1-id"}}
    return {"name": launch.partition("__")[0], "state": state, **ids, **fields}


def answers_of(mesos: FakeMesos) -> MasterAnswers:
    """Return the answers of a simulated Mesos: its framework with all tasks."""
    framework = mesos.framework or FrameworkId("")
    answers = MasterAnswers([a_framework(framework)])
    for task in mesos.tasks.values():
        info = encode.task_info(task.launch, framework)
        listed = {key: info[key] for key in ("name", "task_id", "agent_id", "resources", "discovery", "labels")}
        listed |= {"framework_id": {"value": framework}, "state": task.state.value}
        answers.tasks["tasks" if task.live else "completed_tasks"].append(listed)
    return answers
