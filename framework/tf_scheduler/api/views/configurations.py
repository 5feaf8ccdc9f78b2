"""Configurations of the service as SDK service specifications, secrets masked.

Previous configurations are stored with their options. The id is derived from the content, so the same options have the
same id after a restart.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tf_executor.contract.settings import Liveness
from tf_executor.contract.text import format_resources
from tf_scheduler.core.state import spec_index
from tf_scheduler.model.redaction import MASK, redact_text, redact_variables
from tf_scheduler.model.resources import UNIT, Volume
from tf_scheduler.model.secrets import INLINE_SCHEME, SecretSpec
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.state import Configuration, SchedulerState, newest_first

from .base import ApiAnswer, ApiProblem, Snapshot, View

_ZOOKEEPER = "zk://"
#: Default of the option scheduler.state.
_DEFAULT_STATE = "zk://master.mesos:2181"


def ids(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Ids of the stored configurations, newest first."""
    return View([item.id for item in newest_first(snapshot.state.stored.configurations)] or [target_id(snapshot.state)])


def target_ids(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """List with the id of the target configuration, as in the SDK."""
    return View([target_id(snapshot.state)])


def target(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Target configuration; `rejected`: errors of the options rejected at this start."""
    state = snapshot.state
    stored = state.stored.configurations.get(target_id(snapshot.state))
    rejected = {"rejected": list(state.process.rejected)} if state.process.rejected else {}
    about = {} if stored is None else _about(stored)
    return View({**_service(state.stored.full_spec or state.spec, stored), **about, **rejected})


def configuration(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Configuration by id; 400 for an invalid UUID, as in the SDK."""
    try:
        wanted = str(uuid.UUID(params["id"]))
    except ValueError:
        return ApiProblem(400, f"Invalid configuration id: {params['id']}")
    if wanted == target_id(snapshot.state):
        return target(snapshot, params)
    stored = snapshot.state.stored.configurations.get(wanted)
    if stored is None:
        return ApiProblem(404, f"Configuration {wanted} not found")
    return View(_about(stored))


def _about(configuration: Configuration) -> dict[str, Any]:
    changed = {} if configuration.changed is None else {"changed": configuration.changed}
    return {"id": configuration.id, "at": configuration.at, "options": configuration.options, **changed}


def target_id(state: SchedulerState) -> str:
    """Return the id of the target configuration."""
    newest = newest_first(state.stored.configurations)
    if newest:
        return newest[0].id
    spec = state.spec
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{spec.name}/{spec_index.index_of(spec).target}"))


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
        "checkpoint-dir": redact_text(spec.checkpoint_dir),
        "failover-timeout": spec.failover_timeout,
        "replacement-failure-policy": {"permanent-failure-timeout": spec.recovery.unreachable_timeout},
        "pod-specs": [_pod(spec, job) for job in spec.jobs],
    }


def _zookeeper(options: Mapping[str, Any]) -> str | None:
    """ZooKeeper servers in the SDK's format; None for another kind of store."""
    state = str(options.get("scheduler", {}).get("state", _DEFAULT_STATE))
    if not state.startswith(_ZOOKEEPER):
        return None
    return redact_text(state).removeprefix(_ZOOKEEPER).partition("/")[0].rpartition("@")[2]


def _pod(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
    """Pod in the SDK's format, with `resources`; unsupported fields are null or empty."""
    return {
        "type": job.kind.value,
        "section": job.group,
        "user": spec.user,
        "count": job.count,
        "allow-decommission": True,
        "image": job.image or None,
        "networks": [] if spec.network is None else [{"name": spec.network.name, "labels": dict(spec.network.labels)}],
        "rlimits": [
            # A negative value means unlimited.
            {"name": f"RLIMIT_{name.upper()}", "soft": None if soft < 0 else soft, "hard": None if hard < 0 else hard}
            for name, (soft, hard) in job.settings.ulimits.items()
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
        "uris": [redact_text(uri.value) for uri in spec.uris],
        "task-specs": [_task(spec, job)],
        "resources": format_resources(**{name: value / UNIT for name, value in job.needs.scalars()}),
    }


def _secret(secret: SecretSpec) -> dict[str, Any]:
    """Source and destination of a secret, without its value."""
    source = MASK if secret.source.startswith(f"{INLINE_SCHEME}:") else secret.source
    return {"secret": source, "env-key": secret.env or None, "file": secret.file or None}


def _volume(volume: Volume) -> dict[str, Any]:
    mode = "RO" if volume.read_only else "RW"
    return {"host-path": volume.host_path, "container-path": volume.container_path, "mode": mode}


def _task(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
    return {
        "name": job.kind.value,
        "goal": "FINISH",
        "essential": True,
        "resource-set": {
            "id": f"{job.group}-resources",
            "resource-specifications": [
                {"name": name, "value": {"type": "SCALAR", "scalar": {"value": value / UNIT}}}
                for name, value in job.needs.scalars()
            ],
            "volume-specifications": [],
            "role": spec.role,
            "pre-reserved-role": "*",
            "principal": spec.principal,
            "resource-limits": None,
        },
        "command-spec": {"value": redact_text(job.command), "environment": redact_variables(job.environment)},
        "task-labels": {},
        "health-check-spec": _health_check(job.settings.liveness),
        "readiness-check-spec": None,
        "config-files": [],
        "discovery-spec": None,
        "kill-grace-period": job.settings.kill_grace,
        "transport-encryption": [],
    }


def _health_check(liveness: Liveness | None) -> dict[str, Any] | None:
    """Health check in the SDK's format, with an additional field `kind`."""
    if liveness is None:
        return None
    return {
        "command": redact_text(liveness.target),
        "kind": liveness.kind,
        "max-consecutive-failures": liveness.failures,
        "delay": 0,
        "interval": liveness.interval,
        "timeout": liveness.timeout,
        "grace-period": liveness.grace,
    }
