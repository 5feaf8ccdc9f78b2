"""Convert Kubernetes containers and pods: resources, commands, ports, nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import values
from .tables import UNKNOWN, Action, Converter, Location, Note, SetOption, attempt, unexpected_value

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


def has_gpus(box: Mapping[str, Any]) -> bool:
    """Return whether the container requests GPUs; False for an invalid amount."""
    return any(_some(_amount(values.mapping_or_empty(box.get("resources")), (name,))) for name in _GPU)


def _some(amount: Any) -> bool:
    try:
        return amount is not None and values.quantity(amount) > 0
    except ValueError:
        return False


def requests(box: Mapping[str, Any], resource: str) -> bool:
    """Return whether the container requests the resource."""
    return _amount(values.mapping_or_empty(box.get("resources")), (resource,)) is not None


def _amount(resources: Mapping[str, Any], names: Sequence[str], first: str = "limits") -> Any:
    """Return limit or request; `first` takes precedence."""
    order = (first, "requests" if first == "limits" else "limits")
    amounts = (values.nested_value(resources, kind, name) for kind in order for name in names)
    return next((amount for amount in amounts if amount is not None), None)


#: Option, resource, precedence of limit or request, parser.
_AMOUNTS: tuple[tuple[str, str, str, Callable[[Any], float]], ...] = (
    ("cpus", "cpu", "requests", values.cores),
    ("mem", "memory", "limits", lambda amount: max(32, values.megabytes(amount))),
    ("disk", "ephemeral-storage", "limits", values.megabytes),
    *(("gpus", name, "limits", lambda amount: int(values.quantity(amount))) for name in _GPU),
)


def convert_resources(value: Any, location: Location) -> Iterator[Action]:
    for option, name, first, read in _AMOUNTS:
        amount = _amount(values.require_mapping(value), (name,), first)
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


def command(box: Mapping[str, Any], location: Location) -> Iterator[Action]:
    words = [*values.require_words(box.get("command"), "command"), *values.require_words(box.get("args"), "args")]
    if not box.get("command"):
        if not location.program:
            return  # reported once for the whole file
        line = " ".join(part for part in (location.program, values.command_line(words)) if part)
        yield Note(location.path, f"no command: using `{line}`; {MADE_UP}: pass them with --command")
    else:
        line = values.command_line(words)
    if re.search("--rdzv[-_]endpoint", line):
        kept = "PET_RDZV_ENDPOINT has the address of the first task, for static and c10d"
        yield Note(location.path, f"{ENDPOINT}: {kept}")
    folder = values.require_text(box["workingDir"]) if box.get("workingDir") else ""
    yield SetOption((location.section, "command"), f"cd {values.command_line([folder])} && {line}" if folder else line)


def convert_command(_value: Any, location: Location) -> Iterator[Action]:
    yield from command(location.siblings, location)


def convert_args(_value: Any, location: Location) -> Iterator[Action]:
    if not location.siblings.get("command"):
        yield from command(location.siblings, location)


def convert_variable(variable: Mapping[str, Any], location: Location) -> Iterator[Action]:
    name, origin = values.require_field(variable, "name"), variable.get("valueFrom")
    if origin:
        yield from _convert_origin(name, values.require_mapping(origin), location)
        return
    value = "" if variable.get("value") is None else values.require_text(variable["value"])
    yield SetOption((location.section, "environment"), {name: value})
    if values.has_reference(value):
        yield Note(location.path, f"{name}: $(...) is not replaced; write the value instead")


def _convert_origin(name: str, origin: Mapping[str, Any], location: Location) -> Iterator[Action]:
    if "secretKeyRef" not in origin:
        yield Note(location.path, f"omitted: {name}: Mesos has no counterpart of valueFrom.{next(iter(origin))}")
        return
    secret = values.require_mapping(origin["secretKeyRef"])
    source = f"{values.require_field(secret, 'name')}/{values.require_field(secret, 'key')}"
    yield SetOption(("secrets",), [{"source": source, "env": name, "jobs": location.section}])
    yield Note(location.path, f"secret {source}: store the value in the secret store of the cluster")


def convert_port(port: Mapping[str, Any], location: Location) -> Iterator[Action]:
    if port.get("name") not in ("tfjob-port", None) or port.get("hostPort"):
        yield Note(location.path, "omitted: the scheduler chooses the port of the task; read it from TASK_PORT")


def convert_nodes(value: Any, location: Location) -> Iterator[Action]:
    for name, label in values.require_mapping(value).items():
        yield from attempt(_constraint(str(name)), label, replace(location, path=f"{location.path}.{name}"))
    own = [str(name) for name in value if name not in _FIELDS]
    if own:
        yield Note(location.path, f"give agents the attributes {', '.join(own)} in place of node labels")


def _constraint(label: str) -> Converter:
    def converter(value: Any, location: Location) -> Iterator[Action]:
        yield SetOption(
            (location.section, "placement_constraint"), [[_FIELDS.get(label, label), "IS", values.require_text(value)]]
        )

    return converter


#: Kubeflow's restart policy -> option value.
_RESTARTS = {"Never": "never", "OnFailure": "on_failure", "Always": "always", "ExitCode": "exit_code"}


def convert_restart(value: Any, location: Location) -> Iterator[Action]:
    yield SetOption((location.section, "restart_policy"), values.one_of(_RESTARTS)(value))
    if value == "Always":
        yield Note(location.path, "Always: failed tasks restart, finished tasks do not")
