"""Where the tasks are reached (dcos-commons, EndpointsResource): one endpoint for each job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_scheduler.api.shapes_sdk import EndpointBody
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .base import Answer, Problem, Snapshot, View

#: DC/OS' own names for the addresses of tasks (mesosphere/dcos-commons, EndpointUtils).
_DOMAIN = "autoip.dcos.thisdcos.directory"


def names(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """The jobs that have tasks which may run."""
    return View(sorted({record.job.value for record in snapshot.state.live()}))


def endpoint(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """Addresses, and the names that DC/OS gives to them."""
    found = [record for record in snapshot.state.live() if record.job.value == given["name"]]
    if not found:
        return Problem(404, f"Endpoint {given['name']} not found")
    found.sort(key=lambda record: record.index)
    body: EndpointBody = {
        "address": [record.address for record in found],
        "dns": [_dns(snapshot.state, record) for record in found],
    }
    return View(body)


def _dns(state: SchedulerState, record: TaskRecord) -> str:
    port = record.address.rpartition(":")[2]
    return f"{record.name}.{state.spec.name.replace('/', '')}.{_DOMAIN}:{port}"
