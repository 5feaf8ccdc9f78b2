"""Convert a replica of a TFJob or PyTorchJob: count, container, volumes and pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import container
from .tables import Action, Location, Note, Row, SetOption, convert_tree, ignore, option_row, unexpected_value
from .values import each, integer, mapping_or_empty, nested_value, number, require_bool, require_field, require_text

#: End of the note on an amount that the file omits.
NOT_REQUESTED = "keeps its default"
#: Kind of a volume -> alternative.
_INSTEAD = {
    "emptyDir": "use the sandbox of the task",
    "secret": "use the option secrets",
    "configMap": "pack the files in the archive of service.job_url",
    "nfs": "mount the share on the agents and set its folder in the option volumes",
}
_SHARED = "mount it on the agents and set its folder in the option volumes, or use gs://"
#: Key that `with_volumes` adds to a mount; Kubernetes names contain no space.
_VOLUME = "its volume"


def with_volumes(box: Mapping[str, Any], volumes: Any) -> Mapping[str, Any]:
    """Return the container with the pod's volume added to each mount."""
    mounts = box.get("volumeMounts")
    if not isinstance(mounts, list) or not isinstance(volumes, list):
        return box
    named = {volume["name"]: volume for volume in volumes if isinstance(volume, Mapping) and _has_name(volume)}
    return {**box, "volumeMounts": [_joined(mount, named) if isinstance(mount, Mapping) else mount for mount in mounts]}


def _has_name(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("name"), str)


def _joined(mount: Mapping[str, Any], named: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    has_volume = _has_name(mount) and mount["name"] in named
    return {**mount, _VOLUME: named[mount["name"]]} if has_volume else mount


def _convert_mount(mount: Mapping[str, Any], location: Location) -> Iterator[Action]:
    volume = mount.get(_VOLUME) or {}
    if "hostPath" in volume:
        folder = nested_value(volume, "hostPath", "path")
        if not isinstance(folder, str):
            raise ValueError(f"a path in hostPath.path of the volume {volume['name']}")
        yield SetOption(("volumes",), [_record(mount, folder, location.section)])
    else:
        yield Note(location.path, f"omitted: {_reason(volume)}")


def _reason(volume: Mapping[str, Any]) -> str:
    kind = next((name for name in volume if name != "name"), "")
    return f"{kind}: {_INSTEAD.get(kind, _SHARED)}" if kind else "the pod has no volume with this name"


def _record(mount: Mapping[str, Any], folder: str, section: str) -> dict[str, str]:
    inner = require_field(mount, "subPath") if mount.get("subPath") else ""
    return {
        "host_path": f"{folder.rstrip('/')}/{inner}" if inner else folder,
        "container_path": require_field(mount, "mountPath"),
        "mode": "RO" if require_bool(mount.get("readOnly") or False) else "RW",
        "jobs": section,
    }


#: The container that the operator watches (training-operator, TFJobDefaultContainerName and PytorchJobDefault...).
MAIN = ("tensorflow", "pytorch")
_POD = "template.spec"
_BOX = f"{_POD}.containers[]"


def has_gpus(replica: Mapping[str, Any]) -> bool:
    """Return whether the tasks request GPUs, and belong to the section gpu_worker."""
    return container.has_gpus(main_container(replica))


def main_container(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the training container; empty if missing."""
    containers = _containers(replica)
    return containers[_main(containers)] if containers else {}


def _main(containers: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the training container."""
    named = [place for place, box in enumerate(containers) if box.get("name") in MAIN]
    return (named or [place for place, box in enumerate(containers) if box] or [0])[0]


def convert(replica: Mapping[str, Any], location: Location) -> Iterator[Action]:
    """Convert one entry of `tfReplicaSpecs`."""
    main = main_container(replica)
    yield from _others(replica, location)
    yield from convert_tree(ROWS, _only(replica), location)
    yield from () if replica.get("replicas") is not None else (SetOption((location.section, "count"), 1),)
    if main.get("command") is None and main.get("args") is None:
        yield from container.command(main, location)
    for resource, option in (("cpu", "cpus"), ("memory", "mem")):
        if not container.requests(main, resource):
            why = f"no {resource} is requested, so {location.section}.{option} {NOT_REQUESTED}"
            yield Note(f"{location.path}: {resource}", why)


def _containers(replica: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the containers; entries of another type are empty."""
    containers = nested_value(replica, *_POD.split("."), "containers")
    return [mapping_or_empty(box) for box in containers] if isinstance(containers, list) else []


def _others(replica: Mapping[str, Any], location: Location) -> Iterator[Action]:
    """Report all containers except the training container."""
    containers, main = nested_value(replica, *_POD.split("."), "containers"), _main(_containers(replica))
    for place, box in enumerate(containers if isinstance(containers, list) else ()):
        here = f"{location.path}.{_POD}.containers[{place}]"
        if not isinstance(box, Mapping):
            yield unexpected_value(box, Location(here), "a container: an object with name, image and command")
        elif place != main:
            name = box.get("name")
            whose = f"container {name}" if isinstance(name, str) else "a container without a name"
            yield Note(here, f"omitted: {whose}; a task has one program")


def _only(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove the other containers, and add the pod's volumes to the mounts."""
    containers, template = _containers(replica), replica.get("template")
    if not containers:
        return replica
    pod, main = nested_value(template, "spec"), _main(containers)
    boxes = [with_volumes(box, pod.get("volumes")) if at == main else {} for at, box in enumerate(containers)]
    return {**replica, "template": {**mapping_or_empty(template), "spec": {**pod, "containers": boxes}}}


def _inside(name: str) -> str:
    return f"{_BOX}.{name}"


_OF_KUBERNETES = "not needed on Mesos"
_USER = "tasks run as service.user"
_ACCOUNT = "service.service_account is the account of the whole service"

ROWS = (
    option_row("replicas", "{job}.count", "default: 1", integer),
    Row(
        "restartPolicy",
        ("{job}.restart_policy",),
        "same values; default: on_failure. Maximum number of failures: restart.max_failures",
        container.convert_restart,
    ),
    Row("template.metadata", (), _OF_KUBERNETES),
    Row(_inside("name"), (), "container `tensorflow` or `pytorch`, or else the first; all others are omitted", ignore),
    option_row(_inside("image"), "{job}.image", "run by the Mesos containerizer", require_text),
    Row(
        _inside("command"),
        ("{job}.command",),
        "joined with args to one command line; $(NAME) becomes a shell variable",
        container.convert_command,
    ),
    Row(_inside("args"), ("{job}.command",), "if command is missing: appended to `--command`", container.convert_args),
    Row(_inside("workingDir"), ("{job}.command",), "`cd` before the command", ignore),
    Row(
        _inside("env"),
        ("{job}.environment", "secrets"),
        "values are copied; secretKeyRef becomes a secret; other sources are omitted",
        each(container.convert_variable),
    ),
    Row(_inside("envFrom"), (), "set each variable in the option environment or secrets"),
    Row(
        _inside("ports"),
        (),
        "ports come from offers, so that two jobs can share an agent",
        each(container.convert_port),
    ),
    Row(
        _inside("resources"),
        ("{job}.cpus", "{job}.mem", "{job}.disk", "{job}.gpus"),
        "cpu from requests; memory, ephemeral-storage and GPUs from limits. Workers with GPUs become gpu_worker",
        container.convert_resources,
    ),
    Row(
        _inside("volumeMounts"),
        ("volumes",),
        "hostPath volumes are converted; mount others on the agents and set the folder in volumes or "
        "service.checkpoint_dir, or use a URL, such as s3://",
        each(_convert_mount),
    ),
    Row(_inside("livenessProbe"), (), "use health.liveness, health.target and health.interval"),
    Row(_inside("readinessProbe"), (), "a task is ready when its TensorFlow server answers"),
    Row(_inside("lifecycle"), (), "use pre_command and post_command"),
    Row(_inside("imagePullPolicy"), (), "agents pull missing images"),
    Row(_inside("securityContext"), (), _USER),
    Row(f"{_POD}.volumes", ("volumes",), "converted if mounted, see volumeMounts", ignore),
    Row(f"{_POD}.initContainers", (), "use pre_command"),
    option_row(
        f"{_POD}.terminationGracePeriodSeconds", "{job}.kill_grace", "seconds between SIGTERM and SIGKILL", number
    ),
    option_row(f"{_POD}.activeDeadlineSeconds", "{job}.max_completion_time", "per task", number),
    Row(
        f"{_POD}.nodeSelector",
        ("{job}.placement_constraint",),
        "labels are matched with agent attributes; those for host, zone and region with hostname, @zone and @region",
        container.convert_nodes,
    ),
    option_row(
        f"{_POD}.nodeName", "{job}.placement_constraint", "", lambda value: [["hostname", "IS", require_text(value)]]
    ),
    Row(f"{_POD}.affinity", (), "use placement_constraint (UNIQUE, MAX_PER, GROUP_BY) and placement.near"),
    Row(f"{_POD}.tolerations", (), "agents have no taints; reserve agents with a Mesos role and quota"),
    Row(f"{_POD}.restartPolicy", (), "overridden by the restartPolicy of the replica, as in Kubeflow"),
    Row(f"{_POD}.hostNetwork", (), "tasks use the network of their agent", ignore),
    Row(f"{_POD}.imagePullSecrets", (), "configure the registry login of the agents (Mesos flag --docker_config)"),
    Row(f"{_POD}.serviceAccountName", (), _ACCOUNT),
    Row(f"{_POD}.serviceAccount", (), _ACCOUNT),
    Row(f"{_POD}.schedulerName", (), _OF_KUBERNETES),
    Row(f"{_POD}.priorityClassName", (), "Mesos has no priorities; use roles with quota"),
    Row(f"{_POD}.securityContext", (), _USER),
)
