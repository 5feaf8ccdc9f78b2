"""Pods as the SDK shows them (dcos-commons, PodQueries). A pod of ours is one task, and its type is the job."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from tf_scheduler.api.shapes_sdk import LaunchBody, PodBody, PodsBody
from tf_scheduler.core.plans import config_of
from tf_scheduler.core.recovery import pausing
from tf_scheduler.core.told import variables_of
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.masking import MASK, masked_variables, without_password
from tf_scheduler.model.resources import UNIT, Resource
from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

from .base import Answer, Problem, Snapshot, View
from .configurations import target_id


def names(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Every task that was launched, job by job."""
    return View([record.name for record in _records(snapshot.state)])


def statuses(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """All pods, by type."""
    state = snapshot.state
    body: PodsBody = {
        "service": state.spec.name,
        "pods": [
            {"name": job.value, "instances": [_pod(state, record) for record in group]}
            for job, group in groupby(_records(state), key=lambda record: record.job)
        ],
    }
    return View(body)


def status(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """One pod."""
    record = snapshot.state.tasks.get(given["pod"])
    return not_found(given["pod"]) if record is None else View(_pod(snapshot.state, record))


def info(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """TaskInfo and TaskStatus, in the JSON of protobuf."""
    state = snapshot.state
    record = state.tasks.get(given["pod"])
    if record is None:
        return not_found(given["pod"])
    body: LaunchBody = {"info": _task_info(state, record)}
    known = state.status(record.name)
    if known is not None:
        body["status"] = _task_status(known)
    return View([body])


def not_found(name: str) -> Problem:
    """The SDK's sentence."""
    return Problem(404, f"Pod {name} not found")


def _records(state: SchedulerState) -> list[TaskRecord]:
    return sorted(state.tasks.values(), key=lambda record: (record.job.value, record.index))


def _pod(state: SchedulerState, record: TaskRecord) -> PodBody:
    return {
        "name": record.name,
        "tasks": [{"id": record.id, "name": record.name, "status": word_of(state, record)}],
    }


def word_of(state: SchedulerState, record: TaskRecord) -> str:
    """Of a task that is launched: Mesos' state without `TASK_`, or what an operator's pause shows instead, as the SDK.

    One that is resumed is STARTING until its program is launched: what runs is not that.
    """
    override, status = pausing.shown(state, record.name), state.status(record.name)
    if override is not None:
        return override.value
    if record.idle and state.is_live(record):
        return "STARTING"
    return "STAGING" if status is None else status.state.value.removeprefix("TASK_")


def _task_info(state: SchedulerState, record: TaskRecord) -> dict[str, Any]:
    job = next((job for job in state.spec.jobs if job.group == record.group), None)
    labels = {
        "target_configuration": target_id(state) if record.config == config_of(state.spec, record.name) else "",
        "task_type": record.job.value,
        "index": str(record.index),
        "offer_hostname": record.hostname,
        "offer_region": record.place.region,
        "offer_zone": record.place.zone,
        "generation": str(record.generation),
    }
    return {
        "name": record.name,
        "taskId": {"value": record.id},
        "slaveId": {"value": record.agent_id},
        "resources": [_resource(item, state.spec.role) for item in record.resources],
        "executor": {"executorId": {"value": executor_of(record.id)}, "type": "CUSTOM"},
        **({} if job is None else {"command": _command(state, record, job)}),
        "labels": {"labels": [{"key": key, "value": value} for key, value in labels.items() if value]},
    }


def _command(state: SchedulerState, record: TaskRecord, job: JobSpec) -> dict[str, Any]:
    secret = {secret.env: MASK for secret in state.spec.secrets if secret.env and secret.is_for(job.group)}
    variables = {**masked_variables(variables_of(state, record, job)), **secret}
    return {
        "value": pausing.command(state, record) if record.idle else without_password(job.command),
        "user": state.spec.user,
        "environment": {"variables": [{"name": name, "value": value} for name, value in variables.items()]},
    }


def _resource(item: Resource, role: str) -> dict[str, Any]:
    shared = {"name": item.name, "allocationInfo": {"role": role}}
    if isinstance(item.value, int):
        return {**shared, "type": "SCALAR", "scalar": {"value": item.value / UNIT}}
    if isinstance(item.value, tuple):
        ranges = [{"begin": begin, "end": end} for begin, end in item.value]
        return {**shared, "type": "RANGES", "ranges": {"range": ranges}}
    return {**shared, "type": "SET", "set": {"item": sorted(item.value)}}


def _task_status(status: TaskStatus) -> dict[str, Any]:
    found = {
        "taskId": {"value": status.id},
        "state": status.state.value,
        "message": status.message,
        "reason": status.reason,
        "healthy": status.healthy,
        "slaveId": None if status.agent_id is None else {"value": status.agent_id},
        "timestamp": status.timestamp,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}
