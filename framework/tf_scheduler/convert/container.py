"""What a container, and its pod, say of a task: resources, command, variables, ports, nodes, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .amounts import command_line, cores, megabytes, quantity, refers
from .mapping import Deed, Put, Say, Spot

_GPU = ("nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu", "amd.com/gpu")
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
    return any(_some(_amount(_resources(box), (name,))) for name in _GPU)


def _some(amount: Any) -> bool:
    try:
        return amount is not None and quantity(amount) > 0
    except ValueError:
        return False


def has_memory(box: Mapping[str, Any]) -> bool:
    """Whether it says how much memory it needs."""
    return _amount(_resources(box), ("memory",)) is not None


def _resources(box: Mapping[str, Any]) -> Mapping[str, Any]:
    return box.get("resources") or {}


def _amount(resources: Mapping[str, Any], names: Sequence[str], first: str = "limits") -> Any:
    """The limit, or else what is requested; `first` says which counts where both are given."""
    order = (first, "requests" if first == "limits" else "limits")
    found = [(resources.get(kind) or {}).get(name) for kind in order for name in names]
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
        amount = _amount(value, (name,), first)
        if amount is None:
            continue
        try:
            found = read(amount)
        except ValueError as error:
            yield Say(f"{spot.path}: {name}", f"was left out: {amount!r} is not what was expected there ({error})")
        else:
            yield from [Put((spot.section, option), found)] if found or option != "gpus" else []
    known = {name for _, name, _, _ in _AMOUNTS}
    for kind in value:
        for name in value[kind]:
            if name not in known:
                yield Say(f"{spot.path}.{kind}.{name}", "was left out: Mesos agents do not offer it by that name")


def command(box: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    if isinstance(box.get("command"), str) or isinstance(box.get("args"), str):
        raise ValueError("command and args are lists of words")
    words = [*(box.get("command") or ()), *(box.get("args") or ())]
    if not box.get("command"):
        if not spot.program:
            return  # told at the end, for the whole file
        line = " ".join(part for part in (spot.program, command_line(words)) if part)
    else:
        line = command_line(words)
    folder = box.get("workingDir")
    yield Put((spot.section, "command"), f"cd {command_line([folder])} && {line}" if folder else line)


def take_command(_value: Any, spot: Spot) -> Iterator[Deed]:
    yield from command(spot.siblings, spot)


def take_args(_value: Any, spot: Spot) -> Iterator[Deed]:
    if not spot.siblings.get("command"):
        yield from command(spot.siblings, spot)


def take_variables(value: Any, spot: Spot) -> Iterator[Deed]:
    for place, variable in enumerate(value):
        name, path = variable["name"], f"{spot.path}[{place}]"
        secret = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if secret:
            source = f"{secret['name']}/{secret['key']}"
            yield Put(("secrets",), [{"source": source, "env": name, "jobs": spot.section}])
            yield Say(path, f"secret {source}: put the value there in the secret store of the cluster")
        elif "valueFrom" in variable:
            yield Say(path, f"was left out: {name} comes from {next(iter(variable['valueFrom']))}, which Mesos lacks")
        else:
            text = str(variable.get("value") or "")
            yield Put((spot.section, "environment"), {name: text})
            if refers(text):
                yield Say(path, f"{name}: $(...) in it is not replaced here; write the value out")


def take_ports(value: Any, spot: Spot) -> Iterator[Deed]:
    for place, port in enumerate(value):
        if port.get("name") not in ("tfjob-port", None) or port.get("hostPort"):
            yield Say(f"{spot.path}[{place}]", "was left out: the task's port comes from the offer, as TASK_PORT")


def take_nodes(value: Any, spot: Spot) -> Iterator[Deed]:
    yield Put((spot.section, "placement_constraint"), [[_FIELDS.get(k, k), "IS", str(v)] for k, v in value.items()])
    own = [name for name in value if name not in _FIELDS]
    if own:
        yield Say(spot.path, f"give agents the attributes {', '.join(own)}: they stand for the labels of nodes")


#: Kubeflow's word -> ours.
_RESTARTS = {"Never": "never", "OnFailure": "on_failure", "Always": "always", "ExitCode": "exit_code"}


def take_restart(value: Any, spot: Spot) -> Iterator[Deed]:
    if value not in _RESTARTS:
        raise ValueError(f"it is one of {', '.join(_RESTARTS)}")
    yield Put((spot.section, "restart_policy"), _RESTARTS[value])
    if value == "Always":
        yield Say(spot.path, "Always: a task that has finished is not launched again, one that failed is")
