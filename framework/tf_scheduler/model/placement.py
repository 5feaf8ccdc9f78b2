"""Where tasks may run, and where they had better run: constraints and preferences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Operator(str, Enum):
    """The operators of Marathon's constraints that the DC/OS SDK accepts (dcos-commons, MarathonConstraintParser)."""

    #: At most one task per value.
    UNIQUE = "UNIQUE"
    #: At most N tasks per value.
    MAX_PER = "MAX_PER"
    #: Only this value; the SDK makes no difference to IS.
    CLUSTER = "CLUSTER"
    IS = "IS"
    IS_NOT = "IS_NOT"
    #: The whole value matches a regular expression.
    LIKE = "LIKE"
    UNLIKE = "UNLIKE"
    #: Round robin over the values; N: how many values there are.
    GROUP_BY = "GROUP_BY"


HOSTNAME, REGION, ZONE = "hostname", "@region", "@zone"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One row of a `placement_constraint`. Tasks are counted within their own section of the options."""

    #: `hostname`, `@region`, `@zone`, or the name of an agent attribute.
    field: str
    operator: Operator
    #: A value, a regular expression or a number, as the operator wants it; empty where it wants none.
    parameter: str = ""

    def __str__(self) -> str:
        return ":".join([self.field, self.operator.value, *([self.parameter] if self.parameter else [])])

    @property
    def number(self) -> int:
        """N of MAX_PER and GROUP_BY, 1 for UNIQUE; 0 when none is given."""
        return 1 if self.operator is Operator.UNIQUE else int(self.parameter or 0)


@dataclass(frozen=True, slots=True)
class Place:
    """What constraints look at: the agent that a task runs on, or could run on."""

    hostname: str
    #: Names of the agent's fault domain; empty when it has none (Mesos documentation, fault-domains).
    region: str = ""
    zone: str = ""
    #: Attribute name -> its value as text.
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def value(self, name: str) -> str | None:
        """The value of a constraint's field; None when the agent has no such attribute."""
        if name == HOSTNAME:
            return self.hostname
        if name in (REGION, ZONE):
            return (self.region if name == REGION else self.zone) or None
        return self.attributes.get(name)


class PlacementStrategy(str, Enum):
    """What is better where several agents will do."""

    #: As few agents as the constraints allow.
    BINPACK = "binpack"
    #: As many agents as possible.
    SPREAD = "spread"


class GpuScheduling(str, Enum):
    """Marathon's words (its flag --gpu_scheduling_behavior)."""

    #: Tasks without GPUs keep off agents that offer GPUs.
    RESTRICTED = "restricted"
    #: They use such agents, too, after all others.
    UNRESTRICTED = "unrestricted"


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """What holds for every task of the service."""

    strategy: PlacementStrategy = PlacementStrategy.BINPACK
    gpu_scheduling_behavior: GpuScheduling = GpuScheduling.RESTRICTED
    #: Empty: the region of the Mesos master.
    region: str = ""
    #: Fields by which agents are near each other, from wide to narrow.
    near: tuple[str, ...] = (ZONE, "rack")
    #: Seconds before a maintenance window from which on its agents are not used.
    draining_seconds: float = 86_400.0


class GangMode(str, Enum):
    """How the places of a gang are kept until it is complete."""

    #: Offers are held for a short while, then released.
    LAUNCH = "launch"
    #: What is found is reserved, until the gang is complete or the time is up.
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True)
class GangSpec:
    """How the tasks that are launched all or none wait for each other. Times in seconds."""

    #: How long offers are held while the gang is not complete.
    hold_seconds: float = 5.0
    mode: GangMode = GangMode.LAUNCH
    #: How long reservations are kept while the gang is not complete.
    reserve_timeout: float = 120.0
