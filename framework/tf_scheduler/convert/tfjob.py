"""Kubeflow's TFJob (v1, v1beta2, v1beta1, v1alpha2, v1alpha1), its PyTorchJob, the older `kind: tensorflow` -> options.

Field names: training-operator, pkg/apis/kubeflow.org/v1; tf-operator, pkg/apis/tensorflow of each version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tf_scheduler.model.spec import Strategy

from . import pod
from .amounts import command_line, service_name, whole
from .mapping import Deed, Put, Row, Say, Spot, Take, nothing, to, walk

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
    if value not in _SUCCESS:
        raise ValueError("it is empty or AllWorkers")
    yield Put(("finish", "success"), _SUCCESS[value])


def _take_clean_up(value: Any, spot: Spot) -> Iterator[Deed]:
    if value not in _CLEAN_UP:
        raise ValueError("it is one of Running, All, None")
    yield Put(("finish", "clean_up"), _CLEAN_UP[value])
    if value == "None" and "ttlSecondsAfterFinished" not in spot.siblings:
        yield Say(
            spot.path, "None: what still runs stays for finish.keep_seconds, an hour; there it is for ever (0 here)"
        )


def _take_replicas(value: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    for name, replica in value.items():
        section = _SECTIONS.get(str(name).lower(), "")
        path = f"{spot.path}.{name}"
        if not section:
            yield Say(path, f"was left out: there is no job like it; there are {', '.join(sorted(set(_SECTIONS)))}")
            continue
        if section == "worker" and pod.has_gpus(replica):
            section = "gpu_worker"
        yield from pod.convert(replica, pod.at(spot, path, section))


_Field = tuple[str, tuple[str, ...], str, Take | None]
_RUN_POLICY: tuple[_Field, ...] = (
    ("cleanPodPolicy", ("finish.clean_up",), "the same words, in lower case", _take_clean_up),
    (
        "activeDeadlineSeconds",
        ("finish.deadline",),
        "of the whole job, in seconds",
        to("finish", "deadline", as_=float),
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
        to("finish", "keep_seconds", as_=lambda value: max(1.0, float(value))),
    ),
)
_SCHEDULING: tuple[_Field, ...] = (
    ("minAvailable", (), "all tasks of a job are launched together or not at all", None),
    ("minResources", (), "it is the sum of what the tasks ask for", None),
    ("queue", ("service.role",), "queues are Mesos roles; quota is set there", to("service", "role", as_=str)),
    ("priorityClass", (), "Mesos has no priorities; use roles with quota", None),
    (
        "scheduleTimeoutSeconds",
        ("gang.reserve_timeout",),
        "how long a part of the gang is held, with gang.mode reserve",
        to("gang", "reserve_timeout", as_=float),
    ),
)


def _policies(prefix: str) -> Iterator[Row]:
    for name, options, note, take in _RUN_POLICY:
        yield Row(f"{prefix}.{name}", options, note, take)
    for name, options, note, take in _SCHEDULING:
        yield Row(f"{prefix}.schedulingPolicy.{name}", options, note, take)
    yield Row(f"{prefix}.suspend", (), "stop the plan instead: `dcos tensorflow plan pause deploy`")


ROWS = (
    Row("apiVersion", (), "v1, v1beta1, v1beta2, v1alpha2, v1alpha1", nothing),
    Row("kind", (), "TFJob, PyTorchJob", nothing),
    Row("metadata.name", ("service.name",), "lower case, dashes", to("service", "name", as_=service_name)),
    Row("metadata.generateName", ("service.name",), "the same", to("service", "name", as_=service_name)),
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
        to("service", "tf_image", as_=str),
    ),
    Row("spec.terminationPolicy", (), "v1alpha1: the chief decides, or worker 0 where there is none (finish.success)"),
    Row("spec.tfReplicaSpecs", (), "Chief, Master, Worker, PS, Evaluator: see below", _take_replicas),
    Row("spec.pytorchReplicaSpecs", (), "of a PyTorchJob: Master, Worker", _take_replicas),
    Row("spec.nprocPerNode", (), "there is one process per task: give each worker the GPUs of one process"),
    Row("spec.elasticPolicy", (), "the number of workers is fixed; it may shrink by recovery.shrink_after"),
)
#: Before training-operator 1.3 these were not in runPolicy.
OLDER_ROWS = tuple(_policies("spec"))

#: `kind: tensorflow` of krallistic/tensorflow-operator; it became TFJob.
OPERATOR_ROWS = (
    Row("apiVersion", (), "", nothing),
    Row("kind", (), "tensorflow", nothing),
    Row("metadata.name", ("service.name",), "lower case, dashes", to("service", "name", as_=service_name)),
    Row("metadata.namespace", (), "use a folder in service.name, such as team/mnist"),
    Row("spec.worker_nodes", ("worker.count",), "", to("worker", "count", as_=whole)),
    Row("spec.worker_count", ("worker.count",), "", to("worker", "count", as_=whole)),
    Row("spec.ps_nodes", ("parameter_server.count",), "", to("parameter_server", "count", as_=whole)),
    Row("spec.ps_count", ("parameter_server.count",), "", to("parameter_server", "count", as_=whole)),
    Row(
        "spec.image",
        ("service.tf_image", "service.gpu_tf_image"),
        "",
        lambda value, _: [Put(("service", name), str(value)) for name in ("tf_image", "gpu_tf_image")],
    ),
    Row("spec.port", (), "ports come from offers"),
    Row("spec.gpu_worker", ("gpu_worker.count",), "true: the workers become gpu_worker, with one GPU each", nothing),
    Row("spec.additional_args", ("service.command",), "after the program, which `--command` names", nothing),
    Row(
        "spec.tensorboard.active",
        ("service.use_tensorboard",),
        "",
        to("service", "use_tensorboard", as_=bool),
    ),
    Row("spec.tensorboard.folder", ("service.checkpoint_dir",), "", to("service", "checkpoint_dir", as_=str)),
)
#: What that operator appended to every command.
_OPERATOR_FLAGS = "--job-name={job_name} --task-index={task_index} --ps-tasks={ps_hosts} --worker-tasks={worker_hosts}"


def convert(document: Mapping[str, Any], program: str) -> Iterator[Deed]:
    """All of a TFJob or a PyTorchJob. `program`: command line for containers that name none; empty: not known."""
    if document.get("kind") == PYTORCH:
        yield Put(("service", "strategy"), Strategy.PYTORCH_DDP.value)
    yield from walk((*ROWS, *OLDER_ROWS), _as_v1(document), Spot("", program=program))


def convert_operator(document: Mapping[str, Any], program: str) -> Iterator[Deed]:
    """All of an object of the older operator."""
    spec = document.get("spec") or {}
    if not spec.get("gpu_worker"):
        yield from walk(OPERATOR_ROWS, document, Spot(""))
    else:
        for deed in walk(OPERATOR_ROWS, document, Spot("")):
            counts = isinstance(deed, Put) and deed.path == ("worker", "count")
            yield replace(deed, path=("gpu_worker", "count")) if isinstance(deed, Put) and counts else deed
    if program:
        words = [program, command_line(spec.get("additional_args") or ()), _OPERATOR_FLAGS]
        yield Put(("service", "command"), " ".join(word for word in words if word))


def _as_v1(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """v1alpha1 has a list of replicas, which name their type, and an image and chief for all of them."""
    spec = dict(document.get("spec") or {})
    replicas = spec.pop("replicaSpecs", None)
    if isinstance(replicas, Sequence) and not isinstance(replicas, str):
        spec["tfReplicaSpecs"] = {
            str(one.get("tfReplicaType", "MASTER")): {
                name: value for name, value in one.items() if name not in ("tfReplicaType", "tfPort")
            }
            for one in replicas
        }
    return {**document, "spec": spec}
