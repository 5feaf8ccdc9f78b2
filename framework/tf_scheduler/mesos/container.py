"""A launch -> ContainerInfo, where the task does not just run on its agent."""

from __future__ import annotations

from typing import Any

from tf_scheduler.model.effects import Launch

Json = dict[str, Any]


def container(launch: Launch) -> Json:
    """A container of Mesos itself (mesos.proto, ContainerInfo): of a Docker image, on a network of its own, or both.

    It carries the executor and, in it, the task.
    """
    image, network = launch.image, launch.network
    if not image and network is None:
        return {}
    found: Json = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": image}}} if image else {}}
    if network is not None:
        labels = {"labels": {"labels": [{"key": key, "value": value} for key, value in network.labels.items()]}}
        found["network_infos"] = [{"name": network.name, **(labels if network.labels else {})}]
    return {"container": found}
