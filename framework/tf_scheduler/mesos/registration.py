"""Before a first registration, ask the master for live frameworks of the service.

An empty state store may have lost a live framework. The tasks of that framework still run, and a new framework would
launch each task a second time. The check is made before each SUBSCRIBE without a framework id, for frameworks with the
service's name and role. After a failover, the master learns of tasks, and of frameworks without a scheduler, only from
returning agents. A framework therefore counts as missing only after all agents have returned or have been removed
(agent_reregister_timeout).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mesos_client.http import MALFORMED, TransportError
from mesos_client.results import RegistrationRefusedError, SendResult, Sent
from mesos_client.scheduler import AskMaster
from tf_executor.contract.states import TaskState
from tf_scheduler.model.events import FoundTask, FrameworkAdopted, FrameworksHidden
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId, TaskName, name_of
from tf_scheduler.model.spec import ServiceSpec, TaskSpec
from tf_scheduler.model.task import TaskRecord, TaskStatus
from tf_scheduler.store.interface import StoreError
from tf_scheduler.store.records import read_record

from . import decode
from .encode import RECORD_LABEL

Json = Mapping[str, Any]

#: Lists of GET_TASKS with tasks that may run, and with ended tasks.
_LIVE, _ENDED = ("pending_tasks", "tasks", "orphan_tasks", "unreachable_tasks"), ("completed_tasks",)
#: Maximum number of task names in one message.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class LostFrameworks:
    """What to do with a live framework of the service that the state store lacks."""

    #: Id of the framework to continue; empty for none.
    adopt: str = ""
    #: Id of the framework to stop, before a new one is registered; empty for none.
    reset: str = ""
    #: Whether to register a new framework without a check, or to adopt one that has a scheduler.
    ignore: bool = False
    #: Reason to stop the framework, and to register none; empty: no uninstall.
    uninstall: str = ""


@dataclass(frozen=True, slots=True)
class _Framework:
    """A framework as the master lists it."""

    id: FrameworkId
    name: str
    roles: tuple[str, ...]
    user: str
    principal: str
    is_connected: bool
    #: Whether the master knows it only from agents, which may return one after the other.
    is_recovered: bool
    has_resources: bool

    def is_of(self, spec: ServiceSpec) -> bool:
        return self.name == spec.name and spec.role in self.roles

    def conflict(self, spec: ServiceSpec) -> str:
        """Return which option contradicts the framework's user or principal; else "".

        When a framework subscribes again, Mesos ignores a changed user, so tasks would run as the old user. Mesos
        refuses a changed principal; without the option, the master uses the principal of the login.
        """
        if self.user != spec.user:
            return f"its user is {self.user}, not {spec.user} (option service.user)"
        if spec.principal and self.principal != spec.principal:
            option = "service.principal or service.service_account"
            return f"its principal is {self.principal or 'empty'}, not {spec.principal} (option {option})"
        return ""


def check_registration(
    spec: ServiceSpec, orders: LostFrameworks, ask: AskMaster
) -> FrameworkAdopted | FrameworksHidden | None:
    """Return the framework to continue; None or FrameworksHidden: register a new one.

    Raises RegistrationRefusedError, which says what the operator can do, or TransportError: try again later.
    """
    try:
        return _check(spec, orders, ask)
    except MALFORMED as error:
        raise TransportError(f"the master returned an invalid answer ({type(error).__name__})") from error


def _check(spec: ServiceSpec, orders: LostFrameworks, ask: AskMaster) -> FrameworkAdopted | FrameworksHidden | None:
    reply = ask("GET_FRAMEWORKS")
    if not isinstance(reply, Sent):
        if orders.adopt:
            raise RegistrationRefusedError(_cannot_adopt(orders, f"the master does not show frameworks ({reply})"))
        if orders.uninstall:
            raise RegistrationRefusedError(f"tasks of {spec.name}, if any: the master shows no frameworks ({reply})")
        return FrameworksHidden(str(reply))
    content = reply.answer["get_frameworks"]
    frameworks = [_framework(item) for item in content.get("frameworks", ())]
    live = [item for item in frameworks if item.is_of(spec)]
    others = tuple(item.id for item in live)
    if orders.uninstall and live:
        return _to_uninstall(spec, live, ask)
    if orders.adopt:
        chosen = _to_adopt(spec, orders, frameworks, content, ask)
        return _adopted(spec, chosen, ask, tuple(key for key in others if key != chosen.id))
    for item in live:
        if item.id == orders.reset:
            return _adopted(spec, item, ask, reset=True)
    if live:
        return _unknown_framework(spec, live, ask)
    _await_agents(ask("GET_AGENTS"))
    return None


def find_filter(reply: SendResult, own: str) -> FrameworksHidden | None:
    """Return FrameworksHidden if ACLs hide even the scheduler's own framework."""
    if not isinstance(reply, Sent):
        return None
    try:
        listed = reply.answer.get("get_frameworks", {}).get("frameworks", ())
        if any(item["framework_info"]["id"]["value"] == own for item in listed):
            return None
    except MALFORMED:
        return FrameworksHidden("its answer is invalid")
    return FrameworksHidden(f"its answer lacks this new framework {own}")


def _unknown_framework(spec: ServiceSpec, live: list[_Framework], ask: AskMaster) -> FrameworkAdopted:
    """Return the only live framework if unused; else raise RegistrationRefusedError.

    A scheduler that is killed after SUBSCRIBED and before it stores the id leaves a framework without tasks. Continuing
    this framework needs no operator, and no framework remains until `failover_timeout`. A TEARDOWN has the same effect,
    but needs one more call. A connected scheduler may launch tasks at any time, so its framework is never taken over.
    """
    reply = ask("GET_TASKS")
    tasks = {item.id: _live_names(reply, item.id) for item in live}
    first = max(live, key=lambda item: len(tasks[item.id]))
    is_used = first.is_connected or first.is_recovered or first.has_resources or tasks[first.id] or first.conflict(spec)
    if len(live) == 1 and not is_used and isinstance(reply, Sent):
        _await_agents(ask("GET_AGENTS"))
        return FrameworkAdopted(first.id)
    names = tasks[first.id]
    listed = f" ({', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''})" if names else ""
    count = f"{len(names)} task{'' if len(names) == 1 else 's'}{listed}"
    if not isinstance(reply, Sent):
        count = f"tasks that the master does not show ({reply})"
    further = [item.id for item in live if item is not first]
    also = f"; also live: {', '.join(further)}" if further else ""
    connected = "; another scheduler is connected to it" if first.is_connected else ""
    conflict = f"; {first.conflict(spec)}, which must be corrected to continue it" if first.conflict(spec) else ""
    raise RegistrationRefusedError(
        f"framework {first.id} of {spec.name} (role {spec.role}) is live in Mesos with {count}, but the state store "
        f"does not contain it{connected}{also}{conflict}; to continue it, start the scheduler with `--adopt "
        f"{first.id}`; to stop its tasks and start the job again from its last checkpoint, with `--reset {first.id}`; "
        f"under Marathon, set ADOPT_FRAMEWORK or RESET_FRAMEWORK to this id in the environment of the app"
    )


def _to_uninstall(spec: ServiceSpec, live: list[_Framework], ask: AskMaster) -> FrameworkAdopted:
    """Return the framework to stop. Raises RegistrationRefusedError if that is unsafe."""
    if len(live) == 1 and live[0].is_recovered:
        raise TransportError(f"framework {live[0].id} may be reconnecting to a new master")
    if len(live) == 1 and not live[0].is_connected and not live[0].conflict(spec):
        return _adopted(spec, live[0], ask, reset=True)
    problems = {item.id: "connected" if item.is_connected else item.conflict(spec) for item in live}
    ids = ", ".join(f"{name} ({problem})" if problem else name for name, problem in problems.items())
    raise RegistrationRefusedError(
        f"live frameworks of {spec.name} (role {spec.role}) that the state store does not contain: {ids}; to end one "
        f"with its tasks, send TEARDOWN to the Mesos master"
    )


def _to_adopt(
    spec: ServiceSpec, orders: LostFrameworks, frameworks: list[_Framework], content: Json, ask: AskMaster
) -> _Framework:
    """Return the framework to adopt. Raises RegistrationRefusedError for a wrong id."""
    framework = next((item for item in frameworks if item.id == orders.adopt), None)
    if framework is None:
        ended = any(item.id == orders.adopt for item in map(_framework, content.get("completed_frameworks", ())))
        if not ended:
            _await_agents(ask("GET_AGENTS"))
        why = "the framework has ended" if ended else "Mesos does not know this framework"
    elif framework.name != spec.name:
        why = f"its name is {framework.name}, not {spec.name} (option service.name)"
    elif spec.role not in framework.roles:
        why = f"its roles are {', '.join(framework.roles)}, not {spec.role} (option service.role)"
    elif framework.is_connected and not orders.ignore:
        why = "another scheduler is connected to it; stop that one first, or add `--force-registration`"
    elif not (why := framework.conflict(spec)):
        return framework
    live = ", ".join(item.id for item in frameworks if item.is_of(spec)) or "none"
    raise RegistrationRefusedError(_cannot_adopt(orders, f"{why}; live frameworks of this service: {live}"))


def _cannot_adopt(orders: LostFrameworks, why: str) -> str:
    remedy = "correct or remove `--adopt` (environment variable ADOPT_FRAMEWORK)"
    return f"cannot adopt framework {orders.adopt}: {why}; {remedy}"


def _adopted(
    spec: ServiceSpec,
    framework: _Framework,
    ask: AskMaster,
    others: tuple[FrameworkId, ...] = (),
    *,
    reset: bool = False,
) -> FrameworkAdopted:
    """Return the framework with its tasks, after all agents have registered again.

    The adopting scheduler would kill a task that the master lists later.
    """
    reply = ask("GET_AGENTS")
    _await_agents(reply)
    hosts = {
        AgentId(item["agent_info"]["id"]["value"]): str(item["agent_info"]["hostname"])
        for item in _content(reply, "GET_AGENTS").get("agents", ())
    }
    content, specs = _content(ask("GET_TASKS"), "GET_TASKS"), {task.name: task for task in spec.tasks()}
    tasks = tuple(_found_tasks(content, framework.id, hosts, specs))
    return FrameworkAdopted(framework.id, tasks, reset, others)


def _await_agents(reply: SendResult) -> None:
    """Raise TransportError while the master waits for agents (GET_AGENTS)."""
    missing = reply.answer.get("get_agents", {}).get("recovered_agents") if isinstance(reply, Sent) else None
    if missing:
        raise TransportError(f"the master waits for {len(missing)} agents to register again before it knows all tasks")


def _content(reply: SendResult, kind: str) -> Json:
    """Return an answer's content. Raises RegistrationRefusedError for a refused call."""
    if isinstance(reply, Sent):
        content: Json = reply.answer.get(kind.lower(), {})
        return content
    raise RegistrationRefusedError(f"cannot adopt a framework, because the master refuses {kind}: {reply}")


def _live_names(reply: object, framework: FrameworkId) -> list[str]:
    content: Json = reply.answer.get("get_tasks", {}) if isinstance(reply, Sent) else {}
    return sorted(str(task["name"]) for task in _tasks(content, framework, _LIVE))


def _tasks(content: Json, framework: FrameworkId, lists: tuple[str, ...]) -> Iterator[Json]:
    for name in lists:
        yield from (task for task in content.get(name, ()) if task["framework_id"]["value"] == framework)


def _found_tasks(
    content: Json, framework: FrameworkId, hosts: Mapping[AgentId, str], specs: Mapping[TaskName, TaskSpec]
) -> Iterator[FoundTask]:
    for task in _tasks(content, framework, (*_LIVE, *_ENDED)):
        status = _status(task)
        record = _labelled_record(task, status.id) or _partial_record(task, status, hosts, specs)
        if record is not None:
            yield FoundTask(status, record)


def _status(task: Json) -> TaskStatus:
    """Return the last status without its uuid, because Mesos sends the update again."""
    own = TaskId(task["task_id"]["value"])
    state, agent = TaskState.of(task["state"]), AgentId(task["agent_id"]["value"])
    for raw in reversed(task.get("statuses", ())):
        if raw.get("state") == task["state"]:
            return decode.status({**raw, "uuid": "", "task_id": task["task_id"], "agent_id": task["agent_id"]})
    return TaskStatus(own, state, agent)


def _labelled_record(task: Json, launch: TaskId) -> TaskRecord | None:
    for label in task.get("labels", {}).get("labels", ()):
        if label["key"] == RECORD_LABEL:
            try:
                record = read_record(name_of(launch), label.get("value", "").encode())
            except StoreError:
                return None
            return record if record.id == launch else None
    return None


def _partial_record(
    task: Json, status: TaskStatus, hosts: Mapping[AgentId, str], specs: Mapping[TaskName, TaskSpec]
) -> TaskRecord | None:
    """Return a record that suffices to stop a task; None if the options lack the task.

    The record's digest of options is empty, so the plan stops the task and launches it again afterwards.
    """
    wanted, agent = specs.get(name_of(status.id)), AgentId(task["agent_id"]["value"])
    if wanted is None:
        return None
    host = hosts.get(agent, agent)
    ports = task.get("discovery", {}).get("ports", {}).get("ports", ())
    return TaskRecord(
        name=wanted.name,
        id=status.id,
        job=wanted.job.kind,
        index=wanted.index,
        agent_id=agent,
        hostname=host,
        address=f"{host}:{ports[0]['number'] if ports else 0}",
        generation=1,
        resources=tuple(decode.resource(item) for item in task.get("resources", ())),
        launched_at=status.timestamp,
        group=wanted.job.group,
    )


def _framework(content: Json) -> _Framework:
    info = content["framework_info"]
    return _Framework(
        FrameworkId(info["id"]["value"]),
        info["name"],
        tuple(info.get("roles", ())) or (info.get("role", "*"),),
        info.get("user", ""),
        info.get("principal", ""),
        content.get("connected", False),
        content.get("recovered", False),
        bool(content.get("allocated_resources")),
    )
