"""Pods as in dcos-commons (PodQueries): a pod is one task, its type is the job."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from tf_executor.contract.bodies import LaunchBody, PodBody, PodsBody
from tf_scheduler.core.launch import cluster_spec
from tf_scheduler.core.launch.launch import payload_of, plan_parameters
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.spec_index import config_digest
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.redaction import MASK, redact_text, redact_variables
from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

from .base import ApiAnswer, ApiProblem, Snapshot, View
from .configurations import target_id


def names(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Names of the launched pods, sorted by job."""
    return View([record.name for record in _records(snapshot.state)])


def statuses(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """All pods by type."""
    state = snapshot.state
    body: PodsBody = {
        "service": state.spec.name,
        "pods": [
            {"name": job.value, "instances": [_pod(state, record) for record in group]}
            for job, group in groupby(_records(state), key=lambda record: record.job)
        ],
    }
    return View(body)


def status(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Status of one pod."""
    record = snapshot.state.stored.tasks.get(params["pod"])
    return pod_not_found(params["pod"]) if record is None else View(_pod(snapshot.state, record))


def info(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """TaskInfo and TaskStatus in protobuf's JSON format."""
    state = snapshot.state
    record = state.stored.tasks.get(params["pod"])
    if record is None:
        return pod_not_found(params["pod"])
    body: LaunchBody = {"info": _task_info(state, record)}
    task_status = state.status(record.name)
    if task_status is not None:
        body["status"] = _task_status(task_status)
    return View([body])


def pod_not_found(name: str) -> ApiProblem:
    """Return the SDK's answer for an unknown pod."""
    return ApiProblem(404, f"Pod {name} not found")


def _records(state: SchedulerState) -> list[TaskRecord]:
    return sorted(state.stored.tasks.values(), key=lambda record: (record.job.value, record.index))


def _pod(state: SchedulerState, record: TaskRecord) -> PodBody:
    return {
        "name": record.name,
        "tasks": [{"id": record.id, "name": record.name, "status": display_status(state, record)}],
    }


def display_status(state: SchedulerState, record: TaskRecord) -> str:
    """Return Mesos' state without `TASK_`, or the SDK's override of a paused task.

    A resumed task is STARTING until its program is launched, because its placeholder is still running.
    """
    override, status = spec_index.override_of(state, record.name), state.status(record.name)
    if override is not None:
        return override.value
    if record.is_placeholder and state.is_live(record):
        return "STARTING"
    return "STAGING" if status is None else status.state.value.removeprefix("TASK_")


def _task_info(state: SchedulerState, record: TaskRecord) -> dict[str, Any]:
    job = next((job for job in state.spec.jobs if job.group == record.group), None)
    allocation = {"allocationInfo": {"role": state.spec.role}}
    labels = {
        "target_configuration": target_id(state) if record.config == config_digest(state.spec, record.name) else "",
        "task_type": record.job.value,
        "index": str(record.index),
        "offer_hostname": record.hostname,
        "offer_region": record.location.region,
        "offer_zone": record.location.zone,
        "generation": str(record.generation),
    }
    return {
        "name": record.name,
        "taskId": {"value": record.id},
        "slaveId": {"value": record.agent_id},
        "resources": [{"name": item.name, **allocation, **item.value_fields()} for item in record.resources],
        "executor": {"executorId": {"value": executor_of(record.id)}, "type": "CUSTOM"},
        **({} if job is None else {"command": _command(state, record, job)}),
        "labels": {"labels": [{"key": key, "value": value} for key, value in labels.items() if value]},
    }


def _command(state: SchedulerState, record: TaskRecord, job: JobSpec) -> dict[str, Any]:
    secret = {secret.env: MASK for secret in state.spec.secrets if secret.env and secret.is_for(job.group)}
    variables = {**redact_variables(task_environment(state, record, job)), **secret}
    return {
        "value": spec_index.placeholder_command(state, record) if record.is_placeholder else redact_text(job.command),
        "user": state.spec.user,
        "environment": {"variables": [{"name": name, "value": value} for name, value in variables.items()]},
    }


def task_environment(state: SchedulerState, record: TaskRecord, job: JobSpec) -> Mapping[str, str]:
    """Return a task's environment variables for display, without values of secrets.

    The addresses are the current ones. The addresses at the launch of an older generation may differ.
    """
    cluster = cluster_spec.cluster_of(cluster_spec.cluster_records(state))
    executor_payload = payload_of(state.spec, job, record, cluster)
    return {
        **executor_payload.cluster_variables(),
        **executor_payload.environment,
        **plan_parameters(state, record.plan),
    }


def _task_status(status: TaskStatus) -> dict[str, Any]:
    body = {
        "taskId": {"value": status.id},
        "state": status.state.value,
        "message": status.message,
        "reason": status.reason,
        "healthy": status.healthy,
        "slaveId": None if status.agent_id is None else {"value": status.agent_id},
        "timestamp": status.timestamp,
    }
    return {name: value for name, value in body.items() if value not in (None, "")}
