"""`dcos-tensorflow scheduler run`, as systemd starts it: an options file, a port, a real Mesos."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kit.waiting import wait_until
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host.process import free_ports
from mesos_local.master_api import call, read_status
from tf_scheduler.store.sqlite import SqliteStore
from tf_scheduler.zipapp_builder import build_bundle

PATIENCE = 120
UNIT = Path(__file__).resolve().parents[3] / "scripts" / "systemd" / "dcos-tensorflow@.service"
SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}


def unit(name):
    """The value of a setting."""
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]
    return line.partition("=")[2]


class Host:
    """What the unit finds on its machine."""

    def __init__(self, folder, master, **service):
        self.port, self.folder, self.master = free_ports(1)[0], folder, master
        self.processes = []
        document = {
            "service": {
                "name": "unit",
                "user": "root",
                "command": "exec sleep 1000",
                "python": sys.executable,
                **service,
            },
            "parameter_server": {"count": 0},
            "worker": {"count": 2, **SMALL},
            "executor": {"python": sys.executable},
            "mesos": {"master": master},
            "scheduler": {"state": (folder / "state.db").as_uri()},
        }
        (folder / "unit.json").write_text(json.dumps(document))

    def start(self, **variables):
        """ExecStart, with our Python in place of the installed program, and the instance's name filled in."""
        command = unit("ExecStart").replace("/etc/dcos-tensorflow/%i", str(self.folder / "unit"))
        program, *arguments = shlex.split(command)
        assert Path(program).name == "dcos-tensorflow"
        own = {"PORT_API": str(self.port), "EXECUTOR_URI": build_bundle().as_uri(), "HOST": "127.0.0.1"}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **own, **variables}
        process = subprocess.Popen(
            [sys.executable, "-m", "tf_scheduler", *arguments], env=environment, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def change(self, **sections):
        """Other options, from the next start on."""
        path = self.folder / "unit.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, **sections}))

    def close(self):
        self.end()

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def status(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def get(self, path):
        """The JSON there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def tasks(self):
        """Mesos task ids by name: ours, for the cluster is everybody's."""
        status = read_status(self.master)
        ours = {framework.framework_id for framework in status.frameworks if framework.name == "unit"}
        return {task.name: task.task_id for task in status.tasks if task.framework_id in ours}

    def health(self):
        command = [sys.executable, "-m", "tf_scheduler", "scheduler", "health", "--port", str(self.port)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def host(tmp_path, local_cluster):
    found = Host(tmp_path, local_cluster.master.address)
    yield found
    found.end()


@pytest.mark.mesos
def test_a_scheduler_is_stopped_started_and_taken_down(host):
    """SIGTERM leaves the tasks, the next start takes them over, SDK_UNINSTALL ends them and forgets all.

    That it does whatever is wrong with the options by then, or missing; who might have got in by that does not.
    """
    first = host.start()
    wait_until(lambda: host.status("/v1/plans/deploy") == 200)
    tasks = host.tasks()
    assert (0, {"value": 200}) == (host.health().returncode, json.loads(host.health().stdout))

    first.send_signal(signal.SIGTERM)
    assert 0 == first.wait(PATIENCE)
    assert tasks == host.tasks()
    assert (1, None) == (host.health().returncode, host.status("/v1/health"))

    second = host.start()
    wait_until(lambda: host.status("/v1/plans/deploy") == 200)
    assert tasks == host.tasks()
    second.send_signal(signal.SIGTERM)
    assert 0 == second.wait(PATIENCE)

    host.change(
        api={"write_token": "file:gone", "certificate_file": "gone.pem", "key_file": "gone.key"},
        secret_delivery={"ca_file": "/nowhere/ca.pem"},
        worker={"count": "two", "cpu": 1},
    )
    third = host.start(SDK_UNINSTALL="true")
    wait_until(lambda: third.poll() is not None or host.status("/v1/plans/deploy") == 200)
    assert [200, 401] == [host.status(path) for path in ("/v1/health", "/v1/plans")]
    assert {} == host.tasks()
    third.send_signal(signal.SIGTERM)
    _, errors = third.communicate(timeout=PATIENCE)
    assert 0 == third.returncode
    for problem in ("worker.cpu: unknown option", "api.write_token: file:gone", "api.certificate_file: "):
        assert f"uninstalling without option: {problem}" in errors
    with closing(SqliteStore(host.folder / "state.db", "unit")) as store:
        assert {} == store.load()

    known = ours(host.master)
    # Started again, as by Marathon before it is told of the end; so is a service that never ran.
    fourth = host.start(SDK_UNINSTALL="true")
    wait_until(lambda: fourth.poll() is not None or host.status("/v1/plans/deploy") == 200)
    fourth.send_signal(signal.SIGTERM)
    _, errors = fourth.communicate(timeout=PATIENCE)
    assert (0, False) == (fourth.returncode, "subscribed as framework" in errors)
    assert known == ours(host.master)


def ours(master):
    """Ids of the frameworks of that name, also of those that have left."""
    found = call(master, "GET_FRAMEWORKS")
    both = (*found.get("frameworks", ()), *found.get("completed_frameworks", ()))
    infos = [item["framework_info"] for item in both]
    return {info["id"]["value"] for info in infos if info["name"] == "unit"}


@pytest.mark.mesos
@pytest.mark.zookeeper
def test_an_uninstallation_waits_for_no_agent_that_is_gone(tmp_path):
    """What is left there is told; of the service nothing is: no framework, no reservation, no znode."""
    ping = {"agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3", "allocation_interval": "100ms"}
    agents = [
        AgentSpec(f"u-{n}", f"cpus:1;mem:512;disk:1000;ports:[{31_700 + 10 * n}-{31_709 + 10 * n}]") for n in (1, 2)
    ]
    with (
        LocalCluster(agents, master_flags=ping, die_with_parent=True) as cluster,
        ZooKeeperEnsemble(die_with_parent=True) as ensemble,
        closing(Host(tmp_path, cluster.master.address)) as host,
    ):
        host.change(
            scheduler={"state": f"zk://{ensemble.addresses}/frameworks"},
            worker={"count": 2, "placement_constraint": "hostname:UNIQUE", **SMALL},
        )
        first = host.start()
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)
        assert ["dcos-service-unit"] == nodes(ensemble)
        (gone,) = [task.hostname for task in read_status(host.master).tasks if task.name == "worker-1"]
        cluster.agents[gone].kill()
        first.send_signal(signal.SIGTERM)
        assert 0 == first.wait(PATIENCE)

        second = host.start(SDK_UNINSTALL="true")
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)

        last = host.get("/v1/plans/deploy")["phases"][-1]["steps"][-1]
        assert f"left behind: worker-1 on {gone}, not ended within" in last["message"]
        known = call(host.master, "GET_FRAMEWORKS")
        assert [] == known.get("frameworks", [])
        assert ["unit"] == [item["framework_info"]["name"] for item in known["completed_frameworks"]]
        assert "reservation" not in json.dumps(call(host.master, "GET_AGENTS"))
        second.send_signal(signal.SIGTERM)
        _, errors = second.communicate(timeout=PATIENCE)
        assert 0 == second.returncode
        assert "service uninstalled: left behind: worker-1" in errors
        assert [] == nodes(ensemble)


def nodes(ensemble):
    """Those of all services."""
    client = KazooClient(ensemble.addresses)
    client.start(PATIENCE)
    try:
        return client.get_children("/frameworks")
    finally:
        client.stop()
        client.close()


@pytest.mark.mesos
def test_a_scheduler_whose_disk_is_full_waits_and_goes_on(tmp_path, local_cluster):
    """A task fails meanwhile: nothing is stored, so nothing is done; it is launched again when there is room."""
    fails = f"until [ -e {tmp_path}/fail ]; do sleep 0.1; done; rm {tmp_path}/fail; exit 1"
    command = f'case "$TASK_NAME" in worker-1) {fails};; *) exec sleep 1000;; esac'
    host = Host(tmp_path, local_cluster.master.address, command=command, failover_timeout=1)
    try:
        process = host.start()
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)
        before = host.tasks()
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, hard))
        (tmp_path / "fail").touch()
        wait_until(lambda: host.status("/v1/health") == 319)

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: host.tasks().get("worker-1", before["worker-1"]) != before["worker-1"])
        wait_until(lambda: host.status("/v1/health") == 200)
        assert before["worker-0"] == host.tasks()["worker-0"]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE)
        wait_until(lambda: not host.tasks())
    finally:
        host.end()


@pytest.mark.mesos
def test_a_framework_that_mesos_has_removed_is_reset_by_the_operator(tmp_path, local_cluster):
    """No scheduler for longer than failover_timeout: the next one says what to do, and does it when it is told to."""
    host = Host(tmp_path, local_cluster.master.address, failover_timeout=1)
    try:
        first = host.start()
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)
        before = host.tasks()
        first.kill()
        wait_until(lambda: not host.tasks())

        second = host.start()
        _, errors = second.communicate(timeout=PATIENCE)
        assert 1 == second.returncode
        last = errors.splitlines()[-1]
        assert last.startswith("Mesos has removed the framework ")
        (framework,) = re.findall(r"dcos-tensorflow scheduler run --reset (\S+),", last)

        third = host.start(RESET_FRAMEWORK=framework)
        # The plan is complete from the start: it is the recovery that launches them.
        wait_until(lambda: before.keys() == host.tasks().keys())
        assert set(before.values()).isdisjoint(host.tasks().values())
        third.send_signal(signal.SIGTERM)
        assert 0 == third.wait(PATIENCE)
        wait_until(lambda: not host.tasks())
    finally:
        host.end()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PORT_API": "http"}, "PORT_API: must be the port of the HTTP API, 1 to 65535, not 'http'"),
        ({"PORT_API": "0"}, "PORT_API: must be"),
    ],
)
def test_a_wrong_port_is_told(tmp_path, variables, message):
    """Exit code 1, so that systemd tries again; no traceback."""
    process = Host(tmp_path, "127.0.0.1:9").start(**variables)

    _, errors = process.communicate(timeout=PATIENCE)

    assert 1 == process.returncode
    assert message in errors
    assert "Traceback" not in errors


def test_a_state_that_cannot_be_reached_is_told(tmp_path):
    """Exit code 3: nothing answers."""
    host = Host(tmp_path, "127.0.0.1:9")
    document = json.loads((tmp_path / "unit.json").read_text())
    document["scheduler"]["state"] = "zk://127.0.0.1:9/frameworks?request_timeout=1"
    (tmp_path / "unit.json").write_text(json.dumps(document))

    process = host.start()
    _, errors = process.communicate(timeout=PATIENCE)

    assert 3 == process.returncode
    assert "ZooKeeper at zk://127.0.0.1:9/frameworks" in errors.splitlines()[-1]


def test_an_options_file_that_is_not_there_is_told(tmp_path):
    """By its name."""
    host = Host(tmp_path, "127.0.0.1:9")
    (tmp_path / "unit.json").unlink()

    process = host.start()
    _, errors = process.communicate(timeout=PATIENCE)

    assert (1, f"{tmp_path / 'unit.json'}: No such file or directory\n") == (process.returncode, errors)


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    """Where its checker is installed; what it starts need not be."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/dcos-tensorflow/bin/dcos-tensorflow", "/bin/true"))

    result = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)

    assert (0, "") == (result.returncode, result.stdout + result.stderr)


def test_the_unit_may_be_restarted_at_any_time():
    """It always is: the scheduler ends on purpose when it lost its store, its lead or Mesos."""
    assert "always" == unit("Restart")
