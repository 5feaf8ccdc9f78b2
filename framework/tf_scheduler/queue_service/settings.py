"""Options of the section `queue`, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tf_scheduler.model.resources import UNIT, Needs, thousandths
from tf_scheduler.queue.preemption import Preemption
from tf_scheduler.queue.shares import Order, QueueSpec

#: Queue of a service without option queue.queues.
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How the service orders its jobs. Times are seconds."""

    queues: Mapping[str, QueueSpec]
    order: Order
    preemption: Preemption
    start_timeout: float
    keep_results: int
    min_runtime: float

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> QueueSettings:
        """Return the settings of the resolved section `queue`."""
        specs = [
            QueueSpec(
                item["name"],
                float(item["weight"]),
                Needs(cpus=thousandths(item["cpus"]), mem=thousandths(item["mem"]), gpus=int(item["gpus"]) * UNIT),
                int(item["max_jobs"]),
            )
            for item in options["queues"]
        ]
        return cls(
            {spec.name: spec for spec in specs or [QueueSpec(DEFAULT)]},
            Order(options["order"]),
            Preemption(options["preemption"]),
            options["start_timeout"],
            options["keep_results"],
            options["min_runtime"],
        )
