"""Real clusters turn each line of `doctor` red, and green again."""

from __future__ import annotations

import getpass
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.master_proxy import Calls, MasterProxy
from http_scheduler import HttpScheduler
from kit.commands import ENVIRONMENT, SMALL, SchedulerCommand, run_command, run_program
from kit.freezing import frozen
from kit.shared import SharedServers
from kit.waiting import wait_until
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("real_zookeeper")

USER = getpass.getuser()
AGENTS = tuple(AgentSpec(name, "cpus:2;mem:2048;disk:1000") for name in ("h-1", "h-2"))
MASTER_FLAGS = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}
CLOCK = Path(__file__).parents[2] / "chaos" / "clock"
#: The secret's value is not needed by the checks.
SECRETS = [{"source": "env:KEY", "env": "KEY"}]


class Doctor:
    """Runs `doctor --json` as a process that finds no other services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(folder / "state")}

    def __call__(self, *arguments: object, **variables: str) -> dict[str, str]:
        """Return the status of each check; the exit code must fit."""
        statuses, code = self.run(*arguments, **variables)
        assert ("red" in statuses.values()) == (code == 1), (statuses, code)
        return statuses

    def run(self, *arguments: object, **variables: str) -> tuple[dict[str, str], int]:
        done = run_command("doctor", "--json", *arguments, env=self.environment | variables)
        assert "Traceback" not in done.stderr
        self.lines = json.loads(done.stdout)["checks"]
        for line in self.lines:
            assert line["message"]
            assert line["remedy"] or line["status"] in ("green", "not checked"), line
        return {line["check"]: line["status"] for line in self.lines}, done.returncode

    def message(self, check: str) -> str:
        return next(f"{line['message']}: {line['remedy']}" for line in self.lines if line["check"] == check)

    def options(self, **sections: Any) -> Path:
        """Write an options file."""
        service = {"name": "test", "user": USER, "command": "true", **sections.pop("service", {})}
        file = self.folder / "doctor.json"
        state = {"scheduler": {"state": (self.folder / "state.db").as_uri()}}
        file.write_text(json.dumps({"service": service, **state, **sections}))
        return file


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    return Doctor(tmp_path)


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    """Two agents that run executors as their own user and ask them for no login."""
    flags = {"switch_user": False, "authenticate_http_executors": False}
    return module_servers.cluster(AGENTS, master_flags=MASTER_FLAGS, agent_flags=flags, zookeeper=True)


@pytest.fixture
def start_service(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., SchedulerCommand]]:
    """Start a service; at the end kill its scheduler and tear its framework down."""
    commands: list[SchedulerCommand] = []

    def launch(master: str = "", variables: dict[str, str] | None = None, **sections: Any) -> SchedulerCommand:
        folder = tmp_path / f"service-{len(commands)}"
        folder.mkdir()
        command = SchedulerCommand(folder / "options.json", master or cluster.master.address, **sections)
        commands.append(command)
        with (folder / "log").open("w") as log:
            command.start(log, **(variables or {}))
        wait_until(lambda: cluster.state().frameworks)
        return command

    yield launch
    for command in commands:
        stop(command, cluster)


def stop(command: SchedulerCommand, cluster: LocalCluster) -> None:
    command.stop()
    for framework in cluster.state().frameworks:
        master_api.teardown(cluster.master.address, framework.framework_id)


@contextmanager
def without_mounts(folder: Path) -> Iterator[None]:
    """Remove the bind mount that filesystem/linux makes of an agent's work folder."""
    try:
        yield
    finally:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in mounts:
            if place.startswith(f"{folder}/"):
                subprocess.run(["umount", place], check=True)


@contextmanager
def other_framework(cluster: LocalCluster, hostname: str) -> Iterator[None]:
    """A framework named `test` with a task of the user root on this agent."""
    scheduler = HttpScheduler(cluster.master.address)
    try:
        scheduler.launch(hostname, {"value": "exec sleep 1000"})
        yield
    finally:
        scheduler.close()


def url(command: SchedulerCommand) -> str:
    return f"http://127.0.0.1:{command.port}"


def runs(command: SchedulerCommand, count: int) -> bool:
    answer = command.request("/v1/tasks")
    return answer.status == 200 and [task["state"] for task in answer.json["tasks"]].count("TASK_RUNNING") == count


@pytest.mark.skipif(os.geteuid() != 0, reason="an agent with switch_user needs root")
def test_agents_before_installation(doctor: Doctor, cluster: LocalCluster, tmp_path: Path) -> None:
    """With an options file and the master's address alone; a safe cluster is green."""
    delivery = {"secret_delivery": {"url": "https://10.0.0.1:8443"}}
    options = doctor.options(secrets=SECRETS, **delivery)

    statuses = doctor("--options", options, "--master", cluster.master.address)

    assert ("red", "red") == (statuses["executor_login"], statuses["isolation"])
    assert "h-1, h-2" in doctor.message("executor_login")
    assert "namespaces/pid" in doctor.message("isolation")
    assert "--switch_user" in doctor.message("isolation")
    for name in ("shared_user", "same_name", "clock", "tls", "zookeeper_acl", "artefacts", "disk", "python"):
        assert "green" == statuses[name], (name, doctor.message(name))

    key = tmp_path / "key"
    key.write_text("a secret of the agent's")
    safe = {
        "authenticate_http_executors": True,
        "jwt_secret_key": key,
        "http_authenticators": "jwt",
        "isolation": "filesystem/linux,namespaces/pid,environment_secret",
        "launcher": "linux",
    }
    agents = [AgentSpec("h-1", "cpus:1;mem:512;disk:100")]
    with (
        without_mounts(tmp_path),
        LocalCluster(agents, tmp_path / "cluster", agent_flags=safe, die_with_parent=True) as other,
    ):
        statuses, code = doctor.run("--options", options, "--master", other.master.address)
    assert ("green", "green", 0) == (statuses["executor_login"], statuses["isolation"], code)


def test_service_next_to_others(
    doctor: Doctor, cluster: LocalCluster, start_service: Callable[..., SchedulerCommand]
) -> None:
    """Open state, open API, another framework of the same name and user; then closed."""
    state = f"zk://{cluster.zookeeper.address}"
    service = {"name": "test", "user": USER}
    first = start_service(service=service, scheduler={"state": state})
    wait_until(lambda: runs(first, 2))
    wait_until(lambda: first.request("/v1/state/frameworkId").json)
    hostname = first.request("/v1/tasks/worker-0").json["hostname"]
    with other_framework(cluster, hostname):
        statuses = doctor("--url", url(first))
    for name in ("shared_user", "same_name", "zookeeper_acl", "open_api"):
        assert "red" == statuses[name], (name, doctor.message(name))
    for name in ("refused_calls", "leftovers", "failing_agents", "clock"):
        assert "green" == statuses[name], (name, doctor.message(name))

    statuses = doctor("--url", url(first))
    assert ("green", "green") == (statuses["shared_user"], statuses["same_name"]), doctor.lines
    # Without the URL doctor cannot know that the framework is this service.
    statuses = doctor("--options", doctor.options(), "--master", cluster.master.address)
    assert "red" == statuses["same_name"]
    assert "--url" in doctor.message("same_name")

    stop(first, cluster)
    password = f"zk://tf:secret@{cluster.zookeeper.address}/closed"
    api = {"authentication": "auto", "write_token": "env:TOKEN"}
    second = start_service(service=service, scheduler={"state": password}, api=api, variables={"TOKEN": "t" * 20})
    statuses = doctor("--url", url(second), "--token", "t" * 20)
    assert ("green", "green") == (statuses["zookeeper_acl"], statuses["open_api"]), doctor.lines


def test_calls_launches_and_clock_of_service(
    doctor: Doctor, cluster: LocalCluster, start_service: Callable[..., SchedulerCommand], tmp_path: Path
) -> None:
    """Only the scheduler knows; each condition is caused, and ends.

    Slow: two conditions last until a timeout.
    """
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", 0.0))
    paths = os.pathsep.join([str(CLOCK), *sys.path])
    once = f"[ $TASK_NAME = worker-1 ] && mkdir {tmp_path}/failed 2>/dev/null && kill -KILL $PPID; exec sleep 1000"
    with MasterProxy(cluster.master.address) as proxy:
        command = start_service(
            proxy.address,
            {"PYTHONPATH": paths, "CHAOS_CLOCK": str(clock)},
            service={"name": "unit", "user": USER, "command": once, "strategy": "independent"},
            recovery={"unreachable_timeout": 1, "avoid_after": 1, "avoid_for": 20},
            worker={"count": 2, **SMALL},
        )
        wait_until(lambda: (tmp_path / "failed").exists())
        wait_until(lambda: json.loads(command.request("/v1/debug/mesos").text)["failing_agents"])
        arguments = "--url", url(command), "--master", cluster.master.address
        statuses = doctor(*arguments)
        assert "red" == statuses["failing_agents"], doctor.message("failing_agents")
        wait_until(lambda: runs(command, 2))

        proxy.answer(Calls.REFUSED)
        assert 200 == command.request("/v1/pod/worker-0/restart", "POST").status
        wait_until(lambda: json.loads(command.request("/v1/debug/mesos").text)["refused_calls"])
        statuses = doctor(*arguments)
        assert "red" == statuses["refused_calls"]
        assert "401" in doctor.message("refused_calls")
        proxy.answer(Calls.FORWARDED)
        wait_until(lambda: not json.loads(command.request("/v1/debug/mesos").text)["refused_calls"])
        wait_until(lambda: runs(command, 2))
        wait_until(lambda: "green" == doctor(*arguments)["failing_agents"])

        clock.write_bytes(struct.pack("d", -60.0))
        events = "/v1/events?limit=1000"
        wait_until(lambda: "ClockStepped" in command.request(events).text)
        statuses = doctor(*arguments)
        assert ("red", "green") == (statuses["clock"], statuses["leftovers"])
        assert "set back" in doctor.message("clock")

        place = command.request("/v1/tasks/worker-0").json["hostname"]
        with frozen(cluster.agents[place]):
            wait_until(lambda: json.loads(command.request("/v1/debug/mesos").text)["may_still_run"])
            statuses = doctor(*arguments)
            assert "red" == statuses["leftovers"]
            assert f"on {place}" in doctor.message("leftovers")
            assert "not checked" != statuses["executor_login"], "the other agent still answers"
        wait_until(lambda: not json.loads(command.request("/v1/debug/mesos").text)["may_still_run"])
        statuses = doctor(*arguments)
        assert "green" == statuses["leftovers"], doctor.message("leftovers")


def test_clock_of_this_machine(doctor: Doctor, cluster: LocalCluster, tmp_path: Path) -> None:
    """A minute ahead of master and agents."""
    clock = tmp_path / "clock"
    for seconds, status in ((60.0, "red"), (0.0, "green")):
        clock.write_bytes(struct.pack("d", seconds))
        paths = os.pathsep.join([str(CLOCK), *sys.path])
        statuses = doctor("--master", cluster.master.address, PYTHONPATH=paths, CHAOS_CLOCK=str(clock))
        assert status == statuses["clock"], doctor.message("clock")


@pytest.mark.parametrize("days", [3, 400])
def test_certificate_and_secrets(
    doctor: Doctor, start_service: Callable[..., SchedulerCommand], tmp_path: Path, days: int
) -> None:
    """A certificate that expires soon is red, as are secrets over http."""
    extension = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN=tf"
    command = ["openssl", *request.split(), "-days", str(days), "-addext", extension]
    run_program(*command, cwd=tmp_path, check=True)
    files = {"certificate_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem")}
    authority = {"DCOS_TENSORFLOW_CA_FILE": files["certificate_file"]}

    service = start_service(api=files)

    statuses = doctor("--url", f"https://127.0.0.1:{service.port}", **authority)
    assert ("green" if days > 30 else "red") == statuses["tls"], doctor.message("tls")
    statuses = doctor("--options", doctor.options(secrets=SECRETS))
    assert "red" == statuses["tls"]
    assert "api.certificate_file" in doctor.message("tls")
