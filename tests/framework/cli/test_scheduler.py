"""`dcos-tensorflow scheduler run` as a systemd service, on a real Mesos."""

from __future__ import annotations

import json
import re
import resource
import shlex
import shutil
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kit.commands import SMALL, SchedulerCommand, run_command, run_program
from kit.reasons import assert_shown
from kit.waiting import PATIENCE, wait_until
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import call, read_status
from tf_scheduler.store.sqlite import SqliteStore

UNIT = Path(__file__).resolve().parents[3] / "scripts" / "systemd" / "dcos-tensorflow@.service"


def unit(name):
    """Return the value of a setting of the unit."""
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]
    return line.partition("=")[2]


class Host(SchedulerCommand):
    """A machine with the unit, which starts its command with the instance name set."""

    def __init__(self, folder, master, **service) -> None:
        super().__init__(folder / "unit.json", master, service=service)

    @property
    def arguments(self):
        command = unit("ExecStart").replace("/etc/dcos-tensorflow/%i", str(self.file.with_suffix("")))
        program, *arguments = shlex.split(command)
        assert Path(program).name == "dcos-tensorflow"
        return arguments

    def tasks(self):
        """Return Mesos task ids by name; other tests use the cluster, too."""
        status = read_status(self.master)
        ids = {framework.framework_id for framework in status.frameworks if framework.name == "unit"}
        return {task.name: task.task_id for task in status.tasks if task.framework_id in ids}

    def health(self):
        return run_command("scheduler", "health", "--port", self.port)


@pytest.fixture
def host(tmp_path: Path, local_cluster):
    machine = Host(tmp_path, local_cluster.master.address)
    yield machine
    machine.stop()


def test_scheduler_stops_restarts_and_uninstalls(host) -> None:
    """Tasks survive SIGTERM; SDK_UNINSTALL stops them, even with invalid options.

    Invalid access options do not open the API.
    """
    first = host.start()
    wait_until(lambda: host.status("/v1/plans/deploy") == 200)
    tasks = host.tasks()
    assert (0, {"value": 200}) == (host.health().returncode, json.loads(host.health().stdout))

    host.end(first)
    assert tasks == host.tasks()
    assert (1, 0) == (host.health().returncode, host.status("/v1/health"))

    second = host.start()
    wait_until(lambda: host.status("/v1/plans/deploy") == 200)
    assert tasks == host.tasks()
    host.end(second)

    host.change(
        api={"write_token": "file:gone", "certificate_file": "gone.pem", "key_file": "gone.key"},
        secret_delivery={"ca_file": "/nowhere/ca.pem"},
        worker={"count": "two", "cpu": 1},
    )
    third = host.start(SDK_UNINSTALL="true")
    wait_until(lambda: third.poll() is not None or host.status("/v1/plans/deploy") == 200)
    assert [200, 401] == [host.status(path) for path in ("/v1/health", "/v1/plans")]
    assert {} == host.tasks()
    errors = host.end(third)
    for problem in ("worker.cpu: unknown option", "api.write_token: file:gone", "api.certificate_file: "):
        assert f"option ignored during uninstall: {problem}" in errors
    with closing(SqliteStore(host.file.parent / "state.db", "unit")) as store:
        assert {} == store.load()

    before = framework_ids(host.master)
    # Marathon may restart the scheduler before DC/OS removes the app.
    fourth = host.start(SDK_UNINSTALL="true")
    wait_until(lambda: fourth.poll() is not None or host.status("/v1/plans/deploy") == 200)
    assert "subscribed as framework" not in host.end(fourth)
    assert before == framework_ids(host.master)


def framework_ids(master):
    """Return the ids of the service's frameworks, also of completed ones."""
    frameworks = call(master, "GET_FRAMEWORKS")
    both = (*frameworks.get("frameworks", ()), *frameworks.get("completed_frameworks", ()))
    infos = [item["framework_info"] for item in both]
    return {info["id"]["value"] for info in infos if info["name"] == "unit"}


@pytest.mark.usefixtures("real_zookeeper")
def test_uninstall_waits_for_agent_that_is_away(tmp_path: Path) -> None:
    """Its task is named, and killed on its return; the master lives."""
    ping = {"agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3", "allocation_interval": "100ms"}
    agents = [
        AgentSpec(f"u-{n}", f"cpus:1;mem:512;disk:1000;ports:[{31_700 + 10 * n}-{31_709 + 10 * n}]") for n in (1, 2)
    ]
    with (
        LocalCluster(agents, master_flags=ping, die_with_parent=True) as cluster,
        ZooKeeperEnsemble() as ensemble,
        ExitStack() as stack,
    ):
        host = Host(tmp_path, cluster.master.address)
        stack.callback(host.stop)
        host.change(
            scheduler={"state": f"zk://{ensemble.addresses}/frameworks"},
            worker={"count": 2, "placement_constraint": "hostname:UNIQUE", **SMALL},
        )
        first = host.start()
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)
        assert ["dcos-service-unit"] == nodes(ensemble)
        (gone,) = [task.hostname for task in read_status(host.master).tasks if task.name == "worker-1"]
        cluster.agents[gone].kill()
        host.end(first)

        second = host.start(SDK_UNINSTALL="true")
        wait_until(lambda: [f"worker-1 may still run on {gone}"] == last_step(host).get("waits_for"))
        cluster.agents[gone].restart()
        wait_until(lambda: host.status("/v1/plans/deploy") == 200)

        assert "nothing is left behind" == last_step(host)["message"]
        wait_until(lambda: [True] * 2 == [agent.active for agent in read_status(host.master).agents])
        frameworks = call(host.master, "GET_FRAMEWORKS")
        assert [] == frameworks.get("frameworks", [])
        assert ["unit"] == [item["framework_info"]["name"] for item in frameworks["completed_frameworks"]]
        assert "reservation" not in json.dumps(call(host.master, "GET_AGENTS"))
        assert "service uninstalled: nothing is left behind" in host.end(second)
        assert [] == nodes(ensemble)


def last_step(host):
    """Return the last step of the uninstall plan; empty while the API does not answer."""
    answer = host.request("/v1/plans/deploy")
    return answer.json["phases"][-1]["steps"][-1] if answer.status in (200, 202) else {}


def nodes(ensemble):
    """Return the znodes of all services."""
    client = KazooClient(ensemble.addresses)
    client.start(PATIENCE)
    try:
        return client.get_children("/frameworks")
    finally:
        client.stop()
        client.close()


def test_scheduler_with_full_disk_waits_and_continues(tmp_path: Path, local_cluster) -> None:
    """A task that fails meanwhile is relaunched when its failure can be stored."""
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
        assert_shown(f"http://127.0.0.1:{host.port}", 319, "store", "state store unavailable, scheduling paused: ")

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: host.tasks().get("worker-1", before["worker-1"]) != before["worker-1"])
        wait_until(lambda: host.status("/v1/health") == 200)
        assert before["worker-0"] == host.tasks()["worker-0"]
        messages = [event["message"] for event in host.request("/v1/events").json["events"]]
        assert {"state store available again"} < {text.partition(", scheduling paused")[0] for text in messages}
        host.end(process)
        wait_until(lambda: not host.tasks())
    finally:
        host.stop()


def test_operator_resets_removed_framework(tmp_path: Path, local_cluster) -> None:
    """After failover_timeout without a scheduler; the message has the command."""
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
        (framework,) = re.findall(r"dcos-tensorflow scheduler run --reset (\S+);", last)

        third = host.start(RESET_FRAMEWORK=framework)
        # The plan is complete from the start; the recovery launches the tasks.
        wait_until(lambda: before.keys() == host.tasks().keys())
        assert set(before.values()).isdisjoint(host.tasks().values())
        host.end(third)
        wait_until(lambda: not host.tasks())
    finally:
        host.stop()


@pytest.mark.parametrize(
    ("variables", "state", "code", "message"),
    [
        ({"PORT_API": "http"}, "", 1, "PORT_API: must be the port of the HTTP API, 1 to 65535, not 'http'"),
        ({"PORT_API": "0"}, "", 1, "PORT_API: must be"),
        ({}, "zk://127.0.0.1:9/frameworks?request_timeout=1", 3, "ZooKeeper at zk://127.0.0.1:9/frameworks"),
    ],
)
def test_start_that_fails_is_explained(tmp_path: Path, variables, state: str, code: int, message: str) -> None:
    """Not exit code 0, so that systemd retries."""
    host = Host(tmp_path, "127.0.0.1:9")
    if state:
        host.change(scheduler={"state": state})
    process = host.start(**variables)
    _, errors = process.communicate(timeout=PATIENCE)

    assert (code, True) == (process.returncode, message in errors.splitlines()[-1]), errors
    assert "Traceback" not in errors


def test_missing_options_file_is_reported(tmp_path: Path) -> None:
    host = Host(tmp_path, "127.0.0.1:9")
    (tmp_path / "unit.json").unlink()
    process = host.start()
    _, errors = process.communicate(timeout=PATIENCE)

    assert (1, f"{tmp_path / 'unit.json'}: No such file or directory\n") == (process.returncode, errors)


def test_adoption_excludes_reset(tmp_path: Path) -> None:
    """Whether to keep or to stop the tasks of a framework is not guessed."""
    result = run_command("scheduler", "run", "--adopt=fw-1", "--reset=fw-1", "--options", tmp_path / "missing.json")

    assert 2 == result.returncode
    assert "--adopt fw-1: invalid with --reset" in result.stderr


def test_unit_is_valid(tmp_path: Path) -> None:
    """Checked if systemd-analyze is installed; the program need not be."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/dcos-tensorflow/bin/dcos-tensorflow", "/bin/true"))

    result = run_program("systemd-analyze", "verify", copy)

    assert (0, "") == (result.returncode, result.stdout + result.stderr)


def test_unit_is_always_restarted() -> None:
    """The scheduler exits when it loses its store, its leadership or Mesos."""
    assert "always" == unit("Restart")
