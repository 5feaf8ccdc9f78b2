"""The drivers with a real master and agent."""

from __future__ import annotations

import getpass
import json
import os
import sys
from typing import Any

import pytest

from kit.shared import SharedServers
from kit.waiting import wait_until
from mesos_client.results import DriverAborted
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from wire.client import ROOT, SchedulerClient

#: An agent looks for a restarted master when it misses pings.
QUICK_MASTER = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}
ONE_AGENT = [AgentSpec("agent-1", "cpus:1;mem:512;ports:[31960-31969]")]


def framework(**fields: Any) -> dict[str, Any]:
    """Return a FrameworkInfo; without `failover_timeout` it ends with its connection."""
    return {
        "name": "wire-test",
        "user": getpass.getuser(),
        "roles": ["wire"],
        "checkpoint": True,
        "capabilities": [{"type": "MULTI_ROLE"}],
        **fields,
    }


def known_as(master: str, framework_id: str) -> str:
    """active, inactive, removed or unknown."""
    answer = master_api.call(master, "GET_FRAMEWORKS")
    for one in answer.get("completed_frameworks", ()):
        if one["framework_info"]["id"]["value"] == framework_id:
            return "removed"
    for one in answer.get("frameworks", ()):
        if one["framework_info"]["id"]["value"] == framework_id:
            return "active" if one["active"] else "inactive"
    return "unknown"


def test_p1_an_exception_in_a_callback_keeps_the_framework(local_cluster) -> None:
    """P1: stock pymesos would send a TEARDOWN."""
    master = local_cluster.master.address
    raising = {"resourceOffers": ValueError("raised on purpose")}
    with SchedulerClient(master, raising, framework=framework()) as client:
        framework_id = client.wait(callback="registered")["arguments"][0]["value"]
        client.wait(callback="resourceOffers")
        assert client.kill().startswith("Sent")
        assert "active" == known_as(master, framework_id)


def test_p2_abort_keeps_the_framework(local_cluster, scheduler_of) -> None:
    """P2: after abort() the master waits for the framework to come back."""
    master = local_cluster.master.address
    with SchedulerClient(master, framework=framework(failover_timeout=60.0)) as client:
        framework_id = client.wait(callback="registered")["arguments"][0]["value"]
        client.driver.abort()
        wait_until(lambda: known_as(master, framework_id) != "active", "the disconnection")
        assert "inactive" == known_as(master, framework_id)
    successor = scheduler_of(master, framework(id={"value": framework_id}))
    assert successor.wait("SUBSCRIBED")["framework_id"]["value"] == framework_id


def test_p3_removed_framework_aborts_without_storm(local_cluster, scheduler_of) -> None:
    """P3: a removed framework id stops the driver with the master's message."""
    master = local_cluster.master.address
    gone = scheduler_of(master, framework())
    framework_id = gone.wait("SUBSCRIBED")["framework_id"]
    assert gone.driver.teardown().ok
    with SchedulerClient(master, framework=framework(id=framework_id)) as client:
        client.wait(1, callback="error")
        assert "removed" in client.wait(state="DriverAborted")["reason"]
        client.driver.join()
        assert 1 == len(client.found(callback="error"))


def test_p3_the_scheduler_that_is_replaced_stops(local_cluster, scheduler_of) -> None:
    """P3: a second scheduler with the same id takes over, the first one stops."""
    first = scheduler_of(local_cluster.master.address, framework(failover_timeout=60.0))
    framework_id = first.wait("SUBSCRIBED")["framework_id"]
    second = scheduler_of(local_cluster.master.address, framework(failover_timeout=60.0, id=framework_id))
    second.wait("SUBSCRIBED")
    assert DriverAborted("Framework failed over") == first.wait("DriverAborted")
    assert first.driver.aborted
    assert second.driver.send({"type": "REVIVE"}).ok


def test_p13_gpu_capability_follows_framework_info(local_cluster) -> None:
    """P13: the master registers the capability even if /version does not answer."""
    wanted = [{"type": "GPU_RESOURCES"}, {"type": "MULTI_ROLE"}]
    with SchedulerClient(local_cluster.master.address, framework=framework(capabilities=wanted)) as client:
        framework_id = client.wait(callback="registered")["arguments"][0]["value"]
        (capabilities,) = (
            one["framework_info"]["capabilities"]
            for one in master_api.call(local_cluster.master.address, "GET_FRAMEWORKS")["frameworks"]
            if one["framework_info"]["id"]["value"] == framework_id
        )
        assert {"type": "GPU_RESOURCES"} in capabilities
        master_api.teardown(local_cluster.master.address, framework_id)


def test_rejected_framework_info_is_reported(local_cluster, scheduler_of) -> None:
    """An invalid FrameworkInfo stops the driver with the master's message."""
    refused = scheduler_of(local_cluster.master.address, framework(capabilities=[]))
    reason = refused.wait("DriverAborted").reason
    assert "MULTI_ROLE" in reason


# The executor, on an agent of its own.


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    return module_servers.cluster(ONE_AGENT, master_flags=QUICK_MASTER)


class Running:
    """One task that runs on the real agent."""

    def __init__(self, cluster: LocalCluster, scheduler: Any, name: str) -> None:
        self.scheduler, self.task_id = scheduler, {"value": name}
        framework_id = scheduler.wait("SUBSCRIBED")["framework_id"]
        offer = scheduler.wait("OFFERS")["offers"][0]
        self.agent_id = offer["agent_id"]
        task = _task(name, offer["agent_id"], framework_id)
        launch = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
        accept = {"offer_ids": [offer["id"]], "operations": [launch]}
        assert scheduler.driver.send({"type": "ACCEPT", "accept": accept}).ok
        assert scheduler.state_after("TASK_STAGING") == "TASK_RUNNING"
        self.sandbox = cluster.sandbox(self.agent_id["value"], framework_id["value"], name)

    def seen(self, kind: str) -> list[dict[str, Any]]:
        path = self.sandbox / "seen"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in map(_json, lines) if line.get("type") == kind]

    def wait_seen(self, kind: str, count: int = 1) -> dict[str, Any]:
        wait_until(lambda: len(self.seen(kind)) >= count, f"{count} {kind}")
        return self.seen(kind)[count - 1]

    def finish(self) -> None:
        (self.sandbox / "finish").touch()


def _json(line: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:  # being written
        return {}
    return record


def _task(name: str, agent_id: dict[str, Any], framework_id: dict[str, Any]) -> dict[str, Any]:
    path = os.pathsep.join(str(ROOT / folder) for folder in ("tests", "framework"))
    command = f"PYTHONPATH={path} exec {sys.executable} -m wire.executor"
    executor = {
        "type": "CUSTOM",
        "executor_id": {"value": name},
        "framework_id": framework_id,
        "command": {"value": command},
        "resources": _resources(0.1, 32),
    }
    return {
        "name": name,
        "task_id": {"value": name},
        "agent_id": agent_id,
        "executor": executor,
        "resources": _resources(0.1, 32),
    }


def _resources(cpus: float, mem: float) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": "SCALAR",
            "scalar": {"value": value},
            "allocation_info": {"role": "wire"},
        }
        for name, value in (("cpus", cpus), ("mem", mem))
    ]


def test_p7_a_task_that_ends_while_the_agent_is_away_is_reported(cluster, scheduler_of) -> None:
    """P7, P8: the executor meets the restarted agent's window, and its update arrives."""
    running = Running(cluster, scheduler_of(cluster.master.address, framework(failover_timeout=60.0)), "p7")
    agent = cluster.agents["agent-1"]
    agent.kill()
    running.wait_seen("DriverDisconnected")
    running.finish()
    running.wait_seen("sent")
    agent.start()
    cluster.wait_registered()
    assert running.scheduler.state_after("TASK_RUNNING") == "TASK_FINISHED"


def test_p8_a_task_outlives_its_agents_restarts(cluster, scheduler_of) -> None:
    """P8, P11: after two restarts the same executor receives a complete KILL."""
    running = Running(cluster, scheduler_of(cluster.master.address, framework(failover_timeout=60.0)), "p8")
    agent = cluster.agents["agent-1"]
    for restart in (1, 2):
        agent.kill()
        running.wait_seen("DriverDisconnected", restart)
        agent.start()
        running.wait_seen("SUBSCRIBED", restart + 1)
        cluster.wait_registered()
    policy = {"grace_period": {"nanoseconds": 7}}
    kill = {"task_id": running.task_id, "agent_id": running.agent_id, "kill_policy": policy}
    assert running.scheduler.driver.send({"type": "KILL", "kill": kill}).ok
    assert running.wait_seen("KILL")["kill"]["kill_policy"] == policy
    assert running.scheduler.state_after("TASK_RUNNING") == "TASK_KILLED"


def test_p10_executor_exits_without_checkpointing(cluster, scheduler_of) -> None:
    """P10: with MESOS_CHECKPOINT=0 the driver stops when the real agent is killed."""
    running = Running(
        cluster, scheduler_of(cluster.master.address, framework(checkpoint=False, failover_timeout=60.0)), "p10"
    )
    cluster.agents["agent-1"].kill()
    try:
        assert "does not checkpoint" in running.wait_seen("DriverAborted")["reason"]
    finally:
        cluster.agents["agent-1"].start()
        cluster.wait_registered()


def test_p24_the_last_update_is_acknowledged_after_shutdown(cluster, scheduler_of) -> None:
    """P24: after SHUTDOWN the agent's ACKNOWLEDGED of the last update still arrives."""
    running = Running(cluster, scheduler_of(cluster.master.address, framework(failover_timeout=60.0)), "p24")
    shutdown = {"executor_id": {"value": "p24"}, "agent_id": running.agent_id}
    assert running.scheduler.driver.send({"type": "SHUTDOWN", "shutdown": shutdown}).ok
    assert running.scheduler.state_after("TASK_RUNNING") == "TASK_KILLED"
    assert running.wait_seen("left")["acknowledged"] is True


def test_a_master_that_returns_is_subscribed_to_again(cluster, scheduler_of) -> None:
    """After a restart of the master the driver subscribes again with the same id."""
    scheduler = scheduler_of(cluster.master.address, framework(failover_timeout=60.0))
    framework_id = scheduler.wait("SUBSCRIBED")["framework_id"]
    cluster.master.kill()
    cluster.master.start()
    cluster.wait_registered()
    assert scheduler.wait("SUBSCRIBED")["framework_id"] == framework_id
    assert scheduler.driver.send({"type": "RECONCILE", "reconcile": {"tasks": []}}).ok
