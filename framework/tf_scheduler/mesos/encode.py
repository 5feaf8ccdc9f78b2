"""Model calls -> Mesos v1 scheduler calls (JSON), without framework_id: the driver knows it."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tf_scheduler.model.effects import Accept, Call, Launch
from tf_scheduler.model.ids import FrameworkId, executor_of
from tf_scheduler.model.operation import Operation
from tf_scheduler.model.resources import UNIT, Resource
from tf_scheduler.model.secrets import Source
from tf_scheduler.model.spec import ServiceSpec, Uri

from . import filters, id_calls
from .container import container

Json = dict[str, Any]

#: Seconds beyond `kill_grace` that an executor gets at SHUTDOWN to report the end and have it acknowledged.
SHUTDOWN_RESERVE = 5.0


def framework_info(
    spec: ServiceSpec, framework_id: FrameworkId | None, hostname: str = "", webui_url: str = ""
) -> Json:
    """FrameworkInfo. Capabilities may be added later, hardly ever removed: this is the set that the core is made for.

    GPU_RESOURCES only when the service asks for GPUs: with it we would be offered GPU agents and keep others off them
    (Mesos documentation, gpu-support). REGION_AWARE only when agents of other regions may be used.
    """
    capabilities = ["MULTI_ROLE", "PARTITION_AWARE", "TASK_KILLING_STATE", "RESERVATION_REFINEMENT"]
    capabilities += ["GPU_RESOURCES"] if spec.asks_for_gpus else []
    capabilities += ["REGION_AWARE"] if spec.asks_for_regions else []
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
        **filters.offer_filters(spec),
    }


def call(item: Call, framework_id: FrameworkId) -> Json:
    """The body of one call. Teardown is not among them: the driver has a method of its own for it."""
    for kind, encoder in _ENCODERS.items():
        if isinstance(item, kind):
            return encoder(item, framework_id)
    raise TypeError(item)


def resource(item: Resource) -> Json:
    """As it was offered, with the part of the value that is taken."""
    shape = json.loads(item.shape)
    if isinstance(item.value, int):
        return {"name": item.name, "type": "SCALAR", "scalar": {"value": item.value / UNIT}, **shape}
    if isinstance(item.value, tuple):
        ranges = [{"begin": begin, "end": end} for begin, end in item.value]
        return {"name": item.name, "type": "RANGES", "ranges": {"range": ranges}, **shape}
    return {"name": item.name, "type": "SET", "set": {"item": sorted(item.value)}, **shape}


def task_info(launch: Launch, framework_id: FrameworkId) -> Json:
    """TaskInfo with its own executor."""
    record = launch.record
    return {
        "name": record.name,
        "task_id": {"value": record.id},
        "agent_id": {"value": record.agent_id},
        "resources": _resources(launch.task_resources),
        "executor": executor_info(launch, framework_id),
        "data": base64.b64encode(launch.payload).decode(),
        "kill_policy": {"grace_period": _nanoseconds(launch.kill_grace)},
        **_limit(launch.max_completion_time),
        "discovery": {
            "visibility": "FRAMEWORK",
            "name": record.name,
            "ports": {"ports": [{"number": launch.port, "name": "tensorflow", "protocol": "tcp"}]},
        },
        "labels": {"labels": [{"key": "generation", "value": str(record.generation)}]},
    }


def executor_info(launch: Launch, framework_id: FrameworkId) -> Json:
    """ExecutorInfo: the bundle is fetched, then run by the interpreter that the options name.

    Isolated and without site-packages: the bundle has all it needs, and is there sooner.
    """
    bundle = launch.executor.uri.rpartition("/")[2]
    executor_id = executor_of(launch.record.id)
    uris = (Uri(launch.executor.uri, extract=False), *launch.uris)
    return {
        "executor_id": {"value": executor_id},
        "framework_id": {"value": framework_id},
        "type": "CUSTOM",
        "name": launch.record.name,
        "command": {
            "shell": True,
            "value": f"exec {shlex.quote(launch.executor.python)} -I -S {shlex.quote(bundle)}",
            "uris": [_uri(uri) for uri in uris],
            **_references(launch.references),
        },
        "resources": _resources(launch.executor_resources),
        "shutdown_grace_period": _nanoseconds(launch.kill_grace + SHUTDOWN_RESERVE),
        **container(launch),
    }


def _references(references: Mapping[str, Source]) -> Json:
    """Resolved by the agent, into the executor's own environment; a value is never sent: masters would show it."""
    variables = [
        {"name": name, "type": "SECRET", "secret": {"type": "REFERENCE", "reference": _reference(source)}}
        for name, source in references.items()
    ]
    return {"environment": {"variables": variables}} if variables else {}


def _reference(source: Source) -> Json:
    return {"name": source.path, **({"key": source.key} if source.key else {})}


def _limit(seconds: float | None) -> Json:
    """The executor enforces it, as mesos.proto says of TaskInfo.max_completion_time."""
    return {} if seconds is None else {"max_completion_time": _nanoseconds(seconds)}


def _uri(uri: Uri) -> Json:
    return {
        "value": uri.value,
        "extract": uri.extract,
        "executable": uri.executable,
        **({"cache": True} if uri.cache else {}),
        **({"output_file": uri.output_file} if uri.output_file else {}),
    }


def _resources(items: Iterable[Resource]) -> list[Json]:
    return [resource(item) for item in items]


def _nanoseconds(seconds: float) -> Json:
    return {"nanoseconds": round(seconds * 1e9)}


def _accept(item: Accept, framework_id: FrameworkId) -> Json:
    operations = [_operation("UNRESERVE", entry) for entry in item.unreserve]
    operations += [_operation("RESERVE", entry) for entry in item.reserve]
    if item.launches:
        launch = {"task_infos": [task_info(entry, framework_id) for entry in item.launches]}
        operations.append({"type": "LAUNCH", "launch": launch})
    return {
        "type": "ACCEPT",
        "accept": {
            "offer_ids": id_calls.values(item.offer_ids),
            "operations": operations,
            "filters": {"refuse_seconds": item.refuse_seconds},
        },
    }


def _operation(kind: str, item: Operation) -> Json:
    content = {"type": kind, kind.lower(): {"resources": _resources(item.resources)}}
    return {**content, **({"id": {"value": item.id}} if item.id else {})}


#: One row per call.
_ENCODERS: Mapping[type, Callable[[Any, FrameworkId], Json]] = {Accept: _accept, **id_calls.ENCODERS}
