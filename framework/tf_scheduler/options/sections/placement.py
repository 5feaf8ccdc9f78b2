"""`placement`: where the tasks of the service had better run."""

from __future__ import annotations

from tf_scheduler.model.placement import GpuScheduling, PlacementStrategy
from tf_scheduler.options.fields import Number, Text

from .base import Section, about


class PlacementSection(Section):
    strategy = Text(
        load_default=PlacementStrategy.BINPACK.value,
        choices=[item.value for item in PlacementStrategy],
        metadata=about("binpack: on as few agents as the constraints allow; spread: on as many as possible."),
    )
    gpu_scheduling_behavior = Text(
        load_default=GpuScheduling.RESTRICTED.value,
        choices=[item.value for item in GpuScheduling],
        metadata=about(
            "restricted: tasks without GPUs keep off agents that offer GPUs; unrestricted: they use them last."
        ),
    )
    near = Text(
        load_default="@zone,rack",
        metadata=about(
            "Fields (@region, @zone, attributes; with commas between, wide before narrow) by which agents are near "
            "each other: workers go where their neighbours are. Empty: all agents are alike."
        ),
    )
    draining_seconds = Number(
        load_default=86_400.0,
        most=31_536_000.0,
        unit="seconds",
        metadata=about("How long before a maintenance window its agents are no longer used.", "seconds"),
    )
