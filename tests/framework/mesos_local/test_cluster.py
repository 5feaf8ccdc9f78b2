"""A real cluster with containers: start, failures, stop, and no leftovers."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from http_scheduler import HttpScheduler
from kit.commands import ENVIRONMENT
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError, NodeDiedError, ProcessId, find_orphans
from mesos_local.node import helper_folder, is_listening
from tf_executor.contract.http import HttpClient

pytestmark = pytest.mark.usefixtures("real_mesos")

ONE_AGENT = [AgentSpec("agent-1", "cpus:1;mem:512;ports:[31950-31959]")]
Schedulers = Callable[..., Any]


def test_agents_are_as_specified(local_cluster: LocalCluster) -> None:
    """Hostname, resources (GPUs too) and attributes reach the master."""
    agents = local_cluster.state().agents
    assert [agent.hostname for agent in agents] == ["agent-1", "agent-2", "agent-3"]
    assert [agent.resources.get("gpus") for agent in agents] == [None, None, 2.0]
    assert [agent.attributes["rack"] for agent in agents] == ["rack-1", "rack-2", "rack-3"]
    assert all(agent.active for agent in agents)
    assert [agent.agent_id for agent in agents] == [agent.agent_id for agent in local_cluster.agents.values()]


def test_flags_reach_master_and_agent(local_cluster: LocalCluster) -> None:
    """Like --allocation_interval."""
    with urllib.request.urlopen(f"http://{local_cluster.master.address}/flags", timeout=10) as answer:
        assert json.load(answer)["flags"]["allocation_interval"] == "100ms"


def test_agents_authenticate_executors(local_cluster: LocalCluster) -> None:
    """Otherwise any process could subscribe as an executor and read its task."""
    subscribe = {
        "type": "SUBSCRIBE",
        "framework_id": {"value": "f"},
        "executor_id": {"value": "e"},
        "subscribe": {"unacknowledged_tasks": [], "unacknowledged_updates": []},
    }
    for agent in local_cluster.agents.values():
        url = f"http://{agent.address}/slave(1)/api/v1/executor"
        request = Request(url, json.dumps(subscribe).encode(), {"Content-Type": "application/json"})
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert 401 == refused.value.code
        refused.value.close()
    assert 0o600 == stat.S_IMODE((local_cluster.directory / "executor-key").stat().st_mode)


def test_no_client_of_the_master_stops_agents(local_cluster: LocalCluster) -> None:
    """A page of any web site can send the first request.

    Browsers send plain text to other sites.
    """
    machine = {"hostname": "agent-1", "ip": "127.0.0.1"}
    schedule = {"windows": [{"machine_ids": [machine], "unavailability": {"start": {"nanoseconds": 1}}}]}
    agent = {"agent_id": {"value": local_cluster.agents["agent-1"].agent_id}}
    calls: list[tuple[str, str, Mapping[str, object]]] = [
        ("maintenance/schedule", "text/plain", schedule),
        *(
            ("api/v1", "application/json", {"type": kind, kind.lower(): content})
            for kind, content in (
                ("UPDATE_MAINTENANCE_SCHEDULE", {"schedule": schedule}),
                ("DRAIN_AGENT", agent),
                ("DEACTIVATE_AGENT", agent),
                ("MARK_AGENT_GONE", agent),
                ("SET_LOGGING_LEVEL", {"level": 1, "duration": {"nanoseconds": 1}}),
            )
        ),
    ]
    client, master = HttpClient(10.0, 10.0), local_cluster.master.address
    statuses = [
        client.fetch(f"http://{master}/{path}", {"Content-Type": kind}, json.dumps(body).encode()).status
        for path, kind, body in calls
    ]
    assert [403] * len(calls) == statuses
    assert all(each.active for each in local_cluster.state().agents)


def test_task_runs_from_a_fetched_file(
    cluster: LocalCluster, scheduler: Schedulers, executor_command: dict[str, Any]
) -> None:
    """The agent fetches a URI and runs the container; its output is in the sandbox."""
    framework = scheduler()
    agent_id = framework.launch("agent-1", executor_command)
    framework.await_state("TASK_RUNNING")
    sandbox = cluster.sandbox(agent_id, framework.framework_id, "t1")
    assert "executor started" in (sandbox / "stdout").read_text()
    assert (sandbox / "executor.py").exists()
    state = cluster.state()
    assert [task.state for task in state.tasks] == ["TASK_RUNNING"]
    assert pytest.approx(state.agents[0].used["cpus"]) == 0.2


def test_restarted_master_gets_its_agents_back(cluster: LocalCluster) -> None:
    """A new process at the same address recovers the registry from its work dir."""
    before = cluster.master.pid, cluster.master.address, cluster.agents["agent-1"].agent_id
    cluster.master.kill()
    cluster.master.start()
    cluster.wait_registered()
    after = cluster.master.pid, cluster.master.address, cluster.agents["agent-1"].agent_id
    assert before[0] != after[0]
    assert before[1:] == after[1:]


def test_dead_node_is_reported_with_its_log(cluster: LocalCluster) -> None:
    """An unexpected exit is an error with the end of the log."""
    agent = cluster.agents["agent-1"]
    os.kill(agent.pid, signal.SIGKILL)
    os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(NodeDiedError) as caught:
            cluster.wait_registered()
    finally:
        agent.kill()
        agent.start()
        cluster.wait_registered()
    sentence, _, details = str(caught.value).partition("\n")
    assert "agent-1 has exited: killed by SIGKILL" == caught.value.sentence == sentence
    assert details.startswith(f"last lines of {agent.log_path}:\n")
    assert "slave.cpp" in details


def test_bad_flag_is_reported_with_the_log_and_nothing_is_left() -> None:
    """Mesos reports the invalid value."""
    cluster = LocalCluster(ONE_AGENT, master_flags={"allocation_interval": "soon"})
    with pytest.raises(MesosLocalError, match="allocation_interval"):
        cluster.start()
    with pytest.raises(MesosLocalError, match="has not been started"):
        _ = cluster.directory


@pytest.mark.parametrize("kind", ["master_flags", "agent_flags"])
def test_unknown_flag_is_reported(kind: Literal["master_flags", "agent_flags"]) -> None:
    """Mesos ignores unknown variables in its environment, for example a misspelt flag."""
    flags = {"zk_session_timeouts": "2secs"}
    with (
        pytest.raises(
            MesosLocalError, match=r"unknown Mesos flag 'zk_session_timeouts' .*did you mean 'zk_session_timeout'"
        ),
        LocalCluster(ONE_AGENT, **{kind: flags}),
    ):
        pass


def test_stop_leaves_no_process_or_port(executor_command: dict[str, Any]) -> None:
    """No process (the executor's neither), no port, no folder."""
    with LocalCluster(ONE_AGENT) as cluster:
        framework = HttpScheduler(cluster.master.address)
        framework.launch("agent-1", executor_command)
        framework.await_state("TASK_RUNNING")
        framework.drop()
        directory, addresses = cluster.directory, [node.address for node in cluster.nodes]
        processes = find_orphans(directory)
    assert len(processes) > len(addresses)
    assert not any(process.alive() for process in processes)
    assert not any(is_listening(address) for address in addresses)
    assert not directory.exists()


OWNER = """
import os, signal, sys
from pathlib import Path
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local import cluster as module
cluster = LocalCluster([AgentSpec("agent-1", "cpus:1;mem:512;ports:[31960-31969]")], die_with_parent=True)
cluster.start()
print(cluster.directory, cluster.master.address, flush=True)
end_orphans = module.end_orphans
def in_the_middle(*arguments, **options):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    end_orphans(*arguments, **options)
module.end_orphans = in_the_middle
if sys.stdin.readline():
    cluster.stop()
    print("goes on", flush=True)
"""


@pytest.fixture
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a cluster that gets the parameter, a signal, twice."""
    command = [sys.executable, "-c", OWNER, getattr(request, "param", "SIGINT")]
    pipe = subprocess.PIPE
    environment = ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            for folder in tmp_path.glob("mesos-local-*"):
                LocalCluster.end(folder)


def _started(owner: subprocess.Popen[str], command: dict[str, Any]) -> tuple[Path, set[ProcessId]]:
    """Return the folder and the processes, including an executor."""
    assert owner.stdout is not None
    name, master = owner.stdout.readline().split()
    framework = HttpScheduler(master)
    framework.launch("agent-1", command)
    framework.await_state("TASK_RUNNING")
    framework.drop()
    return Path(name), find_orphans(Path(name))


@pytest.mark.parametrize("owner", ["SIGINT", "SIGKILL"], indirect=True)
def test_interrupted_stop_leaves_nothing(owner: subprocess.Popen[str], executor_command: dict[str, Any]) -> None:
    """Ctrl-C takes effect after the clean-up; after SIGKILL the guard finishes it."""
    folder, processes = _started(owner, executor_command)
    output, _ = owner.communicate("end\n")
    assert all(process.wait(30) for process in processes)
    assert not folder.exists()
    assert "" == output
    assert owner.returncode != 0


def test_killed_owner_leaves_nothing(owner: subprocess.Popen[str], executor_command: dict[str, Any]) -> None:
    """With `die_with_parent`, SIGKILL of the owner removes processes and folder."""
    folder, processes = _started(owner, executor_command)
    assert len(processes) >= 4  # guard, master, agent, executor
    owner.kill()
    assert all(process.wait(30) for process in processes)
    assert not folder.exists()


def test_a_later_cluster_in_the_same_folder_is_spared(tmp_path: Path) -> None:
    """Its processes have the same mark; the record distinguishes them."""
    folder = tmp_path / "cluster"
    first = LocalCluster(ONE_AGENT, folder)
    first.start()
    assert LocalCluster.end(folder)
    with LocalCluster(ONE_AGENT, folder) as second:
        first.stop()
        assert all(is_listening(node.address) for node in second.nodes)


def test_any_printable_path_works(
    tmp_path: Path, executor_command: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers that Mesos runs through a shell with unquoted paths are removed, too.

    ZooKeeper reads it from a file in which backslashes are escapes and bytes are Latin-1.
    """
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "s p" / "lü\N{SNAKE}'q\"$(x);&\\t"
    with LocalCluster(ONE_AGENT, folder, zookeeper=True) as cluster:
        helpers = helper_folder(folder)
        assert not helpers.is_relative_to(folder)
        framework = HttpScheduler(cluster.master.address)
        framework.launch("agent-1", executor_command)
        framework.await_state("TASK_RUNNING")
        framework.close()
        assert (folder / "zookeeper" / "data" / "version-2").exists()
    assert [folder] == list(folder.parent.iterdir())
    assert not helpers.exists()
    assert not (folder / "libexec").is_symlink()
