"""Placement settings: constraints, strategy and GPU scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Operator(str, Enum):
    """Operators of Marathon constraints (dcos-commons, MarathonConstraintParser)."""

    #: At most one task per value.
    UNIQUE = "UNIQUE"
    MAX_PER = "MAX_PER"
    #: Only this value; the SDK treats CLUSTER and IS alike.
    CLUSTER = "CLUSTER"
    IS = "IS"
    IS_NOT = "IS_NOT"
    #: The whole value matches a regular expression.
    LIKE = "LIKE"
    UNLIKE = "UNLIKE"
    #: Round robin over the values; the parameter is the number of values.
    GROUP_BY = "GROUP_BY"


HOSTNAME, REGION, ZONE = "hostname", "@region", "@zone"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One row of a `placement_constraint`; it counts the tasks of its options section."""

    #: `hostname`, `@region`, `@zone`, or the name of an agent attribute.
    field: str
    operator: Operator
    #: Value, regular expression or number, depending on the operator; empty if unused.
    parameter: str = ""

    def __str__(self) -> str:
        return ":".join([self.field, self.operator.value, *([self.parameter] if self.parameter else [])])

    @property
    def number(self) -> int:
        """Number of MAX_PER or GROUP_BY, 0 if missing; 1 for UNIQUE."""
        return 1 if self.operator is Operator.UNIQUE else int(self.parameter or 0)


@dataclass(frozen=True, slots=True)
class AgentLocation:
    """Location and attributes of an agent, as placement constraints see them."""

    hostname: str
    #: Fault domain; empty if the agent has none (Mesos documentation, fault-domains).
    region: str = ""
    zone: str = ""
    #: Attribute name -> value as text.
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def value(self, name: str) -> str | None:
        """Return a constraint field's value; `None` if the agent has no such attribute."""
        if name == HOSTNAME:
            return self.hostname
        if name in (REGION, ZONE):
            return (self.region if name == REGION else self.zone) or None
        return self.attributes.get(name)


class PlacementStrategy(str, Enum):
    """Which of the suitable agents a task gets."""

    #: As few agents as the constraints allow.
    BINPACK = "binpack"
    #: As many agents as possible.
    SPREAD = "spread"


class GpuScheduling(str, Enum):
    """Use of GPU agents by tasks without GPUs (Marathon, --gpu_scheduling_behavior)."""

    #: Tasks without GPUs do not use agents that offer GPUs.
    RESTRICTED = "restricted"
    #: Tasks without GPUs use agents with GPUs only after all others.
    UNRESTRICTED = "unrestricted"


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """Placement settings of all tasks."""

    strategy: PlacementStrategy = PlacementStrategy.BINPACK
    gpu_scheduling_behavior: GpuScheduling = GpuScheduling.RESTRICTED
    #: Empty for the region of the Mesos master.
    region: str = ""
    #: Fields that define neighbourhoods of agents, from wide to narrow.
    near: tuple[str, ...] = (ZONE, "rack")
    #: Agents are not used from this many seconds before a maintenance window.
    draining_seconds: float = 86_400.0
