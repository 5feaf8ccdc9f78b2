"""Names of tasks on the network of containers."""

from __future__ import annotations

from typing import Any

from mesos_local.network import task_names


def task(name: str, state: str, *statuses: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "statuses": [{"container_status": {"network_infos": infos}} for infos in statuses],
    }


def test_running_tasks_have_the_names_of_dcos() -> None:
    """The latest status with an address counts; a name has no slashes."""
    old, new = ([{"ip_addresses": [{"ip_address": f"10.88.1.{n}"}]}] for n in (2, 3))
    tasks = [
        task("worker-0", "TASK_RUNNING", old, new, [{"name": "dcos"}]),
        task("worker-1", "TASK_STARTING", old),
        task("worker-2", "TASK_RUNNING"),
    ]

    names = task_names({"frameworks": [{"name": "Dev/mnist", "tasks": tasks}]})

    assert {"worker-0.devmnist.containerip.dcos.thisdcos.directory": "10.88.1.3"} == names
    assert {} == task_names({})
