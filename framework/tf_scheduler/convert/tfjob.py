"""Kubeflow's TFJob (v1, v1beta2, v1beta1, v1alpha2, v1alpha1), its PyTorchJob -> options.

Field names: training-operator, pkg/apis/kubeflow.org/v1; tf-operator, pkg/apis/tensorflow of each version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model.spec import Strategy

from . import pod
from .amounts import number, whole
from .mapping import Deed, Put, Row, Say, Spot, Take, at, nothing, shown, to, unexpected, walk
from .shape import each, mapping, take_name, text

PYTORCH = "PyTorchJob"
#: Name of a replica, in lower case -> section.
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


def _take_success(value: Any, _spot: Spot) -> Iterator[Deed]:
    if not isinstance(value, str) or value not in _SUCCESS:
        raise ValueError("it is empty or AllWorkers")
    yield Put(("finish", "success"), _SUCCESS[value])


def _take_clean_up(value: Any, spot: Spot) -> Iterator[Deed]:
    if not isinstance(value, str) or value not in _CLEAN_UP:
        raise ValueError("it is one of Running, All, None")
    yield Put(("finish", "clean_up"), _CLEAN_UP[value])
    if value == "None" and "ttlSecondsAfterFinished" not in spot.siblings:
        yield Say(
            spot.path, "None: what still runs stays for finish.keep_seconds, an hour; there it is for ever (0 here)"
        )


def _take_replicas(value: Any, spot: Spot) -> Iterator[Deed]:
    for name, replica in mapping(value).items():
        yield from _replica(str(name), replica, at(spot, f"{spot.path}.{name}"))


def _replica(name: str, replica: Any, spot: Spot) -> Iterator[Deed]:
    section = _SECTIONS.get(name.lower(), "")
    if not section:
        why = f"there is no job like {name}; there are {', '.join(sorted(set(_SECTIONS)))}"
        yield Say(spot.path, f"was left out: {why}")
    elif not isinstance(replica, Mapping):
        yield unexpected(replica, spot, "it is an object with replicas and template")
    else:
        if section == "worker" and pod.has_gpus(replica):
            section = "gpu_worker"
        yield from pod.convert(replica, replace(spot, section=section))


def _take_listed(value: Any, spot: Spot) -> Iterator[Deed]:
    """v1alpha1 has a list of replicas, which name their type."""
    yield from each(value, spot, _listed)


def _listed(replica: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    own = {name: value for name, value in replica.items() if name not in ("tfReplicaType", "tfPort")}
    yield from _replica(text(replica.get("tfReplicaType") or "MASTER"), own, spot)


#: Where TFJobs and PyTorchJobs are defined, and the versions that are known here.
_API = "kubeflow.org"
_VERSIONS = ("v1", "v1beta1", "v1beta2", "v1alpha2", "v1alpha1")


def _take_version(value: Any, spot: Spot) -> Iterator[Deed]:
    if value not in [f"{_API}/{version}" for version in _VERSIONS]:
        yield Say(spot.path, f"{shown(value)} was read as {_API}/v1: of {_API}, {', '.join(_VERSIONS)} are known here")


_Field = tuple[str, tuple[str, ...], str, Take | None]
_RUN_POLICY: tuple[_Field, ...] = (
    ("cleanPodPolicy", ("finish.clean_up",), "the same words, in lower case", _take_clean_up),
    (
        "activeDeadlineSeconds",
        ("finish.deadline",),
        "of the whole job, in seconds",
        to("finish", "deadline", as_=number),
    ),
    (
        "backoffLimit",
        ("restart.max_failures",),
        "there: restarts of all pods together; here: failures of each task within restart.window",
        to("restart", "max_failures", as_=whole, say="counts for each task here, within restart.window"),
    ),
    (
        "ttlSecondsAfterFinished",
        ("finish.keep_seconds",),
        "how long what is left to run stays; a job that leaves nothing leaves Mesos at its end, its logs stay",
        # 0 is for ever here, and at once there.
        to("finish", "keep_seconds", as_=lambda value: max(1.0, number(value))),
    ),
)
_SCHEDULING: tuple[_Field, ...] = (
    ("minAvailable", (), "all tasks of a job are launched together or not at all", None),
    ("minResources", (), "it is the sum of what the tasks ask for", None),
    ("queue", ("service.role",), "queues are Mesos roles; quota is set there", to("service", "role", as_=text)),
    ("priorityClass", (), "Mesos has no priorities; use roles with quota", None),
    (
        "scheduleTimeoutSeconds",
        ("gang.reserve_timeout",),
        "how long a part of the gang is held, with gang.mode reserve",
        to("gang", "reserve_timeout", as_=number),
    ),
)


def _policies(prefix: str) -> Iterator[Row]:
    for name, options, note, take in _RUN_POLICY:
        yield Row(f"{prefix}.{name}", options, note, take)
    for name, options, note, take in _SCHEDULING:
        yield Row(f"{prefix}.schedulingPolicy.{name}", options, note, take)
    yield Row(f"{prefix}.suspend", (), "stop the plan instead: `dcos tensorflow plan pause deploy`")


ROWS = (
    Row("apiVersion", (), f"{', '.join(_VERSIONS)} of {_API}; another is read as v1, and told", _take_version),
    Row("kind", (), "TFJob, PyTorchJob", nothing),
    Row("metadata.name", ("service.name",), "lower case, dashes", take_name),
    Row("metadata.generateName", ("service.name",), "the same", take_name),
    Row("metadata.namespace", (), "use a folder in service.name, such as team/mnist, or service.role"),
    Row("metadata.labels", (), "services have no labels"),
    Row("metadata.annotations", (), "services have no annotations"),
    Row("status", (), "it is what became of another run"),
    Row(
        "spec.successPolicy",
        ("finish.success",),
        "empty: chief (or worker 0, where there is no chief); AllWorkers: all_workers",
        _take_success,
    ),
    Row("spec.enableDynamicWorker", (), "change worker.count in an update; see docs/plans.md"),
    *_policies("spec.runPolicy"),
    Row(
        "spec.tfImage",
        ("service.tf_image",),
        "v1alpha1: the image of parameter servers that have no template",
        to("service", "tf_image", as_=text),
    ),
    Row("spec.terminationPolicy", (), "v1alpha1: the chief decides, or worker 0 where there is none (finish.success)"),
    Row("spec.tfReplicaSpecs", (), "Chief, Master, Worker, PS, Evaluator: see below", _take_replicas),
    Row(
        "spec.replicaSpecs",
        (),
        "v1alpha1: a list of the same; without tfReplicaType: MASTER",
        _take_listed,
    ),
    Row("spec.pytorchReplicaSpecs", (), "of a PyTorchJob: Master, Worker", _take_replicas),
    Row("spec.nprocPerNode", (), "there is one process per task: give each worker the GPUs of one process"),
    Row("spec.elasticPolicy", (), "the number of workers is fixed; it may shrink by recovery.shrink_after"),
)
#: Before training-operator 1.3 these were not in runPolicy.
OLDER_ROWS = tuple(_policies("spec"))


def convert(document: Mapping[str, Any], program: str) -> Iterator[Deed]:
    """All of a TFJob or a PyTorchJob. `program`: command line for containers that name none; empty: not known."""
    if document.get("kind") == PYTORCH:
        yield Put(("service", "strategy"), Strategy.PYTORCH_DDP.value)
    yield from walk((*ROWS, *OLDER_ROWS), document, Spot("", program=program))
