"""Convert a replica of a TFJob or PyTorchJob: count, container, volumes and pod."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .tables import (
    UNKNOWN,
    Action,
    Converter,
    Location,
    Note,
    Row,
    SetOption,
    attempt,
    command_line,
    convert_tree,
    cores,
    each,
    has_reference,
    ignore,
    integer,
    mapping_or_empty,
    megabytes,
    nested_value,
    number,
    one_of,
    option_row,
    quantity,
    require_bool,
    require_field,
    require_mapping,
    require_text,
    require_words,
    unexpected_value,
)

#: Part of the note on a container without a command.
MADE_UP = "the entry point of the image may add flags"
#: Part of the note on an endpoint of torchrun.
ENDPOINT = "--rdzv: omit an endpoint that names a pod"
_AMD = "amd.com/gpu"
_GPU = ("nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu", _AMD)
#: Node labels -> fields of Mesos.
_FIELDS = {
    "kubernetes.io/hostname": "hostname",
    "topology.kubernetes.io/zone": "@zone",
    "failure-domain.beta.kubernetes.io/zone": "@zone",
    "topology.kubernetes.io/region": "@region",
    "failure-domain.beta.kubernetes.io/region": "@region",
}
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
    by_name = {volume["name"]: volume for volume in volumes if isinstance(volume, Mapping) and _has_name(volume)}
    return {**box, "volumeMounts": [_joined(each, by_name) if isinstance(each, Mapping) else each for each in mounts]}


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
        kind = next((name for name in volume if name != "name"), "")
        why = f"{kind}: {_INSTEAD.get(kind, _SHARED)}" if kind else "the pod has no volume with this name"
        yield Note(location.path, f"omitted: {why}")


def _record(mount: Mapping[str, Any], folder: str, section: str) -> dict[str, str]:
    inner = require_field(mount, "subPath") if mount.get("subPath") else ""
    return {
        "host_path": f"{folder.rstrip('/')}/{inner}" if inner else folder,
        "container_path": require_field(mount, "mountPath"),
        "mode": "RO" if require_bool(mount.get("readOnly") or False) else "RW",
        "jobs": section,
    }


def _some(amount: Any) -> bool:
    try:
        return amount is not None and quantity(amount) > 0
    except ValueError:
        return False


def _amount(resources: Mapping[str, Any], names: Sequence[str], first: str = "limits") -> Any:
    """Return the limit or the request of a resource; `first` takes precedence."""
    order = (first, "requests" if first == "limits" else "limits")
    amounts = (nested_value(resources, kind, name) for kind in order for name in names)
    return next((amount for amount in amounts if amount is not None), None)


#: Option, resource, precedence of limit or request, parser.
_AMOUNTS: tuple[tuple[str, str, str, Callable[[Any], float]], ...] = (
    ("cpus", "cpu", "requests", cores),
    ("mem", "memory", "limits", lambda amount: max(32, megabytes(amount))),
    ("disk", "ephemeral-storage", "limits", megabytes),
    *(("gpus", name, "limits", lambda amount: int(quantity(amount))) for name in _GPU),
)


def _convert_resources(value: Any, location: Location) -> Iterator[Action]:
    for option, name, first, read in _AMOUNTS:
        amount = _amount(require_mapping(value), (name,), first)
        if amount is None:
            continue
        try:
            parsed = read(amount)
        except ValueError as error:
            yield unexpected_value(amount, replace(location, path=f"{location.path}: {name}"), str(error))
        else:
            yield from [SetOption((location.section, option), parsed)] if parsed or option != "gpus" else []
            yield from _amd(amount, location) if parsed and name == _AMD else ()
    for kind, amounts in value.items():
        yield from _other_resources(amounts, replace(location, path=f"{location.path}.{kind}"), kind)


def _amd(amount: Any, location: Location) -> Iterator[Action]:
    why = "Mesos agents detect only NVIDIA GPUs; configure the agents to offer AMD GPUs as the resource gpus"
    yield Note(f"{location.path}: {_AMD}", f"converted to gpus {amount}: {why}")


def _other_resources(amounts: Any, location: Location, kind: str) -> Iterator[Action]:
    """Report unknown resources in `limits` and `requests`, and unknown fields."""
    if kind not in ("limits", "requests"):
        yield Note(location.path, UNKNOWN)
    elif amounts is not None and not isinstance(amounts, Mapping):
        yield unexpected_value(amounts, location, "an object")
    else:
        supported = {name for _, name, _, _ in _AMOUNTS}
        for name in amounts or ():
            if name not in supported:
                yield Note(f"{location.path}.{name}", "omitted: not a resource of Mesos agents")


def _command(box: Mapping[str, Any], location: Location) -> Iterator[Action]:
    words = [*require_words(box.get("command"), "command"), *require_words(box.get("args"), "args")]
    if not box.get("command"):
        if not location.program:
            return  # reported once for the whole file
        line = " ".join(part for part in (location.program, command_line(words)) if part)
        yield Note(location.path, f"no command: using `{line}`; {MADE_UP}: pass them with --command")
    else:
        line = command_line(words)
    if re.search("--rdzv[-_]endpoint", line):
        why = "PET_RDZV_ENDPOINT has the address of the first task, for static and c10d"
        yield Note(location.path, f"{ENDPOINT}: {why}")
    folder = require_text(box["workingDir"]) if box.get("workingDir") else ""
    yield SetOption((location.section, "command"), f"cd {command_line([folder])} && {line}" if folder else line)


def _convert_command(_value: Any, location: Location) -> Iterator[Action]:
    yield from _command(location.siblings, location)


def _convert_args(_value: Any, location: Location) -> Iterator[Action]:
    if not location.siblings.get("command"):
        yield from _command(location.siblings, location)


def _convert_variable(variable: Mapping[str, Any], location: Location) -> Iterator[Action]:
    name, origin = require_field(variable, "name"), variable.get("valueFrom")
    if origin:
        yield from _convert_origin(name, require_mapping(origin), location)
        return
    value = "" if variable.get("value") is None else require_text(variable["value"])
    yield SetOption((location.section, "environment"), {name: value})
    if has_reference(value):
        yield Note(location.path, f"{name}: $(...) is not replaced; write the value instead")


def _convert_origin(name: str, origin: Mapping[str, Any], location: Location) -> Iterator[Action]:
    if "secretKeyRef" not in origin:
        yield Note(location.path, f"omitted: {name}: Mesos has no counterpart of valueFrom.{next(iter(origin))}")
        return
    secret = require_mapping(origin["secretKeyRef"])
    source = f"{require_field(secret, 'name')}/{require_field(secret, 'key')}"
    yield SetOption(("secrets",), [{"source": source, "env": name, "jobs": location.section}])
    yield Note(location.path, f"secret {source}: store the value in the secret store of the cluster")


def _convert_port(port: Mapping[str, Any], location: Location) -> Iterator[Action]:
    if port.get("name") not in ("tfjob-port", None) or port.get("hostPort"):
        yield Note(location.path, "omitted: the scheduler chooses the port of the task; read it from TASK_PORT")


def _convert_nodes(value: Any, location: Location) -> Iterator[Action]:
    for name, label in require_mapping(value).items():
        yield from attempt(_constraint(str(name)), label, replace(location, path=f"{location.path}.{name}"))
    own = [str(name) for name in value if name not in _FIELDS]
    if own:
        yield Note(location.path, f"give agents the attributes {', '.join(own)} in place of node labels")


def _constraint(label: str) -> Converter:
    def converter(value: Any, location: Location) -> Iterator[Action]:
        yield SetOption(
            (location.section, "placement_constraint"), [[_FIELDS.get(label, label), "IS", require_text(value)]]
        )

    return converter


#: Kubeflow's restart policy -> option value.
_RESTARTS = {"Never": "never", "OnFailure": "on_failure", "Always": "always", "ExitCode": "exit_code"}


def _convert_restart(value: Any, location: Location) -> Iterator[Action]:
    yield SetOption((location.section, "restart_policy"), one_of(_RESTARTS)(value))
    if value == "Always":
        yield Note(location.path, "Always: failed tasks restart, finished tasks do not")
    elif value == "Never":
        yield Note(location.path, "Never: the first failure of a task fails the job; `OnFailure` restarts the task")


#: The container that the operator watches (training-operator, TFJobDefaultContainerName and PytorchJobDefault...).
MAIN = ("tensorflow", "pytorch")
_POD = "template.spec"
_BOX = f"{_POD}.containers[]"


def has_gpus(replica: Mapping[str, Any]) -> bool:
    """Return whether the tasks request GPUs, and therefore belong to gpu_worker.

    False for an invalid amount.
    """
    resources = mapping_or_empty(main_container(replica).get("resources"))
    return any(_some(_amount(resources, (name,))) for name in _GPU)


def main_container(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the training container; empty if missing."""
    containers = _containers(replica)
    return containers[_main(containers)] if containers else {}


def _main(containers: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the training container."""
    mains = [place for place, box in enumerate(containers) if box.get("name") in MAIN]
    return (mains or [place for place, box in enumerate(containers) if box] or [0])[0]


def convert(replica: Mapping[str, Any], location: Location) -> Iterator[Action]:
    """Convert one entry of `tfReplicaSpecs`."""
    main = main_container(replica)
    yield from _others(replica, location)
    yield from convert_tree(ROWS, _only(replica), location)
    yield from () if replica.get("replicas") is not None else (SetOption((location.section, "count"), 1),)
    if main.get("command") is None and main.get("args") is None:
        yield from _command(main, location)
    for resource, option in (("cpu", "cpus"), ("memory", "mem")):
        if _amount(mapping_or_empty(main.get("resources")), (resource,)) is None:
            why = f"no {resource} is requested, so {location.section}.{option} {NOT_REQUESTED}"
            yield Note(f"{location.path}: {resource}", why)


def _containers(replica: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the containers; an entry of another type becomes an empty object."""
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
    """Remove all but the training container; add the pod's volumes to its mounts."""
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
        _convert_restart,
    ),
    Row("template.metadata", (), _OF_KUBERNETES),
    Row(_inside("name"), (), "container `tensorflow` or `pytorch`, or else the first; all others are omitted", ignore),
    option_row(_inside("image"), "{job}.image", "run by the Mesos containerizer", require_text),
    Row(
        _inside("command"),
        ("{job}.command",),
        "joined with args to one command line; $(NAME) becomes a shell variable",
        _convert_command,
    ),
    Row(_inside("args"), ("{job}.command",), "if command is missing: appended to `--command`", _convert_args),
    Row(_inside("workingDir"), ("{job}.command",), "`cd` before the command", ignore),
    Row(
        _inside("env"),
        ("{job}.environment", "secrets"),
        "values are copied; secretKeyRef becomes a secret; other sources are omitted",
        each(_convert_variable),
    ),
    Row(_inside("envFrom"), (), "set each variable in the option environment or secrets"),
    Row(
        _inside("ports"),
        (),
        "ports come from offers, so that two jobs can share an agent",
        each(_convert_port),
    ),
    Row(
        _inside("resources"),
        ("{job}.cpus", "{job}.mem", "{job}.disk", "{job}.gpus"),
        "cpu from requests; memory, ephemeral-storage and GPUs from limits. Workers with GPUs become gpu_worker",
        _convert_resources,
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
        _convert_nodes,
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
