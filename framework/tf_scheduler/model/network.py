"""How tasks reach each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VirtualNetwork:
    """Each container has an address of its own; what names it is known before it is launched."""

    #: As the agents' CNI configuration, or DC/OS, has it.
    name: str
    #: For the network's plugin.
    labels: Mapping[str, str] = field(default_factory=dict)
