"""How the tasks of the service reach each other."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Text

from .base import Change, Section, about

ADDRESSING = ("host", "named")


class NetworkOptions(Section):
    """Part of `service`."""

    addressing = Text(
        load_default=ADDRESSING[0],
        choices=ADDRESSING,
        metadata=about(
            "host: the agent's address and an offered port; named: port 2222 and a DC/OS name. A virtual network "
            "implies named.",
            change=Change.FIXED,
        ),
    )
    virtual_network_enabled = Flag(
        load_default=False,
        metadata=about(
            "Give each task an address of its own on a virtual network.",
            change=Change.FIXED,
            environment="ENABLE_VIRTUAL_NETWORK",
        ),
    )
    virtual_network_name = Text(
        load_default="dcos",
        metadata=about(
            "Name of the virtual network.",
            change=Change.FIXED,
            environment="VIRTUAL_NETWORK_NAME",
        ),
    )
    virtual_network_plugin_labels = Text(
        load_default="",
        metadata=about(
            "Labels for the network's plugin, as k_0:v_0,k_1:v_1.",
            change=Change.FIXED,
            environment="VIRTUAL_NETWORK_PLUGIN_LABELS",
        ),
    )
