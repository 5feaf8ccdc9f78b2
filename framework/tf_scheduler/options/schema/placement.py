"""Schema of `placement`, `gang`, `volumes` and of the network options in `service`."""

from __future__ import annotations

from tf_scheduler.model.placement import GangMode, GpuScheduling, PlacementStrategy

from .fields import Boolean, Number, OnUpdate, Section, String, option_metadata


class PlacementSection(Section):
    strategy = String(
        load_default=PlacementStrategy.BINPACK.value,
        choices=[item.value for item in PlacementStrategy],
        metadata=option_metadata(
            "How to distribute tasks. binpack: on the fewest agents that the constraints allow; spread: "
            "on as many agents as possible."
        ),
    )
    gpu_scheduling_behavior = String(
        load_default=GpuScheduling.RESTRICTED.value,
        choices=[item.value for item in GpuScheduling],
        metadata=option_metadata("Use of GPU agents by tasks without GPUs. restricted: never; unrestricted: last."),
    )
    near = String(
        load_default="@zone,rack",
        metadata=option_metadata(
            "Fields (@region, @zone, attributes) that define neighbouring agents, from wide to narrow, "
            "separated by commas; workers are placed on neighbours. Empty: no preference."
        ),
    )
    draining_seconds = Number(
        load_default=86_400.0,
        maximum=31_536_000.0,
        unit="seconds",
        metadata=option_metadata("Time before a maintenance window during which its agents are not used.", "seconds"),
    )


ADDRESSING = ("host", "named")


class NetworkOptions(Section):
    """Network options of `service`."""

    addressing = String(
        load_default=ADDRESSING[0],
        choices=ADDRESSING,
        metadata=option_metadata(
            "Addresses of tasks. host: the agent's address and an offered port; named: port 2222 and a "
            "DC/OS name. A virtual network implies named.",
            on_update=OnUpdate.REJECTED,
        ),
    )
    virtual_network_enabled = Boolean(
        load_default=False,
        metadata=option_metadata(
            "Give each task its own address on a virtual network.",
            on_update=OnUpdate.REJECTED,
            environment="ENABLE_VIRTUAL_NETWORK",
        ),
    )
    virtual_network_name = String(
        load_default="dcos",
        metadata=option_metadata(
            "Name of the virtual network.",
            on_update=OnUpdate.REJECTED,
            environment="VIRTUAL_NETWORK_NAME",
        ),
    )
    virtual_network_plugin_labels = String(
        load_default="",
        metadata=option_metadata(
            "Labels for the plugin of the virtual network, as k_0:v_0,k_1:v_1.",
            on_update=OnUpdate.REJECTED,
            environment="VIRTUAL_NETWORK_PLUGIN_LABELS",
        ),
    )


class GangSection(Section):
    hold_seconds = Number(
        load_default=5.0,
        maximum=60.0,
        unit="seconds",
        metadata=option_metadata("Time to hold offers while some tasks have no place.", "seconds"),
    )
    mode = String(
        load_default=GangMode.LAUNCH.value,
        choices=[item.value for item in GangMode],
        metadata=option_metadata(
            "Handling of offers for an incomplete gang. launch: hold the offers, then decline them; "
            "reserve: reserve the resources until the gang is complete."
        ),
    )
    reserve_timeout = Number(
        load_default=120.0,
        minimum=1.0,
        maximum=86_400.0,
        unit="seconds",
        metadata=option_metadata("Time to keep reservations while some tasks have no place.", "seconds"),
    )


#: Volume.Mode in mesos.proto.
READ_WRITE, READ_ONLY = "RW", "RO"


class VolumeRecord(Section):
    host_path = String(
        required=True,
        non_empty=True,
        metadata=option_metadata(
            "Absolute path of an existing folder or file on the agents.", examples=["/mnt/nfs/mnist"]
        ),
    )
    container_path = String(
        required=True,
        non_empty=True,
        metadata=option_metadata(
            "Path in the task, absolute or relative to its working directory. Without an image, an "
            "absolute path must also exist on the agent.",
            examples=["data", "/data"],
        ),
    )
    mode = String(
        load_default=READ_WRITE,
        choices=(READ_WRITE, READ_ONLY),
        metadata=option_metadata("Access of tasks: RW, or RO for read-only."),
    )
    jobs = String(
        load_default="",
        metadata=option_metadata(
            "Sections whose tasks get the volume, separated by commas; empty: all.",
            examples=["worker,gpu_worker", "evaluator"],
        ),
    )
