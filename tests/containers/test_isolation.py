"""Limits, volumes, addresses and clean-up of containers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from containers.conftest import PLAIN, Containers, job
from kit.commands import run_program
from kit.waiting import wait_until
from mesos_local.host import find_orphans
from mesos_local.network import PLUGINS, cgroups_root

EAT = "python3 -c 'kept = [bytearray(10**7) for _ in range(100)]'"


@pytest.mark.parametrize("image", [PLAIN, ""])
def test_task_over_its_memory_is_killed_and_named(containers: Containers, image: str) -> None:
    """The limit is that of the task and of its executor (64 MB)."""
    report = containers.run(job("hungry", EAT, {"image": image, "max_failures": 0}))

    assert "failed" == report["state"], report
    assert "Memory limit exceeded: Requested: 192MB Maximum Used: 192MB; allowed 192 MB = " in report["reason"]
    assert "allowed 192 MB = worker.mem 128 + executor.mem 64; raise worker.mem" in report["reason"]
    assert report["memory_enforced"]


def test_run_uses_the_containers_of_its_folder(containers: Containers, tmp_path: Path) -> None:
    """The default folder may have another cluster, or none."""
    options = job("elsewhere", "true", {"image": PLAIN})

    report = replace(containers, state=tmp_path).run(options, "--dir", containers.cluster.directory)
    refused = containers.command("local", "run", containers.folder / "elsewhere.json", "--dir", tmp_path / "none")

    assert ("succeeded", True) == (report["state"], report["memory_enforced"]), report
    assert f"worker.image: `{PLAIN}`: needs a local cluster with containers" in refused.stderr


def test_container_has_processes_and_memory_of_its_own(containers: Containers) -> None:
    command = "ls /proc | grep -c '^[0-9]'; ls /dev/shm; touch /dev/shm/mine; hostname -i"

    report = containers.run(job("alone", command, {"image": PLAIN}, virtual_network_enabled=True))

    count, address = containers.output(report).split()
    assert int(count) < 15
    assert address.startswith("10.88.")
    assert not Path("/dev/shm/mine").exists()


ASK = """
import os, socket, sys, time
own, other = os.environ["TASK_NAME"], sys.argv[1]
server = socket.create_server(("", 2222))
name = lambda task: f"{task}.{sys.argv[2]}.containerip.dcos.thisdcos.directory"
end = time.monotonic() + 60
while True:
    try:
        with socket.create_connection((name(other), 2222), timeout=5) as connection:
            connection.sendall(own.encode())
        break
    except OSError:
        assert time.monotonic() < end
connection, _ = server.accept()
print(connection.recv(100).decode())
"""


def test_tasks_find_each_other_by_name(containers: Containers, tmp_path: Path) -> None:
    """All listen on port 2222, each on an agent of its own."""
    (tmp_path / "ask.py").write_text(ASK)
    command = 'python ask.py "worker-$((1 - SHARD_INDEX))" spread'
    options = job("spread", command, {"image": PLAIN, "count": 2}, virtual_network_enabled=True)
    options["service"]["job_url"] = str(tmp_path / "ask.py")
    options["placement"] = {"strategy": "spread"}

    report = containers.run(options)

    assert "succeeded" == report["state"], report
    assert "worker-1\n" == containers.output(report, "worker-0")
    assert 2 == len({task["agent"] for task in report["tasks"]})


#: In the place of TensorBoard's own.
BOARD = """
import http.server, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def test_tensorboard_of_a_container_is_below_the_api(containers: Containers, tmp_path: Path) -> None:
    """The scheduler, which browsers reach, resolves the name of the task."""
    program, gate = tmp_path / "program", tmp_path / "gate"
    (program / "tensorboard").mkdir(parents=True)
    (program / "tensorboard" / "main.py").write_text(BOARD)
    (program / "hello").write_text("a page of a task")
    gate.mkdir()
    options = job("board", "until [ -e gate/end ]; do sleep 0.1; done", job_url=str(program), tf_image=PLAIN)
    options["service"] |= {"use_tensorboard": True, "virtual_network_enabled": True}
    options["tensorboard"] = {"cpus": 0.2, "mem": 128}
    options["volumes"] = [{"host_path": str(gate), "container_path": "gate"}]
    with containers.started(options) as run:
        wait_until(lambda: '"running": true' in containers.request("board", "/v1/tf/tensorboard").text)
        board = containers.request("board", "/v1/tf/tensorboard").json
        wait_until(lambda: 200 == containers.request("board", f"/{board['path']}hello").status)
        page = containers.request("board", f"/{board['path']}hello")
        (gate / "end").touch()
        run.communicate()

    assert "tensorboard-0.board.containerip.dcos.thisdcos.directory:2222" == board["address"]
    assert "a page of a task" == page.text


def test_cpus_of_a_task_and_its_executor_are_its_shares(containers: Containers, tmp_path: Path) -> None:
    options = job("shares", "touch gate/ready; until [ -e gate/end ]; do sleep 0.1; done", {"cpus": 0.4})
    options["volumes"] = [{"host_path": str(tmp_path), "container_path": "gate"}]
    with containers.started(options) as run:
        wait_until((tmp_path / "ready").exists)
        root = Path("/sys/fs/cgroup/cpu", cgroups_root(containers.cluster.directory))
        shares = [int(path.read_text()) for path in root.glob("agent-*/*/cpu.shares")]
        (tmp_path / "end").touch()
        run.communicate()

    assert [int(0.5 * 1024)] == shares


def test_cluster_with_containers_is_started_and_stopped(containers: Containers, tmp_path: Path) -> None:
    """Beside another one, in another folder."""
    started = containers.command("local", "up", "--containers", "--dir", tmp_path / "own")
    shown = containers.command("local", "status", "--dir", tmp_path / "own", "--json")
    stopped = containers.command("local", "down", "--dir", tmp_path / "own")

    assert (0, 0, 0) == (started.returncode, shown.returncode, stopped.returncode), started.stderr
    status = json.loads(shown.stdout)
    assert status["containers"]
    assert {"10.88.0.2", "10.88.0.3", "10.88.0.4"} == {agent["address"].partition(":")[0] for agent in status["agents"]}


def test_machine_without_cni_gets_no_containers_and_the_reason(containers: Containers, tmp_path: Path) -> None:
    program = shlex.join([sys.executable, "-m", "tf_scheduler", "local"])
    hide = f"mount -t tmpfs none {PLUGINS}; {program} up --containers --dir own; {program} down --dir own"

    done = run_program("unshare", "--mount", "sh", "-c", hide, cwd=tmp_path, env=containers.environment, check=True)

    reason = f"{PLUGINS}/bridge (Debian package containernetworking-plugins)"
    assert f"notice: no containers, because this machine lacks {reason}" in done.stderr.splitlines()


def test_nothing_is_left_after_sigkill(containers: Containers, tmp_path: Path) -> None:
    """The network, an agent and a run's command die; `local down` ends the rest."""
    own = replace(containers, state=tmp_path / "state")
    directory = own.state / "dcos-tensorflow" / "local"
    started = own.command("local", "up", "--containers")
    assert 0 == started.returncode, started.stderr
    name, gate = cgroups_root(directory), tmp_path / "gate"
    options = job("endless", f"touch {gate}/ready; sleep 1000", {"image": PLAIN})
    gate.mkdir()
    options["volumes"] = [{"host_path": str(gate), "container_path": str(gate)}]
    with own.started(options) as run:
        wait_until((gate / "ready").exists)
        nodes = json.loads((directory / "cluster.json").read_text())["nodes"]
        run.kill()
        for node in ("network", "agent-1"):
            os.kill(nodes[node]["process"]["pid"], signal.SIGKILL)
    status = own.command("local", "status")

    done = own.command("local", "down", "--yes")

    assert 3 == status.returncode
    assert "is incomplete: exited: network, agent-1; running: master, agent-2" in status.stderr
    assert "; stop it first: dcos-tensorflow local down" in status.stderr
    assert 0 == done.returncode, done.stderr
    assert [] == list(Path("/sys/fs/cgroup").glob(f"*/{name}"))
    assert set() == find_orphans(directory)
