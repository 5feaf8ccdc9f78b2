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
from tf_scheduler.model.masking import MASK, masked_variables, without_password
from tf_scheduler.model.program import Liveness
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.secrets import OPTION, SecretSpec
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.volume import Volume

from .base import Answer, Problem, Snapshot, View

_ZOOKEEPER = "zk://"
#: Of the option scheduler.state.
_DEFAULT_STATE = "zk://master.mesos:2181"


def ids(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """All of them, newest first: the target, the one before, and so on."""
    return View([item.id for item in newest_first(snapshot.state.configurations)] or [target_id(snapshot.state)])


def target_ids(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """A list of one, as the SDK gives it."""
    return View([target_id(snapshot.state)])


def target(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """What is in force; `rejected`: why the options that the scheduler was started with are not."""
    state = snapshot.state
    stored = state.configurations.get(target_id(snapshot.state))
    rejected = {"rejected": list(state.rejected)} if state.rejected else {}
    return View(
        {**_service(state.full or state.spec, stored), **({} if stored is None else _about(stored)), **rejected}
    )


def configuration(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """By id: 400 for what is no UUID, as the SDK."""
    try:
        wanted = str(uuid.UUID(given["id"]))
    except ValueError:
        return Problem(400, f"Invalid configuration id: {given['id']}")
    if wanted == target_id(snapshot.state):
        return target(snapshot, given)
    stored = snapshot.state.configurations.get(wanted)
    if stored is None:
        return Problem(404, f"Configuration {wanted} not found")
    return View(_about(stored))


def _about(configuration: Configuration) -> dict[str, Any]:
    changed = {} if configuration.changed is None else {"changed": configuration.changed}
    return {"id": configuration.id, "at": configuration.at, "options": configuration.options, **changed}


def target_id(state: SchedulerState) -> str:
    """Of what is in force."""
    newest = newest_first(state.configurations)
    if newest:
        return newest[0].id
    spec = state.spec
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{spec.name}/{plans.target(spec)}"))


def _service(spec: ServiceSpec, stored: Configuration | None) -> dict[str, Any]:
    return {
        "name": spec.name,
        "role": spec.role,
        "principal": spec.principal,
        "user": spec.user,
        "goal": "FINISH",
        "region": spec.placement.region or None,
        "web-url": None,
        "zookeeper": None if stored is None else _zookeeper(stored.options),
        "strategy": spec.strategy.value,
        "checkpoint-dir": without_password(spec.checkpoint_dir),
        "failover-timeout": spec.failover_timeout,
        "replacement-failure-policy": {"permanent-failure-timeout": spec.recovery.unreachable_timeout},
        "pod-specs": [_pod(spec, job) for job in spec.jobs],
    }


def _zookeeper(options: Mapping[str, Any]) -> str | None:
    """Servers, as the SDK has them; None: the state is elsewhere. Options at their default are not stored."""
    state = str(options.get("scheduler", {}).get("state", _DEFAULT_STATE))
    if not state.startswith(_ZOOKEEPER):
        return None
    return without_password(state).removeprefix(_ZOOKEEPER).partition("/")[0].rpartition("@")[2]


def _pod(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
    """What there is not is null or empty, as the SDK writes it."""
    return {
        "type": job.kind.value,
        "section": job.group,
        "user": spec.user,
        "count": job.count,
        "allow-decommission": True,
        "image": job.image or None,
        "networks": [] if spec.network is None else [{"name": spec.network.name, "labels": dict(spec.network.labels)}],
        "rlimits": [
            {"name": f"RLIMIT_{name.upper()}", "soft": _limit(soft), "hard": _limit(hard)}
            for name, (soft, hard) in job.limits.ulimits.items()
        ],
        "host-volumes": [_volume(volume) for volume in job.volumes],
        "volumes": [],
        "external-volumes": [],
        "pre-reserved-role": "*",
        "secrets": [_secret(secret) for secret in spec.secrets if secret.is_for(job.group)],
        "share-pid-namespace": False,
        "seccomp-unconfined": False,
        "seccomp-profile-name": None,
        "ipc-mode": None,
        "shm-size": None,
        "placement-rule": [str(constraint) for constraint in job.constraints],
        "uris": [without_password(uri.value) for uri in spec.uris],
        "task-specs": [_task(spec, job)],
    }


def _limit(value: int) -> int | None:
    """None: unlimited."""
    return None if value < 0 else value


def _secret(secret: SecretSpec) -> dict[str, Any]:
    """Where it is and goes to; never what it is."""
    source = MASK if secret.source.startswith(f"{OPTION}:") else secret.source
    return {"secret": source, "env-key": secret.env or None, "file": secret.file or None}


def _volume(volume: Volume) -> dict[str, Any]:
    mode = "RO" if volume.read_only else "RW"
    return {"host-path": volume.host_path, "container-path": volume.container_path, "mode": mode}


def _task(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
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
            "volume-specifications": [],
            "role": spec.role,
            "pre-reserved-role": "*",
            "principal": spec.principal,
            "resource-limits": None,
        },
        "command-spec": {"value": without_password(job.command), "environment": masked_variables(job.environment)},
        "task-labels": {},
        "health-check-spec": None if job.liveness is None else _health_check(job.liveness),
        "readiness-check-spec": None,
        "config-files": [],
        "discovery-spec": None,
        "kill-grace-period": job.kill_grace,
        "transport-encryption": [],
    }


def _health_check(liveness: Liveness) -> dict[str, Any]:
    """`kind` is ours: a URL or the progress may be looked at, too."""
    return {
        "command": without_password(liveness.target),
        "kind": liveness.kind.value,
        "max-consecutive-failures": liveness.failures,
        "delay": 0,
        "interval": liveness.interval,
        "timeout": liveness.timeout,
        "grace-period": liveness.grace,
    }
