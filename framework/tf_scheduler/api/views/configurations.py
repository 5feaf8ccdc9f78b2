"""What the service is made of, in the words of the SDK's service specification; variables that look secret are masked.

Every configuration that was the target is kept, up to a number of them (options/target.py), with the options that
made it. The id follows from what it says, so it is the same at every start with the same options.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tf_scheduler.core import plans
from tf_scheduler.model.configuration import Configuration, newest_first
from tf_scheduler.model.masking import masked_variables, without_password
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.volume import Volume

from .base import Answer, Problem, Snapshot, View


def ids(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """All of them, newest first: the target, the one before, and so on."""
    return View([item.id for item in newest_first(snapshot.state.configurations)] or [_id(snapshot)])


def target_ids(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """A list of one, as the SDK gives it."""
    return View([_id(snapshot)])


def target(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """What is in force; `rejected`: why the options that the scheduler was started with are not."""
    state = snapshot.state
    stored = state.configurations.get(_id(snapshot))
    rejected = {"rejected": list(state.rejected)} if state.rejected else {}
    return View({**_service(state.full or state.spec), **({} if stored is None else _about(stored)), **rejected})


def configuration(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """By id: 400 for what is no UUID, as the SDK."""
    try:
        wanted = str(uuid.UUID(given["id"]))
    except ValueError:
        return Problem(400, f"Invalid configuration id: {given['id']}")
    if wanted == _id(snapshot):
        return target(snapshot, given)
    stored = snapshot.state.configurations.get(wanted)
    if stored is None:
        return Problem(404, f"Configuration {wanted} not found")
    return View(_about(stored))


def _about(configuration: Configuration) -> dict[str, Any]:
    return {"id": configuration.id, "at": configuration.at, "options": configuration.options}


def _id(snapshot: Snapshot) -> str:
    newest = newest_first(snapshot.state.configurations)
    if newest:
        return newest[0].id
    spec = snapshot.state.spec
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{spec.name}/{plans.target(spec)}"))


def _service(spec: ServiceSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "role": spec.role,
        "principal": spec.principal,
        "user": spec.user,
        "goal": "FINISH",
        "region": spec.placement.region or None,
        "web-url": None,
        "strategy": spec.strategy.value,
        "checkpoint-dir": without_password(spec.checkpoint_dir),
        "failover-timeout": spec.failover_timeout,
        "replacement-failure-policy": {"permanent-failure-timeout": spec.recovery.unreachable_timeout},
        "pod-specs": [_pod(spec, job) for job in spec.jobs],
    }


def _pod(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
    return {
        "type": job.group,
        "user": spec.user,
        "count": job.count,
        "allow-decommission": True,
        "image": job.image or None,
        "host-volumes": [_volume(volume) for volume in job.volumes],
        "placement-rule": [str(constraint) for constraint in job.constraints],
        "uris": [without_password(uri.value) for uri in spec.uris],
        "task-specs": [_task(job)],
    }


def _volume(volume: Volume) -> dict[str, Any]:
    mode = "RO" if volume.read_only else "RW"
    return {"host-path": volume.host_path, "container-path": volume.container_path, "mode": mode}


def _task(job: JobSpec) -> dict[str, Any]:
    amounts = {"cpus": job.needs.cpus, "mem": job.needs.mem, "disk": job.needs.disk, "gpus": job.needs.gpus}
    return {
        "name": job.kind.value,
        "goal": "FINISH",
        "essential": True,
        "resource-set": {
            "id": f"{job.group}-resources",
            "resource-specifications": [
                {"name": name, "value": {"type": "SCALAR", "scalar": {"value": value / UNIT}}}
                for name, value in amounts.items()
                if value
            ],
        },
        "command-spec": {"value": job.command, "environment": masked_variables(job.environment)},
        "kill-grace-period": job.kill_grace,
    }
