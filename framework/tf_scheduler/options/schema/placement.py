"""Schema of `placement`, `gang`, `volumes` and network options in `service`."""

from __future__ import annotations

from tf_scheduler.model.placement import GangMode, GpuScheduling, PlacementStrategy

from .fields import Boolean, OnUpdate, Seconds, Section, String, choice


class PlacementSection(Section):
    strategy = choice(
        "How to distribute tasks. binpack: on the fewest agents that the constraints allow; spread: on as many "
        "agents as possible.",
        PlacementStrategy.BINPACK,
    )
    gpu_scheduling_behavior = choice(
        "Use of GPU agents by tasks without GPUs. restricted: never; unrestricted: last.", GpuScheduling.RESTRICTED
    )
    near = String(
        "Fields (@region, @zone, attributes) that define neighbouring agents, from wide to narrow, separated by "
        "commas; workers are placed on neighbours. Empty: no preference.",
        "@zone,rack",
    )
    draining_seconds = Seconds("Time before maintenance of an agent in which the agent gets no new tasks.", 86_400.0)


ADDRESSING = ("host", "named")


class NetworkOptions(Section):
    """Network options of `service`."""

    addressing = String(
        "Addresses of tasks. host: the agent's address and an offered port; named: port 2222 and a DC/OS name. A "
        "virtual network implies named.",
        ADDRESSING[0],
        choices=ADDRESSING,
        update=OnUpdate.REJECTED,
    )
    virtual_network_enabled = Boolean(
        "Give each task its own address on a virtual network.",
        update=OnUpdate.REJECTED,
        variable="ENABLE_VIRTUAL_NETWORK",
    )
    virtual_network_name = String(
        "Name of the virtual network.", "dcos", update=OnUpdate.REJECTED, variable="VIRTUAL_NETWORK_NAME"
    )
    virtual_network_plugin_labels = String(
        "Labels for the plugin of the virtual network, as k_0:v_0,k_1:v_1; empty: none.",
        update=OnUpdate.REJECTED,
        variable="VIRTUAL_NETWORK_PLUGIN_LABELS",
    )


class GangSection(Section):
    hold_seconds = Seconds("Time to hold the offers of an incomplete gang.", 5.0, maximum=60.0)
    mode = choice(
        "Handling of offers for an incomplete gang. launch: hold the offers, then decline them; reserve: reserve the "
        "resources until the gang is complete.",
        GangMode.LAUNCH,
    )
    reserve_timeout = Seconds(
        "Time to keep reservations of an incomplete gang, with gang.mode reserve.", 120.0, minimum=1.0, maximum=86_400.0
    )


#: Volume.Mode in mesos.proto.
READ_WRITE, READ_ONLY = "RW", "RO"


class VolumeRecord(Section):
    host_path = String(
        "Absolute path of an existing folder or file on the agents.",
        required=True,
        non_empty=True,
        examples=["/mnt/nfs/mnist"],
    )
    container_path = String(
        "Path in the task, absolute or relative to its working directory. Without an image, an absolute path must "
        "also exist on the agent.",
        required=True,
        non_empty=True,
        examples=["data", "/data"],
    )
    mode = String("Access of tasks: RW, or RO for read-only.", READ_WRITE, choices=(READ_WRITE, READ_ONLY))
    jobs = String(
        "Sections whose tasks get the volume, separated by commas; empty: all.",
        examples=["worker,gpu_worker", "evaluator"],
    )
