"""Health, endpoints, events and stored properties of the service.

Formats: dcos-commons, StateResource and EndpointsResource.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tf_executor.contract.bodies import EndpointBody, EventBody, EventsBody, HealthBody
from tf_executor.contract.states import Status
from tf_scheduler.api.views import plan_messages
from tf_scheduler.model.plan import DEPLOY, RECOVERY, UPDATE, Plan
from tf_scheduler.model.state import JournalEntry
from tf_scheduler.model.task import TaskRecord

from .base import NO_BODY, ApiAnswer, ApiProblem, Snapshot, View
from .reasons import Reason, reasons

_DEPLOYING: Mapping[Status, tuple[int, str]] = {
    Status.PENDING: (204, "deploying: no task has been launched"),
    Status.DELAYED: (208, "deploying: delayed by a back-off"),
    Status.WAITING: (207, "deploying: waiting for an operator"),
}
_RECOVERING: Mapping[Status, tuple[int, str]] = {
    Status.PENDING: (203, "recovering: no task has been relaunched"),
    Status.WAITING: (207, "recovering: waiting for an operator"),
    Status.DELAYED: (208, "recovering: delayed by a back-off"),
}
_RUNNING = 200, "running"
_ACTIVE = (Status.PREPARED, Status.STARTING, Status.STARTED, Status.IN_PROGRESS)
#: Part of a plan's name, and the status while the plan runs.
_NAMED_PLANS = (("back", 320, "backing up"), ("restor", 321, "restoring"))


def health(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Health of the service as HTTP status; for Marathon, 200 to 399 is healthy.

    A service that is being uninstalled is healthy, because Marathon would otherwise wait forever for its deployment.
    """
    found = reasons(snapshot)
    code, reason = _health(snapshot, found)
    body: HealthBody = {"value": code}
    if params.get("verbose"):
        others = (*snapshot.exposures(), *(each.text for each in found), *snapshot.weaknesses)
        body["reasons"] = list(dict.fromkeys((reason, *others)))
        result = snapshot.state.stored.result
        body["verdict"] = result.verdict.value if result else None
        code = 200 if code in NO_BODY else code
    return View(body, code)


def _health(snapshot: Snapshot, found: Sequence[Reason]) -> tuple[int, str]:
    state = snapshot.state
    if found and found[0].kind == "store":
        return found[0].health, found[0].text
    if snapshot.uninstalling:
        return 200, "uninstalling"
    if state.stored.result is not None:
        return 200, f"{state.stored.result.verdict.value}: {state.stored.result.sentence}"
    if state.process.rejected:
        return 500, f"new options rejected: {state.process.rejected[0]}"
    deploy = plan_messages.find_plan(state, DEPLOY, snapshot.view)
    if deploy is None or deploy.status is Status.ERROR:
        return 500, "the deploy plan has errors"
    if found and found[0].stops_scheduler:
        return found[0].health, found[0].text
    if state.stored.framework_id is None:
        return 318, "not registered with Mesos yet"
    if deploy.status is not Status.COMPLETE:
        return _DEPLOYING.get(deploy.status, (202, "deploying"))
    hindered = next(((each.health, each.text) for each in found if each.health != _RUNNING[0]), _RUNNING)
    return _deployed(snapshot, hindered)


def _deployed(snapshot: Snapshot, otherwise: tuple[int, str]) -> tuple[int, str]:
    state, view = snapshot.state, snapshot.view
    update = plan_messages.find_plan(state, UPDATE, view)
    if update is not None and update.status is Status.WAITING:
        return 207, "updating: waiting for an operator"
    recovery = plan_messages.find_plan(state, RECOVERY, view)
    if recovery is not None and recovery.status is not Status.COMPLETE:
        return _RECOVERING.get(recovery.status, (205, _recovering(recovery)))
    if update is not None and update.status is not Status.COMPLETE:
        return 202, "updating"
    for name in (plan.name for plan in plan_messages.plans(state, view) if plan.status in _ACTIVE):
        for part, code, words in _NAMED_PLANS:
            if part in name:
                return code, f"{words}: plan {name} runs"
    return otherwise


def _recovering(recovery: Plan) -> str:
    """Return why recovery is active; a plan with only paused tasks counts as paused."""
    steps = [step for phase in recovery.phases for step in phase.steps if step.status is not Status.COMPLETE]
    names = ", ".join(step.name for step in steps)
    return f"paused until resumed: {names}" if all(step.override for step in steps) else "recovering"


#: Domain of DC/OS' names for the addresses of tasks (mesosphere/dcos-commons, EndpointUtils).
_DOMAIN = "autoip.dcos.thisdcos.directory"


def endpoint_names(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Names of the jobs with live tasks, and of their further ports."""
    return View(sorted(_endpoints(snapshot)))


def endpoint(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Addresses of the tasks of a job, and their DC/OS names.

    The endpoint `worker-port_1` has the first further port of each worker.
    """
    places = _endpoints(snapshot).get(params["name"])
    if not places:
        return ApiProblem(404, f"Endpoint {params['name']} not found")
    domain = f"{snapshot.state.spec.name.replace('/', '')}.{_DOMAIN}"
    addresses = [f"{record.address.rpartition(':')[0]}:{port}" for record, port in places]
    body: EndpointBody = {"address": addresses, "dns": [f"{record.name}.{domain}:{port}" for record, port in places]}
    return View(body)


def _endpoints(snapshot: Snapshot) -> Mapping[str, list[tuple[TaskRecord, str]]]:
    """Return name of the endpoint -> live tasks with their port, sorted by index."""
    places: dict[str, list[tuple[TaskRecord, str]]] = defaultdict(list)
    for record in sorted(snapshot.state.live(), key=lambda record: record.index):
        places[record.job.value].append((record, record.address.rpartition(":")[2]))
        for number, port in enumerate(record.more_ports, 1):
            places[f"{record.job.value}-port_{number}"].append((record, str(port)))
    return places


def framework_id(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """List with the framework id; empty before registration and after an uninstall."""
    registered = snapshot.state.stored.framework_id
    return View([] if registered is None else [registered])


def properties(snapshot: Snapshot) -> dict[str, Any]:
    """Return the SDK's properties by name, without the operators' files."""
    state = snapshot.state
    values: dict[str, Any] = {
        f"{record.name}:task-status": asdict(status)
        for record in state.stored.tasks.values()
        if (status := state.stored.statuses.get(record.id)) is not None
    }
    deploy = state.stored.controls.get(DEPLOY)
    if deploy is not None and deploy.completed:
        values["last-completed-update-type"] = "DEPLOY"
    if snapshot.uninstalling:
        values["uninstalling"] = True
    return values


def zones(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Zone of each task; empty if its agent has none."""
    return View({record.name: record.location.zone for record in snapshot.state.stored.tasks.values()})


def zone_of_task(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Zone of one task."""
    record = snapshot.state.stored.tasks.get(params["task"])
    return ApiProblem(404, f"Task {params['task']} not found") if record is None else View(record.location.zone)


def zone_of_address(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Zone of the task of a job at an IP address."""
    job, address = params["job"], params["ip"]
    for record in snapshot.state.stored.tasks.values():
        if record.job.value == job and record.address.rpartition(":")[0] == address:
            return View(record.location.zone)
    return ApiProblem(404, f"no task of {job} at {address}")


def refresh(_snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Error 409, because the scheduler has no cache."""
    return ApiProblem(409, "the scheduler has no cache to refresh")


# --- the event journal


def event_body(entry: JournalEntry) -> EventBody:
    return {
        "number": entry.number,
        "time": entry.at,
        "kind": entry.kind,
        "task": entry.task,
        "message": entry.message,
        "warning": entry.warning,
    }


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """Last entry that a client has received. `journal`: id of the journal, or empty."""

    number: int
    journal: str = ""

    def resolve(self, journal: str, last: int) -> int:
        """Return the number in `journal`, which ends at `last`; 0 for another journal."""
        return 0 if self.number > last or (self.journal and self.journal != journal) else self.number

    @classmethod
    def parse(cls, text: str) -> JournalPosition | None:
        """Parse `NUMBER` or `NUMBER-JOURNAL`; None if invalid."""
        number, _, journal = text.partition("-")
        return cls(int(number), journal) if number.isascii() and number.isdecimal() and len(number) < 17 else None

    @property
    def mark(self) -> str:
        """Id of an event in a stream."""
        return f"{self.number}-{self.journal}"


def events_page(
    entries: Sequence[JournalEntry], numbers: tuple[str, int, int], after: int | None, limit: int, task: str | None
) -> ApiAnswer:
    """Return up to `limit` entries after a number; without a number, the newest ones.

    `numbers`: id of the journal, and its first and last number.
    """
    journal, first, last = numbers
    chosen = [entry for entry in entries if task in (None, entry.task)]
    selected = chosen[-limit:] if after is None else chosen[:limit]
    complete = after is None or len(selected) == len(chosen)
    body: EventsBody = {
        "events": [event_body(entry) for entry in selected],
        "first": first,
        "last": last,
        "next": last if complete else selected[-1].number,
        "journal": journal,
    }
    return View(body)
