"""Converter for Kubeflow's TFJob (v1, v1beta2, v1beta1, v1alpha2, v1alpha1) and PyTorchJob.

Field names: training-operator, pkg/apis/kubeflow.org/v1; tf-operator, pkg/apis/tensorflow of each version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model.spec import Strategy

from . import pod
from .tables import (
    Action,
    Converter,
    Location,
    Note,
    Row,
    SetOption,
    convert_tree,
    display_value,
    ignore,
    relocate,
    set_option,
    unexpected_value,
)
from .values import convert_each, convert_name, integer, number, require_mapping, require_text

PYTORCH = "PyTorchJob"
#: Replica type in lower case -> section.
_SECTIONS = {
    "chief": "chief",
    "master": "chief",
    "worker": "worker",
    "ps": "parameter_server",
    "evaluator": "evaluator",
    "eval": "evaluator",
}
_SUCCESS = {"": "chief", "AllWorkers": "all_workers"}
_CLEAN_UP = {"": "running", "Running": "running", "All": "all", "None": "none"}


def _convert_success(value: Any, _spot: Location) -> Iterator[Action]:
    if not isinstance(value, str) or value not in _SUCCESS:
        raise ValueError("it is empty or AllWorkers")
    yield SetOption(("finish", "success"), _SUCCESS[value])


def _convert_clean_up(value: Any, location: Location) -> Iterator[Action]:
    if not isinstance(value, str) or value not in _CLEAN_UP:
        raise ValueError("it is one of Running, All, None")
    yield SetOption(("finish", "clean_up"), _CLEAN_UP[value])
    if value == "None" and "ttlSecondsAfterFinished" not in location.siblings:
        yield Note(
            location.path, "None: what still runs stays for finish.keep_seconds, an hour; there it is for ever (0 here)"
        )


def _convert_replicas(value: Any, location: Location) -> Iterator[Action]:
    for name, replica in require_mapping(value).items():
        yield from _replica(str(name), replica, relocate(location, f"{location.path}.{name}"))


def _replica(name: str, replica: Any, location: Location) -> Iterator[Action]:
    section = _SECTIONS.get(name.lower(), "")
    if not section:
        why = f"there is no job like {name}; there are {', '.join(sorted(set(_SECTIONS)))}"
        yield Note(location.path, f"was left out: {why}")
    elif not isinstance(replica, Mapping):
        yield unexpected_value(replica, location, "it is an object with replicas and template")
    else:
        if section == "worker" and pod.has_gpus(replica):
            section = "gpu_worker"
        yield from pod.convert(replica, replace(location, section=section))


def _convert_listed(value: Any, location: Location) -> Iterator[Action]:
    """Convert the list of replicas of v1alpha1."""
    yield from convert_each(value, location, _listed)


def _listed(replica: Mapping[str, Any], location: Location) -> Iterator[Action]:
    own = {name: value for name, value in replica.items() if name not in ("tfReplicaType", "tfPort")}
    yield from _replica(require_text(replica.get("tfReplicaType") or "MASTER"), own, location)


#: API group and supported versions.
_API = "kubeflow.org"
_VERSIONS = ("v1", "v1beta1", "v1beta2", "v1alpha2", "v1alpha1")


def _convert_version(value: Any, location: Location) -> Iterator[Action]:
    if value not in [f"{_API}/{version}" for version in _VERSIONS]:
        yield Note(
            location.path,
            f"{display_value(value)} was read as {_API}/v1: of {_API}, {', '.join(_VERSIONS)} are known here",
        )


_Field = tuple[str, tuple[str, ...], str, Converter | None]
_RUN_POLICY: tuple[_Field, ...] = (
    ("cleanPodPolicy", ("finish.clean_up",), "the same words, in lower case", _convert_clean_up),
    (
        "activeDeadlineSeconds",
        ("finish.deadline",),
        "of the whole job, in seconds",
        set_option("finish", "deadline", as_=number),
    ),
    (
        "backoffLimit",
        ("restart.max_failures",),
        "there: restarts of all pods together; here: failures of each task within restart.window",
        set_option("restart", "max_failures", as_=integer, say="counts for each task here, within restart.window"),
    ),
    (
        "ttlSecondsAfterFinished",
        ("finish.keep_seconds",),
        "how long what is left to run stays; a job that leaves nothing leaves Mesos at its end, its logs stay",
        # 0 means unlimited here, but immediately in Kubeflow.
        set_option("finish", "keep_seconds", as_=lambda value: max(1.0, number(value))),
    ),
)
_SCHEDULING: tuple[_Field, ...] = (
    ("minAvailable", (), "all tasks of a job are launched together or not at all", None),
    ("minResources", (), "it is the sum of what the tasks ask for", None),
    (
        "queue",
        ("service.role",),
        "queues are Mesos roles; quota is set there",
        set_option("service", "role", as_=require_text),
    ),
    ("priorityClass", (), "Mesos has no priorities; use roles with quota", None),
    (
        "scheduleTimeoutSeconds",
        ("gang.reserve_timeout",),
        "how long a part of the gang is held, with gang.mode reserve",
        set_option("gang", "reserve_timeout", as_=number),
    ),
)


def _policies(prefix: str) -> Iterator[Row]:
    for name, options, note, converter in _RUN_POLICY:
        yield Row(f"{prefix}.{name}", options, note, converter)
    for name, options, note, converter in _SCHEDULING:
        yield Row(f"{prefix}.schedulingPolicy.{name}", options, note, converter)
    yield Row(f"{prefix}.suspend", (), "stop the plan instead: `dcos tensorflow plan pause deploy`")


ROWS = (
    Row("apiVersion", (), f"{', '.join(_VERSIONS)} of {_API}; another is read as v1, and told", _convert_version),
    Row("kind", (), "TFJob, PyTorchJob", ignore),
    Row("metadata.name", ("service.name",), "lower case, dashes", convert_name),
    Row("metadata.generateName", ("service.name",), "the same", convert_name),
    Row("metadata.namespace", (), "use a folder in service.name, such as team/mnist, or service.role"),
    Row("metadata.labels", (), "services have no labels"),
    Row("metadata.annotations", (), "services have no annotations"),
    Row("status", (), "it is what became of another run"),
    Row(
        "spec.successPolicy",
        ("finish.success",),
        "empty: chief (or worker 0, where there is no chief); AllWorkers: all_workers",
        _convert_success,
    ),
    Row("spec.enableDynamicWorker", (), "change worker.count in an update; see docs/plans.md"),
    *_policies("spec.runPolicy"),
    Row(
        "spec.tfImage",
        ("service.tf_image",),
        "v1alpha1: the image of parameter servers that have no template",
        set_option("service", "tf_image", as_=require_text),
    ),
    Row("spec.terminationPolicy", (), "v1alpha1: the chief decides, or worker 0 where there is none (finish.success)"),
    Row("spec.tfReplicaSpecs", (), "Chief, Master, Worker, PS, Evaluator: see below", _convert_replicas),
    Row(
        "spec.replicaSpecs",
        (),
        "v1alpha1: a list of the same; without tfReplicaType: MASTER",
        _convert_listed,
    ),
    Row("spec.pytorchReplicaSpecs", (), "of a PyTorchJob: Master, Worker", _convert_replicas),
    Row("spec.nprocPerNode", (), "there is one process per task: give each worker the GPUs of one process"),
    Row("spec.elasticPolicy", (), "the number of workers is fixed; it may shrink by recovery.shrink_after"),
)
#: Before training-operator 1.3 these were not in runPolicy.
OLDER_ROWS = tuple(_policies("spec"))


def convert(document: Mapping[str, Any], program: str) -> Iterator[Action]:
    """Convert a TFJob or PyTorchJob; `program` is the command line of containers without one."""
    if document.get("kind") == PYTORCH:
        yield SetOption(("service", "strategy"), Strategy.PYTORCH_DDP.value)
    yield from convert_tree((*ROWS, *OLDER_ROWS), document, Location("", program=program))
