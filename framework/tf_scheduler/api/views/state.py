"""The SDK's state: ids, properties, files, zones (dcos-commons, StateResource)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tf_scheduler.core.plans import DEPLOY

from .base import Answer, Problem, Snapshot, View
from .configurations import configuration


def framework_id(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """A list of one id; empty before the registration and after the end of an uninstallation."""
    found = snapshot.state.framework_id
    return View([] if found is None else [found])


def properties(snapshot: Snapshot) -> dict[str, Any]:
    """Those of the SDK's that tools ask for, by name; its files are others, see api/kept.py."""
    state = snapshot.state
    found: dict[str, Any] = {
        f"{record.name}:task-status": asdict(status)
        for record in state.tasks.values()
        if (status := state.statuses.get(record.id)) is not None
    }
    deploy = state.controls.get(DEPLOY)
    if deploy is not None and deploy.completed:
        found["last-completed-update-type"] = "DEPLOY"
    if snapshot.uninstalling:
        found["uninstalling"] = True
    return found


def template(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """No task has one: 400 and 404 as the SDK, for a configuration that there is not, too."""
    found = configuration(snapshot, {"id": given["id"]})
    names = "/".join(given[name] for name in ("pod", "task", "name"))
    return found if isinstance(found, Problem) else Problem(404, f"Template {names} not found")


def zones(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Task -> its zone; empty where the agent has none."""
    return View({record.name: record.place.zone for record in snapshot.state.tasks.values()})


def zone_of_task(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """The zone of one task."""
    record = snapshot.state.tasks.get(given["task"])
    return Problem(404, f"Task {given['task']} not found") if record is None else View(record.place.zone)


def zone_of_address(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """The zone of the task of a job at an IP address."""
    job, address = given["job"], given["ip"]
    for record in snapshot.state.tasks.values():
        if record.job.value == job and record.address.rpartition(":")[0] == address:
            return View(record.place.zone)
    return Problem(404, f"No task of {job} is at {address}")


def refresh(_snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """As the SDK answers whose cache is off."""
    return Problem(409, "There is no cache to refresh: what is shown is what is stored")
