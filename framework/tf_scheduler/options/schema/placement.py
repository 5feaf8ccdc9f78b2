"""Schema of `placement`, `gang`, `volumes` and network options in `service`."""

from __future__ import annotations

from tf_scheduler.model.placement import GpuScheduling, PlacementStrategy

from .fields import Boolean, OnUpdate, Seconds, Section, String, choice


class PlacementSection(Section):
    strategy = choice(
        "How to distribute tasks. binpack: over as few agents as the constraints allow; spread: over as many agents "
        "as possible.",
        PlacementStrategy.BINPACK,
    )
    gpu_scheduling_behavior = choice(
        "Whether tasks without GPUs use agents with GPUs. restricted: never; unrestricted: after all other agents.",
        GpuScheduling.RESTRICTED,
    )
    near = String(
        "Fields of agents (@region, @zone or attributes), from the largest area to the smallest, separated by commas. "
        "Workers are placed on agents with equal values of the fields, if possible. Empty: no preference.",
        "@zone,rack",
        title="Place near",
    )
    draining_seconds = Seconds(
        "How long before its maintenance an agent stops getting new tasks.", 86_400.0, title="Time before maintenance"
    )


ADDRESSING = ("host", "named")


class NetworkOptions(Section):
    """Network options of `service`."""

    addressing = String(
        "Addresses of tasks. host: the agent's address and an offered port; named: a DC/OS name and port 2222. Tasks "
        "on a virtual network always use `named`.",
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
        "Labels for the plugin of the virtual network, as k_0:v_0,k_1:v_1; empty: no labels.",
        update=OnUpdate.REJECTED,
        variable="VIRTUAL_NETWORK_PLUGIN_LABELS",
    )


class GangSection(Section):
    hold_seconds = Seconds(
        "Maximum time to hold offers until they fit a whole gang.", 5.0, maximum=60.0, title="Hold offers for"
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
    mode = String("Access to the volume: RW, or RO for read-only.", READ_WRITE, choices=(READ_WRITE, READ_ONLY))
    jobs = String(
        "Sections whose tasks get the volume, separated by commas; empty: all sections.",
        examples=["worker,gpu_worker", "evaluator"],
    )
