"""What a container, and its pod, say of a task: resources, command, variables, ports, nodes, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """Whether the container asks for GPUs."""
    return bool(quantity(_amount(_resources(box), _GPU) or 0))


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


def take_resources(value: Any, spot: Spot) -> Iterator[Deed]:
    wanted = (
        ("cpus", ("cpu",), "requests", cores),
        ("mem", ("memory",), "limits", lambda amount: max(32, megabytes(amount))),
        ("disk", ("ephemeral-storage",), "limits", megabytes),
        ("gpus", _GPU, "limits", lambda amount: int(quantity(amount))),
    )
    for option, names, first, read in wanted:
        amount = _amount(value, names, first)
        if amount is not None and (option != "gpus" or quantity(amount)):
            yield Put((spot.section, option), read(amount))
    known = {name for _, names, _, _ in wanted for name in names}
    for kind in value:
        for name in value[kind]:
            if name not in known:
                yield Say(f"{spot.path}.{kind}.{name}", "was left out: Mesos agents do not offer it by that name")


def command(box: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
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


def take_restart(value: Any, spot: Spot) -> Iterator[Deed]:
    yield Put(("restart", "max_failures"), 0 if value == "Never" else 3)
    if value == "Always":
        yield Say(spot.path, "Always: a task that has finished is not launched again, one that failed is")
    if value == "ExitCode":
        yield Say(spot.path, "ExitCode: every failure counts but restart.uncounted_exit_codes (42 and 143)")
