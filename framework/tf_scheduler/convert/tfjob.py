"""Converter for Kubeflow's TFJob (v1alpha1 to v1) and PyTorchJob.

Field names: training-operator, pkg/apis/kubeflow.org/v1; tf-operator, pkg/apis/tensorflow of each version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_executor.contract.strategies import Strategy

from . import pod, tables
from .tables import convert_name, each, integer, nested_value, number, one_of, require_mapping, require_text

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
#: Part of the note on tasks that run after the job.
KEPT = "tasks run for another hour"


def _convert_clean_up(value: Any, location: tables.Location) -> Iterator[tables.Action]:
    yield tables.SetOption(("finish", "clean_up"), one_of(_CLEAN_UP)(value))
    if value == "None" and "ttlSecondsAfterFinished" not in location.siblings:
        yield tables.Note(location.path, f"None: {KEPT}; set finish.keep_seconds to 0 for no limit, as in Kubeflow")


def _convert_processes(value: Any, location: tables.Location) -> Iterator[tables.Action]:
    if value in ("auto", "cpu", "gpu"):
        yield tables.Note(location.path, f"{value}: torchrun starts a process for each GPU of the task, at least one")
    else:
        yield tables.SetOption(("service", "environment"), {"PET_NPROC_PER_NODE": str(integer(value))})


def _convert_elastic(value: Any, location: tables.Location) -> Iterator[tables.Action]:
    if processes := require_mapping(value).get("nProcPerNode"):
        yield from _convert_processes(processes, replace(location, path=f"{location.path}.nProcPerNode"))
    why = "the number of workers is fixed: `replicas`; tasks find each other by PET_NNODES and PET_RDZV_ENDPOINT"
    yield tables.Note(location.path, f"omitted: {why}; restart.max_failures limits restarts")


def _convert_replicas(value: Any, location: tables.Location) -> Iterator[tables.Action]:
    for name, replica in require_mapping(value).items():
        yield from _replica(str(name), replica, replace(location, path=f"{location.path}.{name}"))


def _replica(name: str, replica: Any, location: tables.Location) -> Iterator[tables.Action]:
    section = _SECTIONS.get(name.lower(), "")
    if not section:
        yield tables.Note(
            location.path, f"omitted: unknown replica type {name}; expected one of {', '.join(sorted(_SECTIONS))}"
        )
    elif not isinstance(replica, Mapping):
        yield tables.unexpected_value(replica, location, "an object with replicas and template")
    else:
        if section == "worker" and pod.has_gpus(replica):
            section = "gpu_worker"
        yield from pod.convert(replica, replace(location, section=section))


def _listed(replica: Mapping[str, Any], location: tables.Location) -> Iterator[tables.Action]:
    fields = {name: value for name, value in replica.items() if name not in ("tfReplicaType", "tfPort")}
    yield from _replica(require_text(replica.get("tfReplicaType") or "MASTER"), fields, location)


#: API group and supported versions.
_API = "kubeflow.org"
_VERSIONS = ("v1", "v1beta1", "v1beta2", "v1alpha2", "v1alpha1")


def _convert_version(value: Any, location: tables.Location) -> Iterator[tables.Action]:
    if value not in [f"{_API}/{version}" for version in _VERSIONS]:
        yield tables.Note(
            location.path,
            f"unknown API version {tables.display_value(value)}: read as {_API}/v1; "
            f"known versions: {', '.join(_VERSIONS)}",
        )


_RUN_POLICY = (
    tables.Row(
        "cleanPodPolicy", ("finish.clean_up",), "same values, in lower case; default: running", _convert_clean_up
    ),
    tables.option_row("activeDeadlineSeconds", "finish.deadline", "deadline of the whole job, in seconds", number),
    tables.option_row(
        "backoffLimit",
        "restart.max_failures",
        "Kubeflow counts restarts of all pods together; the service counts failures of each task in restart.window",
        integer,
        warning="failures are counted for each task, within restart.window",
    ),
    tables.option_row(
        "ttlSecondsAfterFinished",
        "finish.keep_seconds",
        "time to keep tasks running after the job; without such tasks the service leaves Mesos; its logs are kept",
        # 0 means unlimited here, but immediately in Kubeflow.
        lambda value: max(1.0, number(value)),
    ),
    tables.Row("schedulingPolicy.minAvailable", (), "all tasks of a job are launched together or not at all"),
    tables.Row("schedulingPolicy.minResources", (), "the scheduler sums up the resources of the tasks"),
    tables.option_row(
        "schedulingPolicy.queue", "service.role", "queues are Mesos roles, which have quotas", require_text
    ),
    tables.Row("schedulingPolicy.priorityClass", (), "Mesos has no priorities; use roles with quota"),
    tables.Row("schedulingPolicy.scheduleTimeoutSeconds", (), "nothing is reserved for a part of a gang"),
    tables.Row("suspend", (), "pause the plan instead: `dcos tensorflow plan pause deploy`"),
)


def _policies(prefix: str) -> Iterator[tables.Row]:
    return (replace(row, source=f"{prefix}.{row.source}") for row in _RUN_POLICY)


ROWS = (
    tables.Row(
        "apiVersion",
        (),
        f"{', '.join(_VERSIONS)} of {_API}; other versions are read as v1, with a warning",
        _convert_version,
    ),
    tables.Row("kind", (), "TFJob, PyTorchJob", tables.ignore),
    tables.Row("metadata.name", ("service.name",), "lower case, dashes", convert_name),
    tables.Row("metadata.generateName", ("service.name",), "lower case, dashes", convert_name),
    tables.Row("metadata.namespace", (), "set service.role, or use a folder in service.name, such as team/mnist"),
    tables.Row("metadata.labels", (), "services have no labels"),
    tables.Row("metadata.annotations", (), "services have no annotations"),
    tables.Row("status", (), "the result of another run"),
    tables.option_row(
        "spec.successPolicy",
        "finish.success",
        "empty: chief (without a chief: worker 0); AllWorkers: all_workers",
        one_of(_SUCCESS),
    ),
    tables.Row("spec.enableDynamicWorker", (), "change worker.count in an update; see docs/reference/plans.md"),
    *_policies("spec.runPolicy"),
    tables.option_row("spec.tfImage", "service.tf_image", "v1alpha1: image of replicas without template", require_text),
    tables.Row("spec.terminationPolicy", (), "v1alpha1: the chief decides; without a chief, worker 0 (finish.success)"),
    tables.Row("spec.tfReplicaSpecs", (), "Chief, Master, Worker, PS, Evaluator: see below", _convert_replicas),
    tables.Row(
        "spec.replicaSpecs", (), "v1alpha1: a list of replicas; default of tfReplicaType: MASTER", each(_listed)
    ),
    tables.Row("spec.pytorchReplicaSpecs", (), "of a PyTorchJob: Master, Worker; see below", _convert_replicas),
    tables.Row(
        "spec.nprocPerNode",
        ("service.environment",),
        "a number becomes PET_NPROC_PER_NODE, which torchrun reads; otherwise torchrun starts a process per GPU",
        _convert_processes,
    ),
    tables.Row(
        "spec.elasticPolicy",
        ("service.environment",),
        "nProcPerNode as nprocPerNode; the number of workers is fixed, see below",
        _convert_elastic,
    ),
)
#: Before training-operator 1.3 these fields were outside of runPolicy.
OLDER_ROWS = tuple(_policies("spec"))


def convert(document: Mapping[str, Any], program: str) -> Iterator[tables.Action]:
    """Convert a TFJob or PyTorchJob. `program`: command if the container has none."""
    if document.get("kind") == PYTORCH:
        yield tables.SetOption(("service", "strategy"), Strategy.PYTORCH_DDP.value)
    # A missing cleanPodPolicy means None from operator 1.6 on, else Running.
    places = (nested_value(document, "spec"), nested_value(document, "spec", "runPolicy"))
    if not any(nested_value(place, "cleanPodPolicy") for place in places):
        why = "running: the other tasks are stopped after the job; operators from 1.6 on let them run (None)"
        yield tables.Note("spec.runPolicy.cleanPodPolicy", f"missing: finish.clean_up is {why}")
    yield from tables.convert_tree((*ROWS, *OLDER_ROWS), document, tables.Location("", program=program))
