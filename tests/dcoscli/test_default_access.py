"""Who may write to a service installed without options, not on loopback.

The master, Admin Router, Marathon and the scheduler run at MASTER; another machine has the address OTHER.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kit.commands import run_program, serving_dcos
from kit.namespaces import network_namespace
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster

pytestmark = pytest.mark.timeout(600)

MASTER, OTHER = "10.77.0.1", "10.77.0.2"
START = "/v1/plans/deploy/start"
#: Runs /bin/sh in any Python program.
ATTACK = {"PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": '/bin/sh -c "id; echo PWNED" #%s'}
PATIENCE = 120


class ClusterAtMaster(LocalCluster):
    """A local cluster whose nodes have the address MASTER instead of loopback."""

    def _choose_addresses(self) -> dict[str, str]:
        addresses = super()._choose_addresses()
        return {name: address.replace("127.0.0.1", MASTER) for name, address in addresses.items()}


class Answer(NamedTuple):
    status: int
    text: str


def send(port: int, method: str, path: str, source: str, body: Any = None, **headers: str) -> Answer:
    """Send a request to the scheduler from one of the addresses."""
    connection = http.client.HTTPConnection(MASTER, port, timeout=PATIENCE, source_address=(source, 0))
    with closing(connection):
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode())


class DcOs:
    """The stand-in for DC/OS, and the real dcos command."""

    def __init__(self, program: Path, url: str, cluster: LocalCluster, home: Path) -> None:
        self.program, self.url, self.cluster, self.home = program, url, cluster, home

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        paths = {"PATH": os.environ["PATH"], "HOME": str(self.home), "DCOS_DIR": str(self.home / "dcos")}
        return run_program(
            self.program,
            *arguments,
            env={**paths, "LC_ALL": "C.UTF-8", "DCOS_URL": self.url, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    def install(self, name: str, *options: str) -> int:
        """Install the package; return the port of the API."""
        installed = self.run("package", "install", "tensorflow", "--yes", *options)
        assert installed.returncode == 0, installed.stdout + installed.stderr
        wait_until(lambda: self.run("tensorflow", f"--name={name}", "plan", "list").returncode == 0)
        with urllib.request.urlopen(f"{self.url}/service/marathon/v2/apps/{name}", timeout=PATIENCE) as answer:
            (task,) = json.load(answer)["app"]["tasks"]
        return int(task["ports"][0])

    def log(self) -> str:
        """Return the output of all schedulers."""
        files = self.cluster.directory.rglob("stdout")
        return "".join(file.read_text(errors="replace") for file in files)


@pytest.fixture(scope="module")
def dcos(dcos_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DcOs]:
    """The agent is too small for the job, so that the service waits."""
    home = tmp_path_factory.mktemp("dcos")
    agents = [AgentSpec("small", "cpus:0.1;mem:32;disk:10")]
    # Without a name server the master cannot look up its own name.
    flags = {"hostname": MASTER}
    with (
        network_namespace(MASTER, OTHER),
        ClusterAtMaster(agents, master_flags=flags) as cluster,
        serving_dcos(cluster, errors=home / "stderr", LOCAL_DCOS_HOST=MASTER) as url,
    ):
        yield DcOs(dcos_program, url, cluster, home)


@pytest.fixture(scope="module")
def port(dcos: DcOs) -> int:
    """Port of the API of the service that is installed without options."""
    return dcos.install("tensorflow")


def test_default_service_refuses_writes_of_other_machines(dcos: DcOs, port: int) -> None:
    """Whatever their headers claim. Reading and the dcos command work."""
    claims = {"X-Forwarded-For": MASTER, "X-Real-IP": MASTER, "Authorization": "token=of.dcos", "Host": MASTER}
    for headers in ({}, claims):
        refused = send(port, "POST", START, OTHER, ATTACK, **headers)
        assert (401, True) == (refused.status, "set api.write_token" in refused.text)
        assert 401 == send(port, "POST", "/v1/pod/worker-0/restart", OTHER, **headers).status
        assert 401 == send(port, "PUT", "/v1/state/files/x", OTHER, **headers).status
    assert 200 == send(port, "GET", "/v1/plans", OTHER).status

    paused = dcos.run("tensorflow", "plan", "pause", "deploy")
    assert (0, True) == (paused.returncode, "Received cmd: interrupt" in paused.stdout), paused.stderr
    assert "WAITING" in dcos.run("tensorflow", "plan", "status", "deploy").stdout
    assert 0 == dcos.run("tensorflow", "plan", "resume", "deploy").returncode


def test_default_service_refuses_variables_that_run_code(dcos: DcOs, port: int) -> None:
    """Also from a master. The log has the name, not the value."""
    for refused in (send(port, "POST", START, MASTER, ATTACK), send(port, "POST", START, MASTER, {"LD_PRELOAD": "x"})):
        assert 409 == refused.status
    command = dcos.run("tensorflow", "plan", "start", "deploy", "-p", f"PYTHONWARNINGS={ATTACK['PYTHONWARNINGS']}")
    assert (1, True) == (command.returncode, "PYTHONWARNINGS is not allowed" in command.stderr)

    log = dcos.log()
    assert f"audit: POST {START} with PYTHONWARNINGS, BROWSER by anyone from {MASTER}: 409" in log
    assert "antigravity" not in log


def test_open_service_warns_that_it_obeys_every_machine(dcos: DcOs) -> None:
    """The control of these tests: the same write is accepted from another machine."""
    options = dcos.home / "open.json"
    options.write_text(json.dumps({"service": {"name": "open"}, "api": {"authentication": "none"}}))

    port = dcos.install("open", f"--options={options}")

    assert 200 == send(port, "POST", "/v1/plans/deploy/interrupt", OTHER).status
    assert "api.authentication: none" in send(port, "GET", "/v1/health?verbose=true", OTHER).text


def test_token_opens_the_service_through_admin_router(dcos: DcOs) -> None:
    """A master without the token is refused, too."""
    (dcos.home / "api-token").write_text("geheim\n")
    options = dcos.home / "token.json"
    sections = {"api": {"write_token": "file:api-token"}, "secret_delivery": {"directory": str(dcos.home)}}
    options.write_text(json.dumps({"service": {"name": "token"}, **sections}))
    installed = dcos.run("package", "install", "tensorflow", "--yes", f"--options={options}")
    assert installed.returncode == 0, installed.stderr
    wait_until(lambda: "requires a token" in dcos.run("tensorflow", "--name=token", "plan", "list").stderr)

    accepted = dcos.run("tensorflow", "--name=token", "--token=geheim", "plan", "pause", "deploy")

    assert (0, True) == (accepted.returncode, "Received cmd: interrupt" in accepted.stdout), accepted.stderr
    assert 1 == dcos.run("tensorflow", "--name=token", "--token=wrong", "plan", "pause", "deploy").returncode
