"""Settings that weaken security are in the log and in the health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.commands import SchedulerCommand
from kit.shared import SharedServers
from kit.waiting import PATIENCE, wait_until

NO_MASTER = "127.0.0.1:9"

Start = Callable[..., SchedulerCommand]


@pytest.fixture
def start_scheduler(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a scheduler with these sections of options."""
    commands: list[SchedulerCommand] = []

    def start_scheduler(**sections: Any) -> SchedulerCommand:
        commands.append(SchedulerCommand(tmp_path / f"options-{len(commands)}.json", NO_MASTER, **sections))
        commands[-1].start()
        return commands[-1]

    yield start_scheduler
    for command in commands:
        command.stop()


def observe(command: SchedulerCommand) -> tuple[list[str], str]:
    """Return the reasons of the health and the log of a running scheduler."""
    wait_until(lambda: command.status("/v1/health"))
    reasons = command.request("/v1/health?verbose=true").json["reasons"]
    return reasons[1:], command.end(command.processes[-1])


def test_open_api_is_reported(start_scheduler: Start) -> None:
    """The option's name is enough to find what weakens the service."""
    reasons, log = observe(start_scheduler(api={"authentication": "none"}))
    without, _ = observe(start_scheduler())

    assert [True] == ["api.authentication: none: every client that can connect" in reason for reason in reasons]
    assert "option api.authentication: none" in log
    assert [] == without


def test_credentials_over_http_are_reported(start_scheduler: Start) -> None:
    """The operator who sees it may not be the one who set the option."""
    reasons, log = observe(start_scheduler(mesos={"master": NO_MASTER, "agent_credentials_over_http": True}))

    text = "mesos.agent_credentials_over_http: agents without TLS get the credentials for Mesos"
    assert ([text], True) == (reasons, f"option {text}" in log)


@pytest.mark.usefixtures("real_zookeeper")
def test_open_state_in_zookeeper_is_reported(
    start_scheduler: Start, module_servers: SharedServers, tmp_path: Path
) -> None:
    """Every program could change it. With credentials nothing is reported."""
    address = module_servers.ensemble().addresses
    (tmp_path / "zk").write_text("me:secret\n")

    open_reasons, open_log = observe(start_scheduler(scheduler={"state": f"zk://{address}/open"}))
    private = {"state": f"zk://{address}/private?credentials={tmp_path}/zk", "state_acl": "required"}
    reasons, log = observe(start_scheduler(scheduler=private))

    assert [True] == ["ACL world:anyone" in reason for reason in open_reasons]
    assert f"/open/dcos-service-unit in zk://{address}" in open_reasons[0]
    assert "every client of ZooKeeper can read and change the state" in open_log
    assert ([], False) == (reasons, "ACL world:anyone" in log)


@pytest.mark.usefixtures("real_zookeeper")
def test_required_acl_refuses_open_state(start_scheduler: Start, module_servers: SharedServers, tmp_path: Path) -> None:
    """Also nodes that are older than the credentials: their ACL did not change."""
    address = module_servers.ensemble().addresses
    (tmp_path / "zk").write_text("me:secret\n")
    observe(start_scheduler(scheduler={"state": f"zk://{address}/early"}))

    for place in (f"{address}/new", f"{address}/early?credentials={tmp_path}/zk"):
        command = start_scheduler(scheduler={"state": f"zk://{place}", "state_acl": "required"})
        _, log = command.processes[-1].communicate(timeout=PATIENCE)
        assert command.processes[-1].returncode not in (0, None)
        assert "scheduler.state_acl: required, but every client of ZooKeeper" in log
