"""A replica of a TFJob or a PyTorchJob: its count, its container, and what its pod asks of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import container, volumes
from .amounts import number, whole
from .mapping import Deed, Put, Row, Say, Spot, nothing, to, unexpected, walk
from .shape import inside, table, text

#: The container that the operator watches (training-operator, TFJobDefaultContainerName and PytorchJobDefault...).
MAIN = ("tensorflow", "pytorch")
_POD = "template.spec"
_BOX = f"{_POD}.containers[]"


def has_gpus(replica: Mapping[str, Any]) -> bool:
    """Whether its tasks ask for GPUs: they go to the section gpu_worker."""
    return container.has_gpus(main_container(replica))


def main_container(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that trains; empty when there is none."""
    containers = _containers(replica)
    return containers[_main(containers)] if containers else {}


def _main(containers: Sequence[Mapping[str, Any]]) -> int:
    """Its place among them."""
    named = [place for place, box in enumerate(containers) if box.get("name") in MAIN]
    return (named or [place for place, box in enumerate(containers) if box] or [0])[0]


def convert(replica: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    """All of one entry of `tfReplicaSpecs`."""
    main = main_container(replica)
    yield from _others(replica, spot)
    yield from walk(ROWS, _only(replica), spot)
    yield from () if replica.get("replicas") is not None else (Put((spot.section, "count"), 1),)
    if main.get("command") is None and main.get("args") is None:
        yield from container.command(main, spot)
    if not container.has_memory(main):
        yield Say(spot.path, f"asks for no memory: {spot.section}.mem stays at its default")


def _containers(replica: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Each at its place; empty where there is something else."""
    found = inside(replica, *_POD.split("."), "containers")
    return [table(box) for box in found] if isinstance(found, list) else []


def _others(replica: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    """All that is in the list of containers beside the one that trains."""
    found, main = inside(replica, *_POD.split("."), "containers"), _main(_containers(replica))
    for place, box in enumerate(found if isinstance(found, list) else ()):
        here = f"{spot.path}.{_POD}.containers[{place}]"
        if not isinstance(box, Mapping):
            yield unexpected(box, Spot(here), "it is a container: an object with name, image and command")
        elif place != main:
            name = box.get("name")
            whose = f"container {name}" if isinstance(name, str) else "a container without a name"
            yield Say(here, f"{whose} was left out: one program per task")


def _only(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the other containers; in the mounts of the one the pod's volumes."""
    containers, template = _containers(replica), replica.get("template")
    if not containers:
        return replica
    pod, main = inside(template, "spec"), _main(containers)
    boxes = [volumes.with_volumes(box, pod.get("volumes")) if at == main else {} for at, box in enumerate(containers)]
    return {**replica, "template": {**table(template), "spec": {**pod, "containers": boxes}}}


def _inside(name: str) -> str:
    return f"{_BOX}.{name}"


_ENVIRONMENT_OF_KUBERNETES = "there is no such thing on Mesos, and nothing here needs it"

ROWS = (
    Row("replicas", ("{job}.count",), "1 where it is missing", to("{job}", "count", as_=whole)),
    Row(
        "restartPolicy",
        ("{job}.restart_policy",),
        "the same words; on_failure where it is missing. How often: restart.max_failures",
        container.take_restart,
    ),
    Row("template.metadata", (), _ENVIRONMENT_OF_KUBERNETES),
    Row(_inside("name"), (), "`tensorflow` or `pytorch`, or the first, trains; others are told and left out", nothing),
    Row(_inside("image"), ("{job}.image",), "run by the Mesos containerizer", to("{job}", "image", as_=text)),
    Row(
        _inside("command"),
        ("{job}.command",),
        "with args, as one line for the shell; $(NAME) becomes a variable",
        container.take_command,
    ),
    Row(
        _inside("args"),
        ("{job}.command",),
        "without command: after what `--command` names",
        container.take_args,
    ),
    Row(_inside("workingDir"), ("{job}.command",), "`cd` before the command", nothing),
    Row(
        _inside("env"),
        ("{job}.environment", "secrets"),
        "values; secretKeyRef becomes a secret; other sources are told and left out",
        container.take_variables,
    ),
    Row(_inside("envFrom"), (), "name the variables one by one in environment, or as secrets"),
    Row(_inside("ports"), (), "ports come from offers, so that two jobs can share a machine", container.take_ports),
    Row(
        _inside("resources"),
        ("{job}.cpus", "{job}.mem", "{job}.disk", "{job}.gpus"),
        "cpu as requested; memory, ephemeral-storage and GPUs as limited. GPUs make workers gpu_worker",
        container.take_resources,
    ),
    Row(
        _inside("volumeMounts"),
        ("volumes",),
        "hostPath volumes; for others mount the share on the agents and name its folder in volumes, or in "
        "service.checkpoint_dir, or read s3, gs or hdfs",
        volumes.take_mounts,
    ),
    Row(_inside("livenessProbe"), (), "say it with health.liveness, health.target and health.interval"),
    Row(_inside("readinessProbe"), (), "a task is ready when its TensorFlow server answers"),
    Row(_inside("lifecycle"), (), "use pre_command and post_command"),
    Row(_inside("imagePullPolicy"), (), "agents ask the registry what they lack"),
    Row(_inside("securityContext"), (), "tasks run as service.user"),
    Row(f"{_POD}.volumes", ("volumes",), "those that are mounted, see volumeMounts", nothing),
    Row(f"{_POD}.initContainers", (), "use pre_command"),
    Row(
        f"{_POD}.terminationGracePeriodSeconds",
        ("{job}.kill_grace",),
        "seconds between SIGTERM and SIGKILL",
        to("{job}", "kill_grace", as_=number),
    ),
    Row(
        f"{_POD}.activeDeadlineSeconds",
        ("{job}.max_completion_time",),
        "per task",
        to("{job}", "max_completion_time", as_=number),
    ),
    Row(
        f"{_POD}.nodeSelector",
        ("{job}.placement_constraint",),
        "labels become attributes of agents; those for host, zone and region have fields of their own",
        container.take_nodes,
    ),
    Row(
        f"{_POD}.nodeName",
        ("{job}.placement_constraint",),
        "",
        lambda value, spot: [Put((spot.section, "placement_constraint"), [["hostname", "IS", text(value)]])],
    ),
    Row(f"{_POD}.affinity", (), "say it with placement_constraint (UNIQUE, MAX_PER, GROUP_BY) and placement.near"),
    Row(f"{_POD}.tolerations", (), "agents have no taints; keep others off with a Mesos role and quota"),
    Row(f"{_POD}.restartPolicy", (), "the operator overrides it as well; see restartPolicy of the replica"),
    Row(f"{_POD}.hostNetwork", (), "tasks use the network of their agent anyway", nothing),
    Row(f"{_POD}.imagePullSecrets", (), "log the agents in to the registry (Mesos flag --docker_config)"),
    Row(f"{_POD}.serviceAccountName", (), "service.service_account is the account of the whole service"),
    Row(f"{_POD}.serviceAccount", (), "service.service_account is the account of the whole service"),
    Row(f"{_POD}.schedulerName", (), _ENVIRONMENT_OF_KUBERNETES),
    Row(f"{_POD}.priorityClassName", (), "Mesos has no priorities; use roles with quota"),
    Row(f"{_POD}.securityContext", (), "tasks run as service.user"),
)
