"""Partitions between agents, and training over the network of containers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.conftest import PLAIN, Containers, job
from kit.containers import control_groups, dropped, mounts, run_inside
from kit.waiting import wait_until
from mesos_local.images import read_python
from mesos_local.network import GATEWAY, ZONE
from own_runtimes import need_horovod, need_torch, python_of

EXAMPLES = Path(__file__).parents[2] / "examples"


FROM_MASTER, TO_MASTER = f"INPUT -s {GATEWAY}", f"OUTPUT -d {GATEWAY}"
LOSS = "-m statistic --mode random --probability 0.2"


@pytest.mark.parametrize("rules", [(TO_MASTER,), (FROM_MASTER,)], ids=["to", "from"])
def test_task_of_an_agent_that_is_cut_off_is_replaced(
    containers: Containers, tmp_path: Path, rules: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """The first copy ends when the agent is back."""
    name = f"cut-{request.node.callspec.id}"
    command = "echo $$ > /gate/$(cat /proc/sys/kernel/random/uuid).started; until [ -e /gate/end ]; do sleep 0.1; done"
    options = job(name, command, {"image": PLAIN, "unreachable_timeout": 1.0})
    options["volumes"] = [{"host_path": str(tmp_path), "container_path": "/gate"}]
    with containers.started(options) as run:
        wait_until(lambda: len(list(tmp_path.glob("*.started"))) == 1)
        (agent,) = wait_until(
            lambda: [task.hostname for task in containers.cluster.state().tasks if task.state == "TASK_RUNNING"]
        )
        with dropped(containers.cluster, agent, *rules):
            wait_until(lambda: len(list(tmp_path.glob("*.started"))) == 2)
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert "succeeded" == report["state"], report
    containers.cluster.wait_registered()


def test_lost_packets_do_not_fail_a_job(containers: Containers) -> None:
    """A fifth of the packets between an agent and the master, in both directions."""
    with dropped(containers.cluster, "agent-1", f"{FROM_MASTER} {LOSS}", f"{TO_MASTER} {LOSS}"):
        report = containers.run(job("lossy", "sleep 3", {"image": PLAIN, "count": 4}))

    assert "succeeded" == report["state"], report


def traces(containers: Containers) -> dict[str, frozenset[str]]:
    """What containers use besides processes."""
    links = (run_inside(containers.cluster, name, "ip -o link") for name in containers.cluster.agents)
    return {
        "interfaces": frozenset(word for text in links for word in text.split() if word.startswith("veth")),
        "mounts": mounts(containers.cluster),
        "control groups": frozenset(control_groups(containers.cluster.directory, "agent-*/*/")),
    }


def test_container_of_a_killed_agent_runs_on_and_leaves_nothing(containers: Containers, tmp_path: Path) -> None:
    """Its executor connects again to the agent, which starts on its work directory."""
    command = "cat /proc/sys/kernel/random/uuid >> /gate/started; until [ -e /gate/end ]; do sleep 0.1; done"
    options = job("restarted", command, {"image": PLAIN}, virtual_network_enabled=True)
    options["volumes"] = [{"host_path": str(tmp_path), "container_path": "/gate"}]
    before = traces(containers)
    with containers.started(options) as run:
        (agent,) = wait_until(
            lambda: [task.hostname for task in containers.cluster.state().tasks if task.state == "TASK_RUNNING"]
        )
        wait_until((tmp_path / "started").exists)
        during = traces(containers)
        node = containers.cluster.agents[agent]
        node.kill()
        node.start()
        containers.cluster.wait_registered()
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert "succeeded" == report["state"], report
    assert 1 == len((tmp_path / "started").read_text().splitlines())
    assert all(during[kind] - before[kind] for kind in before)
    # Mesos may still remove containers of earlier tests.
    wait_until(lambda: all(traces(containers)[kind] <= before[kind] for kind in before))


def test_services_use_one_port_on_one_agent(containers: Containers, tmp_path: Path) -> None:
    """Each reads the name of the other at port 2222 while both listen there."""

    def service(own: str, other: str) -> dict[str, Any]:
        url = f"http://worker-0.{other}.{ZONE}:2222/name"
        read = f"python3 -c 'from urllib.request import urlopen; print(urlopen(\"{url}\").read().decode())'"
        command = (
            f"echo {own} > name; python3 -m http.server 2222 > served & until {read}; do sleep 0.2; done; "
            f"touch /gate/{own}; until [ -e /gate/{other} ]; do sleep 0.1; done; kill $!"
        )
        placed = {"image": PLAIN, "placement_constraint": "hostname:LIKE:agent-1"}
        options = job(own, command, placed, virtual_network_enabled=True, addressing="named")
        options["volumes"] = [{"host_path": str(tmp_path), "container_path": "/gate"}]
        return options

    with containers.started(service("left", "right")) as left, containers.started(service("right", "left")) as right:
        reports = [json.loads(run.communicate()[0]) for run in (left, right)]

    assert ["succeeded", "succeeded"] == [report["state"] for report in reports], reports
    assert [["right"], ["left"]] == [containers.output(report).split() for report in reports]


def test_task_that_moves_restarts_no_other_task(containers: Containers, tmp_path: Path) -> None:
    """With addresses of agents all would restart; a name stays the same."""
    small = {"count": 2, "cpus": 0.2, "mem": 64, "disk": 0, "image": PLAIN}
    command = "mktemp /gate/$TASK_NAME.XXXXXX; until [ -e /gate/end ]; do sleep 0.1; done"
    options = job("moves", command, small, strategy="between_graph", virtual_network_enabled=True, addressing="named")
    options |= {"parameter_server": small, "volumes": [{"host_path": str(tmp_path), "container_path": "/gate"}]}

    def starts() -> list[str]:
        return sorted(path.stem for path in tmp_path.iterdir())

    with containers.started(options) as run:
        wait_until(lambda: len(starts()) == 4)
        containers.command("pod", "replace", "worker-1", "--name", "moves", "--yes")
        wait_until(lambda: len(starts()) > 4)
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert "succeeded" == report["state"], report
    assert ["end", "ps-0", "ps-1", "worker-0", "worker-1", "worker-1"] == starts()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("example", "runtime", "need"), [("digits", "horovod", need_horovod), ("pytorch_ddp", "torch", need_torch)]
)
def test_cluster_of_containers_trains_by_names(
    containers: Containers, tmp_path: Path, example: str, runtime: str, need: Callable[[], None]
) -> None:
    """Over two agents; the programs fail with a low accuracy.

    The runtime of Horovod has the smallest TensorFlow with scikit-learn.

    Slow: containers with a TensorFlow or PyTorch of their own start on two agents.
    """
    need()
    containers.build(runtime, read_python(Path(python_of(runtime)), tmp_path))
    folder = EXAMPLES / example
    options: dict[str, Any] = json.loads((folder / "options.json").read_text())
    options["service"] |= {
        "job_url": str(folder / "train.py"),
        "virtual_network_enabled": True,
        "addressing": "named",
        "tf_image": runtime,
        "python": "",
    }
    options["placement"] = {"strategy": "spread"}

    report = containers.run(options)

    assert "succeeded" == report["state"], report
    assert {"agent-1", "agent-2"} == {task["agent"] for task in report["tasks"]}
