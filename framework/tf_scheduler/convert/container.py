"""What a container, and its pod, say of a task: resources, command, variables, ports, nodes, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .amounts import command_line, cores, megabytes, quantity, refers
from .mapping import Deed, Put, Say, Spot, Take, at, attempt, unexpected
from .shape import each, inside, mapping, needed, table, text, words

_AMD = "amd.com/gpu"
_GPU = ("nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu", _AMD)
#: Labels of nodes that Mesos has fields for.
_FIELDS = {
    "kubernetes.io/hostname": "hostname",
    "topology.kubernetes.io/zone": "@zone",
    "failure-domain.beta.kubernetes.io/zone": "@zone",
    "topology.kubernetes.io/region": "@region",
    "failure-domain.beta.kubernetes.io/region": "@region",
}


def has_gpus(box: Mapping[str, Any]) -> bool:
    """Whether the container asks for GPUs. Of an amount that nobody can read `take_resources` tells."""
    return any(_some(_amount(table(box.get("resources")), (name,))) for name in _GPU)


def _some(amount: Any) -> bool:
    try:
        return amount is not None and quantity(amount) > 0
    except ValueError:
        return False


def has_memory(box: Mapping[str, Any]) -> bool:
    """Whether it says how much memory it needs."""
    return _amount(table(box.get("resources")), ("memory",)) is not None


def _amount(resources: Mapping[str, Any], names: Sequence[str], first: str = "limits") -> Any:
    """The limit, or else what is requested; `first` says which counts where both are given."""
    order = (first, "requests" if first == "limits" else "limits")
    found = [inside(resources, kind, name) for kind in order for name in names]
    return next((value for value in found if value is not None), None)


#: Option, its resource, which of limit and request counts where both are given, how it is read.
_AMOUNTS: tuple[tuple[str, str, str, Callable[[Any], float]], ...] = (
    ("cpus", "cpu", "requests", cores),
    ("mem", "memory", "limits", lambda amount: max(32, megabytes(amount))),
    ("disk", "ephemeral-storage", "limits", megabytes),
    *(("gpus", name, "limits", lambda amount: int(quantity(amount))) for name in _GPU),
)


def take_resources(value: Any, spot: Spot) -> Iterator[Deed]:
    for option, name, first, read in _AMOUNTS:
        amount = _amount(mapping(value), (name,), first)
        if amount is None:
            continue
        try:
            found = read(amount)
        except ValueError as error:
            yield unexpected(amount, at(spot, f"{spot.path}: {name}"), str(error))
        else:
            yield from [Put((spot.section, option), found)] if found or option != "gpus" else []
            yield from _amd(amount, spot) if found and name == _AMD else ()
    for kind, amounts in value.items():
        yield from _other_resources(amounts, at(spot, f"{spot.path}.{kind}"), kind)


def _amd(amount: Any, spot: Spot) -> Iterator[Deed]:
    why = "Mesos agents find only GPUs of NVIDIA by themselves; see that yours offer AMD's as gpus"
    yield Say(f"{spot.path}: {_AMD}", f"{amount} became gpus: {why}")


def _other_resources(amounts: Any, spot: Spot, kind: str) -> Iterator[Deed]:
    """Of `limits` or `requests`, what there is no row for; all of anything else."""
    if kind not in ("limits", "requests"):
        yield Say(spot.path, "is not known here and was left out")
    elif amounts is not None and not isinstance(amounts, Mapping):
        yield unexpected(amounts, spot, "it is an object, with names and values")
    else:
        known = {name for _, name, _, _ in _AMOUNTS}
        for name in amounts or ():
            if name not in known:
                yield Say(f"{spot.path}.{name}", "was left out: Mesos agents do not offer it by that name")


def command(box: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    told = [*words(box.get("command"), "command"), *words(box.get("args"), "args")]
    if not box.get("command"):
        if not spot.program:
            return  # told at the end, for the whole file
        line = " ".join(part for part in (spot.program, command_line(told)) if part)
    else:
        line = command_line(told)
    folder = text(box["workingDir"]) if box.get("workingDir") else ""
    yield Put((spot.section, "command"), f"cd {command_line([folder])} && {line}" if folder else line)


def take_command(_value: Any, spot: Spot) -> Iterator[Deed]:
    yield from command(spot.siblings, spot)


def take_args(_value: Any, spot: Spot) -> Iterator[Deed]:
    if not spot.siblings.get("command"):
        yield from command(spot.siblings, spot)


def take_variables(value: Any, spot: Spot) -> Iterator[Deed]:
    yield from each(value, spot, _take_variable)


def _take_variable(variable: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    name, origin = needed(variable, "name"), variable.get("valueFrom")
    if origin:
        yield from _take_origin(name, mapping(origin), spot)
        return
    value = "" if variable.get("value") is None else text(variable["value"])
    yield Put((spot.section, "environment"), {name: value})
    if refers(value):
        yield Say(spot.path, f"{name}: $(...) in it is not replaced here; write the value out")


def _take_origin(name: str, origin: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    if "secretKeyRef" not in origin:
        yield Say(spot.path, f"was left out: {name} comes from {next(iter(origin))}, which Mesos lacks")
        return
    secret = mapping(origin["secretKeyRef"])
    source = f"{needed(secret, 'name')}/{needed(secret, 'key')}"
    yield Put(("secrets",), [{"source": source, "env": name, "jobs": spot.section}])
    yield Say(spot.path, f"secret {source}: put the value there in the secret store of the cluster")


def take_ports(value: Any, spot: Spot) -> Iterator[Deed]:
    yield from each(value, spot, _take_port)


def _take_port(port: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    if port.get("name") not in ("tfjob-port", None) or port.get("hostPort"):
        yield Say(spot.path, "was left out: the task's port comes from the offer, as TASK_PORT")


def take_nodes(value: Any, spot: Spot) -> Iterator[Deed]:
    for name, wanted in mapping(value).items():
        yield from attempt(_wanting(str(name)), wanted, at(spot, f"{spot.path}.{name}"))
    own = [str(name) for name in value if name not in _FIELDS]
    if own:
        yield Say(spot.path, f"give agents the attributes {', '.join(own)}: they stand for the labels of nodes")


def _wanting(label: str) -> Take:
    def take(value: Any, spot: Spot) -> Iterator[Deed]:
        yield Put((spot.section, "placement_constraint"), [[_FIELDS.get(label, label), "IS", text(value)]])

    return take


#: Kubeflow's word -> ours.
_RESTARTS = {"Never": "never", "OnFailure": "on_failure", "Always": "always", "ExitCode": "exit_code"}


def take_restart(value: Any, spot: Spot) -> Iterator[Deed]:
    if not isinstance(value, str) or value not in _RESTARTS:
        raise ValueError(f"it is one of {', '.join(_RESTARTS)}")
    yield Put((spot.section, "restart_policy"), _RESTARTS[value])
    if value == "Always":
        yield Say(spot.path, "Always: a task that has finished is not launched again, one that failed is")
