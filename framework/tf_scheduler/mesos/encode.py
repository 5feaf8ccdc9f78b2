"""Encode calls and FrameworkInfo as Mesos v1 JSON; the driver adds framework_id."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model import effects
from tf_scheduler.model.digests import digest_check
from tf_scheduler.model.ids import FrameworkId, executor_of
from tf_scheduler.model.placement import HOSTNAME, REGION, ZONE, Constraint, Operator
from tf_scheduler.model.resources import UNIT, Needs, Resource, Volume
from tf_scheduler.model.secrets import SecretSource
from tf_scheduler.model.spec import JobSpec, ServiceSpec, Uri
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.store.records import put_record

Json = dict[str, Any]


def id_list(ids: Iterable[str]) -> list[Json]:
    """Encode ids as id messages, objects with `value` (mesos.proto)."""
    return [{"value": value} for value in ids]


def _ids(**ids: str) -> Json:
    return {name: {"value": value} for name, value in ids.items()}


def container(launch: effects.Launch) -> Json:
    """Return ContainerInfo (mesos.proto); empty without image, network and volumes."""
    image, network, volumes = launch.image, launch.network, launch.volumes
    if not image and network is None and not volumes:
        return {}
    info: Json = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": image}}} if image else {}}
    if not image:
        # Else these containers share the agent's /dev/shm (Mesos: docs/isolators/namespaces-ipc.md).
        info["linux_info"] = {"ipc_mode": "PRIVATE"}
    if network is not None:
        labels = {"labels": {"labels": [{"key": key, "value": value} for key, value in network.labels.items()]}}
        info["network_infos"] = [{"name": network.name, **(labels if network.labels else {})}]
    if volumes:
        info["volumes"] = [_volume(volume) for volume in volumes]
    return {"container": info}


def _volume(volume: Volume) -> Json:
    mode = "RO" if volume.read_only else "RW"
    return {"mode": mode, "container_path": volume.container_path, "host_path": volume.host_path}


# Offer filters and constraints only avoid useless offers: placement checks everything again.

#: Minimum useful offer, in thousandths.
MINIMUM_OFFER = {"cpus": UNIT, "mem": 1024 * UNIT}

_PSEUDO = {HOSTNAME: "HOSTNAME", REGION: "REGION", ZONE: "ZONE"}


def offer_filters(spec: ServiceSpec) -> Json:
    """Return FrameworkInfo.offer_filters: for each job, needs of a task and executor.

    The needs are limited to MINIMUM_OFFER, so that the scheduler can see and report agents too small for a task.
    Masters before 1.9 ignore the filters (Mesos documentation, app-framework-development-guide).
    """
    needs = [job.needs + spec.executor.needs for job in spec.jobs if job.count]
    quantities = [{"quantities": _quantities(item)} for item in needs]
    return {"offer_filters": {spec.role: {"min_allocatable_resources": {"quantities": quantities}}}}


def _quantities(needs: Needs) -> Json:
    return {
        name: {"value": min(amount, MINIMUM_OFFER[name]) / UNIT}
        for name, amount in needs.scalars()
        if name in MINIMUM_OFFER
    }


def offer_constraints(spec: ServiceSpec) -> Json:
    """Return OfferConstraints of SUBSCRIBE: agents on which at least one job may run.

    Empty if a job may run anywhere. Regular expressions are not sent, because an expression beyond the master's limits
    would end the subscription. Mesos 1.11 and newer support constraints (mesos.proto).
    """
    groups = [_predicates(spec, job) for job in spec.jobs if job.count]
    if not groups or not all(groups):
        return {}
    return {"role_constraints": {spec.role: {"groups": [{"attribute_constraints": group} for group in groups]}}}


def _predicates(spec: ServiceSpec, job: JobSpec) -> list[Json]:
    predicates = [item for rule in job.constraints if (item := _predicate(rule))]
    if spec.placement.region and all(rule.field != REGION for rule in job.constraints):
        predicates.append(_equals(REGION, spec.placement.region))
    return predicates


def _predicate(rule: Constraint) -> Json | None:
    """Return a rule's condition that depends on the agent alone; None: no condition."""
    if rule.operator in (Operator.IS, Operator.CLUSTER):
        return _equals(rule.field, rule.parameter)
    if rule.operator is Operator.IS_NOT:
        return {"selector": _selector(rule.field), "predicate": {"text_not_equals": {"value": rule.parameter}}}
    if rule.operator is Operator.UNLIKE or rule.field == HOSTNAME:
        return None
    return {"selector": _selector(rule.field), "predicate": {"exists": {}}}


def _equals(name: str, value: str) -> Json:
    return {"selector": _selector(name), "predicate": {"text_equals": {"value": value}}}


def _selector(name: str) -> Json:
    return {"pseudoattribute_type": _PSEUDO[name]} if name in _PSEUDO else {"attribute_name": name}


#: Seconds beyond `kill_grace` for an executor to report the task's end after SHUTDOWN.
SHUTDOWN_MARGIN = 5.0


def framework_info(
    spec: ServiceSpec, framework_id: FrameworkId | None, hostname: str = "", webui_url: str = ""
) -> Json:
    """Return FrameworkInfo. Mesos restricts the later removal of a capability.

    GPU_RESOURCES is set only for services with GPUs, because it attracts offers of GPU agents (Mesos documentation,
    gpu-support). REGION_AWARE is set only if agents of other regions may be used.
    """
    capabilities = ["MULTI_ROLE", "PARTITION_AWARE", "TASK_KILLING_STATE", "RESERVATION_REFINEMENT"]
    capabilities += ["GPU_RESOURCES"] if spec.needs_gpus else []
    capabilities += ["REGION_AWARE"] if spec.spans_regions else []
    return {
        "user": spec.user,
        "name": spec.name,
        "roles": [spec.role],
        "checkpoint": True,
        "failover_timeout": spec.failover_timeout,
        "capabilities": [{"type": name} for name in capabilities],
        **({"id": {"value": framework_id}} if framework_id else {}),
        **({"hostname": hostname} if hostname else {}),
        **({"webui_url": webui_url} if webui_url else {}),
        **({"principal": spec.principal} if spec.principal else {}),
        **offer_filters(spec),
    }


def call(item: effects.Call, framework_id: FrameworkId) -> Json:
    """Return the body of a call. Teardown has none: the driver's `teardown` sends it."""
    kind, content = _content(item, framework_id)
    return {"type": kind, kind.lower(): content}


def _content(item: effects.Call, framework_id: FrameworkId) -> tuple[str, Json]:
    match item:
        case effects.Accept():
            launch = {"task_infos": [task_info(entry, framework_id) for entry in item.launches]}
            operations = [{"type": "LAUNCH", "launch": launch}]
            offers = {"offer_ids": id_list(item.offer_ids), "operations": operations}
            return "ACCEPT", {**offers, **_refusal(item.refuse_seconds)}
        case effects.Decline():
            return "DECLINE", {"offer_ids": id_list(item.offer_ids), **_refusal(item.refuse_seconds)}
        case effects.AcceptInverseOffers():
            content = {"inverse_offer_ids": id_list(item.offer_ids), **_refusal(item.refuse_seconds)}
            return "ACCEPT_INVERSE_OFFERS", content
        case effects.Suppress():
            return "SUPPRESS", {}
        case effects.Revive():
            return "REVIVE", {}
        case effects.Kill():
            return "KILL", _ids(task_id=item.task_id, agent_id=item.agent_id)
        case effects.ShutdownExecutor():
            return "SHUTDOWN", _ids(executor_id=item.executor_id, agent_id=item.agent_id)
        case effects.MessageExecutor():
            ids = _ids(executor_id=item.executor_id, agent_id=item.agent_id)
            return "MESSAGE", {**ids, "data": base64.b64encode(item.data).decode()}
        case effects.Acknowledge():
            return "ACKNOWLEDGE", {**_ids(agent_id=item.agent_id, task_id=item.task_id), "uuid": item.uuid}
        case effects.Reconcile():
            return "RECONCILE", {"tasks": [_ids(task_id=task, agent_id=agent) for task, agent in item.tasks.items()]}
    raise TypeError(item)


def _refusal(seconds: float) -> Json:
    return {"filters": {"refuse_seconds": seconds}}


def resource(item: Resource) -> Json:
    """Encode a resource in its offered shape, with the accepted part of its value."""
    return {"name": item.name, **item.value_fields(), **json.loads(item.shape)}


def task_info(launch: effects.Launch, framework_id: FrameworkId) -> Json:
    """Return TaskInfo, with one executor per task."""
    record, limit = launch.record, launch.max_completion_time  # the executor enforces the limit (mesos.proto)
    return {
        "name": record.name,
        "task_id": {"value": record.id},
        "agent_id": {"value": record.agent_id},
        "resources": _resources(launch.task_resources),
        "executor": executor_info(launch, framework_id),
        "data": base64.b64encode(launch.payload).decode(),
        "kill_policy": {"grace_period": _nanoseconds(launch.kill_grace)},
        **({} if limit is None else {"max_completion_time": _nanoseconds(limit)}),
        "discovery": {
            "visibility": "FRAMEWORK",
            "name": record.name,
            "ports": {"ports": [*_ports(launch)]},
        },
        "labels": {"labels": [{"key": key, "value": value} for key, value in _labels(record).items()]},
    }


def _ports(launch: effects.Launch) -> Iterator[Json]:
    more = ((f"port_{number}", port) for number, port in enumerate(launch.record.more_ports, 1))
    for name, port in (("tensorflow", launch.port), *more):
        yield {"number": port, "name": name, "protocol": "tcp"}


#: Label with the launch record, from which a scheduler without stored state rebuilds the record.
RECORD_LABEL = "record"


def _labels(record: TaskRecord) -> dict[str, str]:
    """Return the labels of a task. Any client that may view tasks can read them."""
    # No label carries credentials: an adopted launch gets no secrets, and runs no commands of users.
    stored = put_record(replace(record, token="", exec_key="")).value.decode()
    return {"generation": str(record.generation), RECORD_LABEL: stored}


#: An image may have another working directory; the agent sets the variable, inside and outside images.
_TO_SANDBOX = 'cd "${MESOS_SANDBOX:-.}" || exit; '


def executor_info(launch: effects.Launch, framework_id: FrameworkId) -> Json:
    """Return ExecutorInfo: the agent runs the bundle with the configured interpreter.

    The interpreter runs isolated (-I -S), because the bundle needs no site-packages, and starts faster without them.
    """
    executor, bundle = launch.executor, launch.executor.uri.rpartition("/")[2]
    check = digest_check(bundle, executor.sha256) if executor.sha256 else ""
    executor_id = executor_of(launch.record.id)
    uris = (Uri(executor.uri, extract=False), *(uri for uri in launch.uris if not uri.link))
    return {
        "executor_id": {"value": executor_id},
        "framework_id": {"value": framework_id},
        "type": "CUSTOM",
        "name": launch.record.name,
        "command": {
            "shell": True,
            "value": f"{_TO_SANDBOX}{check}exec {shlex.quote(executor.python)} -I -S {shlex.quote(bundle)}",
            "uris": [_uri(uri, executor.agents_extract) for uri in uris],
            **_references(launch.references),
        },
        "resources": _resources(launch.executor_resources),
        "shutdown_grace_period": _nanoseconds(launch.kill_grace + SHUTDOWN_MARGIN),
        **container(launch),
    }


def _references(references: Mapping[str, SecretSource]) -> Json:
    """Return secrets as references, because the master's state would show values."""
    variables = []
    for name, source in references.items():
        reference = {"name": source.path, **({"key": source.key} if source.key else {})}
        variables.append({"name": name, "type": "SECRET", "secret": {"type": "REFERENCE", "reference": reference}})
    return {"environment": {"variables": variables}} if variables else {}


def _uri(uri: Uri, agents_extract: bool) -> Json:
    """Encode a URI. If agents do not extract the file, the executor extracts it."""
    name = uri.file_name if uri.extract and not agents_extract else uri.output_file
    return {
        "value": uri.value,
        "extract": uri.extract and agents_extract,
        **({"cache": True} if uri.cache else {}),
        **({"output_file": name} if name else {}),
    }


def _resources(items: Iterable[Resource]) -> list[Json]:
    return [resource(item) for item in items]


def _nanoseconds(seconds: float) -> Json:
    return {"nanoseconds": round(seconds * 1e9)}
