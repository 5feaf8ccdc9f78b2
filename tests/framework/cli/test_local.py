"""The `local` commands as processes: output and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, command_line, run_command
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError, PortClaims, ProcessId, find_orphans
from mesos_local.node import is_listening
from mesos_local.record import NAME, read_record
from tf_scheduler.cli.commands.local import MASTER_PORT

AGENT = {"hostname": "only", "resources": {"cpus": 1, "mem": 512, "ports": "[31980-31989]"}, "attributes": "rack:a"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "digits" / "options.json"
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For --dir; a cluster that still runs there is stopped afterwards."""
    yield tmp_path / "cluster"
    LocalCluster.end(tmp_path / "cluster")


@pytest.fixture
def local(folder: Path) -> Command:
    """Run `local NAME ... --dir FOLDER`."""

    return lambda *arguments: run_command("local", *arguments, "--dir", folder)


@pytest.fixture
def agents_file(tmp_path: Path) -> str:
    path = tmp_path / "agents.json"
    path.write_text(json.dumps([AGENT]))
    return str(path)


def test_commands_without_a_cluster(local: Command, folder: Path) -> None:
    """`status` and `logs` exit with 3 and name `local up`; `down` has nothing to do."""
    status, logs, down = local("status"), local("logs"), local("down")
    assert [3, 3, 0] == [status.returncode, logs.returncode, down.returncode]
    assert "dcos-tensorflow local up" in status.stderr
    assert str(folder) in logs.stderr
    assert not folder.exists()


def test_all_problems_of_agents_file_are_reported(local: Command, tmp_path: Path, folder: Path) -> None:
    """Nothing is started."""
    path = tmp_path / "agents.json"
    path.write_text(json.dumps([AGENT | {"hostname": "a b"}, AGENT | {"resources": "cpus:x"}]))
    result = local("up", "--agents", str(path))
    assert 1 == result.returncode
    assert "'a b'" in result.stderr
    assert "'x' is not a number" in result.stderr
    assert not folder.exists()


def test_help_names_variables_of_the_download(local: Command) -> None:
    text = local("up", "--help").stdout
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "index-url", "HTTPS_PROXY", "REQUESTS_CA_BUNDLE"):
        assert name in text


def test_wrong_usage_exits_with_2(local: Command) -> None:
    assert 2 == local("up", "--agent", "x").returncode


@pytest.mark.usefixtures("real_mesos")
def test_up_status_logs_down(local: Command, folder: Path, agents_file: str) -> None:
    """A table, JSON, the log, a second `up` that is rejected, and the end."""
    up = local("up", "--agents", agents_file)
    assert (0, "") == (up.returncode, up.stderr)
    assert "only" in up.stdout
    assert "31980-31989" in up.stdout
    assert "Containers    no" in up.stdout.splitlines()
    status: dict[str, Any] = json.loads(local("status", "--json").stdout)
    assert [("only", {"rack": "a"})] == [(agent["hostname"], agent["attributes"]) for agent in status["agents"]]
    assert not status["containers"]
    assert is_listening(status["master"])
    assert "Registered" in local("logs", "only").stdout
    assert 1 == local("logs", "none").returncode
    again = local("up")
    assert 1 == again.returncode
    assert f"already runs in {folder} (master {status['master']})\n" in again.stderr
    with pytest.raises(MesosLocalError, match=f"it has no containers; stop it first: .* local down --dir {folder}$"):
        LocalCluster(directory=folder, containers=True).start()
    assert 0 == local("down").returncode
    assert set() == find_orphans(folder)
    assert not is_listening(status["master"])
    assert 3 == local("status").returncode


@pytest.mark.usefixtures("real_mesos")
def test_cluster_beside_a_starting_one_has_other_ports(local: Command, folder: Path, agents_file: str) -> None:
    with PortClaims() as claims:
        claims.add(MASTER_PORT, MASTER_PORT)
        up = local("up", "--agents", agents_file)

    record = read_record(folder)
    assert (0, "") == (up.returncode, up.stderr)
    assert record is not None
    assert not record.nodes["master"].address.endswith(f":{MASTER_PORT}")


@pytest.mark.usefixtures("real_mesos")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_foreground_stops_its_cluster(folder: Path, agents_file: str, number: int, code: int) -> None:
    """SIGTERM and even SIGKILL leave no process."""
    command = command_line("local", "up", "--foreground", "--agents", agents_file, "--dir", folder)
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "Ctrl-C" not in process.stdout.readline():
            assert process.poll() is None
        processes = find_orphans(folder)
        process.send_signal(number)
    assert code == process.returncode
    assert 3 == len(processes)  # guard, master, agent
    assert all(one.wait(30) for one in processes)
    assert set() == find_orphans(folder)


@pytest.mark.usefixtures("real_mesos")
def test_down_stops_cluster_with_damaged_record(local: Command, folder: Path, agents_file: str) -> None:
    """The other commands name `local down`. Afterwards the folder can be used again.

    Without any record, processes are found by their mark.
    """
    assert 0 == local("up", "--agents", agents_file).returncode
    processes = find_orphans(folder)
    (folder / NAME).write_text("{")
    for command in (["status"], ["up"], ["run", str(EXAMPLE)]):
        result = local(*command)
        assert 1 == result.returncode
        assert f"dcos-tensorflow local down --dir {folder}\n" in result.stderr
        assert "Traceback" not in result.stderr
    down = local("down")
    assert 0 == down.returncode
    assert "has stopped" in down.stdout
    assert processes
    assert not any(process.alive() for process in processes)
    assert "no local cluster is up" in local("down").stdout
    assert 0 == local("up", "--agents", agents_file).returncode
    processes = find_orphans(folder)
    (folder / NAME).unlink()
    assert "has stopped" in local("down").stdout
    assert processes
    assert not any(process.alive() for process in processes)


@pytest.mark.usefixtures("real_mesos")
def test_cluster_without_master_is_reported(local: Command, folder: Path, agents_file: str) -> None:
    """The message names dead and live nodes, and what to do."""
    assert 0 == local("up", "--agents", agents_file).returncode
    record = read_record(folder)
    assert record is not None
    master = record.nodes["master"].process
    assert master is not None
    master.signal(signal.SIGKILL)
    assert master.wait(30)
    message = f"local cluster in {folder} is incomplete: exited: master; running: only; stop it first: "
    for code, command in ((3, ["status"]), (1, ["up"]), (1, ["run", str(EXAMPLE)])):
        result = local(*command)
        assert code == result.returncode
        assert result.stderr.startswith(f"{message}dcos-tensorflow local down --dir {folder}")
    assert "has stopped" in local("down").stdout
    assert set() == find_orphans(folder)


@pytest.mark.usefixtures("real_mesos")
def test_interrupted_up_leaves_nothing(folder: Path, agents_file: str) -> None:
    """The signal comes while the nodes start."""
    command = command_line("local", "up", "--agents", agents_file, "--dir", folder)
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        identity = ProcessId.of(process.pid)
        assert identity is not None
        while not find_orphans(folder):
            assert not identity.wait(0.005)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert 128 + signal.SIGINT == process.returncode
    assert "SIGINT received: cleaning up and leaving\n" == errors.decode()
    assert set() == find_orphans(folder)
