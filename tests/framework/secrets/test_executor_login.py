"""Another process in the place of an executor, on real agents."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kit.commands import SMALL, SchedulerCommand, run_command
from kit.shared import start_cluster
from kit.theft import SUBSCRIBE_AS_EXECUTOR
from kit.waiting import PATIENCE, wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("real_mesos")

VALUE = "a value that only the task may have"
FLAG = "--authenticate_http_executors"
#: Any other user of the host.
STRANGER: dict[str, Any] = {"user": 33, "group": 33, "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def attack(cluster: LocalCluster) -> Iterator[subprocess.Popen[str]]:
    """Run the attack as another user, from before the next executor starts."""
    command = ["/usr/bin/python3", "-c", SUBSCRIBE_AS_EXECUTOR, cluster.agents["agent-1"].address]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd="/", **pipes, **STRANGER) as process:
        try:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


@contextmanager
def a_service(folder: Path, cluster: LocalCluster, command: str) -> Iterator[SchedulerCommand]:
    """Options of a service with one worker, which has a secret."""
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key").write_text(VALUE)
    service = SchedulerCommand(
        folder / "options.json",
        cluster.master.address,
        service={"command": command},
        worker={"count": 1, **SMALL},
        secret_delivery={"directory": str(folder / "secrets")},
        secrets=[{"source": "file:key", "env": "KEY"}],
    )
    try:
        yield service
    finally:
        service.stop()


def events(service: SchedulerCommand) -> list[dict[str, Any]]:
    answer = service.request("/v1/events?limit=1000")
    return list(answer.json["events"]) if answer.status == 200 else []


def messages(service: SchedulerCommand, part: str) -> list[str]:
    return [event["message"] for event in events(service) if part in event["message"]]


def command(service: SchedulerCommand, *words: str) -> str:
    return run_command("--url", f"http://127.0.0.1:{service.port}", *words).stdout


def test_process_in_place_of_the_executor(tmp_path: Path) -> None:
    """Nothing is placed without the flag; if that is accepted, a theft is reported."""
    agents, flags = [AgentSpec("agent-1", "cpus:2;mem:1024")], {"authenticate_http_executors": False}
    with (
        start_cluster(agents, agent_flags=flags) as cluster,
        a_service(tmp_path, cluster, "exec sleep 1000") as service,
    ):
        process = service.start(stderr=subprocess.DEVNULL)
        wait_until(lambda: FLAG in service.request("/v1/pending").text, "no reason names the flag")
        assert FLAG in command(service, "why", "worker-0")
        # Events that change nothing are published within a second.
        refused = wait_until(lambda: messages(service, "agent agent-1 may not authenticate executors"))
        assert 1 == len(refused)
        assert [] == executors(cluster)
        process.kill()
        process.wait()

        service.change(secret_delivery={"directory": str(tmp_path / "secrets"), "executor_authentication": "optional"})
        with attack(cluster) as thief:
            service.start(stderr=subprocess.DEVNULL)
            output, errors = thief.communicate(timeout=PATIENCE)
            stolen = time.monotonic()
        assert f"{VALUE}\n" == output, errors
        (message,) = wait_until(lambda: messages(service, "may have been taken"), "the theft is not reported")
        assert time.monotonic() - stolen < 5
        assert "secrets KEY may have been taken by another process on agent agent-1: worker-0" in message
        assert 1 == len(messages(service, "agent agent-1 gets secrets, but may not authenticate executors"))

        wait_until(lambda: 200 == service.status("/v1/health"), "the task is not launched again")
        assert message in service.request("/v1/health?verbose=true").json["reasons"]
        assert message in service.request("/v1/tf/overview").json["notices"]
        assert "tensorflow_agents_exposed 1.0" in service.request("/v1/metrics/prometheus").text
        assert "on agent-1" in command(service, "secrets", "acknowledge")
        assert message not in service.request("/v1/health?verbose=true").text
        assert "tensorflow_agents_exposed 0.0" in service.request("/v1/metrics/prometheus").text


def test_agent_with_executor_authentication_refuses_another_process(tmp_path: Path) -> None:
    """The default of a local cluster."""
    with (
        start_cluster([AgentSpec("agent-1", "cpus:2;mem:1024")]) as cluster,
        a_service(tmp_path, cluster, f'test "$KEY" = {json.dumps(VALUE)}') as service,
        attack(cluster) as thief,
    ):
        service.start(stderr=subprocess.DEVNULL)
        _, errors = thief.communicate(timeout=PATIENCE)
        assert "HTTP 401\n" == errors
        result = wait_until(lambda: service.request("/v1/tf/result").json["verdict"], ignore=ValueError)
        assert "succeeded" == result
        assert [] == messages(service, "may have been taken")


def executors(cluster: LocalCluster) -> list[Any]:
    """Executors that the agent runs or has run."""
    with urlopen(f"http://{cluster.agents['agent-1'].address}/state", timeout=10) as answer:
        state = json.load(answer)
    frameworks = state["frameworks"] + state["completed_frameworks"]
    return [item for framework in frameworks for item in framework["executors"] + framework["completed_executors"]]
