"""A launch -> ContainerInfo, where the task does not just run on its agent."""

from __future__ import annotations

from typing import Any

from tf_scheduler.model.effects import Launch
from tf_scheduler.model.network import VirtualNetwork
from tf_scheduler.model.volume import Volume

Json = dict[str, Any]


def container(launch: Launch) -> Json:
    """A container of Mesos itself (mesos.proto, ContainerInfo): of a Docker image, on an own network, with folders
    of its agent, or all of that.

    It carries the executor and, in it, the task.
    """
    image, network, volumes = launch.image, launch.network, launch.volumes
    if not image and network is None and not volumes:
        return {}
    found: Json = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": image}}} if image else {}}
    if network is not None:
        found["network_infos"] = [_network(network)]
    if volumes:
        found["volumes"] = [_volume(volume) for volume in volumes]
    return {"container": found}


def _network(network: VirtualNetwork) -> Json:
    labels = {"labels": {"labels": [{"key": key, "value": value} for key, value in network.labels.items()]}}
    return {"name": network.name, **(labels if network.labels else {})}


def _volume(volume: Volume) -> Json:
    mode = "RO" if volume.read_only else "RW"
    return {"mode": mode, "container_path": volume.container_path, "host_path": volume.host_path}
