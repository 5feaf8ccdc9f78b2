"""A local cluster with containers, skipped where the machine cannot have one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, Response, command_line, request, run_command
from kit.shared import port_block
from kit.waiting import PATIENCE
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.images import Image, read_python, write_image
from mesos_local.network import cgroups_root, missing_requirements

AGENTS = 2
#: The master notices a silent agent after three seconds.
QUICK = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}
#: Image with this Python, without packages.
PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Containers:
    """A cluster whose commands keep state and images in a folder of their own."""

    folder: Path
    #: XDG_STATE_HOME.
    state: Path
    cluster: LocalCluster

    @property
    def environment(self) -> dict[str, str]:
        return ENVIRONMENT | {"XDG_STATE_HOME": str(self.state), "XDG_DATA_HOME": str(self.folder / "data")}

    def build(self, name: str, image: Image) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_DATA_HOME", str(self.folder / "data"))
            write_image(name, image)

    def command(self, *arguments: object, **variables: str) -> Any:
        """Run a command; agents may unpack an image of a gigabyte meanwhile."""
        environment = self.environment | variables
        return run_command(*arguments, env=environment, cwd=self.folder, timeout=3 * PATIENCE)

    def run(self, options: Mapping[str, Any], *arguments: object, **variables: str) -> dict[str, Any]:
        """Run a job to its end; return the report of `local run --json`."""
        path = self.folder / f"{options['service']['name']}.json"
        path.write_text(json.dumps(options))
        done = self.command("local", "run", path, "--json", *arguments, **variables)
        report: dict[str, Any] = json.loads(done.stdout)
        assert "state" in report, report
        return report

    @contextmanager
    def started(self, options: Mapping[str, Any], **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Run a job in the background; the block must let it end."""
        path = self.folder / f"{options['service']['name']}.json"
        path.write_text(json.dumps(options))
        command = command_line("local", "run", path, "--json")
        environment = self.environment | variables
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
            try:
                yield run
            except BaseException:
                run.terminate()
                raise

    def request(self, service: str, path: str) -> Response:
        """Ask the API of a running job; the status is 0 while it does not answer."""
        for note in (self.state / "dcos-tensorflow" / "services").glob("*.json"):
            content = json.loads(note.read_text() or "{}")
            if content.get("name") == service:
                token = Path(content["token_file"]).read_text()
                return request(int(content["url"].rpartition(":")[2]), path, token=token)
        return Response(0)

    def output(self, report: Mapping[str, Any], task: str = "worker-0", name: str = "stdout") -> str:
        """Return what a task of a run has written."""
        logs = self.state / "dcos-tensorflow/runs" / str(report["run"]) / "logs"
        return (logs / task / name).read_text()


def host_state(own: Path | None = None) -> tuple[list[str], list[str]]:
    """Return the mounts and the network interfaces of this machine.

    Agents of other tests mount their work folders meanwhile: of folders of tests only those below `own` count.
    """
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line for line in lines if "/pytest-of-" not in line or (own and str(own) in line)]
    return mounts, sorted(path.name for path in Path("/sys/class/net").iterdir())


def make_environment(python: Path, folder: Path) -> Path:
    """Return a Python without packages, for images that are small."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    return folder / "venv" / "bin" / "python3"


def bare_python(python: Path, folder: Path) -> Image:
    """Return an image with an interpreter of this machine, without its packages."""
    return read_python(make_environment(python, folder), folder)


@contextmanager
def start_agents(data: Path, state: Path, master: Mapping[str, str] = QUICK, **flags: object) -> Iterator[LocalCluster]:
    """Run a cluster with containers.

    `data`, `state`: XDG_DATA_HOME and XDG_STATE_HOME. `master`, `flags`: flags of the master and the agents.
    """
    with ExitStack() as stack:
        first = stack.enter_context(port_block())
        resources = {"cpus": 4, "mem": 6144, "disk": 10000}
        ports = (f"[{first + 100 * number}-{first + 100 * number + 99}]" for number in range(AGENTS))
        agents = [AgentSpec(f"agent-{n}", resources | {"ports": span}) for n, span in enumerate(ports, 1)]
        directory = state / "dcos-tensorflow" / "local"
        cluster = LocalCluster(agents, directory, master, flags, containers=True, die_with_parent=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_DATA_HOME", str(data))
            stack.enter_context(cluster)
        yield cluster


@pytest.fixture(scope="session")
def containers(real_containers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """The cluster; afterwards nothing of it is left on the machine."""
    if missing := missing_requirements():
        pytest.skip(f"containers need {', '.join(missing)}")
    before = host_state()
    folder = tmp_path_factory.mktemp("containers")
    with start_agents(folder / "data", folder / "state") as cluster:
        directory = cluster.directory
        containers = Containers(folder, folder / "state", cluster)
        python = Path(sys.base_prefix, "bin", "python3")
        containers.build(PLAIN, bare_python(python, tmp_path_factory.mktemp("image")))
        yield containers
    assert before == host_state(folder)
    assert [] == list(Path("/sys/fs/cgroup").glob(f"*/{cgroups_root(directory)}"))


def job(name: str, command: str, worker: Mapping[str, Any] | None = None, **service: Any) -> dict[str, Any]:
    """Return the options of one small worker."""
    worker = {"count": 1, "cpus": 0.2, "mem": 128, "disk": 0, **(worker or {})}
    return {"service": {"name": name, "strategy": "independent", "command": command, **service}, "worker": worker}
